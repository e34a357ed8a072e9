"""Records exceptions together with the guard's state, and adds that state to their tracebacks."""

from __future__ import annotations

import contextlib
import re
import sys
import time
import traceback
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from gonogo.evidence.guarded.records import ExceptionRecord, ZeroState
from gonogo.evidence.rehearsal.record import Operand
from gonogo.finding import translated
from gonogo.guard.common.frames import GONOGO, frames_of_stack, frames_of_traceback
from gonogo.guard.tensors.modules import Names, modules_running, names_of
from gonogo.guard.tensors.operands import failure_operands, zero_state

if TYPE_CHECKING:
    from gonogo.guard.common.state import RankState

# Attributes set on an exception: its context, that it has left the program, its original message.
_MARK, _DIED, _MESSAGE = "_gonogo_noted", "_gonogo_died", "_gonogo_message"
_MAX_RECORDED_EXCEPTIONS = 100
_LAUNCHER_ERRORS = (
    "CalledProcessError",
    "ChildFailedError",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SignalException",
)
_DS_ID_PATTERN = re.compile(r"'id': (\d+)|\bid=(\d+)|\bds_id[=: ]+(\d+)")
_MAX_MESSAGE_LENGTH = 60_000
_MISMATCH_PATTERN = re.compile(r"device|dtype|type|shape|size|dimension|partition|gradient|parameter", re.IGNORECASE)


class FailureContext(msgspec.Struct, frozen=True):
    """What the guard knows about an exception besides the exception itself."""

    module: str | None = None
    module_class: str | None = None
    operands: tuple[Operand, ...] = ()
    zero: tuple[ZeroState, ...] = ()


def is_launcher_error(error: BaseException) -> bool:
    """Whether an exception only says that a child process of this one failed."""
    return type(error).__name__ in _LAUNCHER_ERRORS


def note_exception(state: RankState, error: BaseException, *, fatal: bool, thread: str = "") -> None:
    """Record an exception: once while it propagates, and once more if it leaves the program."""
    noted: FailureContext | None = getattr(error, _MARK, None)
    if getattr(error, _DIED, False) or (noted is not None and not fatal and not thread):
        return
    if fatal or thread:
        with contextlib.suppress(AttributeError):
            setattr(error, _DIED, True)
    else:
        state.noted += 1
        if state.noted > _MAX_RECORDED_EXCEPTIONS:
            return
    context = noted or failure_context(error, state.model)
    # While it propagates, its traceback starts at the guard's own frame; the callers are still on the stack.
    outside = None if fatal or thread or error.__traceback__ is None else error.__traceback__.tb_frame.f_back
    assert state.writer is not None
    state.writer.write_now(
        ExceptionRecord(
            time=time.time(),
            type=_type_name(error),
            message=_message(error)[:_MAX_MESSAGE_LENGTH],
            frames=(*frames_of_stack(outside), *frames_of_traceback(error.__traceback__)),
            traceback=_format_traceback(error, outside),
            fatal=fatal,
            thread=thread,
            module=context.module,
            module_class=context.module_class,
            operands=context.operands,
            zero=context.zero,
            step=state.step,
            phase=state.phase,
            collectives=state.ring.collectives(),
            counts=dict(state.ring.counts),
        )
    )
    if noted is None:
        where = f"rank {state.rank}", f"step {state.step + 1}", state.phase
        annotate(error, context, where, state.options.language)


def failure_context(error: BaseException, model: Any, names: Names | None = None) -> FailureContext:
    """Module, operands and ZeRO's state where an exception, or its cause if it has one, was raised.

    ``names`` defaults to the names in ``model``, or in the running module if that is not part of ``model``.
    """
    if "torch" not in sys.modules:  # torch itself may be what failed to import
        return FailureContext()
    error = _innermost_cause(error)
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    running = [module for module, _ in modules_running(frames)]
    names = names or names_of(model, frames)
    operands = failure_operands(error.__traceback__, names) if running or _MISMATCH_PATTERN.search(str(error)) else ()
    module = running[-1] if running else None
    return FailureContext(
        names.module_path(module) if module is not None else None,
        type(module).__name__ if module is not None else None,
        operands,
        _zero_states(error, operands, names),
    )


def _innermost_cause(error: BaseException) -> BaseException:
    seen = {id(error)}
    while (cause := error.__cause__) is not None and cause.__traceback__ is not None and id(cause) not in seen:
        seen.add(id(cause))
        error = cause
    return error


