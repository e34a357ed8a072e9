"""An exception of the program, described by facts: the location, operator, operands and module."""

from __future__ import annotations

import argparse
import contextlib
import linecache
import os
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import torch

from gonogo.evidence.rehearsal.record import Failure, Frame, Operand
from gonogo.virtual.frame_variables import local_variable, local_variables
from gonogo.virtual.hooks.lifecycle import Lifecycle
from gonogo.virtual.hooks.modules import ModuleTracker
from gonogo.virtual.stack import OURS, frames_of_call, frames_of_traceback, owner_of
from gonogo.virtual.tensor import VirtualTensor

_ANOMALY_FRAME_PATTERN = re.compile(r'^\s*File "([^"]+)", line (\d+), in (.+)$', re.MULTILINE)

_META_TYPE_PATTERN = re.compile(r"\bMeta(\w+)Type\b")


class FailedCall:
    """The failing operator, recorded at once, while its operands and the module are still alive."""

    def __init__(self, func: Any, args: Any, kwargs: Any, modules: ModuleTracker) -> None:
        self.operator = str(func)
        self.module = modules.current_path
        self.module_class = type(modules.stack[-1]).__name__ if modules.stack else None
        self.operands = tuple(_describe_operands(func, args, kwargs, modules))


def attach_failed_call(modules: ModuleTracker, error: BaseException, func: Any, args: Any, kwargs: Any) -> None:
    """Attach the failing operator to the exception; an inner one that is already attached is kept."""
    if not hasattr(error, "gonogo_call"):
        error.gonogo_call = FailedCall(func, args, kwargs, modules)  # type: ignore[attr-defined]


def _describe_operands(func: Any, args: Any, kwargs: dict[str, Any], modules: ModuleTracker) -> list[Operand]:
    arguments = func._schema.arguments
    named = [(a.name, v) for a, v in zip(arguments, args, strict=False)] + list(kwargs.items())
    found = []
    for name, value in named:
        several = isinstance(value, list | tuple)
        for index, tensor in enumerate(value if several else [value]):
            if isinstance(tensor, torch.Tensor):
                found.append(_describe_operand(f"{name}[{index}]" if several else name, tensor, modules))
    return found[:16]


def _describe_operand(name: str, tensor: torch.Tensor, modules: ModuleTracker) -> Operand:
    owner, kind = modules.name_of(tensor)
    device = tensor._device if isinstance(tensor, VirtualTensor) else tensor.device
    return Operand(
        name=name,
        device=str(device),
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        parameter=owner,
        kind=kind,  # type: ignore[arg-type]
        chosen=isinstance(tensor, VirtualTensor) and tensor.cell.chosen,
    )


def unwrap_exit_cause(error: BaseException) -> BaseException:
    """The exception that a framework printed before it exited with a bare status (hydra), else ``error``.

    For an exception from a Ray worker, the worker's own exception.
    """
    error = getattr(error, "gonogo_cause", error)
    cause = error.__context__
    if isinstance(error, SystemExit) and isinstance(error.code, int) and error.code and isinstance(cause, Exception):
        return error if _argparse_message(error) else getattr(cause, "gonogo_cause", cause)
    return error


def find_in_chain(error: BaseException | None, kind: Any) -> Any:
    """The first exception of that type among ``error`` and its causes and contexts; None if there is none."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, kind):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def describe_failure(
    error: BaseException, lifecycle: Lifecycle, modules: ModuleTracker, origin: tuple[Frame, ...]
) -> Failure:
    """Describe an exception that ended the program."""
    call: FailedCall | None = getattr(error, "gonogo_call", None)
    module, module_class = (call.module, call.module_class) if call is not None else (modules.current_path, None)
    built = _module_under_construction(error.__traceback__)
    if built is not None and not (call is not None and call.module_class):
        module, module_class = built
    return Failure(
        type=_type_name(error),
        message=_argparse_message(error) or _with_device_type_names(str(error)),
        frames=frames_of_traceback(error.__traceback__),
        phase=getattr(error, "gonogo_phase", lifecycle.phase),
        step=lifecycle.step,
        operator=call.operator if call is not None else None,
        operands=call.operands if call is not None else (),
        module=module,
        module_class=module_class,
        reading=_file_being_read(error),
        cause=_describe_first_cause(error),
        traceback=_with_device_type_names(_format_user_traceback(error)),
        origin=origin,
    )


def _type_name(error: BaseException) -> str:
    kind = type(error)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _describe_first_cause(error: BaseException) -> str:
    """The innermost cause of the exception; a worker process's traceback given as text doesn't count."""
    first, seen = error, {id(error)}
    while (cause := first.__cause__) is not None and id(cause) not in seen and not _is_remote_traceback(cause):
        seen.add(id(cause))
        first = cause
    return "" if first is error else f"{_type_name(first)}: {first}"


def _is_remote_traceback(cause: BaseException) -> bool:
    return type(cause).__name__ in ("RemoteTraceback", "_RemoteTraceback")


def _with_device_type_names(text: str) -> str:
    """The text with the accelerator's tensor type names, since C++ only sees meta tensors."""
    return _META_TYPE_PATTERN.sub(rf"torch.{'npu' if hasattr(torch, 'npu') else 'cuda'}.\1Tensor", text)


