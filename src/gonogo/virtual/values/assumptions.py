"""The ledger of assumptions: what the rehearsal could not know, what it assumed instead, and where."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Protocol

from gonogo.evidence.rehearsal.record import Assumption, AssumptionKind
from gonogo.finding import Text, translated

_GONOGO_FOLDER = str(Path(__file__).parents[2]) + os.sep
_FLIP_AFTER_VISITS = 64
"""Number of evaluations of a condition within a step after which its answer flips, so that ``while condition``
ends."""
_DEEPSPEED_COMM_PATH = f"{os.sep}deepspeed{os.sep}comm{os.sep}"


FINITE_ASSUMPTION = translated("values are finite (no NaN, no infinity)")


class Assume(Protocol):
    """A function that records an assumption: :meth:`Ledger.assume`, or one that stands for it."""

    def __call__(self, assumption: Text, kind: AssumptionKind = "") -> object:
        """Record it."""


class Ledger:
    """Assumptions, counted by text, place and kind. ``step`` is kept up to date by the lifecycle."""

    def __init__(self, torch_folder: str) -> None:
        self.step = 0
        self.counts: Counter[tuple[Text, str, AssumptionKind]] = Counter()
        self.branches = 0
        """Number of conditions on unknown values that were answered."""
        self.made_numbers = 0
        """Number of unknown numbers that were assumed."""
        self._visits: Counter[tuple[str, int]] = Counter()
        stdlib = os.path.dirname(os.__file__) + os.sep
        self._skip = (torch_folder + os.sep, _GONOGO_FOLDER, "<frozen", "<string>")
        self._glue = (stdlib, "typing_extensions.py")
        """Decorators and context managers that wrap calls, such as DeepSpeed's wrappers of torch functions."""

    def assume(self, assumption: Text, kind: AssumptionKind = "") -> str:
        """Record an assumption at the innermost frame that is neither torch's nor gonogo's; returns that place."""
        where = self.current_place()
        self.counts[(assumption, where, kind)] += 1
        return where

    def assume_branch(self, assumption: Text) -> bool:
        """The assumed truth of a condition on unknown values: True in the first step, False in the second, and so
        on."""
        where = self.assume(
            translated("{what} is true in one step, false in the next").format(what=assumption), "number"
        )
        self._visits[(where, self.step)] += 1
        self.branches += 1
        flips = self._visits[(where, self.step)] // _FLIP_AFTER_VISITS
        return (self.step + flips) % 2 == 0

    def assume_number(self, assumption: Text) -> float:
        """An assumed number: large in the first step, small in the second, so that both sides of a limit are
        covered."""
        self.assume(translated("{what} is 16 in one step, 1/16 in the next").format(what=assumption), "number")
        self.made_numbers += 1
        return 16.0 if self.step % 2 == 0 else 0.0625

    def current_place(self) -> str:
        """``file:line`` of the program's innermost frame."""
        frame = sys._getframe(1)
        while frame is not None:
            path = frame.f_code.co_filename
            if not path.startswith(self._skip) and not self._is_wrapper_code(path):
                return f"{path}:{frame.f_lineno}"
            if frame.f_back is None:
                break
            frame = frame.f_back
        return "unknown"

    def _is_wrapper_code(self, path: str) -> bool:
        in_packages = "site-packages" in path or "dist-packages" in path
        return (
            path.endswith(self._glue[1])
            or _DEEPSPEED_COMM_PATH in path
            or (path.startswith(self._glue[0]) and not in_packages)
        )

    def entries(self) -> list[Assumption]:
        """All assumptions, in the order in which they were first recorded."""
        return [Assumption(what.en, where, count, what.zh, kind) for (what, where, kind), count in self.counts.items()]
