"""Megatron's tokenized data and the vocabularies that are named alone: listed, generated, and read back."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from gonogo.evidence.prepared import read_prepared
from gonogo.evidence.rehearsal.record import FailedLookup, Failure, Frame, RankRecord
from gonogo.prepare.generated.indexed_tokens import indexed_token_files
from gonogo.prepare.prepare import EnvironmentOptions, Preparation, parse_prepare_options, prepare

PROGRAM = """\
import argparse
from megatron.core.datasets.gpt_dataset import GPTDataset

parser = argparse.ArgumentParser()
parser.add_argument("--data-path", nargs="*")
parser.add_argument("--vocab-file")
parser.add_argument("--merge-file")
args = parser.parse_args()
"""
LAUNCH = ["torchrun", "--nproc_per_node", "8", "pretrain.py", "--seq-length", "256"]


def prepared(*words: str, record: RankRecord | None = None) -> Preparation:
    done = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="completed")
    records = iter([done] if record is None else [record, done])
    given = EnvironmentOptions(as_installed=True)
    return prepare(
        [*LAUNCH, *words], parse_prepare_options(64, None, ()), given, write=True, probe=lambda: next(records, done)
    )


def document_lengths(index: bytes) -> tuple[int, ...]:
    """Read as ``_IndexReader`` of Megatron-Core reads it; the pointers and documents have to fit."""
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, dtype, sequences, documents = struct.unpack_from("<QBQQ", index, 9)
    assert (version, dtype, documents) == (1, 8, sequences + 1)
    offset = 9 + struct.calcsize("<QBQQ")
    lengths = struct.unpack_from(f"<{sequences}i", index, offset)
    pointers = struct.unpack_from(f"<{sequences}q", index, offset + 4 * sequences)
    ends = struct.unpack_from(f"<{documents}q", index, offset + 12 * sequences)
    assert len(index) == offset + 12 * sequences + 8 * documents
    assert list(pointers) == [2 * sum(lengths[:number]) for number in range(sequences)]
    assert list(ends) == list(range(documents))
    return lengths


def test_the_index_says_where_each_document_of_the_token_ids_lies() -> None:
    files = indexed_token_files(256)
    lengths = document_lengths(files[".idx"])
    assert set(lengths) == {256}
    assert len(lengths) > 1000  # a part of one per mille gets a document
    ids = struct.unpack(f"<{len(files['.bin']) // 2}H", files[".bin"])
    assert len(ids) == sum(lengths)
    assert 0 < min(ids) < max(ids) < 50
    assert len(indexed_token_files(131_072)[".bin"]) < 2**23


def test_megatrons_data_is_listed_by_its_prefixes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pretrain.py").write_text(PROGRAM)
    Path("here.bin").touch()
    Path("here.idx").touch()
    found = prepared("--data-path", "0.3", "here", "0.7", "data/web_text_document")
    assert {one.name: one.state for one in found.wanted} == {"here": "here", "data/web_text_document": "made"}
    table = read_prepared(tmp_path / "gonogo-prepared")
    assert table is not None
    assert set(table.paths) == {str(tmp_path / f"data/web_text_document.{end}") for end in ("bin", "idx")}
    index = tmp_path / "gonogo-prepared" / table.paths[str(tmp_path / "data/web_text_document.idx")]
    assert set(document_lengths(index.read_bytes())) == {256}


def test_a_program_that_reads_rows_gets_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pretrain.py").write_text(PROGRAM.replace("megatron.core.datasets.gpt_dataset", "own"))
    Path("own.py").write_text("class GPTDataset:\n    def __getitem__(self, index): return self.rows[index]['text']\n")
    found = prepared("--data-path", "data/web")
    assert [one.format for one in found.wanted] == ["text"]


def test_a_prefix_that_no_option_names_is_taken_from_what_the_program_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pretrain.py").write_text(PROGRAM)
    asked = Frame(str(tmp_path / "pretrain.py"), 8, "<module>", "", "user")
    failure = Failure(
        "builtins.AssertionError", "One or both of the .idx and .bin files cannot be found", (asked,), "load", 0
    )
    record = RankRecord(
        rank=0, local_rank=0, device="cuda:0", outcome="failed", failure=failure,
        absent=[FailedLookup("file", "data/own.idx", asked)],
    )  # fmt: skip
    assert [(one.path, one.state) for one in prepared(record=record).wanted] == [(str(tmp_path / "data/own"), "made")]


def test_a_vocabulary_that_is_named_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pretrain.py").write_text(PROGRAM)
    prepared("--vocab-file", "data/gpt2-vocab.json", "--merge-file", "data/gpt2-merges.txt")
    table = read_prepared(tmp_path / "gonogo-prepared")
    assert table is not None
    made = {Path(path).name: tmp_path / "gonogo-prepared" / place for path, place in table.paths.items()}
    vocabulary = json.loads(made["gpt2-vocab.json"].read_bytes())
    assert (len(vocabulary), vocabulary["<|endoftext|>"]) == (50257, 50256)
    assert made["gpt2-merges.txt"].read_text().startswith("#version: 0.2\n")
    found = prepared("--vocab-file", "bert-vocab.txt")
    assert [one.format for one in found.wanted] == ["vocab.txt"]
    found = prepared("--vocab-file", "own.model")
    assert [one.state for one in found.wanted] == ["missing"]
