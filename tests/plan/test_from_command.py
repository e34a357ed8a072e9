"""What a launch command tells of the training that is to be planned; an option wins over it."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from plan_facts import model_in

from gonogo.finding import UserError
from gonogo.trials.plan.from_command import TrainingCommand, read_training_command
from gonogo.trials.plan.request import PlanOptions, build_plan_request
from gonogo.trials.plan.task.settings import TaskOptions

SCRIPT = """
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = get_peft_model(AutoModelForCausalLM.from_pretrained("model"), LoraConfig(r=8))
arguments = TrainingArguments("out", per_device_train_batch_size=2, deepspeed="ds.json")
Trainer(model=model, args=arguments, train_dataset=data).train()
"""
FACTORY = """
model_name_or_path: model
stage: sft
do_train: true
finetuning_type: full
dataset: sums
cutoff_len: 1024
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
output_dir: out
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    model_in(tmp_path / "model")
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": 4}')
    (tmp_path / "qwen.yaml").write_text(FACTORY)
    return tmp_path


def launched(folder: Path, text: str) -> TrainingCommand:
    (folder / "launch.sh").write_text(f"#!/bin/bash\n{text}\n")
    return read_training_command(["bash", "launch.sh"])


def test_swift(folder: Path) -> None:
    told = launched(
        folder,
        "NPROC_PER_NODE=8 NNODES=2 swift sft --model model --tuner_type lora --lora_rank 8 --quant_bits 4 "
        "--max_length 2048 --per_device_train_batch_size 2 --gradient_accumulation_steps 4",
    )
    assert told == TrainingCommand("model", 2048, "qlora", 8, 8, 2, 2, 4)
    assert told.global_batch == 128


def test_swift_trains_adapters_unless_told_otherwise(folder: Path) -> None:
    assert launched(folder, "swift sft --model model --max_length 2048").tune == "lora"
    assert launched(folder, "swift sft --model model --max_length 2048 --train_type full").tune == "full"


def test_llamafactory(folder: Path) -> None:
    told = launched(folder, "FORCE_TORCHRUN=1 NPROC_PER_NODE=4 llamafactory-cli train qwen.yaml")
    assert (told.model, told.seq_len, told.tune) == ("model", 1024, "full")
    assert (told.micro_batch, told.accumulation) == (1, 8)


def test_a_script_of_ones_own(folder: Path) -> None:
    told = launched(folder, "deepspeed --num_gpus 4 train.py")
    assert told == TrainingCommand("model", None, "lora", None, 4, 1, 2, 4)


def test_options_win_over_the_command(folder: Path) -> None:
    told = launched(folder, "deepspeed --num_gpus 4 train.py")
    request, notes = build_plan_request(PlanOptions(gpus="H200", seq_len=512, tune="full"), told)
    assert (request.machine.accelerator.name, request.machine.count) == ("H200", 4)
    assert (request.seq_len, request.tune, request.global_batch) == (512, "full", 32)
    assert "4 GPUs, 32 samples per step" in notes[0].en


def test_another_number_of_gpus_is_another_batch(folder: Path) -> None:
    told = launched(folder, "deepspeed --num_gpus 4 train.py")
    request, _ = build_plan_request(PlanOptions(gpus="8xH200", seq_len=512), told)
    assert (request.machine.count, request.global_batch) == (8, None)


def test_what_is_not_told_is_asked_for(folder: Path) -> None:
    told = launched(folder, "deepspeed --num_gpus 4 train.py")
    with pytest.raises(UserError, match="how long its samples are: add --seq-len"):
        build_plan_request(PlanOptions(), told)
    with pytest.raises(UserError, match="which model it trains"):
        build_plan_request(PlanOptions(seq_len=512), TrainingCommand())
    with pytest.raises(UserError, match="no model: give its folder"):
        build_plan_request(PlanOptions(), None)
    with pytest.raises(UserError, match="starts no"):
        read_training_command(["bash", "-c", "echo nothing"])


