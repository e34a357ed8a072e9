"""The settings of ``--task``: lengths, generations, auxiliary models, where completions are generated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from gonogo.finding import UserError, translated
from gonogo.trials.plan.task.kinds import KINDS, TASKS, Reference, Task, TaskKind
from gonogo.trials.plan.task.rollout import ENGINES, Where

_PROMPT, _COMPLETION, _GENERATIONS = 512, 1024, 8
_ROLLOUT_OPTIONS = ("generations", "engine", "reward_model")
_TUNING_METHODS = ("full", "lora")


class TaskOptions(msgspec.Struct, frozen=True):
    """The command line's options, as typed; None if not given."""

    task: str | None = None
    prompt_len: int | None = None
    completion_len: int | None = None
    generations: int | None = None
    beta: float | None = None
    teacher: str | None = None
    reward_model: str | None = None
    engine: str | None = None


class TaskSettings(msgspec.Struct, frozen=True):
    """Settings of preference optimization, reinforcement learning or distillation. Lengths are in tokens."""

    task: Task
    prompt_len: int
    completion_len: int
    generations: int = 1
    """Completions per prompt."""
    beta: float = 0.0
    beside: Path | None = None
    """The folder of the reward model or teacher."""
    beside_name: str = ""
    """The name of that model as the user gave it."""
    engine: Where = ""
    """The engine that the user chose; empty to try all."""

    @property
    def kind(self) -> TaskKind:
        """The properties of the task."""
        return KINDS[self.task]

    @property
    def engines(self) -> tuple[Where, ...]:
        """Where completions may be generated; transformers' own ``generate`` only on request."""
        if not self.kind.rolls_out:
            return ("",)
        return (self.engine,) if self.engine else ("colocate", "server")

    def references(self, tune: str) -> tuple[Reference, ...]:
        """The possible sources of the reference's log-probabilities."""
        if not self.beta or (not self.kind.beta and not self.kind.rolls_out):
            return ("",)
        if tune == "lora":
            return ("adapter",)
        return ("model", "precomputed") if self.kind.precomputes else ("model",)


def merge_task_options(options: TaskOptions, command_options: TaskOptions) -> TaskOptions:
    """The options, completed by those of a command. Raises UserError for a training method unknown to ``plan``."""
    if options.task is None and command_options.task is not None and command_options.task not in TASKS:
        raise UserError(
            translated(
                "the command trains with {name}, which can't be planned: choose the nearest of {known} with --task"
            ).format(name=command_options.task, known=", ".join(TASKS))
        )
    if options.task not in (None, command_options.task):
        return options
    given = msgspec.structs.asdict(options)
    return TaskOptions(
        **{name: getattr(command_options, name) if value is None else value for name, value in given.items()}
    )


def resolve_task_settings(
    task_options: TaskOptions, seq_len: int | None, tune: str, find_model_folder: Callable[[str], Path]
) -> TaskSettings | None:
    """The task's settings; None for plain fine-tuning. Raises UserError."""
    task = _parse_task(task_options.task or "sft")
    kind = KINDS[task]
    _reject_useless_options(task_options, task)
    if task == "sft":
        return None
    if tune not in _TUNING_METHODS:
        raise UserError(
            translated("--tune {tune} with --task {task}: only {known} can be planned").format(
                tune=tune, task=task, known=", ".join(_TUNING_METHODS)
            )
        )
    if task == "gkd" and task_options.teacher is None:
        raise UserError(translated("--task gkd distils from a teacher: give it, for example --teacher Qwen2.5-32B/"))
    prompt, completion = _prompt_and_completion_lengths(
        task_options, seq_len, has_rollouts=kind.rolls_out or kind.generates
    )
    generations = task_options.generations or (_GENERATIONS if kind.rolls_out else 1)
    if kind.rolls_out and generations < 2:
        raise UserError(
            translated(
                "--generations {count}: {task} compares completions of the same prompt, so it needs at least 2"
            ).format(count=generations, task=task)
        )
    name = task_options.teacher or task_options.reward_model
    return TaskSettings(
        task=task,
        prompt_len=prompt,
        completion_len=completion,
        generations=generations,
        beta=kind.beta if task_options.beta is None else task_options.beta,
        beside=None if name is None else find_model_folder(name),
        beside_name=name or "",
        engine=_parse_engine(task_options.engine),
    )


def _parse_task(name: str) -> Task:
    for known in TASKS:
        if known == name:
            return known
    raise UserError(translated("--task {name}: must be one of {known}").format(name=name, known=", ".join(TASKS)))


def _parse_engine(name: str | None) -> Where:
    if name is None:
        return ""
    for known in ENGINES:
        if known == name:
            return known
    raise UserError(translated("--engine {name}: must be one of {known}").format(name=name, known=", ".join(ENGINES)))


def _reject_useless_options(task_options: TaskOptions, task: Task) -> None:
    """Raise UserError for options that the task doesn't use, instead of silently ignoring them."""
    kind = KINDS[task]
    useless = [] if kind.rolls_out else [name for name in _ROLLOUT_OPTIONS if getattr(task_options, name) is not None]
    useless += [] if task == "gkd" or task_options.teacher is None else ["teacher"]
    useless += [] if kind.beta or kind.rolls_out or task_options.beta is None else ["beta"]
    if task == "sft":
        useless += [name for name in ("prompt_len", "completion_len") if getattr(task_options, name) is not None]
    if not useless:
        return
    option = f"--{useless[0].replace('_', '-')}"
    having = [one for one in TASKS if not _has_no_effect(useless[0], one)]
    raise UserError(
        translated("{option} does not apply to --task {task}, only to {having}").format(
            option=option, task=task, having=", ".join(having)
        )
    )


def _has_no_effect(option: str, task: Task) -> bool:
    kind = KINDS[task]
    if option in _ROLLOUT_OPTIONS:
        return not kind.rolls_out
    if option == "teacher":
        return task != "gkd"
    if option == "beta":
        return not (kind.beta or kind.rolls_out)
    return task == "sft"


def _prompt_and_completion_lengths(
    task_options: TaskOptions, seq_len: int | None, *, has_rollouts: bool
) -> tuple[int, int]:
    """Tokens of a prompt and of a completion: as given, else from the rest of ``--seq-len``, else defaults."""
    prompt, completion = task_options.prompt_len, task_options.completion_len
    if seq_len is None:
        usual = _COMPLETION if has_rollouts else 4096 - _PROMPT
        return prompt or _PROMPT, completion or usual
    if prompt is None:
        prompt = min(_PROMPT, seq_len // 2) if completion is None else seq_len - completion
    if completion is None:
        completion = seq_len - prompt
    if min(prompt, completion) < 1:
        raise UserError(
            translated(
                "--seq-len {length} must cover prompt and completion together, but one of them alone is "
                "already that long"
            ).format(length=seq_len)
        )
    if prompt + completion != seq_len:
        raise UserError(
            translated(
                "--seq-len {length} must be the sum of prompt and completion, which are {prompt} and {completion}"
            ).format(length=seq_len, prompt=prompt, completion=completion)
        )
    return prompt, completion
