"""The house itself: documents level in both languages, links that lead somewhere, versions that agree."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

import pytest

from gonogo._version import __version__
from gonogo.cli.app import rehearse
from gonogo.hazards.index import all_hazards

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "gonogo"
PAIRS = [
    ("README.md", "README.zh-CN.md"),
    *(
        (f"docs/{path.name}", f"docs/{path.stem}.zh-CN.md")
        for path in sorted((ROOT / "docs").glob("*.md"))
        if not path.name.endswith(".zh-CN.md")
    ),
]
DOCUMENTS = [ROOT / name for name in ("README.md", "README.zh-CN.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
DOCUMENTS += sorted((ROOT / "docs").glob("*.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def outside_code(text: str) -> str:
    return FENCE.sub("", text)


def commands(block: str) -> list[str]:
    """The lines of a code block without their comments, which are in the document's language."""
    return [re.sub(r"\s+#.*", "", line) for line in block.splitlines()]


@pytest.mark.parametrize(("english", "chinese"), PAIRS)
def test_documents_are_level(english: str, chinese: str) -> None:
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in (english, chinese)]
    headings = [re.findall(r"^(#+) ", outside_code(text), re.MULTILINE) for text in texts]
    assert headings[0] == headings[1]
    rows = [len(re.findall(r"^\|", text, re.MULTILINE)) for text in texts]
    assert rows[0] == rows[1]
    shells = [
        [commands(body) for kind, body in FENCE.findall(text) if kind in ("sh", "json", "python")] for text in texts
    ]
    assert shells[0] == shells[1]
    kinds = [[kind for kind, _ in FENCE.findall(text)] for text in texts]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", outside_code(document.read_text(encoding="utf-8"))):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_that_are_named_exist(document: Path) -> None:
    named = re.findall(r"`((?:src|tests|benchmarks|examples|docs)/[\w./-]+)`", document.read_text(encoding="utf-8"))
    for path in named:
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("document", ["design.md", "design.zh-CN.md"])
def test_the_design_names_files_that_exist(document: str) -> None:
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+/)*\w+\.(?:py|json))`", text)) | set(re.findall(r"`((?:\w+/)+)`", text))
    assert len(named) > 40
    names = ("virtual", "hazards", "judge", "evidence", "prepare", "rehearse", "trials", "confinement")
    rooms = [PACKAGE, ROOT, *(PACKAGE / room for room in names)]
    for path in named:
        assert any((room / path).exists() for room in rooms), path


def imports_of_gonogo(code: str) -> list[tuple[str, str]]:
    found = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    return [
        (node.module, name.name)
        for node in found
        if node.module and node.module.partition(".")[0] == "gonogo"
        for name in node.names
    ]


def test_what_documents_and_benchmarks_import_is_there() -> None:
    """mypy reads the package alone, and a benchmark that takes hours is seldom run whole."""
    codes = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "benchmarks").glob("*.py"))]
    for document in DOCUMENTS:
        codes += [code for kind, code in FENCE.findall(document.read_text(encoding="utf-8")) if kind == "python"]
    wanted = sorted({one for code in codes for one in imports_of_gonogo(code)})
    assert len(wanted) > 50

    def is_there(module: str, name: str) -> bool:
        return hasattr(importlib.import_module(module), name) or find_spec(f"{module}.{name}") is not None

    assert [one for one in wanted if not is_there(*one)] == []


def test_every_option_is_documented_with_its_default() -> None:
    help_text = subprocess.run(
        [sys.executable, "-m", "gonogo", "rehearse", "--help"], capture_output=True, text=True, timeout=300, check=True
    ).stdout
    options = set(re.findall(r"^ +(?:-\w, )?(--[\w-]+)", help_text, re.MULTILINE)) - {"--help"}
    assert {"--gpus", "--with", "--format"} <= options
    for name in ("docs/rehearse.md", "docs/rehearse.zh-CN.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert {option for option in options if option not in text} == set(), name
    defaults = rehearse.__defaults__ or ()
    assert {2, 600.0, "auto", "text"} <= {default for default in defaults if isinstance(default, (str, int, float))}
    reference = (ROOT / "docs/rehearse.md").read_text(encoding="utf-8")
    for row in (
        r"`--steps N`.*`2` \|",
        r"`--timeout SECONDS`.*`600` \|",
        r"`--ranks .*`auto` \|",
        r"`--format.*`text` \|",
    ):
        assert re.search(row, reference), row


