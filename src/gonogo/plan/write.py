"""What to launch a strategy with: a DeepSpeed config, TrainingArguments, and a command for each launcher."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

from gonogo.atomic import write_atomically
from gonogo.errors import UserError
from gonogo.finding import Text
from gonogo.plan.choice import Choice
from gonogo.plan.request import PlanRequest
from gonogo.plan.strategy import deepspeed_config
from gonogo.plan.training_script import TRAINING_SCRIPT

CONFIG = "ds_config.json"
_SWIFT_TUNES = {"full": "full", "lora": "lora", "qlora": "lora", "freeze-vision": "full"}
_FACTORY_TUNES = {"full": "full", "lora": "lora", "qlora": "lora", "freeze-vision": "full"}


def check_folder(folder: Path) -> None:
    """Raise UserError where the files can't be written into the folder, or would replace others."""
    if folder.exists() and not folder.is_dir():
        raise UserError(Text("--write {path}: is no folder", "--write {path}：不是目录").format(path=folder))
    if folder.is_dir() and any(folder.iterdir()):
        raise UserError(
            Text(
                "--write {path}: there are files in it already: name a new or empty folder",
                "--write {path}：目录中已有文件：请指定新的或空的目录",
            ).format(path=folder)
        )
    parent = folder if folder.is_dir() else folder.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise UserError(Text("--write {path}: can't be written", "--write {path}：无法写入").format(path=folder))


def write(folder: Path, choice: Choice, request: PlanRequest) -> list[Path]:
    """Write the files of a strategy into the folder; which they are. Raises UserError where that can't be."""
    files = files_of(choice, request)
    try:
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            write_atomically(folder / name, text.encode(), 0o755 if name.endswith(".sh") else None)
    except OSError as error:
        raise UserError(
            Text("--write {path}: {why}", "--write {path}：{why}").format(path=folder, why=error.strerror or error)
        ) from error
    return [folder / name for name in files]


def files_of(choice: Choice, request: PlanRequest) -> dict[str, str]:
    """Name and text of each file."""
    config = deepspeed_config(choice.strategy, world_size=request.world_size, dtype=request.dtype)
    arguments = training_arguments(choice, request)
    return {
        CONFIG: json.dumps(config, indent=2) + "\n",
        "training_arguments.json": json.dumps(arguments, indent=2) + "\n",
        "train.py": TRAINING_SCRIPT,
        "launch_deepspeed.sh": _script(request, _deepspeed(request), [*_program(request), *_options(arguments)]),
        "launch_torchrun.sh": _script(request, _torchrun(request), [*_program(request), *_options(arguments)]),
        "accelerate.yaml": _accelerate_yaml(request),
        "launch_accelerate.sh": _script(
            request,
            ["accelerate", "launch", "--config_file", "accelerate.yaml", *_accelerate_rank(request)],
            [*_program(request), *_options(arguments)],
        ),
        "launch_swift.sh": _script(
            request, ["swift", "sft"], _swift(choice, request, arguments), _swift_world(request)
        ),
        "llamafactory.yaml": _llamafactory_yaml(choice, request, arguments),
        "launch_llamafactory.sh": _script(
            request, ["llamafactory-cli", "train", "llamafactory.yaml"], [], _factory_world(request), data=False
        ),
    }


