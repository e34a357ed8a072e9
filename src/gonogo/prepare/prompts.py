"""Messages and questions to the user at a terminal that may show a live display."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence

from gonogo.finding import Text
from gonogo.finding.language import choose_language

PROGRESS, PROGRESS_LINES = "GONOGO_PROGRESS", "lines"
"""The environment variable, and its value, that writes progress to stderr as lines for another program."""
PROGRESS_STATES, STATE = "states", "GONOGO_STATE"
"""The value that also writes a line for each change of a rank's state, and the prefix of such lines."""

_LANGUAGE: list[str] = []
_PAUSES: list[Callable[[], contextlib.AbstractContextManager[None]]] = []


@contextlib.contextmanager
def prompt_language(language: str) -> Iterator[None]:
    """Use this language for messages to the user within the block."""
    _LANGUAGE.append(language)
    try:
        yield
    finally:
        _LANGUAGE.pop()


@contextlib.contextmanager
def paused_during_prompts(pause: Callable[[], contextlib.AbstractContextManager[None]]) -> Iterator[None]:
    """Within the block, pause a display on the terminal with ``pause()`` while the user is being asked."""
    _PAUSES.append(pause)
    try:
        yield
    finally:
        _PAUSES.pop()


def print_lines(lines: Sequence[Text]) -> None:
    """Write lines to stderr."""
    language = _prompt_language()
    prefix = f"{PROGRESS}: " if writes_lines() else ""
    with _pause_displays():
        for line in lines:
            print(prefix + _strip_unprintable(line.in_language(language)), file=sys.stderr, flush=True)


def writes_lines() -> bool:
    """Whether another program reads the progress from stderr."""
    return os.environ.get(PROGRESS) in (PROGRESS_LINES, PROGRESS_STATES)


def can_ask() -> bool:
    """Whether there is a terminal at which to ask the user."""
    return not writes_lines() and _is_terminal(sys.stdin) and _is_terminal(sys.stderr)


def ask(lines: Sequence[Text], question: Text, *, default: bool = True) -> bool | None:
    """Whether the user says yes; ``default`` if only Enter is pressed; None without a terminal."""
    if not can_ask():
        return None
    with _pause_displays():
        print_lines(lines)
        print(question.in_language(_prompt_language()), end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
    text = answer.strip().lower()
    return text in ("y", "yes", "是", "好") or (text == "" and answer != "" and default)


def _prompt_language() -> str:
    return _LANGUAGE[-1] if _LANGUAGE else choose_language(None, os.environ)


def _is_terminal(stream: object) -> bool:
    try:
        return bool(stream.isatty())  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        return False


def _strip_unprintable(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())


@contextlib.contextmanager
def _pause_displays() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for pause in _PAUSES:
            stack.enter_context(pause())
        yield