def test_readme_opens_with_what_to_run_first() -> None:
    for name in ("README.md", "README.zh-CN.md"):
        first = FENCE.search((ROOT / name).read_text(encoding="utf-8"))
        assert first is not None
        assert first.start() < 20
        assert commands(first[2]) == ["make demo", "make test"]


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_readme_is_short_and_leads_to_the_documents(name: str) -> None:
    """A command is shown with six lines of its output at most; what there is more to say stands in docs/."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    for kind, body in FENCE.findall(text):
        if kind == "text":
            shown = [line for line in body.splitlines() if not line.startswith(("$ ", "…"))]
            assert len(shown) <= 6, body
    assert f"(docs/{name})" in text
    assert f"(docs/tutorial{'.zh-CN' if 'zh-CN' in name else ''}.md)" in text


# The heads under which a document ends, in both languages.
LAST_HEADS = {".zh-CN.md": ("## 限制", "## 继续阅读"), ".md": ("## Limits", "## Where to read on")}
# What is no command and has no limits of its own.
WITHOUT_LIMITS = {"accuracy", "verdict", "design", "performance", "measured", "projects", "compatibility", "strategies"}
WITHOUT_LIMITS |= {"confinement", "launchers", "editors", "agents", "api", "ci", "queues", "ui", "page", "viewers"}


def suffix_of(name: str) -> str:
    return ".zh-CN.md" if name.endswith(".zh-CN.md") else ".md"


@pytest.mark.parametrize("suffix", [".md", ".zh-CN.md"])
def test_the_list_of_documents_has_each_once(suffix: str) -> None:
    text = (ROOT / "docs" / f"README{suffix}").read_text(encoding="utf-8")
    documents = {path.name for path in (ROOT / "docs").glob("*.md") if suffix_of(path.name) == suffix}
    listed = re.findall(r"\]\(([\w.-]+\.md)\) \|", text)
    assert sorted(listed) == sorted(documents - {f"README{suffix}"})
    assert len(re.findall(r"^## ", text, re.MULTILINE)) == 4


@pytest.mark.parametrize(
    "document", [path for path in sorted((ROOT / "docs").glob("*.md")) if not path.name.startswith("README")]
)
def test_documents_have_one_form(document: Path) -> None:
    """Title, the other language, what it is for; on a page about commands one of them; last its limits, and links."""
    suffix = suffix_of(document.name)
    name = document.name.removesuffix(suffix)
    text = document.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[0].startswith("# ")
    twin = f"[English]({name}.md)" if suffix == ".zh-CN.md" else f"[中文]({name}.zh-CN.md)"
    assert lines[1:4] == ["", twin, ""]
    assert re.match(r"[\w`]", lines[4]), "what it is for is a sentence"
    heads = [line for line in outside_code(text).splitlines() if line.startswith("## ")]
    limits, read_on = LAST_HEADS[suffix]
    assert heads[-1] == read_on
    if "gonogo" in lines[0] and name not in ("design", "compatibility", "strategies"):
        assert "```sh" in text.partition("\n## ")[0], "a command stands before the first part"
    if name not in WITHOUT_LIMITS:
        assert limits in heads


def test_makefile_has_the_targets_that_documents_name() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    assert {"setup", "demo", "test", "test-all", "lint", "bench"} <= targets
    for document in DOCUMENTS:
        named = set(re.findall(r"(?:`|^)make ([a-z][\w-]*)", document.read_text(encoding="utf-8"), re.MULTILINE))
        assert named <= targets, document.name


def test_version_is_the_changelogs_or_unreleased() -> None:
    versions = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] in ("Unreleased", __version__)


def test_the_editors_plugin_and_the_examples_of_ci_have_the_version() -> None:
    assert json.loads((ROOT / "editors" / "vscode" / "package.json").read_text())["version"] == __version__
    for name in ("docs/ci.md", "docs/ci.zh-CN.md"):
        assert set(re.findall(r"v(\d+\.\d+\.\d+)\b", (ROOT / name).read_text())) == {__version__}, name


def test_the_sdist_has_what_a_wheel_is_built_from_and_no_tests() -> None:
    """The wheel of a checkout and that of the sdist have the same files: the hazards' cases are in both."""
    section = (ROOT / "pyproject.toml").read_text().partition("build.targets.sdist]")[2].partition("\n[")[0]
    included = re.findall(r'^ +"/(.+)",$', section, re.MULTILINE)
    assert {"src", "tests/hazards", "hatch_build.py", "README.md", "LICENSE"} <= set(included)
    for name in included:
        assert (ROOT / name).exists(), name
        assert not list((ROOT / name).glob("**/test_*.py")), name


