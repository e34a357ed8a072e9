"""Paths of a launch that are not here, and that the program tests for itself; folders of pictures made for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.evidence.prepared import read_prepared
from gonogo.evidence.rehearsal.record import AcceleratorFacts, Failure, Frame, RankRecord, RehearsalRecord
from gonogo.prepare.prepare import EnvironmentOptions, parse_prepare_options, prepare
from gonogo.rehearse.limits.certificate import apply_limits
from gonogo.rehearse.limits.world import ProjectWorld

PROGRAM = """\
import os, sys
def reader(root):
    assert os.path.exists(root)
    return ImageFolder(root)
def other(root):
    if not os.path.isdir(root):
        print("see the README")
        raise RuntimeError("no data")
    raise RuntimeError("too small")
def last(root, parts):
    assert len(parts) == 2
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def failed(folder: Path, kind: str, line: int) -> RankRecord:
    record = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="raised")
    record.failure = Failure(kind, "", (Frame(str(folder / "train.py"), line, "reader", "", "user"),), "load", 0)
    return record


def told(rank: RankRecord, folder: Path, *command: str) -> str:
    facts = AcceleratorFacts("H100-80G", "cuda", 80 << 30, 0)
    record = RehearsalRecord(["python", "train.py", *command], str(folder), 1, 1, 1, facts, 2, None, ranks=[rank])
    apply_limits(record, ProjectWorld.from_files(folder, folder))
    return rank.unsupported[0].why if rank.outcome == "unsupported" else rank.outcome


@pytest.mark.parametrize("line", [3, 8])
def test_a_path_that_the_program_tests_for_is_not_here(project: Path, line: int) -> None:
    """timm asserts that its --data-dir exists: a certain NO-GO of a laptop that has no ImageNet."""
    kind = "AssertionError" if line == 3 else "RuntimeError"
    said = told(failed(project, kind, line), project, "--data-dir", "/nowhere/imagenet", "--out=/nowhere/out")
    assert said.startswith("/nowhere/imagenet does not exist here")
    (project / "train.sh").write_text("DATA=/nowhere/pictures\npython train.py --data=$DATA\n")
    assert "/nowhere/pictures does not exist here" in told(failed(project, kind, line), project, "train.sh")


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (3, ["--output_dir", "/nowhere/out"]),
        (3, ["--config", "configs/mine.yaml"]),
        (3, ["--data-dir", "."]),
        (3, ["--url=https://nowhere/data"]),
        (9, ["--data-dir", "/nowhere/imagenet"]),
        (11, ["--data-dir", "/nowhere/imagenet"]),
    ],
)
def test_what_else_a_program_raises_is_its_own(project: Path, line: int, command: list[str]) -> None:
    assert told(failed(project, "AssertionError", line), project, *command) == "raised"


def prepared(folder: Path, command: list[str], *records: RankRecord) -> list[str]:
    done = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="completed")
    worker = iter([*records, done, done])
    given = EnvironmentOptions(as_installed=True)
    prepare(command, parse_prepare_options(8, 32, ()), given, write=True, probe=lambda: next(worker))
    table = read_prepared(folder / "gonogo-prepared")
    return sorted(table.paths) if table is not None else []


def test_pictures_are_made_where_a_folder_of_them_is_read(project: Path) -> None:
    command = ["torchrun", "--nproc_per_node", "4", "train.py", "--data-dir", "/nowhere/imagenet", "--batch-size", "16"]
    (project / "train.py").write_text(f"{PROGRAM}from datasets import load_dataset\n")  # it may read others too
    assert prepared(project, command, failed(project, "AssertionError", 3)) == ["/nowhere/imagenet"]
    (root,) = (project / "gonogo-prepared" / "data").iterdir()
    assert len(list((root / "train").glob("*/*.png"))) == 128
    assert {one.name for one in (root / "val").iterdir()} == {"class_a", "class_b"}


def test_a_folder_of_one_split_has_its_classes_itself(project: Path) -> None:
    assert prepared(project, ["python", "train.py", "--data_path", "/nowhere/train"]) == ["/nowhere/train"]
    (root,) = (project / "gonogo-prepared" / "data").iterdir()
    assert {one.name for one in root.iterdir()} == {"class_a", "class_b"}


def test_a_folder_that_torchvision_does_not_find_is_one_of_pictures(project: Path) -> None:
    (project / "train.py").write_text(f"{PROGRAM}from datasets import load_dataset\n")
    record = failed(project, "FileNotFoundError", 4)
    assert record.failure is not None
    library = Frame("/site-packages/torchvision/datasets/folder.py", 41, "find_classes", "", "library")
    said = "[Errno 2] No such file or directory: '/nowhere/val'"
    record.failure = Failure("FileNotFoundError", said, (*record.failure.frames, library), "load", 0)
    assert prepared(project, ["python", "train.py"], record) == ["/nowhere/val"]
    assert len(list((project / "gonogo-prepared" / "data").glob("*/class_a/*.png"))) == 4


def test_a_published_models_folder_that_the_program_looks_for_is_made(project: Path) -> None:
    """torchtitan's own check, far from the launch, whose configuration file names the folder."""
    (project / "train.py").write_text(PROGRAM)
    record = failed(project, "FileNotFoundError", 3)
    assert record.failure is not None
    said = "Tokenizer path './assets/hf/Llama-3.1-8B' does not exist"
    record.failure = Failure("FileNotFoundError", said, record.failure.frames, "load", 0)
    assert prepared(project, ["python", "train.py"], record) == [f"{project}/assets/hf/Llama-3.1-8B"]
    assert "Llama-3.1-8B does not exist" in told(record, project)


def test_no_rows_are_made_for_a_file_that_has_none(project: Path) -> None:
    """nanochat's tokenizer is a pickle, which its own script leaves: JSON in its place would fail as the program's."""
    (project / "train.py").write_text(f'{PROGRAM}def read(row):\n    return row["text"]\n')
    record = failed(project, "FileNotFoundError", 3)
    assert record.failure is not None
    said = "[Errno 2] No such file or directory: '/nowhere/tokenizer.pkl'"
    record.failure = Failure("FileNotFoundError", said, record.failure.frames, "load", 0)
    assert prepared(project, ["python", "train.py"], record) == []
    assert told(record, project).startswith("/nowhere/tokenizer.pkl does not exist here")


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ("No .txt files found in train data []", "the data files that it looks for"),
        ("No dataset parquet files found, did you run dataset.py?", "the data files that it looks for"),
        ("Found no images in /nowhere", "the data files that it looks for"),
        ("No attention layers found", "raised"),
        ("no pad token", "raised"),
    ],
)
def test_a_program_that_finds_no_files_of_data(project: Path, said: str, outcome: str) -> None:
    record = failed(project, "AssertionError", 11)
    record.failure = Failure("AssertionError", said, record.failure.frames if record.failure else (), "load", 0)
    assert told(record, project).startswith(outcome)


def test_a_model_whose_folder_the_program_tests_for_is_made_there(project: Path) -> None:
    """litgpt takes the name of a model for a folder below the one that it runs in."""
    record = failed(project, "NotADirectoryError", 8)
    said = "The checkpoint directory does not exist: EleutherAI/pythia-160m"
    record.failure = Failure("NotADirectoryError", said, record.failure.frames if record.failure else (), "load", 0)
    command = ["python", "train.py", "--tokenizer_dir", "EleutherAI/pythia-160m"]
    assert prepared(project, command, record) == [str(project / "EleutherAI" / "pythia-160m")]
    assert "EleutherAI/pythia-160m does not exist here" in told(record, project, *command[2:])
