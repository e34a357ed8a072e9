"""A file of rows at an address of the web: what was made is read in its place, however it is fetched."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import msgspec
import pytest
import requests

from gonogo.evidence.prepared import MANIFEST, PreparedStandIns, is_data_file_url
from gonogo.evidence.rehearsal.record import MissingInput
from gonogo.virtual.sandbox import addresses

TEXT = "https://raw.githubusercontent.com/somebody/texts/master/input.txt"
OTHER = "https://example.org/rows.jsonl"
Said = tuple[list[str], list[MissingInput]]


def nowhere(host: object, *rest: object, **others: object) -> None:
    """The resolver of a world."""
    raise socket.gaierror(socket.EAI_AGAIN, f"no way to {host}")


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Said]:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "it.txt").write_text("ab cd\n")
    (tmp_path / MANIFEST).write_bytes(msgspec.json.encode(PreparedStandIns(addresses={TEXT: "data/it.txt"})))
    assumed: list[str] = []
    missed: list[MissingInput] = []
    monkeypatch.setattr("socket.getaddrinfo", nowhere)
    undo = addresses.install(str(tmp_path), lambda what, kind="": assumed.append(what.en), missed.append)
    yield assumed, missed
    undo()


def _by_urlretrieve(address: str) -> bytes:
    return Path(urllib.request.urlretrieve(address)[0]).read_bytes()


WAYS: dict[str, Callable[[str], bytes]] = {
    "fsspec": lambda address: fsspec.open(address).open().read(),
    "urlopen": lambda address: urllib.request.urlopen(address).read(),
    "a request": lambda address: urllib.request.urlopen(urllib.request.Request(address)).read(),
    "urlretrieve": _by_urlretrieve,
    "requests": lambda address: requests.get(address, timeout=3).content,
    "requests, in parts": lambda address: b"".join(requests.get(address, stream=True, timeout=3).iter_content(2)),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_was_made_is_read_and_assumed(said: Said, way: str) -> None:
    assert WAYS[way](TEXT) == b"ab cd\n"
    assert [TEXT in one for one in said[0]] == [True]
    assert said[1] == []


@pytest.mark.parametrize("way", WAYS)
def test_what_was_not_made_is_refused_and_missed(said: Said, way: str) -> None:
    with pytest.raises(Exception, match=r"example\.org|aiohttp"):
        WAYS[way](OTHER)
    assert said == ([], [MissingInput("data", OTHER)])


def test_a_file_that_is_kept_where_the_program_wants_it(said: Said, tmp_path: Path) -> None:
    urllib.request.urlretrieve(TEXT, tmp_path / "kept.txt")
    assert (tmp_path / "kept.txt").read_text() == "ab cd\n"


def test_a_service_and_weights_are_no_rows(said: Said) -> None:
    for name in (
        "https://example.org/rows.json?page=2",
        "https://example.org/model.bin",
        "https://example.org/",
        "a.txt",
    ):
        assert not is_data_file_url(name)
    with pytest.raises(requests.ConnectionError):
        requests.get("https://example.org/api", timeout=3)
    with pytest.raises(requests.ConnectionError):
        requests.get(TEXT, params={"page": 2}, timeout=3)
    assert said == ([], [])
