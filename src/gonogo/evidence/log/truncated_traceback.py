"""Tracebacks that were pasted without their last lines: where they were when they were cut."""

from __future__ import annotations

from gonogo.evidence.log.failure_log import FailureLog, LoggedError


def find_truncated_error(log: FailureLog, *places: tuple[str, str], max_frames: int = 3) -> LoggedError | None:
    """The first cut traceback one of whose innermost frames has a fragment of path and one of function or code.

    Each place is such a pair: ``("zero/stage3.py", "unscale_and_clip_grads")``.
    """
    for error in log.cut:
        for frame in error.frames[-max_frames:]:
            path = frame.path.replace("\\", "/")
            if any(where in path and (what in frame.function or what in frame.code) for where, what in places):
                return error
    return None
