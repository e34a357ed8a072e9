"""Reads the task from a launch command: TRL's commands and trainers, ``swift rlhf``, LLaMA-Factory's stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gonogo.trials.plan.task.kinds import KINDS, TASKS
from gonogo.trials.plan.task.settings import TaskOptions

if TYPE_CHECKING:
    from gonogo.evidence.run import Run

_TASK_BY_TRAINER = {
    "DPOTrainer": "dpo", "KTOTrainer": "kto", "RewardTrainer": "rm", "GRPOTrainer": "grpo", "RLOOTrainer": "rloo",
    "GKDTrainer": "gkd", "PPOTrainer": "ppo", "ORPOTrainer": "orpo", "CPOTrainer": "cpo",
    "OnlineDPOTrainer": "online-dpo", "DistillationTrainer": "distillation",
}  # fmt: skip
_TASK_ALIASES = {"reward": "rm", "pt": "sft", "sft": "sft"}
_TRL_COMMANDS = ("sft", "dpo", "kto", "reward", "grpo", "rloo", "distillation")


def task_options_from(run: Run) -> TaskOptions:
    """The task and its options in the command; None for those that it doesn't set."""
    name = _task_name(run)
    if name is None or name == "sft":
        return TaskOptions(task=name)
    known = next((one for one in TASKS if one == name), None)
    if known is None:
        return TaskOptions(task=name)
    kind = KINDS[known]
    generates = kind.rolls_out or kind.generates
    completion = _first_number(run, ("max_completion_length", "max_new_tokens")) if generates else None
    # With generation, ms-swift's max_length is the prompt length.
    prompts = ("max_prompt_length", *(("max_length",) if run.framework == "ms-swift" else ()))
    beta = run.arguments.get("beta").number
    return TaskOptions(
        task=name,
        prompt_len=_first_number(run, prompts) if completion is not None else None,
        completion_len=completion,
        generations=_first_number(run, ("num_generations",)) if kind.rolls_out else None,
        beta=beta if kind.rolls_out or kind.beta else None,
        teacher=_first_string(run, ("teacher_model", "teacher_model_name_or_path", "teacher"))
        if name == "gkd"
        else None,
        reward_model=_first_string(run, ("reward_model", "reward_model_name_or_path")) if kind.rolls_out else None,
    )


def _task_name(run: Run) -> str | None:
    if run.framework == "trl" and run.launch is not None and run.launch.program.value in _TRL_COMMANDS:
        return _canonical_name(str(run.launch.program.value))
    for argument in ("rlhf_type", "stage"):
        stated = run.arguments.get(argument)
        if stated.known and isinstance(stated.value, str):
            return _canonical_name(stated.value)
    for script in run.scripts:
        for call in script.calls("trl.*Trainer"):
            task = _TASK_BY_TRAINER.get((call.name or "").rpartition(".")[2])
            if task is not None:
                return task
    return None


def _canonical_name(name: str) -> str:
    return _TASK_ALIASES.get(name, name)


def _first_number(run: Run, names: Sequence[str]) -> int | None:
    found = (run.arguments.get(name).number for name in names)
    return next((int(number) for number in found if number is not None and number >= 1), None)


def _first_string(run: Run, names: Sequence[str]) -> str | None:
    found = (run.arguments.get(name) for name in names)
    return next((str(field.value) for field in found if field.known and field.value), None)
