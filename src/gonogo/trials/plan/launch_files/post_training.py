"""The files that launch a post-training task: TRL with three launchers, ms-swift's command, and a rollout server."""

from __future__ import annotations

from typing import Any

from gonogo.evidence.published.swift_kind import infer_swift_options
from gonogo.trials.plan.choice import Choice
from gonogo.trials.plan.launch_files.arguments import task_arguments, to_command_line_options
from gonogo.trials.plan.launch_files.fine_tuning import (
    accelerate_node_options,
    accelerate_yaml,
    deepspeed_launcher,
    hostfile_text,
    launch_script,
    swift_arguments,
    swift_environment,
    swift_kind_options,
    swift_model_options,
    torch_dtype,
    torchrun_launcher,
)
from gonogo.trials.plan.request import PlanRequest
from gonogo.trials.plan.task.rollout import SERVER_MEMORY_SHARE
from gonogo.trials.plan.task.script import SCRIPT, data_line_format
from gonogo.trials.plan.task.settings import TaskSettings
from gonogo.virtual.measuring.jobs import ModelFacts

SERVER = "launch_server.sh"
_SWIFT_RLHF_TYPES = {"rloo": "grpo"}
_SWIFT_DATA_EXAMPLES = {
    "dpo": '{"messages": [...], "rejected_response": "..."}',
    "kto": '{"messages": [...], "label": true}',
    "rm": '{"messages": [...], "rejected_response": "..."}',
    "gkd": '{"messages": [...]}',
    "grpo": '{"messages": [...]}',
    "rloo": '{"messages": [...]}',
}


def task_files(choice: Choice, request: PlanRequest, facts: ModelFacts, arguments: dict[str, Any]) -> dict[str, str]:
    """(name: text) of each file. ``arguments``: transformers' TrainingArguments; ``request``: for all GPUs."""
    task, strategy = request.task, choice.strategy
    assert task is not None
    left = request.without_server_gpus(strategy.rollout.gpus)
    settings = arguments | task_arguments(strategy, left)
    program = [
        *_program_words(request, task),
        *_server_address_options(choice, request),
        *to_command_line_options(settings),
    ]
    exports = _visible_devices_export(choice, request)
    text = f"a line each: {data_line_format(task.task)}"
    accelerated = ["accelerate", "launch", "--config_file", "accelerate.yaml", *accelerate_node_options(left)]
    files = {
        **({"hostfile": hostfile_text(left)} if left.machine.nodes > 1 else {}),
        "launch_deepspeed.sh": launch_script(
            choice, left, _deepspeed_launch_words(choice, request), program, exports, data_comment=text
        ),
        "launch_torchrun.sh": launch_script(choice, left, torchrun_launcher(left), program, exports, data_comment=text),
        "accelerate.yaml": accelerate_yaml(left),
        "launch_accelerate.sh": launch_script(choice, left, accelerated, program, exports, data_comment=text),
    }
    if strategy.rollout.engine == "server":
        files[SERVER] = _server_script(choice, request)
    if strategy.reference != "precomputed":  # ms-swift always has a reference model
        words = [*swift_model_options(request, facts), *_swift_task_options(choice, request, task, settings)]
        text = f"a line each: {_SWIFT_DATA_EXAMPLES[task.task]}"
        files["launch_swift.sh"] = launch_script(
            choice, left, ["swift", "rlhf"], words, (*exports, *swift_environment(left)), data_comment=text
        )
    return files


def _program_words(request: PlanRequest, task: TaskSettings) -> list[str]:
    words = [SCRIPT, "--model", "$MODEL", "--data", "$DATA", "--tune", request.tune]
    words += ["--lora_rank", str(request.lora_rank)] if request.tune == "lora" else []
    if task.beside is not None:
        words += ["--teacher" if task.task == "gkd" else "--reward_model", task.beside_name]
    return [*words, "--output_dir", "output"]


def _has_server_on_same_node(choice: Choice, request: PlanRequest) -> bool:
    return choice.strategy.rollout.engine == "server" and request.machine.nodes == 1


