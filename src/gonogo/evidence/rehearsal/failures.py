"""What several hazards need to read a rehearsal's record: failures merged over ranks, places, settings."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gonogo.evidence.library import is_library
from gonogo.evidence.rehearsal.chain import ChainedException, first_cause
from gonogo.evidence.rehearsal.influence import Influence, ProgramLine
from gonogo.evidence.rehearsal.record import (
    GUESSED_BATCH_ASSUMPTION,
    SYNTHETIC_COMPLETIONS_ASSUMPTION,
    Assumption,
    Failure,
    Frame,
    Operand,
    RankRecord,
    RehearsalRecord,
)
from gonogo.finding import Span, Text, translated

_MAX_LINES_ABOVE_RAISE = 5  # how far above a ``raise`` the condition that led to it is looked for

_INPUT_INDEPENDENT_ERRORS = (
    "NameError",
    "UnboundLocalError",
    "ImportError",
    "ModuleNotFoundError",
    "FileNotFoundError",
)
"""Exceptions that a reward raises of any text."""


class FailedRanks(msgspec.Struct, frozen=True):
    """Ranks that one exception, raised at one place, ended."""

    failure: Failure
    ranks: tuple[int, ...]
    first: RankRecord
    """The record of the first of them."""

    @property
    def zero_stage(self) -> int | None:
        """ZeRO's stage: the engine's where one was made, 3 where ``zero.Init`` was at work, else None."""
        stage = setting(self.first.deepspeed_config, "zero_optimization", "stage")
        if isinstance(stage, int):
            return stage
        return 3 if self.under_zero_init else None

    @property
    def under_zero_init(self) -> bool:
        """True where a module was being built inside ``deepspeed.zero.Init``."""
        return any(
            path_ends_with(frame, "deepspeed/runtime/zero/partition_parameters.py") for frame in self.failure.frames
        )


def failed_ranks(record: RehearsalRecord) -> list[FailedRanks]:
    """The exceptions of a rehearsal; ranks that fell at the same place are one."""
    groups: dict[tuple[object, ...], list[RankRecord]] = {}
    for rank in record.ranks:
        if rank.failure is not None and rank.outcome != "unsupported":  # what can't be rehearsed may work for real
            frames = tuple((frame.path, frame.line) for frame in rank.failure.frames)
            # Messages differ by rank where they name its device; the place does not.
            groups.setdefault((rank.failure.type, frames or rank.failure.message), []).append(rank)
    return [
        FailedRanks(group[0].failure, tuple(rank.rank for rank in group), group[0])
        for group in groups.values()
        if group[0].failure is not None
    ]


def path_ends_with(frame: Frame, suffix: str) -> bool:
    """True where the frame's file is that one, whatever the folder and the separator."""
    return f"/{frame.path}".replace("\\", "/").endswith(f"/{suffix}")


def innermost(frames: Iterable[Frame], owner: str) -> Frame | None:
    """The innermost frame of that owner in a stack given from the outermost call, or None."""
    return next((frame for frame in reversed(tuple(frames)) if frame.owner == owner), None)


def class_of(failure: Failure) -> str:
    """The exception's class without its module: ``OutOfMemoryError``."""
    return failure.type.rpartition(".")[2]


def last_frame_outside_torch(failure: Failure) -> Frame | None:
    """The innermost frame that is neither torch's nor Python's own: the code that called the operator."""
    return next((f for f in reversed(failure.frames) if f.owner != "torch" and not is_stdlib_frame(f)), None)


def is_stdlib_frame(frame: Frame) -> bool:
    """True for a file of Python's standard library (``importlib``, ``contextlib``), which explains nothing."""
    path = frame.path.replace("\\", "/")
    return path.startswith("<frozen") or ("/lib/python3" in path and "-packages/" not in path)


