"""PyTorch's Flight Recorder: dumps of each rank's last collectives, written when one times out.

They are pickles (``nccl_trace_rank_3``, one per rank) or JSON. The formats are those of torch since 2.5: see
https://github.com/pytorch/pytorch/blob/main/torch/distributed/flight_recorder/components/types.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gonogo.evidence.dumps.plain_pickle import load_plain_pickle
from gonogo.evidence.library import is_library_path
from gonogo.evidence.patterns import lazy_compile
from gonogo.finding.frame import Frame

MAX_BYTES = 1 << 26
"""Maximum size of a dump in bytes: a full one of 2000 collectives with stacks has a few million."""
_DUMP_NAME_PATTERN = lazy_compile(
    r"(?:nccl|comm_?lib|gloo|fr|flight_?recorder)_?trace.*?\d+(?:\.json|\.pkl|\.pickle|\.bin)?$"
)
_MAX_CALLS = 20_000
_MAX_FRAMES = 60
_NUMBER_PATTERN = re.compile(r"\d{1,7}")
_TORCH_PATH_PATTERN = re.compile(r"torch[\\/](?:distributed|nn|autograd|utils|_dynamo|_ops|multiprocessing)")


class RecordedCall(msgspec.Struct, frozen=True):
    """A collective that a rank called, as PyTorch's Flight Recorder recorded it."""

    group: str
    """The process group's name, the same on all its ranks."""
    sequence: int
    """The sequence number in the group, from 1."""
    operation: str
    """``all_reduce``, ``_all_gather_base`` ..."""
    sizes: tuple[tuple[int, ...], ...]
    """Shapes of the rank's inputs."""
    types: tuple[str, ...]
    done: bool
    frames: tuple[Frame, ...]
    """Outermost first; empty if the dump has no stacks."""


class FlightRecorderDump(msgspec.Struct, frozen=True):
    """One rank's dump. ``groups`` has the ranks of each process group by its name."""

    path: str
    rank: int
    groups: dict[str, tuple[int, ...]]
    calls: tuple[RecordedCall, ...]
    whole: bool
    """Whether it begins with the rank's first call; in a longer run, the ring buffer has dropped those."""


def is_flight_recorder_dump(path: Path) -> bool:
    """Whether a file's name is one that torch gives to its dumps."""
    return _DUMP_NAME_PATTERN.match(path.name) is not None


def parse_flight_recorder_dump(path: str, data: bytes) -> FlightRecorderDump | None:
    """Parse a dump; None if the data is not a readable Flight Recorder dump."""
    try:
        content = json.loads(data) if data.lstrip()[:1] == b"{" else load_plain_pickle(data)
        digits = _NUMBER_PATTERN.findall(Path(path).name)
        rank = _to_int(content.get("rank")) if content.get("rank") is not None else int(digits[-1])
        groups = dict(_process_groups(content.get("pg_config") or {}))
        last = {str(name): _to_int(status["last_completed_collective"]) for name, status in _group_statuses(content)}
        calls = tuple(_read_calls(content["entries"], last))
        first = content["entries"][0].get("record_id") if len(content["entries"]) <= _MAX_CALLS else None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        return None
    return FlightRecorderDump(path, rank, groups, calls, whole=str(first) == "0") if calls else None


def _group_statuses(content: Any) -> Iterator[tuple[Any, Any]]:
    """The (name, status) pairs of the process groups in a dump."""
    status = content.get("pg_status") or {}
    yield from ((name, one) for name, one in status.items() if "last_completed_collective" in one)


def _process_groups(config: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    for name, one in config.items():
        ranks = one.get("ranks", "") if isinstance(one, dict) else ""
        found = tuple(int(number) for number in _NUMBER_PATTERN.findall(str(ranks)[:200_000]))
        yield str(name), found


def _read_calls(entries: Any, last_sequences: dict[str, int]) -> Iterator[RecordedCall]:
    for entry in entries[-_MAX_CALLS:]:
        if entry.get("is_p2p"):
            continue
        group = str(entry["process_group"][0])
        sequence = _to_int(entry["collective_seq_id"])
        done = entry.get("state") == "completed" or bool(entry.get("retired"))
        yield RecordedCall(
            group=group,
            sequence=sequence,
            operation=str(entry["profiling_name"]).rpartition(":")[2][:80],
            sizes=tuple(tuple(_to_int(length) for length in shape[:16]) for shape in entry["input_sizes"][:8]),
            types=tuple(str(one)[:20] for one in (entry.get("input_dtypes") or ())[:8]),
            done=done or sequence <= last_sequences.get(str(entry.get("pg_id")), -1),
            frames=tuple(_parse_frames(entry.get("frames") or ())),
        )


def _parse_frames(frames: Any) -> Iterator[Frame]:
    for frame in reversed(frames[:_MAX_FRAMES]):  # the dump has the innermost frame first
        path = str(frame["filename"])[:500]
        owner = "torch" if _TORCH_PATH_PATTERN.search(path) else "library" if is_library_path(path) else "user"
        yield Frame(path, _to_int(frame["line"]), str(frame["name"])[:200], owner=owner)  # type: ignore[arg-type]


def _to_int(value: Any) -> int:
    """An integer, which JSON dumps may contain as a string. Raises ValueError or TypeError for anything else."""
    return int(str(value)[:20])