def _zero_states(error: BaseException, operands: tuple[Operand, ...], names: Names) -> tuple[ZeroState, ...]:
    """ZeRO's state of the parameters among the operands, and of those that the message names by DeepSpeed's IDs."""
    by_name = dict(names.by_zero_number.values())
    wanted = [operand.parameter for operand in operands if operand.parameter in by_name]
    for groups in _DS_ID_PATTERN.findall(str(error)):
        number = int(next(group for group in groups if group))
        if number in names.by_zero_number:
            wanted.append(names.by_zero_number[number][0])
    states = [zero_state(name, by_name[name]) for name in dict.fromkeys(wanted) if name is not None]
    return tuple(state for state in states if state is not None)[:16]


def _type_name(error: BaseException) -> str:
    kind = type(error)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _message(error: BaseException) -> str:
    """The message of the exception without the guard's additions."""
    message = str(error)
    before: str | None = getattr(error, _MESSAGE, None)
    return message if before is None else before


def _format_traceback(error: BaseException, outer_frame: FrameType | None) -> str:
    """The traceback as Python prints it at the end of the program, without the guard's frames and notes."""
    whole = traceback.TracebackException.from_exception(error)
    if outer_frame is not None:
        whole.stack = traceback.StackSummary.from_list([*traceback.extract_stack(outer_frame, 60), *whole.stack])
    chain: Any = whole
    seen: set[int] = set()
    while chain is not None and id(chain) not in seen:
        seen.add(id(chain))
        chain.stack = traceback.StackSummary.from_list(
            [frame for frame in chain.stack if not frame.filename.startswith(GONOGO)]
        )
        notes = getattr(chain, "__notes__", None)
        if notes:
            chain.__notes__ = [note for note in notes if not str(note).startswith("gonogo")] or None
        chain = chain.__cause__ or chain.__context__
    text = "".join(whole.format())
    before: str | None = getattr(error, _MESSAGE, None)
    return (text if before is None else text.replace(str(error), before))[-_MAX_MESSAGE_LENGTH:]


_LOCATION_LINE = translated("gonogo: {where}")
_MODULE_LINE = translated("  in module {module} ({kind})")
_OPERANDS = translated("  tensors on the failing line:")
_ZERO3_STATE = translated(
    "  ZeRO-3: {name} is {status}, full shape {shape}, {elements} elements on {device} on this rank"
)
_TENSOR_KIND_TEXTS = {"parameter": translated("parameter {name}"), "buffer": translated("buffer {name}")}


def annotate(error: BaseException, context: FailureContext, context_names: tuple[str, ...], language: str) -> None:
    """Add the context to an exception: as a note, or (before Python 3.11) at the end of its message."""
    lines = context_lines(context, context_names, language)
    try:
        setattr(error, _MARK, context)
        if not (context.module or context.operands or context.zero):
            return
        if hasattr(error, "add_note"):
            error.add_note("\n".join(lines))
        elif len(error.args) == 1 and isinstance(error.args[0], str) and str(error) == error.args[0]:
            setattr(error, _MESSAGE, error.args[0])
            error.args = ("\n".join([error.args[0], *lines]),)
    except (AttributeError, TypeError):  # an exception that allows no attributes
        return


def context_lines(context: FailureContext, context_names: tuple[str, ...], language: str) -> list[str]:
    """The context as lines of text."""
    lines = [_LOCATION_LINE.format(where=", ".join(context_names)).in_language(language)]
    if context.module is not None:
        text = _MODULE_LINE.format(module=context.module, kind=context.module_class)
        lines.append(text.in_language(language))
    if context.operands:
        lines += [_OPERANDS.in_language(language), *_format_table(context.operands, language)]
    for state in context.zero:
        text = _ZERO3_STATE.format(
            name=state.parameter,
            status=state.status,
            shape=tuple(state.shape),
            elements=state.partition_elements,
            device=state.partition_device,
        )
        lines.append(text.in_language(language))
    return lines


def _format_table(operands: tuple[Operand, ...], language: str) -> list[str]:
    rows = []
    for one in operands:
        kind = _TENSOR_KIND_TEXTS.get(one.kind)
        owner = kind.format(name=one.parameter).in_language(language) if kind is not None and one.parameter else ""
        rows.append((one.name, one.device, one.dtype, str(tuple(one.shape)), owner))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        "    " + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]).rstrip()
        for row in rows
    ]