def places(*marked: tuple[Frame | None, Text | None]) -> tuple[Span, ...]:
    """Spans of the frames that are there, each place once, in the order given."""
    spans: dict[tuple[str, int], Span] = {}
    for frame, label in marked:
        if frame is not None:
            spans.setdefault((frame.path, frame.line), Span(frame.path, frame.line, text=frame.text, label=label))
    return tuple(spans.values())


def library_frame(failure: Failure | ChainedException) -> Frame | None:
    """The innermost frame of a library, torch's where there is no other; DeepSpeed's bare wrapper is passed over."""
    telling = [f for f in failure.frames if not is_stdlib_frame(f) and not path_ends_with(f, "deepspeed/utils/nvtx.py")]
    return innermost(telling, "library") or innermost(telling, "torch")


def failure_places(failure: Failure) -> tuple[Span, ...]:
    """The user's innermost frame first, then the innermost frame of a library; then that of the first cause."""
    raised = translated("raised from here")
    cause = first_cause(failure)
    begun = library_frame(cause) if cause is not None else None
    return places(
        (failure.innermost("user"), None),
        (library_frame(failure), raised),
        (begun, translated("its original cause was raised here")),
    )


def setting(config: object, *path: str) -> object:
    """A value of a nested configuration, or None where a step of the path is missing."""
    for key in path:
        if not isinstance(config, dict):
            return None
        config = config.get(key)
    return config


def offload_device(config: object, section_name: str) -> str | None:
    """``cpu`` or ``nvme`` where ``section_name`` (``offload_optimizer``, ``offload_param``) is offloaded, else None."""
    device = setting(config, "zero_optimization", section_name, "device")
    name = str(getattr(device, "value", device)).lower()
    return name if name in ("cpu", "nvme") else None


def describe(operands: Iterable[Operand]) -> Text:
    """Operands as ``self [2, 4096] bfloat16 on cuda:0 (model.norm.weight); other …``; empty without any."""
    en, zh = [], []
    for operand in operands:
        tensor = f"{operand.name} {list(operand.shape)} {operand.dtype.removeprefix('torch.')}"
        owner = operand.parameter or (operand.kind if operand.kind != "unknown" else "")
        en.append(f"{tensor} on {operand.device}" + (f" ({owner})" if owner else ""))
        zh.append(f"{operand.device} 上的 {tensor}" + (f"（{owner}）" if owner else ""))
    return Text("; ".join(en), "；".join(zh))


def shorten(message: str, limit: int = 600) -> str:
    """A message cut to a length that fits one screen."""
    message = message.strip()
    return message if len(message) <= limit else f"{message[:limit]} …"


def few(names: Iterable[str], limit: int = 5) -> str:
    """The first names, and how many more there are."""
    listed = list(names)
    more = len(listed) - limit
    return ", ".join(listed[:limit]) + (f" … (+{more})" if more > 0 else "")


def is_shortage(rank: RankRecord, failure: Failure) -> bool:
    """True for the out-of-memory error of a rank whose record has the shortage."""
    short = any(memory.shortage is not None for memory in rank.devices)
    return short and ("OutOfMemory" in failure.type or "out of memory" in failure.message)


_SAME_SENDS_ASSUMPTION = "every rank sends what this rank sends"


_SAME_PARAMETERS_ASSUMPTION = "every rank's model has the same parameters"
_ZERO_VALUES_ASSUMPTION = "values that the program reads are zero"
_VALUE_INDEPENDENT_ERROR_PATTERN = re.compile(
    r"unsupported ScalarType|device type tensor to numpy|call numpy\(\) on Tensor"
)
"""What is refused of a tensor that is read as a whole, in the very line that reads it: whatever is in it."""

CALL_SIGNATURE_ERROR_PATTERN = re.compile(
    r"\b(\w+)(?:\.__\w+__)?\(\) (?:got an unexpected|missing \d+ required|takes )"
)
"""Python's refusal of a call that a function's signature doesn't allow: its name, or its class's."""