def test_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert "9. Accepting Warranty or Additional Liability" in text


def test_pins_are_exact_and_public() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert "torch==2.13.0" in lines
    for line in lines:
        assert re.fullmatch(r"[a-z0-9-]+==[\d.]+(; python_version (<|>=) \"3\.\d+\")?", line), line


# What each layer may import of gonogo. `rehearse` starts `virtual` as a process; it imports only its plan.
MAY_IMPORT = {
    "finding": {"finding"},
    "evidence": {"evidence", "finding"},
    "confinement": {"confinement", "finding"},
    "hazards": {"hazards", "evidence", "finding", "report"},
    "judge": {"judge", "hazards", "evidence", "finding"},
    "report": {"report", "finding"},
    "check": {"check", "hazards", "evidence", "report", "finding"},
    "diagnose": {"diagnose", "check", "judge", "hazards", "evidence", "finding"},
    "virtual": {"virtual", "confinement", "evidence", "finding"},
    "prepare": {"prepare", "confinement", "check", "hazards", "evidence", "report", "finding"},
    "rehearse": {
        "rehearse",
        "prepare",
        "confinement",
        "check",
        "judge",
        "hazards",
        "evidence",
        "virtual",
        "report",
        "finding",
    },
    "trials": {
        "trials",
        "confinement",
        "prepare",
        "rehearse",
        "virtual",
        "check",
        "judge",
        "hazards",
        "evidence",
        "report",
        "finding",
    },
    "guard": {"guard", "virtual", "check", "judge", "hazards", "evidence", "report", "finding"},
}
# Distributions whose module has another name.
MODULES = {"google_re2": "re2", "pyyaml": "yaml"}
# What gonogo itself puts in the place of a package that needs a GPU to be built; see virtual/stand_ins.
STOOD_IN = {"flash_attn", "flash_attn_2_cuda", "xformers", "fast_layer_norm", "fused_layer_norm_cuda"}
# What extras of their own bring, and a sentence asks for where it is missing.
OPTIONAL = {"PIL", "uv", "pyarrow", "mcp", "pygls", "lsprotocol", "anyio", "pydantic", "typing_extensions", "IPython"}
OPTIONAL |= {"starlette", "uvicorn", "openai"}


@dataclass(frozen=True)
class Outline:
    """What these tests ask of a file; its whole tree would take too much memory to keep."""

    imports: set[str]
    """All that it imports: at its top, in functions, and for types only."""
    imported_at_top: set[str]
    classes: list[str]
    assigned: list[str]


@cache
def outline_of(path: Path) -> Outline:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    targets = [node.targets[0] for node in tree.body if isinstance(node, ast.Assign)]
    return Outline(
        imports_in(ast.walk(tree)),
        imports_in(tree.body),
        [node.name for node in tree.body if isinstance(node, ast.ClassDef)],
        [target.id for target in targets if isinstance(target, ast.Name)],
    )


