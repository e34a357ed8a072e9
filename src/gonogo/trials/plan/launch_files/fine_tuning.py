"""The commands that launch a strategy, and the config files of their launchers and frameworks."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from gonogo.evidence.paths import exists, expand_user, resolve_path
from gonogo.evidence.published.swift_kind import SwiftModelOptions, infer_swift_options
from gonogo.trials.plan.choice import Choice
from gonogo.trials.plan.launch_files.arguments import (
    CONFIG,
    DISTRIBUTED_CONFIG,
    SWIFT_CONFIG,
    SWIFT_FSDP_CONFIG,
    to_command_line_options,
)
from gonogo.trials.plan.request import PlanRequest
from gonogo.trials.plan.strategy import fsdp_config, launch_environment, parallelism_config
from gonogo.virtual.measuring.jobs import ModelFacts

_SWIFT_TUNER_TYPES = {"full": "full", "lora": "lora", "qlora": "lora", "freeze-vision": "full"}
_DATASET_INFO = {
    "data": {
        "file_name": "data.jsonl",
        "formatting": "sharegpt",
        "columns": {"messages": "messages"},
        "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"},
    }
}
"""LLaMA-Factory's description of data.jsonl."""
_LLAMAFACTORY_FINETUNING_TYPES = {"full": "full", "lora": "lora", "qlora": "lora", "freeze-vision": "full"}


def launch_files(choice: Choice, request: PlanRequest, facts: ModelFacts, arguments: dict[str, Any]) -> dict[str, str]:
    """(name: text) of each file. ``arguments``: transformers' TrainingArguments."""
    program = [*_training_command(request), *to_command_line_options(arguments)]
    fsdp = choice.strategy.family.fsdp
    exports = _exports(choice, request)
    if choice.strategy.family.is_native:  # no other framework loads a model so, and accelerate has nothing to configure
        program += ["--distributed", DISTRIBUTED_CONFIG]
        return {"launch_torchrun.sh": launch_script(choice, request, torchrun_launcher(request), program, exports)}
    of_deepspeed = {
        **({"hostfile": hostfile_text(request)} if request.machine.nodes > 1 else {}),
        "launch_deepspeed.sh": launch_script(choice, request, deepspeed_launcher(request), program, exports),
    }
    return {
        **({} if fsdp else of_deepspeed),
        "launch_torchrun.sh": launch_script(choice, request, torchrun_launcher(request), program, exports),
        "accelerate.yaml": accelerate_yaml(request, choice),
        "launch_accelerate.sh": launch_script(
            choice,
            request,
            ["accelerate", "launch", "--config_file", "accelerate.yaml", *accelerate_node_options(request)],
            program,
        ),
        **_framework_files(choice, request, facts, arguments, exports),
    }


def _framework_files(
    choice: Choice, request: PlanRequest, facts: ModelFacts, arguments: dict[str, Any], exports: tuple[str, ...]
) -> dict[str, str]:
    """The files of ms-swift and LLaMA-Factory, whose data pipelines don't pad for context parallelism."""
    if choice.strategy.family.context > 1:
        return {}
    return {
        "launch_swift.sh": launch_script(
            choice,
            request,
            ["swift", "sft"],
            [*swift_model_options(request, facts), *_swift_options(choice, request, arguments)],
            swift_environment(request) + exports,
        ),
        "llamafactory.yaml": _llamafactory_yaml(choice, request, arguments),
        "dataset_info.json": json.dumps(_DATASET_INFO, indent=2) + "\n",
        "launch_llamafactory.sh": launch_script(
            choice,
            request,
            ["llamafactory-cli", "train", "llamafactory.yaml"],
            [],
            _llamafactory_environment(request) + exports,
            data=False,
        ),
    }


def _training_command(request: PlanRequest) -> list[str]:
    return [
        "train.py", "--model", "$MODEL", "--data", "$DATA", "--seq_len", str(request.seq_len),
        "--tune", request.tune, "--lora_rank", str(request.lora_rank), "--output_dir", "output",
    ]  # fmt: skip


