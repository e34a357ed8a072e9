"""Finds failures in tracebacks whose last lines are missing, by their innermost frames."""

from __future__ import annotations

from gonogo.evidence.log.failure_log import FailureLog, LoggedError


def find_truncated_error(log: FailureLog, *places: tuple[str, str], max_frames: int = 3) -> LoggedError | None:
    """The first truncated error with an innermost frame that matches one of ``places`` in both parts.

    Each place is a pair, a fragment of the path and one of the function or code:
    ``("zero/stage3.py", "unscale_and_clip_grads")``.
    """
    for error in log.truncated_errors:
        for frame in error.frames[-max_frames:]:
            path = frame.path.replace("\\", "/")
            if any(where in path and (what in frame.function or what in frame.code) for where, what in places):
                return error
    return None
