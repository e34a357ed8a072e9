"""``gonogo prepare`` as users call it: the list, and a launch that becomes GO with nothing but what was made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gonogo.evidence.prepared import read_prepared
from gonogo.prepare.prepare import EnvironmentOptions, parse_prepare_options, prepare

TRAIN = """\
import os
from dataclasses import dataclass, field

import torch
import transformers
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class Data:
    model_name_or_path: str = "HuggingFaceTB/SmolLM2-135M"
    dataset_name: str = field(default="tatsu-lab/alpaca")
    data_path: str = "/nowhere/rows.json"
    max_length: int = 64


def main():
    arguments, training = HfArgumentParser((Data, TrainingArguments)).parse_args_into_dataclasses()
    print(os.environ["PROJECT"])
    tokenizer = AutoTokenizer.from_pretrained(arguments.model_name_or_path)
    tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(arguments.model_name_or_path)

    def tokenized(row):
        words = tokenizer(row["instruction"] + row["output"], truncation=True, max_length=arguments.max_length)
        return {**words, "labels": list(words["input_ids"])}

    rows = load_dataset(arguments.dataset_name, split="train")
    own = load_dataset("json", data_files=arguments.data_path, split="train")
    rows = [tokenized(row) for row in [*rows, *own]]
    Trainer(model=model, args=training, train_dataset=rows).train()


if __name__ == "__main__":
    main()
"""
COMMAND = [
    *("torchrun", "--nproc_per_node", "2", "train.py", "--output_dir", "out", "--report_to", "none"),
    *("--per_device_train_batch_size", "1", "--max_steps", "2", "--max_length", "64"),
]


def gonogo(folder: Path, *words: str, **variables: str) -> tuple[int, str, str]:
    environment = {**os.environ, **variables}
    done = subprocess.run(
        [sys.executable, "-m", "gonogo", *words],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=800,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def listed(folder: Path, *words: str) -> dict[str, Any]:
    status, out, err = gonogo(folder, "prepare", "--list", "--format", "json", *words)
    assert status in (0, 3), err
    found: dict[str, Any] = json.loads(out)
    return found


def by_name(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in found["wanted"]}


def test_the_list_names_what_a_script_opens(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    found = listed(tmp_path, "--", *COMMAND)
    assert by_name(found).keys() == {
        "HuggingFaceTB/SmolLM2-135M", "tatsu-lab/alpaca", "/nowhere/rows.json", "PROJECT"
    }  # fmt: skip
    assert {one["state"] for one in found["wanted"] if one["kind"] != "variable"} == {"can-be-made"}
    assert by_name(found)["PROJECT"]["state"] == "missing"
    assert found["tokens"] == 64
    assert not found["complete"]
    assert found["folder"] is None
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_trainer_that_loads_a_model_by_its_name_opens_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """\
from trl import GRPOTrainer, SFTTrainer
SFTTrainer("HuggingFaceTB/SmolLM2-135M").train()
GRPOTrainer(model="Qwen/Qwen2.5-0.5B", reward_funcs=["Qwen/Qwen3-0.6B", len]).train()
"""
    (tmp_path / "train.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    done = prepare(
        ["python", "train.py"], parse_prepare_options(4, None, []), EnvironmentOptions(), write=False, probe=None
    )
    names = {one.name for one in done.wanted if one.kind == "model"}
    assert names == {"HuggingFaceTB/SmolLM2-135M", "Qwen/Qwen2.5-0.5B", "Qwen/Qwen3-0.6B"}


def test_a_data_set_has_each_split_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asks = (
        'from datasets import load_dataset\nfor row in load_dataset("a/rows", split="{0}"):\n    print(row["text"])\n'
    )
    (tmp_path / "train.py").write_text("".join(map(asks.format, ("train", "dev"))))
    monkeypatch.chdir(tmp_path)
    (one,) = prepare(
        ["python", "train.py"], parse_prepare_options(4, None, []), EnvironmentOptions(), write=False, probe=None
    ).wanted
    assert one.splits == ("train", "dev")


def test_what_a_tokenizer_is_given_is_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("""
from datasets import load_dataset
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("gpt2")
answers = "label"
def encoded(rows):
    targets = rows[answers]
    return {**tokenizer(rows["sentence"]), "labels": tokenizer(targets)["input_ids"]}
