"""What a first worker shows of data: the rows that the code which opened a file reads, and how many of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gonogo.evidence.prepared import PreparedStandIns, read_prepared
from gonogo.evidence.rehearsal.record import (
    AcceleratorFacts,
    FailedLookup,
    Failure,
    Frame,
    MissingInput,
    RankRecord,
    RehearsalRecord,
)
from gonogo.prepare.prepare import EnvironmentOptions, parse_prepare_options, prepare
from gonogo.prepare.unset_variables import unset_variable
from gonogo.rehearse.limits.certificate import apply_limits
from gonogo.rehearse.limits.synthetic_data_failures import explain_data_failure
from gonogo.rehearse.limits.world import ProjectWorld

PROGRAM = """\
import sys
sys.path.append("..")
from datasets import load_dataset


class Texts:
    def __init__(self, path):
        self.rows = load_dataset("json", data_files=path, split="train")

    def __getitem__(self, index):
        return self.rows[index]["text"]


class Talks:
    def __init__(self, path):
        self.rows = load_dataset("json", data_files=path, split="train")

    def __getitem__(self, index):
        return [turn.get("role") for turn in self.rows[index]["conversations"]]


class Pairs:
    def __init__(self, path, tokenizer):
        self.rows = load_dataset("json", data_files=path, split="train")
        self.tokenizer = tokenizer

    def __getitem__(self, index):
        row = self.rows[index]
        return [self.tokenizer.apply_chat_template(row[side]) for side in (row["chosen"], row["rejected"])]
"""


def failed(folder: Path, kind: str, message: str, line: int, function: str = "__init__") -> RankRecord:
    record = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="raised")
    record.failure = Failure(kind, message, (Frame(str(folder / "rows.py"), line, function, "", "user"),), "load", 0)
    return record


def prepared_after(folder: Path, *records: RankRecord) -> None:
    done = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="completed")
    worker = iter([*records, done, done, done])
    given = EnvironmentOptions(as_installed=True)
    prepare(["python", "train.py"], parse_prepare_options(8, 32, ()), given, write=True, probe=lambda: next(worker))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "rows.py").write_text(PROGRAM)
    (tmp_path / "train.py").write_text("print()\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "column", "kind"), [(8, "text", str), (16, "conversations", list), (24, "chosen", list)]
)
def test_a_files_rows_are_those_that_the_class_reads_which_opened_it(
    project: Path, line: int, column: str, kind: type
) -> None:
    missing = f"Unable to find '{project}/../{project.name}/pretrain.jsonl'"
    prepared_after(project, failed(project, "FileNotFoundError", missing, line))
    table = read_prepared(project / "gonogo-prepared")
    assert table is not None
    ((path, place),) = table.paths.items()
    assert path == str(project / "pretrain.jsonl")
    row = json.loads((project / "gonogo-prepared" / place).read_text().splitlines()[0])
    assert isinstance(row[column], kind)
    if kind is list:
        assert row[column][0]["role"] == "user"


def test_where_rows_are_too_few_more_are_made(project: Path) -> None:
    missing = failed(project, "FileNotFoundError", f"Unable to find '{project}/pretrain.jsonl'", 8)
    text = "test_size=100 should be either positive and smaller than the number of samples 8 or a float in (0, 1)"
    prepared_after(project, missing, failed(project, "ValueError", text, 8))
    table = read_prepared(project / "gonogo-prepared")
    assert table is not None
    (place,) = table.paths.values()
    assert len((project / "gonogo-prepared" / place).read_text().splitlines()) > 101


def test_a_model_that_is_made_again_is_laid_as_a_whole(project: Path) -> None:
    (project / "train.py").write_text("""from transformers import AutoModel
AutoModel.from_pretrained("/nowhere/models/Qwen2.5-0.5B-Instruct")
""")
    prepared_after(project, failed(project, "FileNotFoundError", f"Unable to find '{project}/pretrain.jsonl'", 8))
    table = read_prepared(project / "gonogo-prepared")
    assert table is not None
    assert [path for path in table.paths if "models" in path] == ["/nowhere/models/Qwen2.5-0.5B-Instruct"]


def test_only_the_data_set_that_is_too_short_gets_more_rows_and_a_split_is_made_that_was_asked_for(
    project: Path,
) -> None:
    (project / "train.py").write_text("""\
