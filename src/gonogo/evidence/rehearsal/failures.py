"""Helpers for hazards that read a rehearsal's record: failures merged over ranks, places, settings."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gonogo.evidence.library import is_library_path
from gonogo.evidence.rehearsal.chain import ChainedException, first_cause
from gonogo.evidence.rehearsal.influence import Influence, ProgramLine
from gonogo.evidence.rehearsal.record import (
    GUESSED_BATCH_ASSUMPTION,
    SYNTHETIC_COMPLETIONS_ASSUMPTION,
    Assumption,
    AssumptionKind,
    Failure,
    Frame,
    Operand,
    RankRecord,
    RehearsalRecord,
)
from gonogo.finding import Span, Text, translated

_MAX_LINES_ABOVE_RAISE = 5  # how far above a ``raise`` to look for the condition that led to it

_INPUT_INDEPENDENT_ERRORS = (
    "NameError",
    "UnboundLocalError",
    "ImportError",
    "ModuleNotFoundError",
    "FileNotFoundError",
)
"""Exceptions that a reward function raises whatever its input text."""


class FailedRanks(msgspec.Struct, frozen=True):
    """Ranks that failed with the same exception at the same place."""

    failure: Failure
    ranks: tuple[int, ...]
    first: RankRecord
    """The record of the first of them."""

    @property
    def zero_stage(self) -> int | None:
        """The ZeRO stage: the engine's if there is one, 3 inside ``zero.Init``, else None."""
        stage = nested_value(self.first.deepspeed_config, "zero_optimization", "stage")
        if isinstance(stage, int):
            return stage
        return 3 if self.is_under_zero_init else None

    @property
    def is_under_zero_init(self) -> bool:
        """True if a module was being constructed inside ``deepspeed.zero.Init``."""
        return any(
            path_ends_with(frame, "deepspeed/runtime/zero/partition_parameters.py") for frame in self.failure.frames
        )


def failed_ranks(record: RehearsalRecord) -> list[FailedRanks]:
    """The exceptions of a rehearsal; ranks that failed at the same place are merged."""
    groups: dict[tuple[object, ...], list[RankRecord]] = {}
    for rank in record.ranks:
        if rank.failure is not None and rank.outcome != "unsupported":  # may work in a real run
            frames = tuple((frame.path, frame.line) for frame in rank.failure.frames)
            # Messages may differ by rank, since they name its device; the place doesn't.
            groups.setdefault((rank.failure.type, frames or rank.failure.message), []).append(rank)
    return [
        FailedRanks(group[0].failure, tuple(rank.rank for rank in group), group[0])
        for group in groups.values()
        if group[0].failure is not None
    ]


def path_ends_with(frame: Frame, suffix: str) -> bool:
    """True if the frame's path ends with ``suffix``, whatever the path separator."""
    return f"/{frame.path}".replace("\\", "/").endswith(f"/{suffix}")


def innermost_frame(frames: Iterable[Frame], owner: str) -> Frame | None:
    """The innermost frame of that owner in a stack whose outermost call comes first, or None."""
    return next((frame for frame in reversed(tuple(frames)) if frame.owner == owner), None)


def exception_class_name(failure: Failure) -> str:
    """The exception's class without its module: ``OutOfMemoryError``."""
    return failure.type.rpartition(".")[2]


def last_frame_outside_torch(failure: Failure) -> Frame | None:
    """The innermost frame that belongs neither to torch nor to Python itself: the code that called the operator."""
    return next((f for f in reversed(failure.frames) if f.owner != "torch" and not is_stdlib_frame(f)), None)


def is_stdlib_frame(frame: Frame) -> bool:
    """True for a file of Python's standard library (``importlib``, ``contextlib``), which explains nothing."""
    path = frame.path.replace("\\", "/")
    return path.startswith("<frozen") or ("/lib/python3" in path and "-packages/" not in path)


def frame_spans(*marked: tuple[Frame | None, Text | None]) -> tuple[Span, ...]:
    """Spans of the given frames (Nones are skipped), each place once, in order."""
    spans: dict[tuple[str, int], Span] = {}
    for frame, label in marked:
        if frame is not None:
            spans.setdefault((frame.path, frame.line), Span(frame.path, frame.line, text=frame.text, label=label))
    return tuple(spans.values())


def library_frame(failure: Failure | ChainedException) -> Frame | None:
    """The innermost frame of a library, torch only if there is no other; DeepSpeed's thin wrapper is skipped."""
    shown = [f for f in failure.frames if not is_stdlib_frame(f) and not path_ends_with(f, "deepspeed/utils/nvtx.py")]
    return innermost_frame(shown, "library") or innermost_frame(shown, "torch")