def imports_in(nodes: Iterable[ast.AST]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def imports_of(path: Path) -> set[str]:
    return outline_of(path).imports


@cache
def modules_of_gonogo() -> dict[str, Path]:
    """Every module by its name, but for ``gonogo`` itself, which hands on what its rooms have, when asked."""
    left_out = {"stand_ins", "start"}
    paths = [path for path in sorted(PACKAGE.glob("*/**/*.py")) if not left_out & set(path.parts)]
    return {
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__"): path for path in paths
    }


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_imports_run_one_way(layer: str) -> None:
    for path in sorted((PACKAGE / layer).rglob("*.py")):
        layers = {name.split(".")[1] for name in imports_of(path) if name.startswith("gonogo.")} - {"_version"}
        assert layers <= MAY_IMPORT[layer], path.relative_to(ROOT)


def test_no_imports_go_round_in_a_circle() -> None:
    modules = modules_of_gonogo()
    imports = {name: (imports_of(path) & modules.keys()) - {name} for name, path in modules.items()}
    sorter = TopologicalSorter(imports)
    try:
        sorter.prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def folders_with_folders() -> list[Path]:
    """The folders of the package that hold other folders of modules, but for what stands in for other packages."""
    held = {path.parent.parent for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE}
    return sorted(path for path in held if PACKAGE in (path, *path.parents) and "stand_ins" not in path.parts)


@pytest.mark.parametrize("folder", folders_with_folders(), ids=lambda path: str(path.relative_to(PACKAGE.parent)))
def test_folders_are_layers(folder: Path) -> None:
    """The modules and folders in a folder can be put in an order in which each imports earlier ones only."""
    prefix = ".".join(folder.relative_to(PACKAGE.parent).parts) + "."
    modules = modules_of_gonogo()
    layers: dict[str, set[str]] = {}
    for name, path in modules.items():
        if name.startswith(prefix):
            layer = name.removeprefix(prefix).partition(".")[0]
            used = {
                other.removeprefix(prefix).partition(".")[0] for other in imports_of(path) if other.startswith(prefix)
            }
            layers.setdefault(layer, set()).update(used - {layer})
    assert len(layers) > 1
    try:
        TopologicalSorter(layers).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_no_file_name_stands_more_than_three_times() -> None:
    """Whoever opens a file by its name finds few others; Python itself asks for the names with underscores."""
    names = Counter(path.name for path in modules_of_gonogo().values())
    assert [name for name, count in names.items() if count > 3 and not name.startswith("__")] == []


def test_no_two_public_classes_have_one_name() -> None:
    """Whoever searches for a class finds one. Each hazard's is ``Hazard``, its file tells which."""
    classes: dict[str, list[str]] = {}
    for name, path in modules_of_gonogo().items():
        for class_name in outline_of(path).classes:
            if not class_name.startswith("_") and class_name != "Hazard":
                classes.setdefault(class_name, []).append(name)
    assert {name: places for name, places in classes.items() if len(places) > 1} == {}


def test_what_is_private_is_not_used_from_another_room() -> None:
    for name, path in modules_of_gonogo().items():
        for imported in imports_of(path):
            room, private, _ = imported.removesuffix(".__version__").rpartition("._")
            if private and imported.startswith("gonogo."):
                assert name == room or name.startswith(f"{room}."), f"{path.relative_to(ROOT)} imports {imported}"


def test_the_rooms_show_the_plan() -> None:
    entries = {path.name for path in PACKAGE.iterdir()} - {"__pycache__", "_version.py"}
    assert len(entries) <= 18, sorted(entries)
    for folder in (folder for folder in PACKAGE.rglob("*") if folder.is_dir()):
        files = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        if folder.parent != PACKAGE / "hazards" and "stand_ins" not in folder.parts:
            assert len(files) <= 22, folder.relative_to(ROOT)
        for path in files:
            assert len(path.read_text(encoding="utf-8").splitlines()) <= 700, path.relative_to(ROOT)


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    declared: dict[str, set[str]] = {"core": set(), "rehearse": set()}
    for requirement in requires("gonogo") or []:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"extra == ['\"](\w+)['\"]", requirement)
        assert name is not None
        if (group := extra[1] if extra else "core") in declared:
            distribution = name[0].replace("-", "_")
            declared[group].add(MODULES.get(distribution, distribution))
    imported: dict[str, set[str]] = {"core": set(), "rehearse": set()}
    for path in sorted((ROOT / "src").rglob("*.py")):
        if "stand_ins" in path.parts:  # another package's Python, which imports itself
            continue
        names = {name.split(".")[0] for name in imports_of(path)} - set(sys.stdlib_module_names) - {"gonogo", "tomllib"}
        imported["rehearse" if {"virtual", "guard"} & set(path.relative_to(ROOT).parts) else "core"] |= names
    assert imported["core"] - OPTIONAL == declared["core"]
    assert imported["rehearse"] - STOOD_IN - OPTIONAL <= declared["core"] | declared["rehearse"]


