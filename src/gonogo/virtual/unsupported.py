"""The exception for what can't be rehearsed; it results in CANNOT-TELL, with the name and the reason."""

from __future__ import annotations

from collections.abc import Callable

from gonogo.finding import Text

Unsupported = Callable[[str, Text], BaseException]
"""Creates the exception from a name and a reason; passed to the stand-ins for packages."""


class UnsupportedOperator(RuntimeError):
    """An operator that can't be rehearsed: no meta kernel, no decomposition."""

    def __init__(self, operator: str, reason: Text) -> None:
        super().__init__(f"{operator} can't be rehearsed: {reason.en}")
        self.operator = operator
        self.why = reason