def launch_script(
    choice: Choice | None,
    request: PlanRequest,
    launcher: list[str],
    arguments: list[str],
    export_lines: tuple[str, ...] = (),
    *,
    data_comment: str = 'a line each: {"messages": [...]} or {"text": "..."}',
    data: bool = True,
) -> str:
    """A shell script that runs a launcher. ``data_comment`` describes the data; ``data`` is False if none is read."""
    lines = ["#!/usr/bin/env bash", "set -euo pipefail", 'cd "$(dirname "$0")"']
    if data:
        lines.append(f"MODEL=${{MODEL:-{shlex.quote(_model_path_or_name(request))}}}")
        lines += [f"DATA=${{DATA:-data.jsonl}}   # {data_comment}"] if data_comment else []
    if request.machine.nodes > 1:
        lines += [
            "NODE_RANK=${NODE_RANK:-0}",
            "MASTER_ADDR=${MASTER_ADDR:-localhost}",
            "MASTER_PORT=${MASTER_PORT:-29500}",
        ]
    if choice is not None and choice.strategy.family.optimizer != "gpu":
        count = request.machine.count
        lines.append(f"THREADS=$(($(nproc) / {count}))   # cores a rank: the optimizer runs on them")
        lines.append("export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((THREADS > 0 ? THREADS : 1))}")
    lines += export_lines
    words = " ".join(_quote_word(word) for word in launcher)
    pairs = _option_lines(arguments)
    lines.append(" \\\n    ".join([words, *pairs]))
    return "\n".join(lines) + "\n"


def _model_path_or_name(request: PlanRequest) -> str:
    """The absolute path of a local folder, or the hub name unchanged."""
    return str(resolve_path(request.model)) if exists(expand_user(Path(request.name))) else request.name


def hostfile_text(request: PlanRequest) -> str:
    """The hostfile of DeepSpeed's launcher."""
    names = (f"node{number} slots={request.machine.count}" for number in range(request.machine.nodes))
    return "\n".join(["# The nodes' names, the first one's first.", *names, ""])


def _option_lines(arguments: list[str]) -> list[str]:
    """Each option with its value, to be put on a line of its own."""
    lines: list[str] = []
    for word in arguments:
        if word.startswith("--") or not lines:
            lines.append(_quote_word(word))
        else:
            lines[-1] += f" {_quote_word(word)}"
    return lines


def _quote_word(word: str) -> str:
    return f'"{word}"' if word.startswith("$") else shlex.quote(word)


def deepspeed_launcher(request: PlanRequest) -> list[str]:
    """The command of DeepSpeed's launcher."""
    machine = request.machine
    if machine.nodes == 1:
        return ["deepspeed", "--num_gpus", str(machine.count)]
    return [
        "deepspeed", "--hostfile", "hostfile", "--no_ssh", "--node_rank", "$NODE_RANK", "--master_addr", "$MASTER_ADDR",
        "--master_port", "$MASTER_PORT",
    ]  # fmt: skip


def torchrun_launcher(request: PlanRequest) -> list[str]:
    """The command of torchrun."""
    machine = request.machine
    if machine.nodes == 1:
        return ["torchrun", "--nproc_per_node", str(machine.count)]
    return [
        "torchrun", "--nnodes", str(machine.nodes), "--nproc_per_node", str(machine.count),
        "--node_rank", "$NODE_RANK", "--master_addr", "$MASTER_ADDR", "--master_port", "$MASTER_PORT",
    ]  # fmt: skip


def accelerate_node_options(request: PlanRequest) -> list[str]:
    """accelerate's options that depend on the node."""
    if request.machine.nodes == 1:
        return []
    return ["--machine_rank", "$NODE_RANK", "--main_process_ip", "$MASTER_ADDR", "--main_process_port", "$MASTER_PORT"]


def accelerate_yaml(request: PlanRequest, choice: Choice | None = None) -> str:
    """The YAML config of accelerate. ``choice``: its FSDP and mesh; without it, DeepSpeed."""
    machine = request.machine
    mesh = parallelism_config(choice.strategy, request.world_size) if choice is not None else {}
    return "\n".join(
        [
            "compute_environment: LOCAL_MACHINE",
            *(
                _accelerate_fsdp_lines(choice, request)
                if choice is not None and choice.strategy.family.fsdp
                else _accelerate_deepspeed_lines(request)
            ),
            *(["parallelism_config:"] if mesh else []),
            *(f"  parallelism_config_{name}: {value}" for name, value in mesh.items()),
            f"num_machines: {machine.nodes}",
            f"num_processes: {request.world_size}",
            "machine_rank: 0",
            "main_training_function: main",
            "",
        ]
    )


def _accelerate_deepspeed_lines(request: PlanRequest) -> list[str]:
    standard = ["  deepspeed_multinode_launcher: standard"] if request.machine.nodes > 1 else []
    return ["distributed_type: DEEPSPEED", "deepspeed_config:", f"  deepspeed_config_file: {CONFIG}", *standard]


def _accelerate_fsdp_lines(choice: Choice, request: PlanRequest) -> list[str]:
    """FSDP2's settings, which say the same as the TrainingArguments."""
    config = fsdp_config(choice.strategy)
    settings = {f"fsdp_{name}": value for name, value in config.items() if name != "cpu_offload"}
    settings["fsdp_offload_params"] = config["cpu_offload"]
    lines = [f"  {name}: {json.dumps(value).strip(chr(34))}" for name, value in settings.items()]
    return ["distributed_type: FSDP", f"mixed_precision: {request.dtype}", "fsdp_config:", *lines]


