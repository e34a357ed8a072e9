"""What all rules that explain an exception have in common: their answer, and the frames that they look at."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gonogo.finding import Text
from gonogo.finding.failure import CodePlace, RaisedException

Explanation = tuple[Text | None, Text | None]
"""The reason as a clause, and what to change; (None, None) if the rule doesn't apply."""
_MAX_CODE_LENGTH = 2000
"""Maximum length of a code line that is examined; a longer one was not written by hand."""


def first_explanation(rules: Iterable[Callable[..., Explanation]], *given: object) -> Explanation:
    """The answer of the first rule that has one; (None, None) if none has."""
    answers = (rule(*given) for rule in rules)
    return next((answer for answer in answers if answer[0] is not None), (None, None))


def code_line(place: CodePlace | None) -> str:
    """The line of code that a frame shows; empty if there is none."""
    return place.code[:_MAX_CODE_LENGTH] if place is not None else ""


def raising_frame(exception: RaisedException) -> CodePlace | None:
    """The innermost frame of an exception: the one that raised it."""
    return exception.frames[-1] if exception.frames else None


def calling_frame(exception: RaisedException) -> CodePlace | None:
    """The innermost frame outside torch and Python."""
    outside = (frame for frame in reversed(exception.frames) if frame.package != "torch" and frame.owner != "python")
    return next(outside, None)


def nearest_package(exception: RaisedException) -> str:
    """The package of the innermost frame that belongs to one."""
    return next((frame.package for frame in reversed(exception.frames) if frame.package), "")


def package_with_version(place: CodePlace | None) -> str:
    """The package of a frame with its version, as far as it is known."""
    return f"{place.package} {place.release}".strip() if place is not None else ""
