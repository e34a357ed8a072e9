"""torchrun's ``error.json``: a worker's exception in a JSON object, with its traceback as one string."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from gonogo.evidence.log.line import MAX_LINE_LENGTH, LogLine, cleaned
from gonogo.evidence.log.sieve import Part


def lines_of_error_file(path: str, rank: int | None, parts: Iterable[Part]) -> list[LogLine]:
    """The lines of the traceback inside an error file, numbered from its first; the file's own where it holds none."""
    kept = list(parts)
    try:
        message: Any = json.loads(b"\n".join(part.data for part in kept).decode("utf-8", "replace"))["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return cleaned(path, rank, kept)
    stack_text, time = message, None
    if isinstance(message, dict):
        extra = message.get("extraInfo")
        extra = extra if isinstance(extra, dict) else {}
        stack_text = extra.get("py_callstack") or message.get("message")
        time = _seconds(extra.get("timestamp"))
    lines = cleaned(path, rank, [Part(1, str(stack_text or "").encode("utf-8", "replace"))])
    return [LogLine(path, line.number, line.text[:MAX_LINE_LENGTH], line.rank, line.node, time) for line in lines]


def _seconds(stack_text: Any) -> float | None:
    try:
        return float(stack_text)
    except (TypeError, ValueError):
        return None
