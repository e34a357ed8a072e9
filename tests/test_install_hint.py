"""What a message says to install can be installed: it names where gonogo itself came from, never a package index."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement

from gonogo.finding import install
from gonogo.finding.install import install_hint

ROOT = Path(__file__).parent.parent
OPTIONAL = (ROOT / "pyproject.toml").read_text().partition("optional-dependencies]")[2].partition("\n[")[0]
EXTRAS = set(re.findall(r"^(\w+) = \[", OPTIONAL, re.MULTILINE))
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def installed_from(monkeypatch: pytest.MonkeyPatch, folder: Path, record: dict[str, Any] | None) -> None:
    """gonogo as installed into ``folder``, where there is no clone around it."""
    monkeypatch.setattr(install, "__file__", str(folder / "site-packages" / "gonogo" / "finding" / "install.py"))
    text = None if record is None else json.dumps(record)
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: SimpleNamespace(read_text=lambda file: text))


def test_a_clone_is_named_by_its_folder() -> None:
    hint = install_hint("ui")
    assert shlex.split(hint.en) == ["pip", "install", "-e", f"{ROOT}[ui]"]
    assert hint.en in hint.zh


def test_a_folder_with_a_blank_is_one_word_of_the_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clone = tmp_path / "my clone"
    clone.mkdir()
    installed_from(monkeypatch, tmp_path, {"url": clone.as_uri(), "dir_info": {}})
    assert shlex.split(install_hint("mcp").en) == ["pip", "install", f"{clone}[mcp]"]


@pytest.mark.parametrize(
    ("record", "address"),
    [
        (
            {"url": "https://forge.example/a/gonogo", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
            f"git+https://forge.example/a/gonogo@{COMMIT}",
        ),
        ({"url": "https://forge.example/gonogo.whl", "archive_info": {}}, "https://forge.example/gonogo.whl"),
    ],
)
def test_an_address_is_a_requirement_that_pip_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, record: dict[str, Any], address: str
) -> None:
    installed_from(monkeypatch, tmp_path, record)
    requirement = Requirement(shlex.split(install_hint("lsp").en)[-1])
    assert (requirement.name, requirement.extras, requirement.url) == ("gonogo", {"lsp"}, address)


@pytest.mark.parametrize("record", [None, {}, {"url": "file:///nowhere/gonogo", "dir_info": {}}])
def test_without_a_record_a_clone_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, record: dict[str, Any] | None
) -> None:
    installed_from(monkeypatch, tmp_path, record)
    assert install_hint("ray").en == "pip install -e '.[ray]' in a clone of gonogo"
    assert "pip install -e '.[ray]'" in install_hint("ray").zh


def test_every_hint_goes_through_the_one_function_and_names_an_extra_that_exists() -> None:
    """In the sources, the documents and the editor's plug-in: nobody is sent to an index that has no gonogo."""
    named = set()
    paths = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]
    paths += [path for path in (ROOT / "editors" / "vscode").iterdir() if path.is_file()]
    for path in paths:
        text = path.read_text(encoding="utf-8")
        named |= set(re.findall(r'install_hint\("(\w+)"\)', text))
        named |= set(re.findall(r"pip install -e '\.\[([a-z]+)\]'", text))
        if path.name != "install.py":
            assert not re.search(r"pip install ['\"]?gonogo\b(?!\[?\w*\]? @)", text), path.relative_to(ROOT)
    assert {"mcp", "ui", "lsp", "ray", "rehearse", "picture"} <= named
    assert named <= EXTRAS
