"""Data sets that a launch's file or overrides describe: axolotl's entries, Hydra's options, parts of a split."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.prepare import axolotl
from gonogo.prepare.prepare import EnvironmentOptions, parse_prepare_options, prepare
from gonogo.prepare.required_inputs import RequiredInput


def listed(command: list[str], tokens: int | None = 32) -> dict[str, RequiredInput]:
    done = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="completed")
    given = EnvironmentOptions(as_installed=True)
    found = prepare(command, parse_prepare_options(64, tokens, ()), given, write=True, probe=lambda: done)
    return {one.name: one for one in found.wanted if one.kind == "data"}


def rows(wanted: RequiredInput, split: str = "train", suffix: str = ".jsonl") -> list[dict[str, Any]]:
    place = Path("gonogo-prepared", wanted.found or "")
    file = place if place.suffix else next(place.rglob(f"{split}{suffix}"))
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_axolotls_data_sets_have_the_rows_of_their_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lora.yml").write_text("""\
base_model: NousResearch/Llama-3.2-1B
datasets:
  - path: someone/instructions
    type: alpaca
  - path: someone/talks
    type: chat_template
    field_messages: conversations
    message_property_mappings: {role: from, content: value}
    split: train[:1%]
  - path: json
    data_files: own.jsonl
    type: completion
test_datasets:
  - path: someone/instructions
    type: alpaca
    split: dev[10:300]
""")
    found = listed(["axolotl", "train", "lora.yml"])
    assert set(found) == {"someone/instructions", "someone/talks", "own.jsonl"}
    assert list(rows(found["someone/instructions"])[0]) == ["instruction", "input", "output"]
    assert len(rows(found["someone/instructions"], "dev")) == 300
    talks = rows(found["someone/talks"])
    assert len(talks) == 1600
    assert talks[0]["conversations"][0]["from"] == "human"
    assert isinstance(rows(found["own.jsonl"])[0]["text"], str)


def test_a_class_that_jsonargparse_instantiates_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its keys were taken for names of files: ``class_path does not exist here``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("""\
from jsonargparse import ActionConfigFile, ArgumentParser

parser = ArgumentParser()
parser.add_argument("--config", action=ActionConfigFile)
parser.add_argument("--data")
parser.parse_args()
""")
    (tmp_path / "lora.yaml").write_text("""\
data:
  class_path: litgpt.data.Alpaca2k
  init_args:
    mask_prompt: false
