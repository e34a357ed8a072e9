import os
from pathlib import Path

import pytest
from script_text import only_call

from gonogo.evidence.script.project import Project, read_script
from gonogo.evidence.script.script import Script
from gonogo.evidence.source_file import SourceFile


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def project_scripts(entry: Path | str, root: Path | str) -> tuple[Script, ...]:
    return Project(Path(root), SourceFile.read(entry)).all_scripts()


def scripts_of(root: Path, files: dict[str, str], entry: str = "train.py") -> dict[str, Script]:
    write(root, files)
    scripts = project_scripts(root / entry, root)
    assert scripts[0].path == str(root / entry)
    return {str(Path(script.path).relative_to(root)): script for script in scripts}


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"train.py": "import a", "a.py": "import b", "b.py": ""}, ["train.py", "a.py", "b.py"]),
        ({"train.py": "import a", "a.py": "import train"}, ["train.py", "a.py"]),
        ({"train.py": "import train"}, ["train.py"]),
        (
            {"train.py": "from pkg.sub import m", "pkg/__init__.py": "", "pkg/sub/__init__.py": "", "pkg/sub/m.py": ""},
            ["train.py", "pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/m.py"],
        ),
        ({"train.py": "from pkg.m import x", "pkg/m.py": ""}, ["train.py", "pkg/m.py"]),
        ({"train.py": "import torch, a", "a.py": "import datasets", "datasets/x.json": ""}, ["train.py", "a.py"]),
        ({"train.py": "import mine", "src/mine/__init__.py": ""}, ["train.py", "src/mine/__init__.py"]),
        (
            {"train.py": "import p.m", "p/__init__.py": "import p.a", "p/a.py": "", "p/m.py": "from . import c"},
            ["train.py", "p/__init__.py", "p/m.py", "p/a.py"],
        ),
        ({"train.py": "import m", "venv/lib/site-packages/m.py": "", "site-packages/m.py": ""}, ["train.py"]),
        ({"train.py": "if x:\n    def f():\n        import m", "m.py": "("}, ["train.py", "m.py"]),
    ],
)  # fmt: skip
def test_modules_of_the_project_are_followed(tmp_path: Path, files: dict[str, str], found: list[str]) -> None:
    assert list(scripts_of(tmp_path, files)) == found


@pytest.mark.parametrize(
    "path",
    [
        "'../lib'",
        "os.path.join(os.path.dirname(__file__), '..', 'lib')",
        "os.path.join(os.path.dirname(os.path.abspath(__file__)), '../lib')",
        "str(Path(__file__).parent.parent / 'lib')",
        "str(Path(__file__).resolve().parents[1] / 'lib')",
        "LIB",
    ],
)
def test_what_is_put_on_the_path_is_searched(tmp_path: Path, path: str) -> None:
    text = f"import os, sys\nfrom pathlib import Path\nLIB = '../lib'\nsys.path.insert(0, {path})\nimport helper\n"
    files = {"scripts/train.py": text, "lib/helper.py": ""}
    assert list(scripts_of(tmp_path, files, "scripts/train.py")) == ["scripts/train.py", "lib/helper.py"]


def test_nothing_outside_the_project_is_read(tmp_path: Path) -> None:
    write(tmp_path, {"secret.py": "", "project/train.py": "import sys\nsys.path.insert(0, '..')\nimport secret, link"})
    os.symlink(tmp_path / "secret.py", tmp_path / "project/link.py")
    assert len(project_scripts(tmp_path / "project/train.py", tmp_path / "project")) == 1


def test_names_classes_and_values_come_through_imports(tmp_path: Path) -> None:
    scripts = scripts_of(
        tmp_path,
        {
            "train.py": """
from options import Options, DEVICE_MAP as where
from models import build, Net, nn2
import options
args = Options(output_dir="out")
net, size = build()
net.inner.weight.sum()
nn2.Linear(1, 1)
load(device_map=where, size=options.SIZE, lr=options.LR)
""",
            "options.py": """
from dataclasses import dataclass, field
import os
from transformers import TrainingArguments
DEVICE_MAP = "auto"
SIZE = 2 * 4
LR = float(os.environ["LR"])
@dataclass
class Options(TrainingArguments):
    optim: str = field(default="adamw_torch")
""",
            "models/__init__.py": "from .net import *\nfrom .net import Net, build\nimport torch.nn as nn2\n",
            "models/net.py": """
from torch import nn
class Net(nn.Module):
    def __init__(self):
        self.inner = nn.Linear(1, 1)
def build():
    return Net(), 3
""",
        },
    )
    script = scripts["train.py"]
    arguments = only_call(script, "transformers.TrainingArguments")
    assert arguments.name == "options.Options"
    assert arguments.keyword("optim").value == "adamw_torch"
    assert only_call(script, "*.sum").receiver_kind == "torch.nn.Linear.weight"
    assert only_call(script, "torch.nn.Linear").line == 8
    call = only_call(script, "?.load")
    assert call.keyword("device_map").value == "auto"
    assert call.keyword("size").value == 8
    assert call.keyword("lr").unknown
    reason = call.keyword("lr").reason
    assert reason is not None
    assert "LR" in reason.en
    (imported, *_) = script.imported
    assert Path(imported.path).name == "options.py"


def test_a_script_alone_sees_the_modules_beside_it(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "import a", "a.py": ""})
    script = read_script(SourceFile.read(tmp_path / "train.py"))
    assert [Path(each.path).name for each in script.imported] == ["a.py"]


def test_paths_are_shown_as_the_entry_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"code/train.py": "import a", "code/a.py": ""})
    monkeypatch.chdir(tmp_path)
    assert [script.path for script in project_scripts("code/train.py", ".")] == ["code/train.py", "code/a.py"]
    monkeypatch.chdir(tmp_path / "code")
    assert [script.path for script in project_scripts("train.py", ".")] == ["train.py", "a.py"]


def test_a_large_project_is_cut_off(tmp_path: Path) -> None:
    names = [f"m{i}" for i in range(450)]
    write(tmp_path, {"train.py": "\n".join(f"import {name}" for name in names), **{f"{name}.py": "" for name in names}})
    assert len(project_scripts(tmp_path / "train.py", tmp_path)) == 400


def test_constants_that_go_round_are_unknown(tmp_path: Path) -> None:
    scripts = scripts_of(
        tmp_path, {"train.py": "from a import X\nf(X)", "a.py": "from b import X", "b.py": "from a import X"}
    )
    field = only_call(scripts["train.py"], "*").argument(0)
    assert field.value in (None, "a.X", "b.X")