def _exports(choice: Choice, request: PlanRequest) -> tuple[str, ...]:
    """What ``accelerate launch`` would export, for the other launchers."""
    exported = launch_environment(choice.strategy, request.world_size)
    if not exported:
        return ()
    return ("export " + " ".join(f"{name}={value}" for name, value in exported.items()),)


def swift_environment(request: PlanRequest) -> tuple[str, ...]:
    """The environment variables from which ms-swift reads nodes and GPUs."""
    machine = request.machine
    lines = [f"export NPROC_PER_NODE={machine.count}"]
    if machine.nodes > 1:
        lines += [f"export NNODES={machine.nodes}", "export NODE_RANK MASTER_ADDR MASTER_PORT"]
    return tuple(lines)


def swift_model_options(request: PlanRequest, facts: ModelFacts) -> list[str]:
    """ms-swift's model options, with the type and template if it can't infer them from the folder."""
    return [
        "--model",
        "$MODEL",
        *swift_kind_options(infer_swift_options(request.name, request.model, facts.model_class)),
    ]


def swift_kind_options(
    model_kind: SwiftModelOptions, kind: str = "--model_type", template_option: str = "--template"
) -> list[str]:
    """The options for the model type and template that have to be given explicitly."""
    return [
        *([kind, model_kind.kind] if model_kind.kind else []),
        *([template_option, model_kind.template] if model_kind.template else []),
    ]


def _swift_options(choice: Choice, request: PlanRequest, arguments: dict[str, Any]) -> list[str]:
    words = [
        "--dataset", "$DATA", "--tuner_type", _SWIFT_TUNER_TYPES[request.tune],
        "--torch_dtype", torch_dtype(request),
        "--max_length", str(request.seq_len), "--output_dir", "output",
    ]  # fmt: skip
    if request.tune in ("lora", "qlora"):
        words += ["--lora_rank", str(request.lora_rank), "--target_modules", "all-linear"]
    if request.tune == "qlora":
        words += ["--quant_method", "bnb", "--quant_bits", "4", "--bnb_4bit_quant_storage", torch_dtype(request)]
    if request.tune == "freeze-vision":
        words += ["--freeze_vit", "true", "--freeze_aligner", "false"]
    if not arguments["gradient_checkpointing"]:
        words += ["--gradient_checkpointing", "false"]
    return [*words, *to_command_line_options(swift_arguments(request, arguments))]


def swift_arguments(request: PlanRequest, arguments: dict[str, Any]) -> dict[str, Any]:
    """TrainingArguments adapted to ms-swift's own."""
    kept = {name: value for name, value in arguments.items() if name not in (request.dtype, "num_train_epochs")}
    if kept.pop("fsdp_config", None):
        return {**kept, "fsdp": SWIFT_FSDP_CONFIG}
    return {**kept, "deepspeed": SWIFT_CONFIG}


def torch_dtype(request: PlanRequest) -> str:
    """The dtype by its PyTorch name."""
    return "bfloat16" if request.dtype == "bf16" else "float16"


def _llamafactory_environment(request: PlanRequest) -> tuple[str, ...]:
    machine = request.machine
    lines = ["export FORCE_TORCHRUN=1"]
    if machine.nodes > 1:
        lines += [f"export NNODES={machine.nodes}", "export NODE_RANK MASTER_ADDR MASTER_PORT"]
    return tuple(lines)


def _llamafactory_yaml(choice: Choice, request: PlanRequest, arguments: dict[str, Any]) -> str:
    settings: dict[str, Any] = {
        "model_name_or_path": _model_path_or_name(request),
        "stage": "sft",
        "do_train": True,
        "finetuning_type": _LLAMAFACTORY_FINETUNING_TYPES[request.tune],
        "dataset_dir": ".",
        "dataset": "data",
        "cutoff_len": request.seq_len,
        "output_dir": "output",
    }
    if request.tune in ("lora", "qlora"):
        settings |= {"lora_rank": request.lora_rank, "lora_target": "all"}
    if request.tune == "qlora":
        settings |= {"quantization_bit": 4, "quantization_method": "bnb"}
    if request.tune == "freeze-vision":
        settings |= {"freeze_vision_tower": True, "freeze_multi_modal_projector": False}
    settings |= {name: value for name, value in arguments.items() if name not in ("gradient_checkpointing_kwargs",)}
    if choice.strategy.checkpointing and not choice.strategy.family.fsdp:
        settings["use_reentrant_gc"] = False
    else:
        settings["disable_gradient_checkpointing"] = True
        settings.pop("gradient_checkpointing")
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items())