""")
    done = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="completed")
    given = EnvironmentOptions(as_installed=True)
    command = ["python", "train.py", "--config", "lora.yaml"]
    assert prepare(command, parse_prepare_options(64, 32, ()), given, write=False, probe=lambda: done).wanted == []


@pytest.mark.parametrize(
    ("entry", "rl", "columns"),
    [
        ({"type": "chatml.intel"}, "dpo", ["system", "question", "chosen", "rejected"]),
        ({"type": "llama3.argilla"}, "kto", ["system", "instruction", "completion", "label"]),
        ({"type": "chat_template.default", "field_chosen": "good"}, "dpo", ["messages", "good", "rejected"]),
        ({"type": {"field_instruction": "ask"}}, None, ["system", "ask", "input", "output"]),
        ({"type": {"field_prompt": "ask"}}, "dpo", ["system", "ask", "chosen", "rejected"]),
        ({"type": "bradley_terry.chat_template"}, None, ["system", "input", "chosen", "rejected"]),
        ({"type": "chat_template"}, None, ["messages"]),
        ({"type": "somebodys.own"}, None, []),
    ],
)
def test_the_columns_of_an_axolotl_type(entry: dict[str, Any], rl: str | None, columns: list[str]) -> None:
    assert [one.partition(":")[0] for one in axolotl.columns_of_entry(entry, rl)] == columns


def test_hydras_overrides_name_data_models_and_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print()\n")
    (tmp_path / "run.sh").write_text(
        "torchrun --nproc_per_node 2 train.py data.train_files=/nowhere/train.jsonl data.messages_key=talk "
        "model.path=Qwen/Qwen2.5-0.5B-Instruct trainer.default_local_dir=out\n"
    )
    found = listed(["bash", "run.sh"])
    assert set(found) == {"/nowhere/train.jsonl"}
    assert rows(found["/nowhere/train.jsonl"])[0]["talk"][0]["role"] == "user"


def test_paths_in_one_word_are_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text('print(lambda row: row["text"])\n')
    command = ["torchrun", "train.py", "--data_file_paths", "/nowhere/a.jsonl:/nowhere/b.jsonl"]
    assert set(listed(command)) == {"/nowhere/a.jsonl", "/nowhere/b.jsonl"}


@pytest.mark.parametrize(
    ("program", "option", "separator"),
    [
        (
            'parser.add_argument("--csv-separator", type=str, default="\\t")\nrows = pandas.read_csv(path, sep=sep)',
            "",
            "\t",
        ),
        ('parser.add_argument("--csv-separator", type=str, default="\\t")', "--csv-separator=;", ";"),
        ('rows = pandas.read_csv(path, sep="|")', "", "|"),
        ('rows = pandas.read_csv(path)\nothers = csv.reader(file, delimiter="|")', "", ","),
        ("rows = load(path)", "", ","),
    ],
)
def test_a_csv_is_separated_as_the_program_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, option: str, separator: str
) -> None:
    """open_clip's separator is a tab by default; its pictures stand in the column that --csv-img-key names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(f"import argparse, csv, pandas\nparser = argparse.ArgumentParser()\n{program}\n")
    options = ["--train-data=rows.csv", "--csv-img-key", "path", "--csv-caption-key", "title"]
    found = listed(["python", "train.py", *options, *([option] if option else [])])
    lines = Path("gonogo-prepared", found["rows.csv"].found or "").read_text().splitlines()
    assert lines[0] == f"path{separator}title"
    assert lines[1].startswith(f"{tmp_path}/gonogo-prepared/media/picture.png{separator}")


@pytest.mark.parametrize(
    ("launch", "expected"),
    [
        (["python", "train.py", "--batch-size", "128", "--accum-freq", "2"], 512),
        (["torchrun", "--nproc_per_node", "4", "train.py", "--batch-size", "64"], 512),
        (["python", "train.py", "--batch-size", "4"], 64),
        (["python", "train.py", "--batch-size", "4096", "--max_length", "16384"], 64),
    ],
)
def test_made_rows_are_enough_for_two_batches_of_all_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launch: list[str], expected: int
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import json\nprint([json.loads(one)['text'] for one in open('rows.jsonl')])\n")
    found = listed([*launch, "--train_file", "rows.jsonl"], tokens=None)
    assert len(rows(found["rows.jsonl"])) == expected


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ("rows.shuffle(seed=42).select(range(500))", 564),
        ("(rows.select(range(HELD_OUT)), rows.select(range(HELD_OUT, len(rows))))", 264),
        ("(rows.take(300), rows.skip(300))", 364),
        ("rows.train_test_split(test_size=128)", 192),
        ("rows.train_test_split(test_size=0.1)", 64),
        ("rows.select(range(min(500, len(rows))))", 64),  # as many as there are
        ("rows.select(range(1_000_000))", 64),  # too many to be made: the program's own word says so
        ("rows.select(indices)", 64),
        ("rows.skip(args.size_valid_set)", 464),
        ("rows.train_test_split(test_size=args.size_valid_set)", 464),
    ],
)
def test_rows_that_are_taken_out_are_made_beside_those_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: str, expected: int
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(f"""\
from datasets import load_dataset
HELD_OUT = 200
rows = load_dataset("someone/texts", split="train")
taken = {taken}
print(rows["text"])
""")
    assert len(rows(listed(["python", "train.py", "--size_valid_set", "400"])["someone/texts"])) == expected