def failure_places(failure: Failure) -> tuple[Span, ...]:
    """The user's innermost frame, then the innermost frame of a library, then that of the root cause."""
    raised = translated("the exception was raised from here")
    cause = first_cause(failure)
    begun = library_frame(cause) if cause is not None else None
    return frame_spans(
        (failure.innermost("user"), None),
        (library_frame(failure), raised),
        (begun, translated("the exception that caused it was raised here")),
    )


def nested_value(config: object, *path: str) -> object:
    """A value in a nested configuration, or None if any part of the path is missing."""
    for key in path:
        if not isinstance(config, dict):
            return None
        config = config.get(key)
    return config


def offload_device(config: object, section_name: str) -> str | None:
    """``cpu`` or ``nvme`` if ``section_name`` (``offload_optimizer``, ``offload_param``) is offloaded, else None."""
    device = nested_value(config, "zero_optimization", section_name, "device")
    name = str(getattr(device, "value", device)).lower()
    return name if name in ("cpu", "nvme") else None


def describe_operands(operands: Iterable[Operand]) -> Text:
    """Operands as ``self [2, 4096] bfloat16 on cuda:0 (model.norm.weight); other …``; empty if there are none."""
    en, zh = [], []
    for operand in operands:
        tensor = f"{operand.name} {list(operand.shape)} {operand.dtype.removeprefix('torch.')}"
        owner = operand.parameter or (operand.kind if operand.kind != "unknown" else "")
        en.append(f"{tensor} on {operand.device}" + (f" ({owner})" if owner else ""))
        zh.append(f"{operand.device} 上的 {tensor}" + (f"（{owner}）" if owner else ""))
    return Text("; ".join(en), "；".join(zh))


def shorten_exception_message(message: str, limit: int = 600) -> str:
    """A message cut to a length that fits one screen."""
    message = message.strip()
    return message if len(message) <= limit else f"{message[:limit]} …"


def first_few_names(names: Iterable[str], limit: int = 5) -> str:
    """The first names, and how many others there are."""
    listed = list(names)
    more = len(listed) - limit
    return ", ".join(listed[:limit]) + (f" … (+{more})" if more > 0 else "")


def is_memory_shortage(rank: RankRecord, failure: Failure) -> bool:
    """True for the out-of-memory error of a rank whose record has the shortage."""
    short = any(memory.shortage is not None for memory in rank.devices)
    return short and ("OutOfMemory" in failure.type or "out of memory" in failure.message)


_VALUE_INDEPENDENT_ERROR_PATTERN = re.compile(
    r"unsupported ScalarType|device type tensor to numpy|call numpy\(\) on Tensor"
)
"""Errors of the very line that reads a tensor's contents, raised whatever its values are."""

CALL_SIGNATURE_ERROR_PATTERN = re.compile(
    r"\b(\w+)(?:\.__\w+__)?\(\) (?:got an unexpected|missing \d+ required|takes )"
)
"""Python's TypeError for a call that doesn't fit a signature; captures the function's or the class's name."""

_INDEX_ERROR_PATTERN = re.compile(r"(?i)device-side assert|\bout of (?:range|bounds)\b")
"""torch's messages about an index whose value, rather than shape or device, is wrong."""
_SCORE_CHOICE_ASSUMPTION = translated("a choice among unknown scores")

_GRAD_SCALER_ORDER_PATTERN = re.compile(
    r"has already been called (?:on this optimizer )?since the last update|is being called after step\(\)"
    r"|No inf checks were recorded"
)
"""Messages of torch's GradScaler about the order of its calls, which doesn't depend on the gradients' values."""

_PYTHON_VALUE_KINDS: frozenset[AssumptionKind] = frozenset({"number", "chosen_number", "zeros", "peer_objects"})
"""Kinds of assumptions that give the program a Python number, a bool or an object."""
_CHOICE_KINDS: frozenset[AssumptionKind] = frozenset({"scores", "chosen_number"})
_GENERATED_KINDS: frozenset[AssumptionKind] = frozenset({"generated", "guessed"})
_OTHER_RANK_KINDS: frozenset[AssumptionKind] = frozenset({"peer_tensors", "peer_objects"})
_MAX_FOLLOWED_ASSUMPTIONS = 40
_TRAINING_PHASES = frozenset({"forward", "backward", "step"})


def is_python_value(assumption: Assumption) -> bool:
    """Whether the assumption gave the program a Python value, which it may test and store."""
    return assumption.kind in _PYTHON_VALUE_KINDS


def is_generated_data(assumption: Assumption) -> bool:
    """Whether it is about data that gonogo generated, whose text says nothing of the real ones."""
    return assumption.kind in _GENERATED_KINDS