_INDEX_ERROR_PATTERN = re.compile(r"(?i)device-side assert|\bout of (?:range|bounds)\b")
"""What torch says of an index for its value, not for its shape or place."""
_SCORE_CHOICE_ASSUMPTION = translated("a choice among unknown scores")

_FINITE_VALUES_ASSUMPTION = "values are finite (no NaN, no infinity)"
_GRAD_SCALER_ORDER_PATTERN = re.compile(
    r"has already been called (?:on this optimizer )?since the last update|is being called after step\(\)"
    r"|No inf checks were recorded"
)
"""What torch's GradScaler says of the order of its calls, which no gradient's value decides."""

_PYTHON_VALUE_ASSUMPTIONS = (
    "an unknown number", "an unknown integer", "a condition on unknown values", "unknown tensors are equal",
    _ZERO_VALUES_ASSUMPTION, "the objects received",
)  # fmt: skip
"""How assumptions begin whose value the program then has as a number, a truth or an object of its own."""
_MAX_FOLLOWED_ASSUMPTIONS = 40


def is_python_value(assumption: Assumption) -> bool:
    """Whether the program has what was assumed as a value of Python's, which it may test and keep."""
    return assumption.what.startswith(_PYTHON_VALUE_ASSUMPTIONS)


def place_of(assumption: Assumption) -> ProgramLine | None:
    """Where an assumption was made; None where that isn't known."""
    path, _, number = assumption.where.rpartition(":")
    return ProgramLine(path, int(number)) if number.isdigit() else None


def assumption_behind_failure(rank: RankRecord, failure: Failure) -> Assumption | None:
    """An assumption that may have chosen the branch: made near the line that raised, or followed there by its names."""
    return (
        rank.read_beyond
        or _assumption_in_operands(rank, failure)
        or _assumption_nearby(rank, failure)
        or _assumption_by_data_flow(rank, failure)
    )


def _assumption_in_operands(rank: RankRecord, failure: Failure) -> Assumption | None:
    """The choice among unknown scores that an index comes of which was refused."""
    if not any(one.chosen for one in failure.operands) or _INDEX_ERROR_PATTERN.search(failure.message) is None:
        return None
    return next((one for one in rank.assumptions if "unknown scores" in one.what), None) or Assumption(
        _SCORE_CHOICE_ASSUMPTION.en, "unknown", 1, _SCORE_CHOICE_ASSUMPTION.zh
    )


def _assumption_by_data_flow(rank: RankRecord, failure: Failure) -> Assumption | None:
    """An assumption whose value decides, by the names that it passes through, that the program came to where it failed.

    ``bad += loss.item() > 10`` in one place, ``if bad >= limit: raise`` in another.
    """
    users = [ProgramLine(frame.path, frame.line) for frame in failure.frames if frame.owner == "user"]
    paths = [place.path for place in users]
    if _VALUE_INDEPENDENT_ERROR_PATTERN.search(failure.message):
        return None
    for assumption in [one for one in rank.assumptions if is_python_value(one)][:_MAX_FOLLOWED_ASSUMPTIONS]:
        start = place_of(assumption)
        if start is None or is_library(start.path):
            continue
        influence = Influence(start, paths)
        if any(influence.decides(place) for place in users) or (users and influence.uses(users[-1])):
            return assumption
    return None


