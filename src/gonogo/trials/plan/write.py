"""What to launch a strategy with: a DeepSpeed config, TrainingArguments, and a command for each launcher."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gonogo.evidence.paths import exists, is_folder
from gonogo.evidence.published.swift_kind import SwiftKind, swift_kind
from gonogo.finding import Text
from gonogo.finding.errors import UserError
from gonogo.report.atomic import write_atomically
from gonogo.trials.plan.choice import Choice
from gonogo.trials.plan.launch_files.arguments import (
    CONFIG,
    SWIFT_CONFIG,
    learning_rate,
    task_arguments,
    training_arguments,
)
from gonogo.trials.plan.launch_files.fine_tuning import launch_files
from gonogo.trials.plan.launch_files.post_training import SERVER, task_files
from gonogo.trials.plan.request import PlanRequest
from gonogo.trials.plan.search import PlanResult
from gonogo.trials.plan.solve import Solved
from gonogo.trials.plan.strategy import deepspeed_config
from gonogo.trials.plan.task.script import SCRIPT, lines_of, script_of
from gonogo.trials.plan.training_script import TRAINING_SCRIPT
from gonogo.virtual.measuring.jobs import Facts


def check_folder(folder: Path) -> None:
    """Raise UserError where the files can't be written into the folder, or would replace others."""
    if exists(folder) and not is_folder(folder):
        raise UserError(Text("--write {path}: not a folder", "--write {path}：不是目录").format(path=folder))
    if is_folder(folder) and any(folder.iterdir()):
        raise UserError(
            Text(
                "--write {path}: not empty: give a new or empty folder",
                "--write {path}：目录中已有文件：请指定新的或空的目录",
            ).format(path=folder)
        )
    parent = folder if is_folder(folder) else folder.parent
    if not is_folder(parent) or not os.access(parent, os.W_OK):
        raise UserError(Text("--write {path}: can't be written", "--write {path}：无法写入").format(path=folder))


def write(folder: Path, choice: Choice, request: PlanRequest, facts: Facts) -> list[Path]:
    """Write the files of a strategy into the folder; which they are. Raises UserError where that can't be."""
    files = files_of(choice, request, facts)
    try:
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            write_atomically(folder / name, text.encode(), 0o755 if name.endswith(".sh") else None)
    except OSError as error:
        raise UserError(
            Text("--write {path}: {why}", "--write {path}：{why}").format(path=folder, why=error.strerror or error)
        ) from error
    return [folder / name for name in files]


def write_best(folder: Path, plan: PlanResult | Solved) -> list[Text]:
    """Write the files of the best strategy that was rehearsed whole; what to tell of it."""
    if isinstance(plan, PlanResult):
        found = [(choice, plan.request) for choice in plan.fitting]
    else:
        found = [(solution.choice, solution.request) for solution in plan.solutions]
    best, request = next(((one, asked) for one, asked in found if one.source == "rehearsed"), (None, plan.request))
    if best is None:
        return [
            Text(
                "{path}: nothing was written, because no strategy was found to fit",
                "{path}：没有写入文件，因为没有方案被证实放得下",
            ).format(path=folder)
        ]
    files = write(folder, best, request, plan.facts)
    written = Text(
        "{path}: {count} files for {strategy}; start with one of its launch_*.sh",
        "{path}：已写入 {count} 个文件，方案为 {strategy}；用其中一个 launch_*.sh 启动",
    ).format(path=folder, count=len(files), strategy=best.strategy.label)
    return [
        written,
        *(
            Text("still to be provided by you: {what}", "还需你提供：{what}").format(what=one)
            for one in to_change(best, request, plan.facts)
        ),
    ]


def to_change(choice: Choice, request: PlanRequest, facts: Facts) -> list[Text]:
    """What the user has to put into the files, since gonogo can't know it."""
    task = request.task
    said = [
        Text(
            "data.jsonl next to them, or DATA=…: one line per sample, {example}",
            "在旁边放 data.jsonl，或设置 DATA=…：每行一个样本，{example}",
        ).format(example='{"messages": [...]}' if task is None else lines_of(task.task))
    ]
    if task is not None and task.kind.rolls_out and task.beside is None:
        said.append(
            Text(
                "the reward: reward() in {script}, --reward_funcs in launch_swift.sh",
                "奖励：{script} 中的 reward()，launch_swift.sh 中的 --reward_funcs",
            ).format(script=SCRIPT)
        )
    if choice.strategy.reference != "precomputed":
        said += _chosen_for_swift(swift_kind(request.name, request.model, facts.model_class))
    if choice.strategy.rollout.engine == "server":
        said.append(
            Text(
                "start {server} before the training; for ms-swift start swift rollout instead",
                "训练开始前须先启动 {server}；用 ms-swift 时改为启动 swift rollout",
            ).format(server=SERVER)
        )
        if request.machine.nodes > 1:
            said.append(Text("SERVER_ADDR: the server's node", "SERVER_ADDR：服务所在的节点"))
    if request.without(choice.strategy.rollout.gpus).machine.nodes > 1:
        said.append(
            Text(
                "the node names in hostfile; NODE_RANK and MASTER_ADDR on each node",
                "在 hostfile 中填写各节点名称；在每个节点上设置 NODE_RANK 和 MASTER_ADDR",
            )
        )
    if "nvme" in (choice.strategy.family.optimizer, choice.strategy.family.parameters):
        said.append(
            Text("nvme_path in {config}: a folder on the NVMe", "{config} 中的 nvme_path：NVMe 上的一个目录").format(
                config=CONFIG
            )
        )
    return said


def written_config(choice: Choice, request: PlanRequest, facts: Facts) -> dict[str, Any]:
    """The DeepSpeed config, in numbers where transformers would fill in ``"auto"``."""
    trains = request.without(choice.strategy.rollout.gpus).world_size
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


def _chosen_for_swift(found: SwiftKind) -> Iterator[Text]:
    for option, chosen, of in (
        ("--model_type", found.kind, found.kinds),
        ("--template", found.template, found.templates),
    ):
        if chosen and len(of) > 1:
            yield Text(
                "{option} in launch_swift.sh, which can't be determined from the folder's name: {chosen}, or "
                "another of {of}",
                "launch_swift.sh 中的 {option}，从目录名看不出：现为 {chosen}，也可以是 {of} 中的另一个",
            ).format(option=option, chosen=chosen, of=", ".join(of))


def files_of(choice: Choice, request: PlanRequest, facts: Facts) -> dict[str, str]:
    """Name and text of each file."""
    config = written_config(choice, request, facts)
    arguments = training_arguments(choice.strategy, request)
    written = {CONFIG: json.dumps(config, indent=2) + "\n"}
    if request.task is not None:
        arguments |= task_arguments(choice.strategy, request)
        written |= {SCRIPT: script_of(request.task.task), **task_files(choice, request, facts, arguments)}
    else:
        written |= {"train.py": TRAINING_SCRIPT, **launch_files(choice, request, facts, arguments)}
    if "launch_swift.sh" in written:
        plain = {name: value for name, value in config.items() if name != "optimizer"}
        written[SWIFT_CONFIG] = json.dumps(plain, indent=2) + "\n"
    return {**written, "training_arguments.json": json.dumps(arguments, indent=2) + "\n"}
