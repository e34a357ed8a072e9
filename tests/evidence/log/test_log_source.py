from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import sys
from pathlib import Path

import pytest
from evidence.log.log_text import TRACEBACK, source_of

from gonogo.evidence.log.source import find_log_sources, rank_from_file_name, read_chunks
from gonogo.finding import UserError


def text_of(data: bytes) -> bytes:
    return b"".join(read_chunks(source_of(data), lambda count: None))


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, bytes])
def test_compressed(pack: object) -> None:
    assert callable(pack)
    assert text_of(pack(TRACEBACK.encode())) == TRACEBACK.encode()


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_what_a_cut_file_holds_counts(pack: object) -> None:
    assert callable(pack)
    whole = os.urandom(200_000).hex().encode()
    packed = pack(whole)
    read = text_of(packed[: len(packed) - 40])
    assert whole.startswith(read)
    text_of(packed[:7])  # a header cut short is no fault


def test_a_gzip_header_before_rubbish() -> None:
    assert text_of(b"\x1f\x8b" + b"\x00" * 300) == b""


@pytest.mark.parametrize(
    "data",
    [
        codecs.BOM_UTF16_LE + TRACEBACK.encode("utf-16-le"),
        codecs.BOM_UTF16_BE + TRACEBACK.encode("utf-16-be"),
        TRACEBACK.encode("utf-16-le"),
        TRACEBACK.encode("utf-16-be"),
        codecs.BOM_UTF8 + TRACEBACK.encode(),
    ],
    ids=["le-bom", "be-bom", "le", "be", "utf8-bom"],
)
def test_encodings_with_and_without_a_mark(data: bytes) -> None:
    assert text_of(data) == TRACEBACK.encode()


def test_a_file_with_a_hole_in_it_is_not_utf16() -> None:
    assert text_of(bytes(8192) + TRACEBACK.encode()).endswith(TRACEBACK.encode())


def test_a_utf16_file_cut_inside_a_character() -> None:
    assert TRACEBACK.encode().startswith(text_of(codecs.BOM_UTF16_LE + TRACEBACK.encode("utf-16-le")[:-1]))


def test_progress_is_told_in_bytes_that_came_out() -> None:
    told: list[int] = []
    list(read_chunks(source_of(gzip.compress(b"x" * 10_000)), told.append))
    assert sum(told) == 10_000


class TestFolder:
    def test_logs_in_natural_order_and_what_is_none_left_out(self, tmp_path: Path) -> None:
        for name in ("rank10.log", "rank9.log", "notes", "config.json", "model.safetensors", "out.err", "a.log.gz"):
            (tmp_path / name).write_text("x\n")
        found, skipped = find_log_sources([str(tmp_path)])
        assert [Path(one.label).name for one in found] == ["a.log.gz", "notes", "out.err", "rank9.log", "rank10.log"]
        assert [one.rank for one in found] == [None, None, None, 9, 10]
        assert "2 files" in skipped[0].what.en

    def test_torchruns_folders_name_ranks(self, tmp_path: Path) -> None:
        for rank in (0, 3):
            folder = tmp_path / "none_x1" / "attempt_0" / str(rank)
            folder.mkdir(parents=True)
            (folder / "stderr.log").write_text(TRACEBACK)
            (folder / "error.json").write_text("{}")
        found, _ = find_log_sources([str(tmp_path)])
        assert [(one.rank, one.is_error_file) for one in found] == [(0, True), (0, False), (3, True), (3, False)]

    def test_a_folder_without_logs(self, tmp_path: Path) -> None:
        assert find_log_sources([str(tmp_path)]) == ([], [])

    @pytest.mark.skipif(os.name != "posix", reason="needs named pipes")
    def test_a_pipe_in_a_folder_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.log")
        found, _ = find_log_sources([str(tmp_path)])
        assert found == []


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("rank3.log", 3),
        ("log_rank_12.txt", 12),
        ("worker-2.err", 2),
        ("global_rank0.out", 0),
        ("attempt_0/7/stderr.log", 7),
        ("frank3.log", None),
        ("train.log", None),
    ],
)
def test_ranks_in_names(path: str, rank: int | None) -> None:
    assert rank_from_file_name(Path("logs", path)) == rank


class TestArguments:
    def test_a_file_that_is_not_there(self) -> None:
        with pytest.raises(UserError, match="no such log"):
            find_log_sources(["/nowhere/x.log"])

    def test_standard_input(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hello\n")))
        (source,), _ = find_log_sources(["-"])
        assert b"".join(read_chunks(source, lambda count: None)) == b"hello\n"

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_a_file_that_may_not_be_read(self, tmp_path: Path) -> None:
        closed = tmp_path / "closed.log"
        closed.write_text("x")
        closed.chmod(0)
        with pytest.raises(UserError, match="cannot be read"):
            find_log_sources([str(closed)])