def concerns_other_ranks(assumption: Assumption) -> bool:
    """Whether it is about what other ranks send, so that it isn't needed if they are rehearsed too."""
    return assumption.kind in _OTHER_RANK_KINDS


def line_of_assumption(assumption: Assumption) -> ProgramLine | None:
    """The line at which an assumption was made; None if unknown."""
    path, _, number = assumption.where.rpartition(":")
    return ProgramLine(path, int(number)) if number.isdecimal() else None


def assumption_behind_failure(rank: RankRecord, failure: Failure) -> Assumption | None:
    """An assumption that may have led to the failure: made near the raising line, or affecting it by data flow."""
    return (
        rank.read_beyond
        or _assumption_in_operands(rank, failure)
        or _assumption_nearby(rank, failure)
        or _assumption_by_data_flow(rank, failure)
    )


def _assumption_in_operands(rank: RankRecord, failure: Failure) -> Assumption | None:
    """The choice among unknown scores from which a rejected index was computed."""
    if not any(one.chosen for one in failure.operands) or _INDEX_ERROR_PATTERN.search(failure.message) is None:
        return None
    return next((one for one in rank.assumptions if one.kind in _CHOICE_KINDS), None) or Assumption(
        _SCORE_CHOICE_ASSUMPTION.en, "unknown", 1, _SCORE_CHOICE_ASSUMPTION.zh, "scores"
    )


def _assumption_by_data_flow(rank: RankRecord, failure: Failure) -> Assumption | None:
    """An assumption whose value the failing line uses, or that decides, by data flow through names, if it is reached.

    ``bad += loss.item() > 10`` in one place, ``if bad >= limit: raise`` in another.
    """
    users = [ProgramLine(frame.path, frame.line) for frame in failure.frames if frame.owner == "user"]
    paths = [place.path for place in users]
    if _VALUE_INDEPENDENT_ERROR_PATTERN.search(failure.message):
        return None
    # A call that doesn't fit a signature fails with any rows, and after the first batch they have been read.
    rows_count = not _TRAINING_PHASES & set(rank.phases) and not CALL_SIGNATURE_ERROR_PATTERN.search(failure.message)
    followed = [one for one in rank.assumptions if is_python_value(one) or (rows_count and is_generated_data(one))]
    for assumption in followed[:_MAX_FOLLOWED_ASSUMPTIONS]:
        start = line_of_assumption(assumption)
        if start is None or is_library_path(start.path):
            continue
        influence = Influence(start, paths)
        if any(influence.decides(place) for place in users) or (users and influence.reads_affected_value(users[-1])):
            return assumption
    return None


def _assumption_nearby(rank: RankRecord, failure: Failure) -> Assumption | None:
    """An assumption made on, or just above, the line that raised: it may have chosen the branch.

    If torch raised, also one made on the line that called it: it may have chosen a shape. Data from other ranks
    received during a backward decides nothing there: it is gradients, and DDP's map of the parameters that were used.
    Finite values decide whether a GradScaler takes its step, but not the order in which it is called.
    """
    raising = failure.frames[-1] if failure.frames else None
    called = next((frame for frame in reversed(failure.frames) if "/torch/" not in frame.path), None)
    whatever = _VALUE_INDEPENDENT_ERROR_PATTERN.search(failure.message) is not None
    of_order = raising is not None and raising.path.endswith("/torch/amp/grad_scaler.py")
    of_order = of_order and _GRAD_SCALER_ORDER_PATTERN.search(failure.message) is not None
    for assumption in rank.assumptions:
        path, _, number = assumption.where.rpartition(":")
        if not number.isdecimal() or (failure.phase == "backward" and assumption.kind == "peer_tensors"):
            continue
        line = int(number)
        if assumption.kind == "peer_parameters" and raising and (path, line) != (raising.path, raising.line):
            continue  # it decides whether DDP is constructed, and nothing after that
        if of_order and assumption.kind == "finite":
            continue
        if failure.type.endswith(".Unsupported") and not is_python_value(assumption):
            continue  # the compiler rejects code before any tensor in it has values
        if whatever and assumption.kind == "zeros" and raising and (path, line) == (raising.path, raising.line):
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
"""Errors of a program that counts, averages or joins too little data; next, those of using an unset value."""
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
    """The point at which the rehearsal ended the data, if the program's own code may have failed because of it.

    ``losses[-1]`` of an epoch without batches, predictions for two batches beside all labels, a checkpoint that a
    later batch would have saved. Other errors, raised inside a module's forward or by a framework, are unrelated.
    """
    ended, kind = rank.data_ended, exception_class_name(failure)
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
    """The assumed input that may differ in a real run: the batch of a failed first forward, the text of a reward."""
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