load_dataset("json", data_files="rows.jsonl").map(encoded)
""")
    monkeypatch.chdir(tmp_path)
    done = prepare(
        ["python", "train.py"], parse_prepare_options(4, None, []), EnvironmentOptions(), write=False, probe=None
    )
    (rows,) = (one for one in done.wanted if one.kind == "data")
    assert (rows.state, rows.columns) == ("can-be-made", ("sentence:text", "label:text"))


def test_what_is_here_is_said_to_be_here(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    model = tmp_path / "mine"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 99}))
    (model / "tokenizer.json").write_text("{}")
    (tmp_path / "rows.json").write_text("[]")
    command = [*COMMAND, "--model_name_or_path", "mine", "--data_path", "rows.json"]
    found = by_name(listed(tmp_path, "--", *command))
    assert found["mine"]["state"] == found["rows.json"]["state"] == "here"
    assert found["mine"]["parts"] == {"configuration": True, "tokenizer": True}


def test_a_model_that_is_not_known_is_missing_until_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    command = [*COMMAND, "--model_name_or_path", "someone/Qwen2.5-7B-finetuned"]
    one = by_name(listed(tmp_path, "--", *command))["someone/Qwen2.5-7B-finetuned"]
    assert one["state"] == "missing"
    assert "Qwen/Qwen2.5-7B" in one["why"]
    one = by_name(listed(tmp_path, "--model", "Qwen/Qwen2.5-7B", "--", *command))["someone/Qwen2.5-7B-finetuned"]
    assert one["state"] == "can-be-made"
    one = by_name(listed(tmp_path, "--", *COMMAND, "--model_name_or_path", "scratch"))["scratch"]
    assert one["state"] == "unknown"  # a label, until a rehearsal asks for it
    status, _, err = gonogo(tmp_path, "prepare", "--model", "Qwen/Qwen25", "--", *command)
    assert status == 2
    assert "Qwen/Qwen25" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_what_another_launch_had_made_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loads = "from transformers import AutoModel\nAutoModel.from_pretrained({!r})\n"
    (tmp_path / "first.py").write_text(loads.format("Qwen/Qwen2.5-7B") + loads.format("/models/mine"))
    (tmp_path / "second.py").write_text(loads.format("openai-community/gpt2"))

    def prepared(script: str, *models: str) -> dict[str, str]:
        given = EnvironmentOptions(as_installed=True)
        done = prepare(["python", script], parse_prepare_options(8, None, models), given, write=True, probe=None)
        return {one.name: one.state for one in done.wanted}

    def kind_of_mine() -> str:
        folder = tmp_path / "gonogo-prepared/models/models--mine"
        kind: str = json.loads((folder / "config.json").read_bytes())["model_type"]
        return kind

    assert prepared("first.py", "/models/mine=Qwen/Qwen3-8B")["/models/mine"] == "made"
    assert kind_of_mine() == "qwen3"
    assert prepared("second.py") == {"openai-community/gpt2": "made"}
    table = read_prepared(tmp_path / "gonogo-prepared")
    assert table is not None
    assert list(table.models) == ["qwen/qwen2.5-7b", "openai-community/gpt2"]
    assert all((tmp_path / "gonogo-prepared" / place / "config.json").is_file() for place in table.models.values())
    assert prepared("first.py")["/models/mine"] == "made"  # as it was chosen the first time
    assert kind_of_mine() == "qwen3"
    prepared("first.py", "openai-community/gpt2")
    assert kind_of_mine() == "gpt2"


def test_a_model_alone_is_made_without_a_launch(tmp_path: Path) -> None:
    status, out, _ = gonogo(tmp_path, "prepare", "--model", "Qwen/Qwen2.5-7B")
    assert (status, "--synthetic-batch gonogo-prepared/models/Qwen--Qwen2.5-7B" in out) == (0, True)
    folder = tmp_path / "gonogo-prepared"
    assert json.loads((folder / "models/Qwen--Qwen2.5-7B/config.json").read_bytes())["model_type"] == "qwen2"
    (folder / "environment.txt").write_text("torch==2.6.0\n")  # as a launch leaves it
    table = json.loads((folder / "prepared.json").read_bytes())
    (folder / "prepared.json").write_text(json.dumps({**table, "environment": "environment.txt"}))
    status, out, _ = gonogo(tmp_path, "prepare", "--model", "base=Qwen/Qwen3-8B", "--format", "json")
    assert (status, json.loads(out)["wanted"][0]["found"]) == (0, "models/base")
    known = read_prepared(folder)
    assert known is not None
    assert (list(known.models), known.environment) == (["qwen/qwen2.5-7b"], "environment.txt"), "what was there stays"
    assert (folder / "environment.txt").read_text() == "torch==2.6.0\n"
    status, out, _ = gonogo(tmp_path, "prepare", "--list", "--model", "openai-community/gpt2")
    assert (status, "gpt2" in out, len(list((folder / "models").iterdir()))) == (3, True, 2), "only listed"
    status, _, err = gonogo(tmp_path, "prepare", "--model", "Qwen/Qwn2.5-7B")
    assert (status, "similar: Qwen/Qwen2.5-7B" in err) == (2, True)


@pytest.mark.slow
def test_llamafactorys_and_swifts_data_sets_are_understood(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "dataset_info.json").write_text(
        json.dumps({
            "mine": {"file_name": "mine.json", "formatting": "sharegpt", "ranking": True,
                     "columns": {"messages": "conversations", "chosen": "chosen", "rejected": "rejected"}},
            "hub": {"hf_hub_url": "llamafactory/alpaca_en"},
        })
    )  # fmt: skip
    (tmp_path / "sft.yaml").write_text(
        "stage: dpo\nmodel_name_or_path: Qwen/Qwen3-4B\ndataset: mine,hub\ncutoff_len: 99\n"
    )
    found = listed(tmp_path, "--", "llamafactory-cli", "train", "sft.yaml")
    assert by_name(found).keys() == {"Qwen/Qwen3-4B", str(tmp_path / "data" / "mine.json"), "llamafactory/alpaca_en"}
    assert found["tokens"] == 99
    mine = by_name(found)[str(tmp_path / "data" / "mine.json")]
    assert mine["columns"] == ["conversations:turns", "chosen:turn", "rejected:turn"]
    swift = ["swift", "sft", "--model", "Qwen/Qwen2.5-7B", "--dataset", "swift/self-cognition#500", "rows.jsonl"]
    assert by_name(listed(tmp_path, "--", *swift)).keys() == {"Qwen/Qwen2.5-7B", "swift/self-cognition", "rows.jsonl"}

    for kind, expected in (
        ("dpo", "swift-preference"), ("rm", "swift-preference"), ("kto", "swift-labelled"), ("grpo", "swift-prompts"),
        ("gkd", "messages"),
    ):  # fmt: skip
        rlhf = ["swift", "rlhf", "--rlhf_type", kind, "--model", "Qwen/Qwen2.5-7B", "--dataset", "someone/rows#500"]
        assert f"({expected})" in by_name(listed(tmp_path, "--", *rlhf))["someone/rows"]["why"], kind
    known = listed(tmp_path, "--", "swift", "rlhf", "--rlhf_type", "grpo", "--model", "Qwen/Qwen2.5-7B",
                   "--dataset", "LLM-Research/xlam-function-calling-60k:grpo")  # fmt: skip
    (rows,) = (one for one in known["wanted"] if one["kind"] == "data")
    assert rows["columns"] == ["id", "query", "answers", "tools"]


def test_bad_arguments_are_one_line(tmp_path: Path) -> None:
    for words in (["prepare"], ["prepare", "--format", "sarif", "--", "bash", "a.sh"], ["prepare", "--", "ls"]):
        status, _, err = gonogo(tmp_path, *words)
        assert status == 2
        assert len(err.strip().splitlines()) == 1, err
    (tmp_path / "gonogo-prepared").mkdir()
    (tmp_path / "train.py").write_text(TRAIN)
    status, _, err = gonogo(tmp_path, "prepare", "--files-only", "--lang", "zh", "--", *COMMAND)
    assert status == 2
    assert "不是 gonogo prepare 生成的" in err
    assert not list((tmp_path / "gonogo-prepared").iterdir())


def test_what_the_files_dont_settle_is_said_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        TRAIN.replace("    tokenizer =", "    json.load(open(arguments.train_args_file))\n    tokenizer =", 1)
    )
    (tmp_path / "run.sh").write_text(
        "python train.py --model_name_or_path ./models/$NOT_SET --data_path rows.json --train_args_file mine.json\n"
    )
    found = by_name(listed(tmp_path, "--", "bash", "run.sh"))
    assert found["--model_name_or_path"]["state"] == "unknown"
    assert not [name for name in found if "SmolLM2" in name]  # the default is not what is given
    assert found["mine.json"]["state"] == "missing"
    assert found["rows.json"]["state"] == "can-be-made"


@pytest.mark.very_slow
def test_a_launch_is_go_with_what_was_made(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    cache = str(tmp_path.parent / "cache")
    words = ["rehearse", "--no-prepare", "--format", "json", "--", *COMMAND]
    status, out, err = gonogo(tmp_path, *words, PROJECT="x", HF_HOME=cache)
    assert status == 3, err
    assert "gonogo prepare" in " ".join(one["why"] for one in json.loads(out)["skipped"])

    status, out, err = gonogo(tmp_path, "rehearse", "--format", "json", "--", *COMMAND, PROJECT="x", HF_HOME=cache)
    assert (status, json.loads(out)["verdict"]) == (0, "GO"), out
    assert any("weights: generated" in note for note in json.loads(out)["notes"])
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]

    status, out, err = gonogo(tmp_path, "prepare", "--", *COMMAND, PROJECT="x", HF_HOME=cache)
    assert status == 0, out + err
    assert "first batch" in out
    table = read_prepared(tmp_path / "gonogo-prepared")
    assert table is not None
    assert set(table.paths) == {"/nowhere/rows.json"}

    status, out, err = gonogo(tmp_path, "rehearse", "--format", "json", "--", *COMMAND, PROJECT="x", HF_HOME=cache)
    report = json.loads(out)
    assert (status, report["verdict"]) == (0, "GO"), out
    assert any("generated by gonogo prepare" in note for note in report["notes"])
    rank = report["rehearsal"]["ranks"][0]
    assert any("huggingfacetb/smollm2-135m" in one["what"].lower() for one in rank["assumptions"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gonogo-prepared", "train.py"]


def test_each_split_has_its_file_and_a_form_of_files_is_no_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("""
import os
import datasets
root = "data"
files = {"train": os.path.join(root, "train.jsonl"), "dev": ["dev-1.jsonl", "dev-2.jsonl"]}
for row in datasets.load_dataset("json", data_files=files)["train"]:
    print(row["text"])