def test_only_virtual_imports_torch_at_its_top() -> None:
    for path in sorted((ROOT / "src").rglob("*.py")):
        if "virtual" in path.parts:
            continue
        heavy = {"torch", "deepspeed", "transformers", "accelerate", "peft"}
        imported = {name.split(".")[0] for name in outline_of(path).imported_at_top}
        assert not heavy & imported, path.relative_to(ROOT)


def test_what_a_page_can_declare_is_not_written_in_python() -> None:
    """A page is Markdown; a class beside it has something that decides, and none of the texts of the page."""
    for path in sorted((PACKAGE / "hazards").glob("*/[!_]*.py")):
        if path.parent.name == "facts":
            continue
        text = path.read_text(encoding="utf-8")
        assert any(isinstance(node, ast.FunctionDef) for node in ast.walk(ast.parse(text))), path.relative_to(ROOT)
        assert "## What happens" not in text, path.relative_to(ROOT)
        (hazard,) = (hazard for hazard in all_hazards() if type(hazard).__module__.endswith(f".{path.stem}"))
        assert vars(type(hazard)).keys().isdisjoint(hazard.page.head), hazard.name


def test_texts_and_patterns_of_a_page_are_those_that_its_code_uses() -> None:
    """``self.texts["…"]`` and ``self.patterns["…"]`` name what the page declares, and all of it."""
    declared = 0
    for hazard in all_hazards():
        for table in ("texts", "patterns"):
            names = set(hazard.page.head.get(table, {}))
            used: set[str] = set()
            if hazard.page.has_code:
                path = PACKAGE.parent / Path(*hazard.page.module.split(".")).with_suffix(".py")
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                    if isinstance(node, ast.Subscript) and getattr(node.value, "attr", "") == table:
                        assert isinstance(node.slice, ast.Constant), path.name
                        used.add(node.slice.value)
                    elif isinstance(node, ast.Call) and table == "texts":
                        used |= _default_cause(node, names)
            assert used == names, hazard.name
            declared += len(names)
    assert declared > 100


def _default_cause(call: ast.Call, names: set[str]) -> set[str]:
    """The text that a finding has as its cause if the call passes none."""
    method = getattr(call.func, "attr", "")
    if method not in ("finding", "log_finding") or len(call.args) > (method == "log_finding"):
        return set()
    return {"cause_in_log" if method == "log_finding" and "cause_in_log" in names else "cause"}


def test_a_module_defines_each_name_once() -> None:
    """No linter sees that a constant is assigned twice."""
    for path in sorted(PACKAGE.rglob("*.py")):
        names = outline_of(path).assigned
        assert len(names) == len(set(names)), path.relative_to(ROOT)


def test_regular_expressions_are_named_as_such() -> None:
    makers = {"Pattern", "lazy_compile", "re.compile", "re2.compile"}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Call)
                and ast.unparse(node.value.func) in makers
            ):
                assert ast.unparse(node.targets[0]).endswith(("_PATTERN", "_PATTERNS")), f"{path}:{node.lineno}"


def test_nothing_that_is_built_from_hazards_is_committed() -> None:
    committed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    if not committed:
        pytest.skip("no git checkout")
    gathered = "src/gonogo/judge/similar/threads.msgpack"  # from public threads, by a script that needs the network
    assert [name for name in committed if name.endswith(".msgpack")] == [gathered]
