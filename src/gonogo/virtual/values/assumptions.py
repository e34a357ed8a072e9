"""The ledger of assumptions: what the rehearsal could not know, what it took instead, and where."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

from gonogo.evidence.rehearsal.record import Assumption
from gonogo.finding import Text, translated

_OURS = str(Path(__file__).parents[2]) + os.sep
_FLIP_AFTER_VISITS = 64
"""Visits of one condition within a step after which its answer flips, so that ``while condition`` ends."""
_DEEPSPEED_COMM_PATH = f"{os.sep}deepspeed{os.sep}comm{os.sep}"


FINITE_ASSUMPTION = translated("values are finite (no NaN, no infinity)")


class Ledger:
    """Assumptions, counted by what and where. ``step`` is kept up to date by the life cycle."""

    def __init__(self, torch_folder: str) -> None:
        self.step = 0
        self.counts: Counter[tuple[Text, str]] = Counter()
        self.branches = 0
        """How many conditions on unknown values were answered."""
        self.made_numbers = 0
        """How many unknown numbers were made."""
        self._visits: Counter[tuple[str, int]] = Counter()
        stdlib = os.path.dirname(os.__file__) + os.sep
        self._skip = (torch_folder + os.sep, _OURS, "<frozen", "<string>")
        self._glue = (stdlib, "typing_extensions.py")
        """Decorators and context managers, through which calls pass on their way, like DeepSpeed's layer over torch."""

    def assume(self, assumption: Text) -> str:
        """Record an assumption at the innermost frame that is neither torch's nor ours; returns that place."""
        where = self.place()
        self.counts[(assumption, where)] += 1
        return where

    def branch(self, assumption: Text) -> bool:
        """The answer to a condition on unknown values: true in the first step, false in the second, and so on."""
        where = self.assume(translated("{what}: true in one step, false in the next").format(what=assumption))
        self._visits[(where, self.step)] += 1
        self.branches += 1
        flips = self._visits[(where, self.step)] // _FLIP_AFTER_VISITS
        return (self.step + flips) % 2 == 0

    def number(self, assumption: Text) -> float:
        """An unknown number: large in the first step, small in the second, so that both sides of a limit are met."""
        self.assume(translated("{what}: 16 in one step, 1/16 in the next").format(what=assumption))
        self.made_numbers += 1
        return 16.0 if self.step % 2 == 0 else 0.0625

    def place(self) -> str:
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
        """All of them, in the order in which they were first made."""
        return [Assumption(what.en, where, count, what.zh) for (what, where), count in self.counts.items()]