def _argparse_message(error: BaseException) -> str | None:
    """What argparse printed before it exited, since its exception has only the exit status."""
    if isinstance(error, SystemExit):
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if frame.f_code is argparse.ArgumentParser.exit.__code__ and local_variable(frame, "message"):
                return str(local_variable(frame, "message")).strip()
    return None


def _file_being_read(error: BaseException) -> str | None:
    """For a syntax error in JSON or YAML: the file, taken from the frames that called the parser, or None."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if not kinds & {"JSONDecodeError", "HjsonDecodeError", "YAMLError", "MarkedYAMLError"}:
        return None
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        for value in local_variables(frame).values():
            path: Any = value if isinstance(value, str | os.PathLike) else getattr(value, "name", None)
            named = isinstance(path, str | os.PathLike) and str(path).endswith((".json", ".yaml", ".yml"))
            if named and os.path.isfile(path):
                return str(path)
    return None


def _module_under_construction(tb: TracebackType | None) -> tuple[str, str] | None:
    """(class path, innermost class) of the modules whose ``__init__`` is running."""
    classes: list[str] = []
    while tb is not None:
        frame = tb.tb_frame
        owner = local_variable(frame, "self")
        if isinstance(owner, torch.nn.Module) and frame.f_code.co_name == "__init__":
            name = type(owner).__name__
            if not classes or classes[-1] != name:
                classes.append(name)
        tb = tb.tb_next
    return (" > ".join(classes), classes[-1]) if classes else None


def _format_user_traceback(error: BaseException) -> str:
    """The traceback in Python's format, without gonogo's frames."""
    printed = traceback.TracebackException.from_exception(error)
    chain: Any = printed
    seen = set()
    while chain is not None and id(chain) not in seen:
        seen.add(id(chain))
        kept = [f for f in chain.stack if not f.filename.startswith((OURS, "<frozen"))]
        chain.stack = traceback.StackSummary.from_list(kept)
        chain = chain.__cause__ or chain.__context__
    return "".join(printed.format())[-40_000:]


def main_thread_stack() -> tuple[Frame, ...]:
    """The current stack of the main thread."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return frames_of_call(frame) if frame is not None else ()


class AutogradOrigin:
    """The forward call behind a failing autograd node, found by a second run in autograd's anomaly mode."""

    def __init__(self) -> None:
        self.frames: tuple[Frame, ...] = ()
        """The stack of the forward call that made the failing node, outermost call first; empty where none failed."""

    @contextlib.contextmanager
    def recording_forward_calls(self) -> Iterator[None]:
        """Context in which autograd's anomaly mode reports the forward call of a failing node."""
        with warnings.catch_warnings(), torch.autograd.set_detect_anomaly(True, check_nan=False):
            show = warnings.showwarning

            def note_anomaly_warning(message: Any, *args: Any, **kwargs: Any) -> None:
                if "Error detected in" in str(message) and not self.frames:
                    self.frames = _anomaly_frames(str(message))
                show(message, *args, **kwargs)

            warnings.showwarning = note_anomaly_warning
            warnings.filterwarnings("always", message="Error detected in")
            yield


def is_from_autograd(message: str) -> bool:
    """Whether the autograd engine rejected a gradient, so that only the forward call tells where it comes from."""
    return "returned an invalid gradient at index" in message


def _anomaly_frames(warning: str) -> tuple[Frame, ...]:
    """The frames of the forward call, as anomaly detection printed them."""
    frames = []
    for path, line, function in _ANOMALY_FRAME_PATTERN.findall(warning):
        if path.startswith((OURS, "<")):
            continue
        text = linecache.getline(path, int(line)).strip()
        frames.append(Frame(path, int(line), function.strip(), text, owner_of(path)))
    return tuple(frames)
