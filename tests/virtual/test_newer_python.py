"""Names that a newer Python has, for a project that requires one."""

from __future__ import annotations

import sys
import typing
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from gonogo.finding import Text
from gonogo.virtual.ranks import newer_python

NEXT = f">=3.{sys.version_info.minor + 1}"


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> str:
    """A name of typing that this Python lacks, and the next one is said to have."""
    table = newer_python._TYPING_NAMES_BY_RELEASE
    monkeypatch.setitem(table, sys.version_info.minor + 1, {"TypeForm"})
    assert not hasattr(typing, "TypeForm")
    return "TypeForm"


def executed(text: str, path: Path) -> ModuleType:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_projects_own_code_is_given_them(added: str, tmp_path: Path) -> None:
    said: list[Text] = []
    undo = newer_python.install(NEXT, said.append)
    try:
        assert executed(f"from typing import {added} as given\n", tmp_path / "project.py").given is not None
    finally:
        undo()
    assert [f"lacks typing.{added}" in one.en for one in said] == [True]
    assert not hasattr(typing, added)


def test_packages_installed_here_do_without(added: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    said: list[Text] = []
    undo = newer_python.install(NEXT, said.append)
    try:
        module = executed(f"import typing\nhas = hasattr(typing, '{added}')\n", tmp_path / "own" / "module.py")
        assert not module.has
    finally:
        undo()
    assert said == []


@pytest.mark.parametrize("required", ["", ">=3.8", "nonsense", f"<=3.{sys.version_info.minor - 1}"])
def test_a_project_that_needs_no_newer_python_is_given_nothing(required: str, added: str) -> None:
    undo = newer_python.install(required, lambda _: None)
    try:
        assert not hasattr(typing, added)
    finally:
        undo()


def test_what_takes_the_place_of_other_names_does_what_they_do() -> None:
    assert list(newer_python._batched("abcde", 2)) == [("a", "b"), ("c", "d"), ("e",)]
    with pytest.raises(ValueError, match="incomplete"):
        list(newer_python._batched("abc", 2, strict=True))
    colors = newer_python._StrEnum("colors", {"RED": "red"})
    assert f"{colors.RED}" == str(colors.RED) == "red"
