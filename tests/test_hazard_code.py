"""Modules imported from one file of compiled code: as from their sources, and never older than they are."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from gonogo.hazards.code import modules_of, write


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    folder = tmp_path / "themes"
    (folder / "deep").mkdir(parents=True)
    for name, text in {
        "__init__.py": "",
        "deep/__init__.py": "",
        "_shared.py": "VALUE = 1\n",
        "one.py": "from themes._shared import VALUE\n",
        "deep/two.py": '"""A page."""\nfrom themes.one import VALUE\nVALUE += 1\n',
    }.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    yield importlib.import_module("themes")
    _forget()


def _forget() -> None:
    for name in [name for name in sys.modules if name == "themes" or name.startswith("themes.")]:
        del sys.modules[name]


def _imported() -> ModuleType:
    """The deepest module, imported anew."""
    _forget()
    (module,) = (one for one in modules_of(importlib.import_module("themes")) if one.__name__ == "themes.deep.two")
    assert importlib.import_module("themes.deep.two") is module
    assert importlib.import_module("themes.deep").two is module
    return module


def _from_one_file(module: ModuleType) -> bool:
    return type(module.__loader__).__module__ == "gonogo.hazards.code"


def test_the_second_import_is_from_the_one_file(package: ModuleType) -> None:
    first, second = _imported(), _imported()
    assert not _from_one_file(first)
    assert _from_one_file(second)
    assert (first.VALUE, second.VALUE) == (2, 2)
    assert (second.__doc__, second.__file__) == (first.__doc__, first.__file__)


def test_a_module_that_fails_is_not_left_half_made(package: ModuleType) -> None:
    broken = Path(package.__path__[0], "broken.py")
    broken.write_text("import sys\nif getattr(sys, 'themes_fail', False): raise ValueError('broken')\n")
    _imported()
    sys.themes_fail = True  # type: ignore[attr-defined]
    try:
        with pytest.raises(ValueError, match="broken"):
            _imported()
        assert "themes.broken" not in sys.modules
    finally:
        del sys.themes_fail  # type: ignore[attr-defined]


def test_a_changed_or_new_source_is_read(package: ModuleType) -> None:
    _imported()
    folder = Path(package.__path__[0])
    (folder / "_shared.py").write_text("VALUE = 20\n")
    assert _imported().VALUE == 21
    again = _imported()
    assert (again.VALUE, _from_one_file(again)) == (21, True)
    (folder / "deep" / "three.py").write_text("")
    assert not _from_one_file(_imported())


@pytest.mark.parametrize("damage", [b"", b"\xff" * 40, None])
def test_a_damaged_file_is_made_anew(package: ModuleType, damage: bytes | None) -> None:
    write(package)
    (file,) = Path(package.__path__[0], "__pycache__").glob("*.marshal")
    file.write_bytes(file.read_bytes()[:-30] if damage is None else damage)
    first, second = _imported(), _imported()
    assert (_from_one_file(first), _from_one_file(second)) == (False, True)
    assert first.VALUE == second.VALUE == 2


def test_nothing_is_written_where_python_writes_nothing(package: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert _imported().VALUE == 2
    assert not list(Path(package.__path__[0]).rglob("*.marshal"))


def test_a_folder_that_can_not_be_written_is_no_matter(package: ModuleType) -> None:
    cache = Path(package.__path__[0], "__pycache__")
    if cache.is_dir():
        for file in cache.iterdir():
            file.unlink()
        cache.rmdir()
    cache.write_text("a file stands in the way")
    assert _imported().VALUE == 2


def test_the_hazards_are_the_same_either_way() -> None:
    show = "from gonogo.hazards.hazard import all_hazards; print([(h.name, type(h).__doc__) for h in all_hazards()])"
    make = "import importlib; from gonogo.hazards.code import write; write(importlib.import_module('gonogo.hazards'))"
    subprocess.run([sys.executable, "-c", make], check=True)
    said = [subprocess.run([sys.executable, "-c", show], check=True, capture_output=True, text=True) for _ in range(2)]
    plain = "import gonogo.hazards.code as code; code._read = lambda path, stamp: None; "
    read = subprocess.run([sys.executable, "-c", plain + show], check=True, capture_output=True, text=True).stdout
    assert said[0].stdout == said[1].stdout == read
