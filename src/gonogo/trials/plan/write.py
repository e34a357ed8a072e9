"""Writes the files to launch a strategy: DeepSpeed config, TrainingArguments, and a command for each launcher."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gonogo.evidence.paths import exists, is_folder
from gonogo.evidence.published.swift_kind import SwiftModelOptions, infer_swift_options
from gonogo.finding import Text, UserError, translated
from gonogo.report.atomic import write_atomically
from gonogo.trials.plan.choice import Choice
from gonogo.trials.plan.launch_files.arguments import (
    CONFIG,
    DISTRIBUTED_CONFIG,
    FSDP_CONFIG,
    SWIFT_CONFIG,
    SWIFT_FSDP_CONFIG,
    learning_rate,
    task_arguments,
    training_arguments,
)
from gonogo.trials.plan.launch_files.fine_tuning import launch_files
from gonogo.trials.plan.launch_files.post_training import SERVER, task_files
from gonogo.trials.plan.request import PlanRequest
from gonogo.trials.plan.search import PlanResult
from gonogo.trials.plan.solve import SolveResult
from gonogo.trials.plan.strategy import deepspeed_config, distributed_config, fsdp_config
from gonogo.trials.plan.task.script import SCRIPT, data_line_format, task_script
from gonogo.virtual.measuring.jobs import ModelFacts

_TRAINING_SCRIPT = Path(__file__).with_name("train.py.txt")
"""The training script for users: short, complete, and theirs to edit."""


def check_folder(folder: Path) -> None:
    """Raise UserError if the files can't be written into the folder, or would overwrite others."""
    if exists(folder) and not is_folder(folder):
        raise UserError(translated("--write {path}: not a folder").format(path=folder))
    if is_folder(folder) and any(folder.iterdir()):
        raise UserError(translated("--write {path}: not empty: give a new or empty folder").format(path=folder))
    parent = folder if is_folder(folder) else folder.parent
    if not is_folder(parent) or not os.access(parent, os.W_OK):
        raise UserError(translated("--write {path}: can't be written").format(path=folder))


def write_strategy(folder: Path, choice: Choice, request: PlanRequest, facts: ModelFacts) -> list[Path]:
    """Write the files of a strategy into the folder; returns their paths. Raises UserError if that fails."""
    files = strategy_files(choice, request, facts)
    try:
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            write_atomically(folder / name, text.encode(), 0o755 if name.endswith(".sh") else None)
    except OSError as error:
        raise UserError(translated("--write {path}: {why}").format(path=folder, why=error.strerror or error)) from error
    return [folder / name for name in files]


def write_best(folder: Path, plan: PlanResult | SolveResult) -> list[Text]:
    """Write the files of the best strategy that was rehearsed at full depth; returns notes for the user."""
    if isinstance(plan, PlanResult):
        found = [(choice, plan.request) for choice in plan.fitting]
    else:
        found = [(solution.choice, solution.request) for solution in plan.solutions]
    best, request = next(
        ((one, requested) for one, requested in found if one.source == "rehearsed"), (None, plan.request)
    )
    if best is None:
        return [translated("{path}: nothing was written, because no strategy was found to fit").format(path=folder)]
    files = write_strategy(folder, best, request, plan.facts)
    written = translated("{path}: {count} files for {strategy}; start with one of its launch_*.sh").format(
        path=folder, count=len(files), strategy=best.strategy.label
    )
    return [
        written,
        *(
            translated("still to be provided by you: {what}").format(what=one)
            for one in required_changes(best, request, plan.facts)
        ),
    ]


