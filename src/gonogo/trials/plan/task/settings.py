"""What ``--task`` is asked with: lengths, generations, models beside the trained one, where completions are made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from gonogo.finding import translated
from gonogo.finding.errors import UserError
from gonogo.trials.plan.task.kinds import KINDS, TASKS, Reference, Task, TaskKind
from gonogo.trials.plan.task.rollout import ENGINES, Where

_PROMPT, _COMPLETION, _GENERATIONS = 512, 1024, 8
_ROLLOUT_OPTIONS = ("generations", "engine", "reward_model")
_TUNES = ("full", "lora")


class TaskOptions(msgspec.Struct, frozen=True):
    """The command line's options, as typed; None where one isn't given."""

    task: str | None = None
    prompt_len: int | None = None
    completion_len: int | None = None
    generations: int | None = None
    beta: float | None = None
    teacher: str | None = None
    reward_model: str | None = None
    engine: str | None = None


class TaskSettings(msgspec.Struct, frozen=True):
    """A training by preferences, rewards or a teacher. Lengths are tokens."""

    task: Task
    prompt_len: int
    completion_len: int
    generations: int = 1
    """Completions of each prompt."""
    beta: float = 0.0
    beside: Path | None = None
    """The folder of the reward model, or of the teacher."""
    beside_name: str = ""
    """The same, as the user names it."""
    engine: Where = ""
    """The only one that is tried, if it was asked for."""

    @property
    def kind(self) -> TaskKind:
        """What the task has beside the model."""
        return KINDS[self.task]

    @property
    def engines(self) -> tuple[Where, ...]:
        """Where completions may be generated: transformers' own ``generate`` only where it is asked for."""
        if not self.kind.rolls_out:
            return ("",)
        return (self.engine,) if self.engine else ("colocate", "server")

    def references(self, tune: str) -> tuple[Reference, ...]:
        """Where the log-probabilities of the reference may come from."""
        if not self.beta or (not self.kind.beta and not self.kind.rolls_out):
            return ("",)
        if tune == "lora":
            return ("adapter",)
        return ("model", "precomputed") if self.kind.precomputes else ("model",)


def merged(options: TaskOptions, said: TaskOptions) -> TaskOptions:
    """The options, and what a command says besides. Raises UserError where it trains by what no plan knows."""
    if options.task is None and said.task is not None and said.task not in TASKS:
        raise UserError(
            translated(
                "the command trains with {name}, which can't be planned: choose the nearest of {known} with --task"
            ).format(name=said.task, known=", ".join(TASKS))
        )
    if options.task not in (None, said.task):
        return options
    given = msgspec.structs.asdict(options)
    return TaskOptions(**{name: getattr(said, name) if value is None else value for name, value in given.items()})


def settings_of(
    asked: TaskOptions, seq_len: int | None, tune: str, folder_of: Callable[[str], Path]
) -> TaskSettings | None:
    """What is asked; None for plain fine-tuning. ``folder_of`` finds a model's folder. Raises UserError."""
    task = _known_task(asked.task or "sft")
    kind = KINDS[task]
    _refuse_what_it_has_not(asked, task)
    if task == "sft":
        return None
    if tune not in _TUNES:
        raise UserError(
            translated("--tune {tune} with --task {task}: only {known} can be planned").format(
                tune=tune, task=task, known=", ".join(_TUNES)
            )
        )
    if task == "gkd" and asked.teacher is None:
        raise UserError(translated("--task gkd distils from a teacher: give it, for example --teacher Qwen2.5-32B/"))
    prompt, completion = _lengths(asked, seq_len, rolls_out=kind.rolls_out or kind.generates)
    generations = asked.generations or (_GENERATIONS if kind.rolls_out else 1)
    if kind.rolls_out and generations < 2:
        raise UserError(
            translated(
                "--generations {count}: {task} compares completions of the same prompt, so it needs at least 2"
            ).format(count=generations, task=task)
        )
    name = asked.teacher or asked.reward_model
    return TaskSettings(
        task=task,
        prompt_len=prompt,
        completion_len=completion,
        generations=generations,
        beta=kind.beta if asked.beta is None else asked.beta,
        beside=None if name is None else folder_of(name),
        beside_name=name or "",
        engine=_known_engine(asked.engine),
    )


def _known_task(name: str) -> Task:
    for known in TASKS:
        if known == name:
            return known
    raise UserError(translated("--task {name}: must be one of {known}").format(name=name, known=", ".join(TASKS)))


def _known_engine(name: str | None) -> Where:
    if name is None:
        return ""
    for known in ENGINES:
        if known == name:
            return known
    raise UserError(translated("--engine {name}: must be one of {known}").format(name=name, known=", ".join(ENGINES)))


def _refuse_what_it_has_not(asked: TaskOptions, task: Task) -> None:
    """Options that a task has no use for are a mistake, rather than being passed over."""
    kind = KINDS[task]
    useless = [] if kind.rolls_out else [name for name in _ROLLOUT_OPTIONS if getattr(asked, name) is not None]
    useless += [] if task == "gkd" or asked.teacher is None else ["teacher"]
    useless += [] if kind.beta or kind.rolls_out or asked.beta is None else ["beta"]
    if task == "sft":
        useless += [name for name in ("prompt_len", "completion_len") if getattr(asked, name) is not None]
    if not useless:
        return
    option = f"--{useless[0].replace('_', '-')}"
    having = [one for one in TASKS if not _is_useless(useless[0], one)]
    raise UserError(
        translated("{option} does not apply to --task {task}, only to {having}").format(
            option=option, task=task, having=", ".join(having)
        )
    )


def _is_useless(option: str, task: Task) -> bool:
    kind = KINDS[task]
    if option in _ROLLOUT_OPTIONS:
        return not kind.rolls_out
    if option == "teacher":
        return task != "gkd"
    if option == "beta":
        return not (kind.beta or kind.rolls_out)
    return task == "sft"


def _lengths(asked: TaskOptions, seq_len: int | None, *, rolls_out: bool) -> tuple[int, int]:
    """Tokens of a prompt and of a completion: what is given, the rest of ``--seq-len``, else what is usual."""
    prompt, completion = asked.prompt_len, asked.completion_len
    if seq_len is None:
        usual = _COMPLETION if rolls_out else 4096 - _PROMPT
        return prompt or _PROMPT, completion or usual
    if prompt is None:
        prompt = min(_PROMPT, seq_len // 2) if completion is None else seq_len - completion
    if completion is None:
        completion = seq_len - prompt
    if min(prompt, completion) < 1:
        raise UserError(
            translated(
                "--seq-len {length} must cover prompt and completion together, but one of them alone is as long"
            ).format(length=seq_len)
        )
    if prompt + completion != seq_len:
        raise UserError(
            translated(
                "--seq-len {length} must be the sum of prompt and completion, which are {prompt} and {completion}"
            ).format(length=seq_len, prompt=prompt, completion=completion)
        )
    return prompt, completion