""")
    monkeypatch.chdir(tmp_path)
    done = prepare(
        ["python", "train.py"], parse_prepare_options(4, None, []), EnvironmentOptions(), write=False, probe=None
    )
    assert [one.name for one in done.wanted] == ["dev-1.jsonl", "dev-2.jsonl"]


@pytest.mark.slow
def test_made_rows_that_come_to_no_batch_are_more_and_options_for_parquet_are_taken(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("""\
import torch
from datasets import load_dataset
rows = load_dataset("HuggingFaceM4/FineVision", on_bad_files="warn")["train"]
lengths = torch.tensor([float(len(one)) for one in rows["source"]])
model = torch.nn.Linear(1, 1).cuda()
optimizer = torch.optim.SGD(model.parameters())
for batch in torch.utils.data.DataLoader(lengths[:, None], 100, drop_last=True):
    model(batch.cuda()).sum().backward()
    optimizer.step()
""")
    command = ("--gpus", "1xA100-40G", "--environment", "none", "--rows", "4", "--", "python", "train.py")
    status, out, err = gonogo(tmp_path, "prepare", *command, HF_HOME=str(tmp_path / "cache"))
    assert status == 0, out + err
    made = tmp_path / "gonogo-prepared" / "data" / "HuggingFaceM4--FineVision" / "data" / "train.jsonl"
    assert len(made.read_text().splitlines()) == 4 * 64
