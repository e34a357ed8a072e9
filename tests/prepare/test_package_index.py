"""The releases of a package, listed by the real pip from an index of files."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_packages import wheel

from gonogo.finding import UserError
from gonogo.prepare.packages.index import available_releases, parse_releases


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "simple" / "trl"
    folder.mkdir(parents=True)
    links = []
    for version in ("0.9.1", "0.10.0", "0.9.3", "0.11.0rc1", "0.9.2"):
        wheel(folder, "trl", version)
        yanked = ' data-yanked="broken"' if version == "0.9.2" else ""
        links.append(f'<a href="trl-{version}-py3-none-any.whl"{yanked}>trl-{version}-py3-none-any.whl</a>')
    # A file that only another Python takes.
    wheel(folder, "trl", "9.0")
    links.append('<a href="trl-9.0-py3-none-any.whl" data-requires-python="&gt;=9">trl-9.0-py3-none-any.whl</a>')
    (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>{'<br>'.join(links)}</body></html>")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", folder.parent.as_uri())
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    return folder


def test_releases_are_listed_from_the_configured_index(index: Path) -> None:
    assert [str(version) for version in available_releases("trl")] == ["0.9.1", "0.9.3", "0.10.0"]


def test_a_package_that_is_not_there(index: Path) -> None:
    with pytest.raises(UserError, match=r"no releases of no-such-package .*No matching distribution"):
        available_releases("no-such-package")


def test_an_index_that_does_not_answer(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gonogo.prepare.packages.index._LISTING_TIMEOUT", 0.0)
    with pytest.raises(UserError, match=r"no releases of trl .*no answer"):
        available_releases("trl")


def test_what_pip_prints_is_read() -> None:
    listing = "trl (1.2)\nAvailable versions: 1.10, 1.2+cpu, 1.2, 1.3.dev1, not a version\n  INSTALLED: 1.4\n"
    assert [str(version) for version in parse_releases(listing)] == ["1.2", "1.10"]
    assert parse_releases("") == []