from datasets import load_dataset
few = load_dataset("someone/few", split="train")["text"]
many = load_dataset("someone/many", split="train").select(range(int(sys.argv[1])))["text"]
more = load_dataset("someone/many", split="dev")["text"]
""")
    failures = (
        ("IndexError", "Index 299 out of range for dataset of size 8.", 3),
        ("ValueError", 'Unknown split "dev".', 4),
    )
    records = []
    for kind, said, line in failures:
        record = failed(project, kind, said, line)
        assert record.failure is not None
        frame = msgspec.structs.replace(record.failure.frames[0], path=str(project / "train.py"))
        record.failure = msgspec.structs.replace(record.failure, frames=(frame,))
        records.append(record)
    prepared_after(project, *records)
    data = project / "gonogo-prepared" / "data"
    rows = {path.parent.parent.name: len(path.read_text().splitlines()) for path in data.glob("*/data/train.jsonl")}
    assert rows == {"someone--few": 8, "someone--many": 300}
    assert (data / "someone--many" / "data" / "dev.jsonl").exists()


def test_rows_that_are_made_again_hold_what_they_held(project: Path) -> None:
    # By its name alone a column `label` holds numbers; this one is given to a tokenizer.
    (project / "train.py").write_text("""\
from datasets import load_dataset
rows = load_dataset("json", data_files={"train": "rows.jsonl"})["train"]
tokenizer(rows["label"])
""")
    few = failed(project, "IndexError", "Index 299 out of range for dataset of size 8.", 2)
    assert few.failure is not None
    frame = msgspec.structs.replace(few.failure.frames[0], path=str(project / "train.py"))
    few.failure = msgspec.structs.replace(few.failure, frames=(frame,))
    prepared_after(project, few)
    (made,) = (project / "gonogo-prepared" / "data").glob("*.jsonl")
    rows = [json.loads(line) for line in made.read_text().splitlines()]
    assert len(rows) == 300
    assert {type(row["label"]) for row in rows} == {str}


@pytest.mark.parametrize(("kind", "said"), [("KeyError", "'topic'"), ("ValueError", "Column 'topic' doesn't exist.")])
def test_a_column_that_rows_lack_is_added(project: Path, kind: str, said: str) -> None:
    missing = failed(project, "FileNotFoundError", f"Unable to find '{project}/pretrain.jsonl'", 8)
    prepared_after(project, missing, failed(project, kind, said, 11, "__getitem__"))
    table = read_prepared(project / "gonogo-prepared")
    assert table is not None
    (place,) = table.paths.values()
    assert "topic" in json.loads((project / "gonogo-prepared" / place).read_text().splitlines()[0])


def rehearsed(rank: RankRecord, folder: Path) -> RankRecord:
    facts = AcceleratorFacts("H100-80G", "cuda", 80 << 30, 0)
    record = RehearsalRecord(["python"], str(folder), 1, 1, 1, facts, 2, None, ranks=[rank])
    (folder / "requirements.txt").write_text("torch\n")  # else a module that is missing is whatever nobody says
    apply_limits(record, ProjectWorld.from_files(folder, folder))
    return rank


def test_what_comes_of_missing_and_made_data_is_no_error_of_the_program(project: Path) -> None:
    (project / "rows.py").write_text("def read(path):\n    return open(path)\n")
    missing = failed(project, "FileNotFoundError", f"[Errno 2] No such file or directory: '{project}/w.pth'", 2)
    prepared_after(project, missing)
    assert rehearsed(missing, project).outcome == "unsupported"
    other = failed(project, "FileNotFoundError", "[Errno 2] No such file or directory: 'configs/other.yaml'", 2)
    assert rehearsed(other, project).outcome == "raised"

    (project / "rows.py").write_text(PROGRAM)
    prepared_after(project, failed(project, "FileNotFoundError", f"Unable to find '{project}/pretrain.jsonl'", 8))
    assert rehearsed(failed(project, "KeyError", "'x'", 11, "__getitem__"), project).outcome == "unsupported"
    left_out = failed(project, "AssertionError", "", 11, "split_dataset")  # where a row that can't be read is left out
    assert rehearsed(left_out, project).outcome == "unsupported"
    assert rehearsed(failed(project, "AssertionError", "", 11, "main"), project).outcome == "raised"
    assert rehearsed(failed(project, "TypeError", "f() got x", 3, "main"), project).outcome == "raised"
    keyword = "Config.__init__() got an unexpected keyword argument 'use_auth_token'"
    (project / "rows.py").write_text(PROGRAM.rstrip() + "\nread(\n    row,\n    use_auth_token=None,\n)\n")
    line = PROGRAM.rstrip().count("\n") + 2
    assert rehearsed(failed(project, "TypeError", keyword, line, "preprocess"), project).outcome == "raised"
    column = keyword.replace("use_auth_token", "topic")
    assert rehearsed(failed(project, "TypeError", column, line, "preprocess"), project).outcome == "unsupported"
    beyond = (
        "CUDA error: device-side assert triggered (Assertion `t >= 0 && t < n_classes` failed: label 7 of 2 classes)"
    )
    assert rehearsed(failed(project, "RuntimeError", beyond, 3, "main"), project).outcome == "unsupported"


def test_a_model_that_a_program_names_by_itself_is_made(project: Path) -> None:
    said = "the model gpt2-xl is not in the Hugging Face cache, and a rehearsal does not use the network"
    prepared_after(project, failed(project, "gonogo.virtual.weights.model_folders.ModelNotDownloaded", said, 8))
    table = read_prepared(project / "gonogo-prepared")
    assert table is not None
    assert list(table.models) == ["gpt2-xl"]


@pytest.mark.parametrize(
    ("name", "kind", "told"),
    [
        ("baichuan-inc/Baichuan2-7B-Base", "ValueError", True),  # "target modules {'W_pack'} not found"
        ("baichuan-inc/Baichuan2-7B-Base", "torch.OutOfMemoryError", False),
        ("decapoda-research/llama-7b-hf", "ValueError", False),  # the same model by another name
        ("models/of/mine", "ValueError", False),  # a folder: whoever names it knows what is in it
    ],
)
def test_what_another_model_stumbles_over_is_no_error_of_the_program(
    project: Path, name: str, kind: str, told: bool
) -> None:
    table = msgspec.json.encode(PreparedStandIns(chosen={name: "huggyllama/llama-7b"}))
    (project / "gonogo-prepared").mkdir()
    (project / "gonogo-prepared" / "prepared.json").write_bytes(table)
    rank = rehearsed(failed(project, kind, "target modules {'W_pack'} not found", 3, "main"), project)
    assert [name in one.why for one in rank.unsupported] == [True] * told


def test_a_text_is_made_of_lines(project: Path) -> None:
    (project / "rows.py").write_text("text = open('input.txt').read()\n")
    said = "[Errno 2] No such file or directory: 'input.txt'"
    prepared_after(project, failed(project, "FileNotFoundError", said, 1, "<module>"))
    assert (project / "gonogo-prepared" / "data" / "input.txt.txt").read_text().count("\n") == 9


def test_what_no_list_names_is_no_error_of_the_program_where_prepare_chose_the_packages(project: Path) -> None:
    lacks = failed(project, "ModuleNotFoundError", "No module named 'babel'", 3)
    assert rehearsed(failed(project, "ModuleNotFoundError", "No module named 'babel'", 3), project).outcome == "raised"
    prepared_after(project, failed(project, "FileNotFoundError", f"Unable to find '{project}/pretrain.jsonl'", 8))
    assert "--with babel" in rehearsed(lacks, project).unsupported[0].why
    said = failed(project, "RuntimeError", "Grouped GEMM is not available. Please run pip install …", 5)
    assert said.failure is not None
    chained = (
        f'Traceback (most recent call last):\n  File "{project}/rows.py", line 3, in __init__\n'
        "    import grouped_gemm\n"
        "ModuleNotFoundError: No module named 'grouped_gemm'\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        f'Traceback (most recent call last):\n  File "{project}/{{file}}", line 5, in __init__\n'
        "    raise RuntimeError(\n"
        "RuntimeError: Grouped GEMM is not available. Please run pip install …\n"
    )
    told = msgspec.structs.replace(said.failure, traceback=chained.format(file="rows.py"))
    again = msgspec.structs.replace(said, failure=told)
    assert "--with grouped-gemm" in rehearsed(again, project).unsupported[0].why
    frames = (Frame(f"{project}/other.py", 5, "__init__", "", "user"),)
    elsewhere = msgspec.structs.replace(told, traceback=chained.format(file="other.py"), frames=frames)
    assert rehearsed(msgspec.structs.replace(said, failure=elsewhere), project).outcome == "raised"
    asserted = (
        "The math_verify package is required but not installed. Please install it using 'pip install math_verify'."
    )
    why = rehearsed(failed(project, "AssertionError", asserted, 3), project).unsupported[0].why
    assert "--with math-verify" in why
    newer = "This needs another release: pip install -U transformers"  # which is here
    assert rehearsed(failed(project, "AssertionError", newer, 3, "main"), project).outcome == "raised"
    own = failed(project, "ModuleNotFoundError", "No module named 'rows.more'", 3)
    assert rehearsed(own, project).outcome == "raised"
    mutable = "mutable default <class 'rows.Texts'> for field texts is not allowed: use default_factory"
    assert rehearsed(failed(project, "ValueError", mutable, 3, "main"), project).outcome == "unsupported"
    nowhere = f"Couldn't find any data file at {project}/data/Generated."
    assert rehearsed(failed(project, "FileNotFoundError", nowhere, 3), project).outcome == "unsupported"


def test_what_a_program_raises_of_its_own_when_it_caught_the_networks_refusal_is_none_of_its_errors(
    project: Path,
) -> None:
    said = "The dataset could not be loaded. Check the path (someone/rows)."
    caught = failed(project, "ValueError", said, 3, "main")
    assert rehearsed(failed(project, "ValueError", said, 3, "main"), project).outcome == "raised"
    caught.missed = [MissingInput("data", "someone/rows")]
    assert "someone/rows" in rehearsed(caught, project).unsupported[0].why
    unnamed = failed(project, "ValueError", "no rows were loaded", 3, "main")
    unnamed.missed = [MissingInput("data", "someone/rows")]
    assert "someone/rows" in rehearsed(unnamed, project).unsupported[0].why
    trained = failed(project, "ValueError", "no rows were loaded", 3, "main")
    trained.missed, trained.phases = [MissingInput("data", "someone/rows")], ["load", "forward", "backward"]
    assert rehearsed(trained, project).outcome == "raised"


def test_where_made_rows_come_to_no_step_there_are_more(project: Path) -> None:
    missing = failed(project, "FileNotFoundError", f"Unable to find '{project}/pretrain.jsonl'", 8)
    none = failed(project, "ZeroDivisionError", "integer division or modulo by zero", 8, "fit")
    prepared_after(project, missing, none)
    table = read_prepared(project / "gonogo-prepared")
    assert table is not None
    (place,) = table.paths.values()
    assert len((project / "gonogo-prepared" / place).read_text().splitlines()) == 8 * 64
    assert rehearsed(none, project).outcome == "unsupported"


@pytest.mark.parametrize("outcome", ["raised", "completed"])
def test_where_a_pass_over_made_rows_has_no_batch_there_are_more(project: Path, outcome: str) -> None:
    missing = failed(project, "FileNotFoundError", f"Unable to find '{project}/pretrain.jsonl'", 8)
    none = failed(project, "TypeError", "Expected parameter `tensor` of type torch.Tensor", 8, "fit")
    none.empty_pass = True
    again = msgspec.structs.replace(none)
    if outcome == "completed":
        none.outcome, none.failure = "completed", None
    prepared_after(project, missing, none)
    table = read_prepared(project / "gonogo-prepared")
    assert table is not None
    (place,) = table.paths.values()
    assert len((project / "gonogo-prepared" / place).read_text().splitlines()) == 8 * 64
    assert "--rows" in rehearsed(again, project).unsupported[0].why


def test_the_files_of_a_folder_of_data_are_made_that_are_asked_for_there(project: Path) -> None:
    lacks = failed(project, "FileNotFoundError", f"Couldn't find any data file at {project}/data/Generated.", 3)
    lacks.missed = [MissingInput("data", str(project / "data" / "Generated"), files=("train.jsonl", "dev.jsonl"))]
    (project / "train.py").write_text('rows = load(sys.argv[1])\nprint(rows[0]["messages"])\n')
    prepared_after(project, lacks)
    table = read_prepared(project / "gonogo-prepared")
    assert table is not None
    folder = project / "data" / "Generated"
    assert set(table.paths) == {str(folder / "train.jsonl"), str(folder / "dev.jsonl")}


def test_a_file_that_prepare_does_not_make_is_no_error_of_the_program(project: Path) -> None:
    said = "someone/model does not appear to have a file named model.safetensors."
    record = failed(project, "OSError", said, 3)
    assert record.failure is not None
    cause = "EntryNotFoundError: model.safetensors is not among what gonogo prepare made for someone/model"
    record.failure = msgspec.structs.replace(record.failure, cause=cause)
    assert "hf download someone/model" in rehearsed(record, project).unsupported[0].why


def test_mpi4py_is_asked_for_where_there_is_no_launcher(project: Path) -> None:
    prepared_after(project, failed(project, "FileNotFoundError", f"Unable to find '{project}/pretrain.jsonl'", 8))
    lacks = failed(project, "ModuleNotFoundError", "No module named 'mpi4py'", 3, "mpi_discovery")
    assert rehearsed(lacks, project).outcome == "raised"


def test_a_made_rows_text_that_is_sought_in_vain_is_no_error_of_the_program(project: Path) -> None:
    prepared_after(project, failed(project, "FileNotFoundError", f"Unable to find '{project}/pretrain.jsonl'", 8))
    told = {
        said: rehearsed(failed(project, "ValueError", said, 8, "on_evaluate"), project).outcome
        for said in ("7 is not in list", "tuple.index(x): x not in tuple", "batch size must be positive")
    }
    assert list(told.values()) == ["unsupported", "unsupported", "raised"]


def test_a_file_at_an_address_is_made_in_its_form(project: Path) -> None:
    address = "https://example.org/texts/input.txt"
    missed = failed(project, "ConnectionError", "no network", 8)
    missed.missed = [MissingInput("data", address)]
    prepared_after(project, missed)
    table = read_prepared(project / "gonogo-prepared")
    assert table is not None
    assert table.addresses == {address: "data/https--example.org--texts--input.txt.txt"}
    assert (table.paths, table.datasets, table.guessed) == ({}, {}, (address,))
    assert " " in (project / "gonogo-prepared" / table.addresses[address]).read_text()
    prepared_after(project)  # another launch in the same folder
    again = read_prepared(project / "gonogo-prepared")
    assert again is not None
    assert again.addresses == table.addresses


@pytest.mark.parametrize(
    ("said", "suffix"),
    [
        ("No .txt files found in train data []", ".txt"),
        ("Found no parquet files in the folder", ".parquet"),
        ("No json files found, did you run prepare.py?", ".json"),
    ],
)
def test_a_folder_has_the_files_that_are_looked_for_in_it(project: Path, said: str, suffix: str) -> None:
    (project / "train.py").write_text('rows = load(sys.argv[1])\nprint(rows[0]["text"])\n')
    lacks = failed(project, "FileNotFoundError", f"[Errno 2] No such file or directory: '{project}/texts'", 8)
    prepared_after(project, lacks, failed(project, "AssertionError", said, 8))
    table = read_prepared(project / "gonogo-prepared")
    assert table is not None
    made = sorted((project / "gonogo-prepared" / table.paths[str(project / "texts")]).iterdir())
    assert [one.name for one in made] == [f"0000{number}{suffix}" for number in range(4)]
    assert all(one.stat().st_size for one in made)


@pytest.mark.parametrize(
    ("asked", "name", "rest"),
    [
        ("data/tok4096/*.bin", "{:05}.bin", {}),
        ("data/**/train_*.jsonl", "train_{:05}.jsonl", {}),
        ("pictures/*.jpg", "{:05}.jpg", {}),
        ("data/*/shard.bin", "", {}),  # in which folder is untold
        ("data/*.bin", "", {"written": True}),  # its own output
        ("data/*.bin", "", {"phase": "step", "step": 4}),
    ],
)
def test_files_that_were_looked_for_by_a_pattern_are_made(
    project: Path, asked: str, name: str, rest: dict[str, Any]
) -> None:
    record = failed(project, "AssertionError", "there is nothing in it", 8)
    place = Frame(str(project / "rows.py"), 8, "__init__", "", "user")
    record.absent = [msgspec.structs.replace(FailedLookup("file", asked, place), **rest)]
    (project / "data").mkdir()  # what is there of the project's own stays
    prepared_after(project, record)
    table = read_prepared(project / "gonogo-prepared")
    names = [name.format(number) for number in range(4)] if name else []
    assert [Path(path).name for path in (table.paths if table is not None else {})] == names
    for path, made in (table.paths if table is not None else {}).items():
        assert (project / "gonogo-prepared" / made).stat().st_size > 0
        assert Path(path).parent == project / asked.partition("/")[0] / ("tok4096" if "tok" in asked else "")


ENVIRONMENT = """\
import os
from os import environ


