"""The folder of the user's cache in which entries are kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gonogo.finding import UserError
from gonogo.prepare.user_cache import CacheFolder, max_bytes


def test_the_least_recently_used_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("GONOGO_CACHE_SIZE", "1M")
    store = CacheFolder("some")
    for number in range(4):
        store.write(f"a-{number}", bytes(300_000))
        os.utime(store.folder / f"a-{number}", (number, number))
        if number == 2:
            assert store.read("a-0") is not None
    assert sorted(store.names("a-")) == ["a-0", "a-2", "a-3"]
    store.write("too large", bytes(2_000_000))
    assert len(store.names("")) == 3


def test_a_size_that_is_none_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONOGO_CACHE_SIZE", "much")
    with pytest.raises(UserError, match="GONOGO_CACHE_SIZE 'much' is not a size"):
        max_bytes()