def _visible_devices_export(choice: Choice, request: PlanRequest) -> tuple[str, ...]:
    """Restrict the trainer to its GPUs if a server uses the others of the node."""
    if not _has_server_on_same_node(choice, request):
        return ()
    left = request.without_server_gpus(choice.strategy.rollout.gpus).machine.count
    return (f"export CUDA_VISIBLE_DEVICES={','.join(str(number) for number in range(left))}",)


def _deepspeed_launch_words(choice: Choice, request: PlanRequest) -> list[str]:
    """DeepSpeed's launcher rejects CUDA_VISIBLE_DEVICES with a GPU count, so it gets the GPUs by ``--include``."""
    left = request.without_server_gpus(choice.strategy.rollout.gpus)
    if not _has_server_on_same_node(choice, request):
        return deepspeed_launcher(left)
    return ["deepspeed", "--include", f"localhost:{','.join(str(number) for number in range(left.machine.count))}"]


def _server_address_options(choice: Choice, request: PlanRequest) -> list[str]:
    if choice.strategy.rollout.engine != "server":
        return []
    return ["--vllm_server_host", "$SERVER_ADDR" if request.machine.nodes > 1 else "127.0.0.1"]


def _server_script(choice: Choice, request: PlanRequest) -> str:
    """Run TRL's own command, which starts vLLM with weight synchronisation."""
    rollout, machine = choice.strategy.rollout, request.machine
    left = request.without_server_gpus(rollout.gpus).machine.count
    mine = range(machine.count) if machine.nodes > 1 else range(left, machine.count)
    words = [
        "--model", "$MODEL", "--tensor_parallel_size", str(rollout.tp),
        "--data_parallel_size", str(rollout.gpus // rollout.tp), "--gpu_memory_utilization", f"{SERVER_MEMORY_SHARE:g}",
        "--max_model_len", str(request.seq_len),
    ]  # fmt: skip
    devices = f"export CUDA_VISIBLE_DEVICES={','.join(str(number) for number in mine)}"
    one = request.without_server_gpus(machine.count * (machine.nodes - 1))
    return launch_script(None, one, ["trl", "vllm-serve"], words, (devices,), data_comment="")


def _swift_task_options(
    choice: Choice, request: PlanRequest, task: TaskSettings, settings: dict[str, Any]
) -> list[str]:
    words = [
        "--rlhf_type", _SWIFT_RLHF_TYPES.get(task.task, task.task), "--dataset", "$DATA",
        "--tuner_type", request.tune, "--torch_dtype", torch_dtype(request), "--max_length", str(request.seq_len),
        "--output_dir", "output", *(["--advantage_estimator", "rloo"] if task.task == "rloo" else []),
    ]  # fmt: skip
    if request.tune == "lora":
        words += ["--lora_rank", str(request.lora_rank), "--target_modules", "all-linear"]
    if task.task == "gkd":
        words += _auxiliary_model_options("--teacher_model", task)
    elif task.kind.rolls_out:
        words += (
            ["--reward_funcs", "format"] if task.beside is None else _auxiliary_model_options("--reward_model", task)
        )
    kept = swift_arguments(request, settings)
    kept.pop("max_length", None)
    if "max_new_tokens" in kept:
        kept["max_completion_length"] = kept.pop("max_new_tokens")
    if "vllm_max_model_length" in kept:
        kept["vllm_max_model_len"] = kept.pop("vllm_max_model_length")
    if kept.pop("vllm_enable_sleep_mode", False):
        kept["sleep_level"] = 1
    if choice.strategy.rollout.engine == "server":
        words += [*_server_address_options(choice, request), "--vllm_server_port", "8000"]
    return [*words, *to_command_line_options(kept)]


def _auxiliary_model_options(option: str, task: TaskSettings) -> list[str]:
    """The options for the reward model or teacher, with its type if ms-swift can't infer it from the folder."""
    assert task.beside is not None
    found = infer_swift_options(task.beside_name, task.beside)
    words = swift_kind_options(found, "--reward_model_type", "--reward_template")
    if task.task == "gkd":  # the teacher reads prompts in the student's template
        words = ["--teacher_model_type", found.kind] if found.kind else []
    return [option, task.beside_name, *words]
