"""What Python's own modules look for by themselves is nothing that a program has asked for."""

from __future__ import annotations

import contextlib
import gettext
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from gonogo.evidence.rehearsal.record import FailedLookup, Frame, RankRecord
from gonogo.prepare.walked_folders import unmatched_patterns
from gonogo.virtual.lookups import failed_lookups


def test_a_translation_of_argparses_words_is_not_asked_for(tmp_path: Path) -> None:
    asked = failed_lookups.FailedLookups()
    scope: dict[str, object] = {"__name__": "gettext", "look": asked.record_if_missing}
    exec(compile("def find(path):\n    look(path)\n", gettext.__file__, "exec"), scope)
    find = scope["find"]
    assert callable(find)
    find(str(tmp_path / "de.mo"))
    assert not list(asked.latest_first())
    scope["__name__"] = "pathlib"
    find(str(tmp_path / "de.mo"))
    assert [one.name for one in asked.latest_first()] == [str(tmp_path / "de.mo")]


@pytest.mark.parametrize(
    ("name", "is_file"), [(":memory:", False), ("file:rows?mode=memory&cache=shared", False), ("file:{}?mode=ro", True)]
)
def test_a_database_in_memory_is_no_file_that_lacks(tmp_path: Path, name: str, is_file: bool) -> None:
    path = str(tmp_path / "rows.db")
    asked = failed_lookups.FailedLookups()
    undo = failed_lookups.install(asked)
    try:
        sqlite3.connect(name.format(path), uri=name.startswith("file:")).close()
    except sqlite3.OperationalError:
        assert is_file
    finally:
        undo()
    assert [one.name for one in asked.latest_first()] == [path] * is_file


@pytest.mark.parametrize(
    "start",
    [
        lambda: os.system("nowhere-to-be-found --version 2>/dev/null"),
        lambda: os.popen("nowhere-to-be-found 2>/dev/null").read(),
        lambda: os.posix_spawn("/nowhere/to-be-found", ["to-be-found"], {}),
    ],
    ids=["system", "popen", "posix_spawn"],
)
def test_a_program_that_is_not_here_is_asked_for_however_it_is_started(start: Callable[[], object]) -> None:
    asked = failed_lookups.FailedLookups()
    undo = failed_lookups.install(asked)
    try:
        with contextlib.suppress(OSError):
            start()
    finally:
        undo()
    assert any(one.kind == "program" and "to-be-found" in one.name for one in asked.latest_first())


def test_a_frame_that_has_returned_is_not_the_one_that_was_given_its_memory(tmp_path: Path) -> None:
    asked = failed_lookups.FailedLookups()

    def outer() -> None:
        ask()
        fail()

    def ask() -> None:
        asked.record_if_missing(str(tmp_path / "rows"))

    def fail() -> None:
        raise ValueError

    try:
        outer()
    except ValueError as error:
        failing = error
    assert failing.__traceback__ is not None
    (place, one), *_ = asked._by_user.items() or asked._by_libraries.items()
    inner = failing.__traceback__.tb_next.tb_next  # type: ignore[union-attr]
    assert inner is not None
    reused = tuple((id(inner.tb_frame), code, line) if code is ask.__code__ else (identity, code, line)
                   for identity, code, line in one.stack)  # fmt: skip
    assert reused != one.stack
    kept = asked._by_user if asked._by_user else asked._by_libraries
    for stack in (one.stack, reused):
        kept[place] = one._replace(stack=stack)
        (found,) = failed_lookups.lookups_before_failure(asked, failing, [])
        assert found.shared is not None
        assert found.shared.function == "outer"


def test_gonogos_own_look_for_a_models_folder_is_the_programs_only_where_the_hub_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gonogo.virtual.lookups import probe_reporting
    from gonogo.virtual.weights.model_folders import find_model_folder

    cached = tmp_path / "snapshots" / "0" / "config.json"
    cached.parent.mkdir(parents=True)
    cached.write_text("{}")
    monkeypatch.setattr(
        "huggingface_hub.try_to_load_from_cache",
        lambda name, file, **_: str(cached) if (name, file) == ("gpt2", "config.json") else None,
    )
    asked = failed_lookups.FailedLookups()
    undo = [failed_lookups.install(asked), probe_reporting.install()]
    try:
        assert find_model_folder("gpt2") == str(cached.parent)
        assert not list(asked.latest_first())
        assert find_model_folder("checkpoints/last") is None
        assert [one.name for one in asked.latest_first()] == ["checkpoints/last"]
    finally:
        while undo:
            undo.pop()()


@pytest.mark.parametrize(
    "search",
    ['glob.glob("{}/*.bin")', 'glob.iglob("{}/*.bin")', 'pathlib.Path("{}").rglob("*.bin")', 'shutil.which("{}/none")'],
)
@pytest.mark.parametrize("is_gonogos", [False, True], ids=["program", "gonogo"])
def test_what_gonogo_itself_searches_for_is_nothing_that_the_program_lacks(
    tmp_path: Path, search: str, is_gonogos: bool
) -> None:
    path = os.path.join(failed_lookups.OURS, "ranks", "worker.py") if is_gonogos else str(tmp_path / "train.py")
    code = compile(f"import glob, pathlib, shutil\n{search.format(tmp_path)}\n", path, "exec")
    asked = failed_lookups.FailedLookups()
    undo = failed_lookups.install(asked)
    try:
        exec(code, {})
    finally:
        undo()
    assert bool(list(asked.latest_first())) is not is_gonogos


@pytest.mark.parametrize("search", ['glob.glob("{}/styles/*.txt")', 'open("{}/styles/none.txt")'])
@pytest.mark.parametrize("is_cache", [False, True], ids=["elsewhere", "cache"])
def test_caches_that_start_empty_are_nothing_that_the_program_lacks(
    tmp_path: Path, search: str, is_cache: bool
) -> None:
    searched = tmp_path / "caches" if is_cache else tmp_path
    code = compile(f"import glob\n{search.format(searched)}\n", str(tmp_path / "train.py"), "exec")
    asked = failed_lookups.FailedLookups(str(tmp_path / "caches"))
    undo = failed_lookups.install(asked)
    try:
        with contextlib.suppress(FileNotFoundError):
            exec(code, {})
    finally:
        undo()
    assert bool(list(asked.latest_first())) is not is_cache


@pytest.mark.parametrize(("pattern", "is_data"), [("*.bin", True), ("*.dist-info", False), ("*.so", False)])
def test_only_data_is_made_for_a_pattern_that_matched_nothing(tmp_path: Path, pattern: str, is_data: bool) -> None:
    asked = Frame(str(tmp_path / "train.py"), 3, "main", "", "user")
    absent = [FailedLookup("file", f"data/{pattern}", asked)]
    record = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="failed", absent=absent)
    assert list(unmatched_patterns(record, tmp_path)) == [str(tmp_path / "data" / pattern)] * is_data