def _assumption_nearby(rank: RankRecord, failure: Failure) -> Assumption | None:
    """An assumption made on, or just above, the line that raised: it may have chosen the branch.

    Where torch raised, also one made on the line that called it: it may have chosen a shape. What other ranks send
    during a backward chooses nothing there: gradients, and DDP's map of the parameters that were used. That values are
    finite chooses whether a scaler's step is taken, and nothing of the order in which it is called.
    """
    raising = failure.frames[-1] if failure.frames else None
    called = next((frame for frame in reversed(failure.frames) if "/torch/" not in frame.path), None)
    whatever = _VALUE_INDEPENDENT_ERROR_PATTERN.search(failure.message) is not None
    of_order = raising is not None and raising.path.endswith("/torch/amp/grad_scaler.py")
    of_order = of_order and _GRAD_SCALER_ORDER_PATTERN.search(failure.message) is not None
    for assumption in rank.assumptions:
        path, _, number = assumption.where.rpartition(":")
        if not number.isdigit() or (failure.phase == "backward" and assumption.what == _SAME_SENDS_ASSUMPTION):
            continue
        line = int(number)
        if assumption.what == _SAME_PARAMETERS_ASSUMPTION and raising and (path, line) != (raising.path, raising.line):
            continue  # it decides whether DDP is made, and nothing after that
        if of_order and assumption.what == _FINITE_VALUES_ASSUMPTION:
            continue
        if failure.type.endswith(".Unsupported") and not is_python_value(assumption):
            continue  # the compiler refuses code before a tensor of it has values, and however it would be run
        if (
            whatever
            and assumption.what == _ZERO_VALUES_ASSUMPTION
            and raising
            and (path, line) == (raising.path, raising.line)
        ):
            continue
        if raising and path == raising.path and 0 <= raising.line - line <= _MAX_LINES_ABOVE_RAISE:
            return assumption
        if called and (path, line) == (called.path, called.line):
            return assumption
    return None


_ERRORS_OF_MISSING_DATA = frozenset(
    {"AssertionError", "IndexError", "KeyError", "NameError", "RuntimeError", "StopIteration", "UnboundLocalError",
     "ValueError", "ZeroDivisionError"}
)  # fmt: skip
"""What a program raises that counts, averages or joins what it has read; the next two, of what it has not set."""
_ERRORS_OF_NONE = frozenset({"AttributeError", "TypeError"})
_MISSING_FILE_PATTERN = re.compile(
    r"No such file or directory|(?:file|folder|directory|path|checkpoint)\b.{0,200}? (?:does not|doesn't) exist"
    r"|no (?:valid )?checkpoint",
    re.IGNORECASE,
)
_FRAMEWORK_PATH_PATTERN = re.compile(
    r"/(?:transformers|accelerate|deepspeed|peft|trl|diffusers|swift|llamafactory|safetensors|huggingface_hub)/"
)


def data_end_behind_failure(rank: RankRecord, failure: Failure) -> Assumption | None:
    """The end that the rehearsal made of the data, where the program's own lines after it may have failed of that.

    ``losses[-1]`` of an epoch without batches, predictions of two batches beside all labels, a checkpoint that a later
    batch would have had written. What else is raised inside a module's forward, or by a framework that is called, has
    not to do with it.
    """
    ended, kind = rank.data_ended, class_of(failure)
    if kind == "FileNotFoundError" or _MISSING_FILE_PATTERN.search(failure.message):
        return ended
    of_it = kind in _ERRORS_OF_MISSING_DATA or (kind in _ERRORS_OF_NONE and "NoneType" in failure.message)
    if ended is None or not of_it or failure.module is not None:
        return None
    inside: list[Frame] = []
    for frame in reversed(failure.frames):
        if frame.owner == "user":
            return None if any(_FRAMEWORK_PATH_PATTERN.search(one.path) for one in inside) else ended
        inside.append(frame)
    return None


def synthetic_input_behind_failure(rank: RankRecord, failure: Failure) -> Assumption | None:
    """What was made and may be otherwise: the batch of a first forward that failed, the text of a reward that did."""
    if failure.phase == "forward" and failure.step <= 1:
        made = GUESSED_BATCH_ASSUMPTION
    elif (
        failure.phase == "reward"
        and failure.type not in _INPUT_INDEPENDENT_ERRORS
        and "argument" not in failure.message
    ):
        made = SYNTHETIC_COMPLETIONS_ASSUMPTION
    else:
        return None
    return next((assumption for assumption in rank.assumptions if assumption.what == made), None)
