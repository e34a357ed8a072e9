"""Who reads a program's output: `PORT=$(python port.py)` is a helper, `python train.py | tee log` is not.

The kernel knows it: for a helper, the script's shell itself holds the other end of the pipe, or of the last pipe of a
pipeline.
"""

from __future__ import annotations

import contextlib
import os
import time

from gonogo.evidence.launch.command_words import SHELLS

_MAX_CHAIN = 16
_SETTLE_SECONDS = 0.05
"""A shell briefly holds the ends of a pipeline's pipes until it has started all programs."""


def is_read_by_shell(descriptor: int) -> bool:
    """Whether one of the shells that started this process reads what it writes to a descriptor."""
    if not _is_reader_shell(descriptor):
        return False
    time.sleep(_SETTLE_SECONDS)
    return _is_reader_shell(descriptor)


def _is_reader_shell(descriptor: int) -> bool:
    shells = set(_ancestor_shells(os.getpid()))
    pipe = _pipe_target_of_fd(f"/proc/self/fd/{descriptor}")
    seen = set()
    for _ in range(_MAX_CHAIN):
        if pipe is None or pipe in seen:
            return False
        seen.add(pipe)
        readers = [process for process in _process_ids() if _is_reading_pipe(process, pipe)]
        if shells.intersection(readers):
            return True
        outputs = [_pipe_target_of_fd(f"/proc/{process}/fd/1") for process in readers if process != os.getpid()]
        pipe = next((output for output in outputs if output is not None), None)
    return False


def _pipe_target_of_fd(fd_path: str) -> str | None:
    with contextlib.suppress(OSError):
        target = os.readlink(fd_path)
        if target.startswith("pipe:"):
            return target
    return None


def _process_ids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _is_reading_pipe(process: int, pipe_target: str) -> bool:
    folder = f"/proc/{process}"
    with contextlib.suppress(OSError):
        for name in os.listdir(f"{folder}/fd"):
            with contextlib.suppress(OSError, ValueError):
                if (
                    os.readlink(f"{folder}/fd/{name}") == pipe_target
                    and not _open_flags(f"{folder}/fdinfo/{name}") & os.O_ACCMODE
                ):
                    return True
    return False


def _open_flags(path: str) -> int:
    with open(path, encoding="ascii") as file:
        for line in file:
            if line.startswith("flags:"):
                return int(line.split()[1], 8)
    return os.O_ACCMODE


def _ancestor_shells(process: int) -> list[int]:
    found = []
    while process > 1:
        try:
            with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
                process = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
        with contextlib.suppress(OSError):
            if os.path.basename(os.readlink(f"/proc/{process}/exe")) in SHELLS:
                found.append(process)
    return found
