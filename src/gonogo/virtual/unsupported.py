"""What is raised in the program where a rehearsal can't go on: it makes CANNOT-TELL, with the name and why."""

from __future__ import annotations

from collections.abc import Callable

from gonogo.finding import Text

Unsupported = Callable[[str, Text], BaseException]
"""Makes the exception for something by its name and why: what stands in for packages is given it."""


class UnsupportedOperator(RuntimeError):
    """An operator that can't be rehearsed: no meta kernel, no decomposition."""

    def __init__(self, operator: str, reason: Text) -> None:
        super().__init__(f"{operator} can't be rehearsed: {reason.en}")
        self.operator = operator
        self.why = reason
