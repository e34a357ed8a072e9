"""Stacks of hanging ranks from ``py-spy dump``: where the main thread of each was."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from gonogo.evidence.library import is_library_path
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.patterns import lazy_compile
from gonogo.finding.frame import Frame

_PROCESS_LINE_PATTERN = lazy_compile(r"^Process (\d+): (.*)")
_THREAD_LINE_PATTERN = lazy_compile(r'^Thread (?:0x)?[\da-fA-F]+ \([^)]*\)(?:: "([^"]*)")?')
_FRAME_PATTERN = lazy_compile(r"^ {4}(.{1,200}) \(([^()]{1,500}):(\d{1,9})\)$")
_RANK_OPTION_PATTERN = lazy_compile(r"--(?:local[_-])?rank[= ](\d{1,5})")
_COLLECTIVE_FRAME_PATTERN = re.compile(
    r"distributed_c10d\.py|deepspeed/comm/|_functional_collectives\.py|c10d_logger\.py|torch/distributed/.*wait"
    r"|^(?:cuda)?(?:Stream|Event)Synchronize"
)
_TORCH_PATH_PATTERN = re.compile(r"(?:^|/)torch/")


class MainThreadStack(msgspec.Struct, frozen=True):
    """The stack of a process's main thread. ``at`` is the log line of its innermost frame."""

    rank: int
    at: LogLine
    frames: tuple[Frame, ...]

    @property
    def is_in_collective(self) -> bool:
        """Whether the main thread is in a collective call."""
        return any(_COLLECTIVE_FRAME_PATTERN.search(frame.path.replace("\\", "/")) for frame in self.frames[-6:])


def parse_py_spy_stacks(lines: Sequence[LogLine]) -> tuple[MainThreadStack, ...]:
    """The stacks of all dumped processes, by rank; the last one if a rank was dumped repeatedly.

    The rank is taken from the file name or the command line; if neither has it, processes are numbered in order.
    """
    found: dict[int, MainThreadStack] = {}
    for number, (rank, body) in enumerate(_split_processes(lines)):
        frames = [(line, match) for line in body if (match := _FRAME_PATTERN.match(line.text))]
        if frames:
            known = rank if rank is not None else number
            found[known] = MainThreadStack(
                known, frames[0][0], tuple(_parse_frame(*match.groups()) for _, match in reversed(frames))
            )
    return tuple(found[rank] for rank in sorted(found))


def _split_processes(lines: Sequence[LogLine]) -> Iterator[tuple[int | None, list[LogLine]]]:
    """For each process: its rank, if stated, and the lines of its main thread."""
    rank: int | None = None
    body: list[LogLine] = []
    reading = within = False
    for line in lines:
        if process := _PROCESS_LINE_PATTERN.match(line.text):
            if body:
                yield rank, body
            match = _RANK_OPTION_PATTERN.search(process.group(2))
            rank = line.rank if line.rank is not None else int(match.group(1)) if match else None
            body, reading, within = [], True, False
        elif reading and (thread := _THREAD_LINE_PATTERN.match(line.text)):
            within = not body and thread.group(1) in (None, "MainThread")
        elif within:
            body.append(line)
    if body:
        yield rank, body


def _parse_frame(function: str, path: str, line: str) -> Frame:
    slashed = path.replace("\\", "/")
    relative = not slashed.startswith("/") and "/" in slashed  # py-spy shortens the paths of packages
    owner = (
        "torch" if _TORCH_PATH_PATTERN.search(slashed) else "library" if relative or is_library_path(path) else "user"
    )
    return Frame(path, int(line), function, owner=owner)  # type: ignore[arg-type]