def test_what_is_said_wrong_is_named(folder: Path) -> None:
    with pytest.raises(UserError, match="--tune half: must be one of full, lora, qlora, freeze-vision"):
        build_plan_request(PlanOptions(model="model", tune="half"), None)
    with pytest.raises(UserError, match="--nvme 'much' is not a size"):
        build_plan_request(PlanOptions(model="model", nvme="much"), None)
    with pytest.raises(UserError, match="nowhere: no such folder"):
        build_plan_request(PlanOptions(model="nowhere"), None)


def test_older_gpus_train_in_fp16(folder: Path) -> None:
    assert build_plan_request(PlanOptions(model="model", gpus="2xT4"), None)[0].dtype == "fp16"
    assert build_plan_request(PlanOptions(model="model", gpus="2xA10"), None)[0].dtype == "bf16"
    assert build_plan_request(PlanOptions(model="model", gpus="8xAscend-910B2"), None)[0].dtype == "bf16"


def test_the_task_that_it_trains_by(folder: Path) -> None:
    (folder / "grpo.py").write_text(
        "from trl import GRPOConfig, GRPOTrainer\n"
        "args = GRPOConfig('out', num_generations=4, max_completion_length=256, per_device_train_batch_size=4)\n"
        "GRPOTrainer(model='model', reward_funcs=len, args=args, train_dataset=data).train()\n"
    )
    told = launched(folder, "torchrun --nproc_per_node 8 grpo.py")
    assert told.task == TaskOptions("grpo", completion_len=256, generations=4)
    request, _ = build_plan_request(PlanOptions(model="model"), told)
    assert request.task is not None
    assert (request.task.prompt_len, request.task.completion_len, request.task.generations) == (512, 256, 4)
    told = launched(
        folder, "swift rlhf --rlhf_type grpo --model model --max_length 700 --max_completion_length 300 --beta 0.04"
    )
    assert told.task == TaskOptions("grpo", prompt_len=700, completion_len=300, beta=0.04)
    told = launched(folder, "swift rlhf --rlhf_type dpo --model model --max_length 700")
    assert (told.task, told.seq_len) == (TaskOptions("dpo"), 700)
    told = launched(folder, "trl reward --model_name_or_path model --max_length 512")
    assert (told.task, told.seq_len) == (TaskOptions("rm"), 512)
    (folder / "dpo.yaml").write_text(FACTORY.replace("stage: sft", "stage: dpo"))
    assert launched(folder, "llamafactory-cli train dpo.yaml").task == TaskOptions("dpo")
    assert launched(folder, "llamafactory-cli train qwen.yaml").task == TaskOptions("sft")


def test_a_task_that_no_plan_knows_is_not_planned_for_as_another(folder: Path) -> None:
    told = launched(folder, "swift rlhf --rlhf_type orpo --model model --max_length 700")
    with pytest.raises(UserError, match="trains with orpo, which can't be planned"):
        build_plan_request(PlanOptions(), told)
    request, _ = build_plan_request(PlanOptions(task=TaskOptions("dpo", beta=0.0)), told)
    assert request.task is not None
    assert request.task.references("full") == ("",)


def test_published_model_that_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its configuration comes from gonogo's table, and the plan says so; what no table has is refused."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    request, notes = build_plan_request(PlanOptions(model="Qwen/Qwen2-7B"), None)
    assert json.loads((request.model / "config.json").read_text())["hidden_size"] == 3584
    assert request.model.is_relative_to(tmp_path / "cache")
    assert request.name == "Qwen/Qwen2-7B"
    assert "published config was used" in str(notes[-1])
    again, _ = build_plan_request(PlanOptions(model="qwen/qwen2-7b"), None)
    assert again.model == request.model
    with pytest.raises(UserError, match="gonogo's table of published models"):
        build_plan_request(PlanOptions(model="nobody/Qwen2-7B-none"), None)


def test_own_folder_wins_over_a_published_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model_in(tmp_path / "Qwen" / "Qwen2-7B")
    request, notes = build_plan_request(PlanOptions(model="Qwen/Qwen2-7B"), None)
    assert request.model.resolve() == tmp_path / "Qwen" / "Qwen2-7B"
    assert not notes


def test_nothing_half_written_of_a_published_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def full(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match=r"No space left on device.*XDG_CACHE_HOME"):
        build_plan_request(PlanOptions(model="Qwen/Qwen2-7B"), None)
    assert not list((tmp_path / "cache" / "gonogo" / "models").iterdir())
