"""Which modules of a project a launch imports, held against a real interpreter on projects made at random."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from gonogo.check.run_of_launch import RunBuilder
from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.files import Files
from gonogo.evidence.launch.reading import launches_of_command
from gonogo.evidence.run import Run

_TRACE = """
import atexit, json, os, sys
def told():
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    here = os.environ["PROJECT"] + os.sep
    seen = sorted({os.path.realpath(file) for file in files if file and os.path.realpath(file).startswith(here)})
    with open(os.environ["TRACE"], "w") as out:
        json.dump(seen, out)
atexit.register(told)
"""
_PLACES = ("", "app", "app/core", "lib", "other", "src/pkg", "src")
_PATHS = (
    "import os, sys\nsys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))",
    "import sys\nfrom pathlib import Path\nsys.path.insert(0, str(Path(__file__).resolve().parent.parent / 'other'))",
    "import os, sys\nsys.path = [os.path.join(os.getcwd(), 'lib')] + sys.path",
    "import os\nimport sys as system\nROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))\n"
    "system.path += [f'{ROOT}/src', ROOT + '/lib']",
    "import sys\nsys.path.extend(['src', './other'])",
)


def _project(chance: random.Random, root: Path) -> list[str]:
    """Files that import one another; the names of the programs among them."""
    modules: list[str] = []
    for place in _PLACES:
        folder = root / place
        folder.mkdir(parents=True, exist_ok=True)
        if place and chance.random() < 0.6:
            (folder / "__init__.py").write_text("")
        modules += [os.path.join(place, f"m{chance.randrange(4)}_{len(modules) + i}.py") for i in range(2)]
    for index, name in enumerate(modules):
        lines = [chance.choice(_PATHS)] if chance.random() < 0.3 else []
        for _ in range(chance.randint(0, 2)):
            if index + 1 == len(modules):
                break
            other = chance.choice(modules[index + 1 :]).removesuffix(".py").split(os.sep)
            dotted = ".".join(other[chance.randrange(len(other)) :])
            package, _, last = dotted.rpartition(".")
            lines.append(f"from {package} import {last}" if package and chance.random() < 0.5 else f"import {dotted}")
        (root / name).write_text("\n".join([*lines, ""]))
    return modules


def _read(command: list[str], cwd: Path, variables: dict[str, str]) -> Run:
    os.chdir(cwd)
    (launch,) = launches_of_command(command, cwd, variables)
    return RunBuilder(Files(cwd)).run_of(launch, Environment.unknown())


@pytest.fixture(autouse=True)
def _in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (tmp_path / ".git").mkdir()


@pytest.mark.parametrize("seed", range(40))
def test_modules_are_those_that_python_imports(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    root = Path(os.path.realpath(tmp_path)) / "project"
    program = chance.choice(_project(chance, root)[:8])
    cwd = root / chance.choice(("", "", "app"))
    path = chance.choice(("", "", ".", "src:lib", "..", f"{root}/other"))
    as_module = chance.random() < 0.4
    relative = os.path.relpath(root / program, cwd)
    if as_module and not relative.startswith(".."):
        words = ["-m", relative.removesuffix(".py").replace(os.sep, ".")]
    else:
        words = [relative]
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(_TRACE)
    trace = tmp_path / "trace.json"
    variables = {"PYTHONPATH": path} if path else {}
    # The tracer stands behind all that the project's own path holds.
    own = os.pathsep.join(filter(None, (path, str(tmp_path / "site"))))
    environment = {"PYTHONPATH": own, "TRACE": str(trace), "PROJECT": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True)
    imported = set(json.loads(trace.read_text())) | {str(root / program)}
    run = _read(["python", *words], cwd, variables)
    read = {os.path.realpath(cwd / script.source.path) for script in run.scripts}
    assert imported <= read, done.stderr  # what Python imports is read
    if done.returncode == 0:
        packages = {name for name in read if name.endswith("__init__.py")}
        assert read - packages == imported - packages  # and nothing else
    else:
        assert "ModuleNotFoundError" in done.stderr or "ImportError" in done.stderr, done.stderr
        first = str(cwd if words[0] == "-m" else (root / program).parent)
        for name in (each.name for each in run.off_path if each.surely):
            code = f"import sys; sys.path[0] = {first!r}; import {name}"
            found = subprocess.run(
                [sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True
            )
            assert f"No module named {name!r}" in found.stderr  # it is surely not found


def test_modules_that_import_themselves_end(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/__init__.py").write_text("from .video import video\nfrom .b import a\n")
    (tmp_path / "tools/video.py").write_text(
        "from . import video\n\ndef f(n):\n    x = video.Crop(n)\n    return x(n)\n"
    )
    (tmp_path / "tools/b.py").write_text("from .a import a\nfrom . import b\n")
    (tmp_path / "tools/a.py").write_text("from .b import a\nfrom tools import a as b\n\nc = a.b()\n")
    (tmp_path / "train.py").write_text(
        "import torch\nfrom tools import video, a\nm = video.f(torch.zeros(2))\nn = a(m)\nn.cuda().backward()\n"
    )
    run = _read(["python", "train.py"], tmp_path, {})
    (script,) = (each for each in run.scripts if each.source.path.endswith("train.py"))
    for call in script.index.calls:
        script.kinds_of(call)
    assert len(run.scripts) == 5


@pytest.mark.parametrize(
    ("command", "cwd", "expected"),
    [
        (["torchrun", "train/main.py"], ".", ()),
        (["torchrun", "-m", "train.main"], ".", ("lib/rows.py",)),
        (["env", "PYTHONPATH=.", "torchrun", "train/main.py"], ".", ("lib/rows.py",)),
        (["env", "PYTHONPATH=..", "torchrun", "main.py"], "train", ("lib/rows.py",)),
        (["torchrun", "main.py"], "train", ()),
        (["accelerate", "launch", "-m", "train.main"], ".", ("lib/rows.py",)),
        (["deepspeed", "--module", "train.main"], ".", ("lib/rows.py",)),
    ],
)
def test_launchers(command: list[str], cwd: str, expected: tuple[str, ...], tmp_path: Path) -> None:
    for name, text in (("lib/__init__.py", ""), ("lib/rows.py", ""), ("train/main.py", "from lib.rows import rows\n")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    run = _read(command, tmp_path / cwd, {})
    read = {os.path.relpath(tmp_path / cwd / script.source.path, tmp_path) for script in run.scripts}
    assert tuple(sorted(read - {"train/main.py", "lib/__init__.py"})) == expected
    assert [each.name for each in run.off_path] == ([] if expected else ["lib"])
