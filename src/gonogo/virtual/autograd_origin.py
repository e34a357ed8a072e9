"""Where the forward made the autograd node that fails in backward: a second run asks autograd, which is slow."""

from __future__ import annotations

import contextlib
import linecache
import re
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from gonogo.evidence.rehearsal.record import Frame
from gonogo.virtual.stack import OURS, owner_of

_ANOMALY_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+), in (.+)$', re.MULTILINE)


class AutogradOrigin:
    """What autograd says in a run that repeats a failed one."""

    def __init__(self) -> None:
        self.frames: tuple[Frame, ...] = ()
        """The stack of the forward call that made the failing node, outermost call first; empty where none failed."""

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Have autograd say where each node comes from."""
        with warnings.catch_warnings(), torch.autograd.set_detect_anomaly(True, check_nan=False):
            show = warnings.showwarning

            def note(message: Any, *args: Any, **kwargs: Any) -> None:
                if "Error detected in" in str(message) and not self.frames:
                    self.frames = _frames_in(str(message))
                show(message, *args, **kwargs)

            warnings.showwarning = note
            warnings.filterwarnings("always", message="Error detected in")
            yield


def is_from_autograd(message: str) -> bool:
    """Whether the autograd engine refused a gradient: then only the forward call tells where it comes from."""
    return "returned an invalid gradient at index" in message


def _frames_in(warning: str) -> tuple[Frame, ...]:
    """The frames of the forward call that anomaly detection printed."""
    frames = []
    for path, line, function in _ANOMALY_FRAME.findall(warning):
        if path.startswith((OURS, "<")):
            continue
        text = linecache.getline(path, int(line)).strip()
        frames.append(Frame(path, int(line), function.strip(), text, owner_of(path)))
    return tuple(frames)