def required_changes(choice: Choice, request: PlanRequest, facts: ModelFacts) -> list[Text]:
    """What the user has to fill in, because gonogo can't know it."""
    task = request.task
    lines = [
        translated("data.jsonl in the same folder, or another file with DATA=…: one line per sample, {example}").format(
            example='{"messages": [...]}' if task is None else data_line_format(task.task)
        )
    ]
    if task is not None and task.kind.rolls_out and task.beside is None:
        lines.append(
            translated("the reward: reward() in {script}, --reward_funcs in launch_swift.sh").format(script=SCRIPT)
        )
    if choice.strategy.reference != "precomputed" and choice.strategy.family.sample_ranks == 1:
        lines += _swift_choice_notes(infer_swift_options(request.name, request.model, facts.model_class))
    if choice.strategy.rollout.engine == "server":
        lines.append(
            translated("start {server} before training; for ms-swift start swift rollout instead").format(server=SERVER)
        )
        if request.machine.nodes > 1:
            lines.append(translated("SERVER_ADDR: the server's node"))
    if request.without_server_gpus(choice.strategy.rollout.gpus).machine.nodes > 1:
        if choice.strategy.family.fsdp:
            lines.append(translated("NODE_RANK and MASTER_ADDR on each node"))
        else:
            lines.append(translated("the node names in hostfile; NODE_RANK and MASTER_ADDR on each node"))
    if "nvme" in (choice.strategy.family.optimizer, choice.strategy.family.parameters):
        lines.append(translated("nvme_path in {config}: a folder on the NVMe").format(config=CONFIG))
    return lines


def explicit_deepspeed_config(choice: Choice, request: PlanRequest, facts: ModelFacts) -> dict[str, Any]:
    """The DeepSpeed config with explicit numbers instead of ``"auto"``."""
    trains = request.without_server_gpus(choice.strategy.rollout.gpus).world_size
    config = deepspeed_config(choice.strategy, world_size=trains, dtype=request.dtype)
    del config["zero_allow_untested_optimizer"]
    config["optimizer"]["params"]["lr"] = learning_rate(request)
    zero, hidden = config["zero_optimization"], facts.hidden_size
    if hidden and zero["stage"] == 3:
        zero |= {
            "reduce_bucket_size": hidden * hidden,
            "stage3_prefetch_bucket_size": int(0.9 * hidden * hidden),
            "stage3_param_persistence_threshold": 10 * hidden,
        }
    return config


def _swift_choice_notes(model_kind: SwiftModelOptions) -> Iterator[Text]:
    for option, chosen, of in (
        ("--model_type", model_kind.kind, model_kind.kinds),
        ("--template", model_kind.template, model_kind.templates),
    ):
        if chosen and len(of) > 1:
            yield translated(
                "{option} in launch_swift.sh, which can't be determined from the folder's name: {chosen}, or "
                "another of {of}"
            ).format(option=option, chosen=chosen, of=", ".join(of))


def strategy_files(choice: Choice, request: PlanRequest, facts: ModelFacts) -> dict[str, str]:
    """(name: text) of each file."""
    fsdp = choice.strategy.family.fsdp
    arguments = training_arguments(choice.strategy, request)
    config: dict[str, Any]
    if choice.strategy.family.is_native:
        name, config = DISTRIBUTED_CONFIG, distributed_config(choice.strategy, request.world_size)
    elif fsdp:
        name, config = FSDP_CONFIG, fsdp_config(choice.strategy)
    else:
        name, config = CONFIG, explicit_deepspeed_config(choice, request, facts)
    written = {name: _json_text(config)}
    if request.task is not None:
        arguments |= task_arguments(choice.strategy, request)
        written |= {SCRIPT: task_script(request.task.task), **task_files(choice, request, facts, arguments)}
    else:
        written |= {
            "train.py": _TRAINING_SCRIPT.read_text(encoding="utf-8"),
            **launch_files(choice, request, facts, arguments),
        }
    if fsdp and "launch_swift.sh" in written:
        written[SWIFT_FSDP_CONFIG] = _json_text({"fsdp": arguments["fsdp"], "fsdp_config": config})
    elif "launch_swift.sh" in written:
        written[SWIFT_CONFIG] = _json_text({name: value for name, value in config.items() if name != "optimizer"})
    return {**written, "training_arguments.json": _json_text(arguments)}


def _json_text(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"