def main(name, row):
    entity = os.environ["ENTITY"]
    entity = environ[name]
    return row["ENTITY"]
"""


@pytest.mark.parametrize(("line", "of_environment"), [(6, True), (7, True), (8, False)])
def test_a_variable_that_nothing_sets_is_no_column_of_a_row(project: Path, line: int, of_environment: bool) -> None:
    (project / "main.py").write_text(ENVIRONMENT)
    place = Frame(str(project / "main.py"), line, "main", "", "user")
    record = failed(project, "KeyError", "'ENTITY'", line)
    assert record.failure is not None
    record.failure = msgspec.structs.replace(record.failure, frames=(place,))
    assert unset_variable(record.failure) == ("ENTITY" if of_environment else None)
    prepared_after(project, failed(project, "FileNotFoundError", f"Unable to find '{project}/a.jsonl'", 8), record)
    (made,) = (project / "gonogo-prepared" / "data").glob("*.jsonl")
    assert ("ENTITY" in made.read_text()) != of_environment
    table = read_prepared(project / "gonogo-prepared") or PreparedStandIns()
    whole = RehearsalRecord(["python"], str(project), 1, 1, 1, AcceleratorFacts("H100", "cuda", 80, 0), 1, None)
    why = explain_data_failure(record, table, whole, project)
    assert (why is None) == of_environment


@pytest.mark.parametrize(
    ("said", "told"), [("./dataset/traffic/traffic.csv", "dataset/traffic/traffic.csv"), ("traffic.csv", "traffic.csv")]
)
def test_a_file_that_lacks_is_named_where_the_program_looked_for_it(project: Path, said: str, told: str) -> None:
    """``--root_path ./dataset/traffic --data_path traffic.csv``: the command alone tells the name, not the folder."""
    record = failed(project, "FileNotFoundError", f"[Errno 2] No such file or directory: '{said}'", 8)
    whole = RehearsalRecord(["python"], str(project), 1, 1, 1, AcceleratorFacts("H100", "cuda", 80, 0), 1, None)
    found = explain_data_failure(record, PreparedStandIns(missing=(str(project / "traffic.csv"),)), whole, project)
    assert found is not None
    assert found[1].why.en.startswith(f"{project / told} does not exist here")
