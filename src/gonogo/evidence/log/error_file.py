"""torchrun's ``error.json``: a worker's exception in a JSON object, with its traceback as one string."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gonogo.evidence.log.line import LogLine


def lines_of_error_file(lines: Sequence[LogLine]) -> list[LogLine]:
    """The lines of the traceback inside an error file; the file's own lines where it holds none."""
    if not lines:
        return []
    try:
        message: Any = json.loads("\n".join(line.text for line in lines))["message"]
        stack = message["extraInfo"]["py_callstack"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return list(lines)
    first = lines[0]
    return [LogLine(first.path, number, text, first.rank) for number, text in enumerate(str(stack).splitlines(), 1)]