def training_arguments(choice: Choice, request: PlanRequest) -> dict[str, Any]:
    """transformers' TrainingArguments that agree with the DeepSpeed config."""
    strategy = choice.strategy
    arguments: dict[str, Any] = {
        "deepspeed": CONFIG,
        request.dtype: True,
        "per_device_train_batch_size": strategy.micro_batch,
        "gradient_accumulation_steps": strategy.accumulation,
        "gradient_checkpointing": strategy.checkpointing,
        "learning_rate": 1e-5,
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "adam_epsilon": 1e-8,
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "num_train_epochs": 1,
        "logging_steps": 1,
    }
    if strategy.checkpointing:
        arguments["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
    return arguments


def _options(arguments: dict[str, Any]) -> list[str]:
    found = []
    for name, value in arguments.items():
        if value is False:
            continue
        found += [f"--{name}", json.dumps(value) if isinstance(value, dict) else _plain(value)]
    return found


def _plain(value: Any) -> str:
    return "true" if value is True else f"{value:g}" if isinstance(value, float) else str(value)


def _program(request: PlanRequest) -> list[str]:
    return [
        "train.py", "--model", "$MODEL", "--data", "$DATA", "--seq_len", str(request.seq_len),
        "--tune", request.tune, "--lora_rank", str(request.lora_rank), "--output_dir", "output",
    ]  # fmt: skip


def _script(
    request: PlanRequest, launcher: list[str], arguments: list[str], exports: tuple[str, ...] = (), *, data: bool = True
) -> str:
    lines = ["#!/usr/bin/env bash", "set -euo pipefail", 'cd "$(dirname "$0")"']
    lines.append(f"MODEL=${{MODEL:-{shlex.quote(str(request.model.resolve()))}}}")
    if data:
        lines.append('DATA=${DATA:-data.jsonl}   # a line each: {"messages": [...]} or {"text": "..."}')
    if request.machine.nodes > 1:
        lines += [
            "NODE_RANK=${NODE_RANK:-0}",
            "MASTER_ADDR=${MASTER_ADDR:-localhost}",
            "MASTER_PORT=${MASTER_PORT:-29500}",
        ]
    lines += exports
    words = " ".join(_word(word) for word in launcher)
    pairs = _in_pairs(arguments)
    lines.append(" \\\n    ".join([words, *pairs]))
    return "\n".join(lines) + "\n"


def _in_pairs(arguments: list[str]) -> list[str]:
    """Each option with its value, for a line of its own."""
    lines: list[str] = []
    for word in arguments:
        if word.startswith("--") or not lines:
            lines.append(_word(word))
        else:
            lines[-1] += f" {_word(word)}"
    return lines


def _word(word: str) -> str:
    return f'"{word}"' if word.startswith("$") else shlex.quote(word)


def _deepspeed(request: PlanRequest) -> list[str]:
    machine = request.machine
    if machine.nodes == 1:
        return ["deepspeed", "--num_gpus", str(machine.count)]
    return [
        "deepspeed", "--num_nodes", str(machine.nodes), "--num_gpus", str(machine.count), "--no_ssh",
        "--node_rank", "$NODE_RANK", "--master_addr", "$MASTER_ADDR", "--master_port", "$MASTER_PORT",
    ]  # fmt: skip


def _torchrun(request: PlanRequest) -> list[str]:
    machine = request.machine
    if machine.nodes == 1:
        return ["torchrun", "--nproc_per_node", str(machine.count)]
    return [
        "torchrun", "--nnodes", str(machine.nodes), "--nproc_per_node", str(machine.count),
        "--node_rank", "$NODE_RANK", "--master_addr", "$MASTER_ADDR", "--master_port", "$MASTER_PORT",
    ]  # fmt: skip


def _accelerate_rank(request: PlanRequest) -> list[str]:
    if request.machine.nodes == 1:
        return []
    return ["--machine_rank", "$NODE_RANK", "--main_process_ip", "$MASTER_ADDR", "--main_process_port", "$MASTER_PORT"]


def _accelerate_yaml(request: PlanRequest) -> str:
    machine = request.machine
    return "\n".join(
        [
            "compute_environment: LOCAL_MACHINE",
            "distributed_type: DEEPSPEED",
            "deepspeed_config:",
            f"  deepspeed_config_file: {CONFIG}",
            *(["  deepspeed_multinode_launcher: standard"] if machine.nodes > 1 else []),
            f"num_machines: {machine.nodes}",
            f"num_processes: {request.world_size}",
            "machine_rank: 0",
            "main_training_function: main",
            "",
        ]
    )


def _swift_world(request: PlanRequest) -> tuple[str, ...]:
    machine = request.machine
    lines = [f"export NPROC_PER_NODE={machine.count}"]
    if machine.nodes > 1:
        lines += [f"export NNODES={machine.nodes}", "export NODE_RANK MASTER_ADDR MASTER_PORT"]
    return tuple(lines)


def _swift(choice: Choice, request: PlanRequest, arguments: dict[str, Any]) -> list[str]:
    words = [
        "--model", "$MODEL", "--dataset", "$DATA", "--tuner_type", _SWIFT_TUNES[request.tune],
        "--torch_dtype", "bfloat16" if request.dtype == "bf16" else "float16",
        "--max_length", str(request.seq_len), "--output_dir", "output",
    ]  # fmt: skip
    if request.tune in ("lora", "qlora"):
        words += ["--lora_rank", str(request.lora_rank), "--target_modules", "all-linear"]
    if request.tune == "qlora":
        words += ["--quant_method", "bnb", "--quant_bits", "4"]
    if request.tune == "freeze-vision":
        words += ["--freeze_vit", "true"]
    if not choice.strategy.checkpointing:
        words += ["--gradient_checkpointing", "false"]
    kept = {name: value for name, value in arguments.items() if name not in (request.dtype, "num_train_epochs")}
    return [*words, *_options(kept)]


def _factory_world(request: PlanRequest) -> tuple[str, ...]:
    machine = request.machine
    lines = ["export FORCE_TORCHRUN=1"]
    if machine.nodes > 1:
        lines += [f"export NNODES={machine.nodes}", "export NODE_RANK MASTER_ADDR MASTER_PORT"]
    return tuple(lines)


def _llamafactory_yaml(choice: Choice, request: PlanRequest, arguments: dict[str, Any]) -> str:
    told: dict[str, Any] = {
        "model_name_or_path": str(request.model.resolve()),
        "stage": "sft",
        "do_train": True,
        "finetuning_type": _FACTORY_TUNES[request.tune],
        "dataset_dir": ".",
        "dataset": "data",
        "template": "default",
        "cutoff_len": request.seq_len,
        "output_dir": "output",
    }
    if request.tune in ("lora", "qlora"):
        told |= {"lora_rank": request.lora_rank, "lora_target": "all"}
    if request.tune == "qlora":
        told |= {"quantization_bit": 4, "quantization_method": "bnb"}
    if request.tune == "freeze-vision":
        told["freeze_vision_tower"] = True
    told |= {name: value for name, value in arguments.items() if name not in ("gradient_checkpointing_kwargs",)}
    if not choice.strategy.checkpointing:
        told["disable_gradient_checkpointing"] = True
        told.pop("gradient_checkpointing")
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in told.items())
