"""The files that the guard writes during a training, readable even if a rank was killed at any point."""

from __future__ import annotations

import linecache
import re
import struct
from pathlib import Path

import msgspec

from gonogo.evidence.guarded.guarded_run import GuardedRank, GuardedRun, Heartbeat, StackDump
from gonogo.evidence.guarded.launch import LaunchRecord, read_children, read_launches
from gonogo.evidence.guarded.records import (
    EndRecord,
    ExceptionRecord,
    GuardFaultRecord,
    JoinRecord,
    NonFiniteRecord,
    Phase,
    PlacementSnapshot,
    RankComparisonRecord,
    Record,
    StallEndRecord,
    StallRecord,
    StartRecord,
    StepRecord,
    ThreadStack,
    WarningRecord,
)
from gonogo.evidence.paths import is_file
from gonogo.finding.frame import Frame, Owner

PHASES: tuple[Phase, ...] = ("load", "init", "forward", "backward", "step", "between", "exit")

HEARTBEAT_STRUCT = struct.Struct("<8sdQBBxxIQ")
"""The file ``rank-<RANK>.beat``: magic, time, step, phase (index in PHASES), inside a collective, pid, calls."""
HEARTBEAT_MAGIC = b"gonogo1\0"

_RECORD_FILE_PATTERN = re.compile(r"rank-(\d{1,7})\.jsonl")
_MAX_LINE_LENGTH = 16 << 20
_CLOCK_SKEW_SECONDS = 5.0
"""Maximum difference between the clocks of two machines, in seconds."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """A record as a line of JSON, with its line ending."""
    return _encoder.encode(record) + b"\n"


def records_path(folder: str, rank: int) -> str:
    """The file with a rank's records."""
    return f"{folder}/rank-{rank}.jsonl"


def heartbeat_path(folder: str, rank: int) -> str:
    """The file with a rank's heartbeat."""
    return f"{folder}/rank-{rank}.beat"


def stack_dump_path(folder: str, rank: int) -> str:
    """The file with the stack traces of a rank that was ended by a signal."""
    return f"{folder}/rank-{rank}.dump"


def read_run(folder: str | Path) -> GuardedRun:
    """Read the records of all ranks in a folder, ordered by rank; without any records, the run has no ranks.

    Lines that are truncated or can't be parsed are counted and skipped. Raises OSError if the folder can't be read.
    """
    files = [path for path in Path(folder).iterdir() if is_file(path)]
    found = [(int(name[1]), path) for path in files if (name := _RECORD_FILE_PATTERN.fullmatch(path.name))]
    launches = _launches_of_last_run(read_launches(folder))
    since = launches[0].started - _CLOCK_SKEW_SECONDS if launches else 0.0
    ranks = [one for rank, path in sorted(found) if (one := read_rank_records(path, rank, since)) is not None]
    first = launches[0] if launches else None
    failed = next((one.exit_status for one in launches if one.exit_status), None)
    return GuardedRun(
        folder=str(folder),
        ranks=ranks,
        command=list(first.command) if first else [],
        exit_status=first.exit_status if first is not None and failed is None else failed,
        started=first.started if first else 0.0,
        ended=max((one.ended for one in launches), default=0.0),
        launches=launches,
        children=[child for child in read_children(folder) if child.time >= since],
    )


def _launches_of_last_run(launches: list[LaunchRecord]) -> list[LaunchRecord]:
    """The launches that overlap with the latest one, since an earlier run may have used the same folder."""
    latest = max((launch.started for launch in launches), default=0.0)
    return [one for one in launches if one.started == latest or not one.ended or one.ended >= latest]


def read_rank_records(path: Path, rank: int, start_time: float = 0.0) -> GuardedRank | None:
    """One rank's records of a run that started at ``start_time``; None if all are older.

    Raises OSError if the file can't be read.
    """
    lives = [GuardedRank(rank, path=str(path))]
    with path.open("rb") as file:
        while line := file.readline(_MAX_LINE_LENGTH):
            try:
                record = _decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeError):
                lives[-1].unreadable += 1
                continue
            if isinstance(record, StartRecord) and lives[-1].start is not None:
                lives.append(GuardedRank(rank, path=str(path)))
            _add_record(lives[-1], record)
    lives = [life for life in lives if life.start is None or life.start.time >= start_time]
    if not lives:
        return None
    # The script may also run other Python programs before and after the training.
    trained = [life for life in lives if _has_trained(life)]
    last = (trained or lives)[-1]
    last.earlier = [life for life in trained if life is not last]
    last.beat = read_heartbeat(Path(heartbeat_path(str(path.parent), rank)))
    last.dump = read_stack_dump(Path(stack_dump_path(str(path.parent), rank)))
    return last


def _has_trained(rank: GuardedRank) -> bool:
    """Whether a process did more than start and exit normally."""
    if rank.end is None or rank.end.reason != "exit":
        return True
    return rank.joined is not None or bool(rank.steps or rank.exceptions or rank.stalls or rank.faults or rank.end.step)


_DUMP_FRAME_PATTERN = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_DUMP_THREAD_PATTERN = re.compile(r"(Current thread|Thread) (0x[0-9a-f]+)(?: \[(.*)\])?.*\(most recent call first\)")
_MAX_DUMP_BYTES = 1 << 20


def read_stack_dump(path: Path) -> StackDump | None:
    """The stacks written by Python's fault handler, or None. If there are several dumps, the last one is used."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_DUMP_BYTES).decode(errors="replace")
            when = path.stat().st_mtime
    except OSError:
        return None
    error = ""
    threads: list[tuple[str, list[Frame]]] = []
    for line in text.splitlines():
        if line.startswith("Fatal Python error: "):
            error, threads = line.removeprefix("Fatal Python error: "), []
        elif thread := _DUMP_THREAD_PATTERN.match(line):
            threads.append((thread[3] or thread[2], []))
        elif (frame := _DUMP_FRAME_PATTERN.match(line)) and threads and "/gonogo/guard/" not in frame[1]:
            source = linecache.getline(frame[1], int(frame[2])).strip()[:200]
            threads[-1][1].append(Frame(frame[1], int(frame[2]), frame[3], source, _frame_owner(frame[1])))
    if not threads:
        return None
    # The fault handler writes the main thread, which is the oldest, last.
    return StackDump(
        when, error, tuple(ThreadStack(name, tuple(reversed(frames))) for name, frames in reversed(threads))
    )


def _frame_owner(path: str) -> Owner:
    if "/torch/" in path and "-packages/" in path:
        return "torch"
    return "library" if "-packages/" in path or re.search(r"/lib/python3\.\d+/", path) else "user"


def _add_record(rank: GuardedRank, record: Record) -> None:
    match record:
        case StartRecord():
            rank.start = record
        case JoinRecord():
            rank.joined = record
        case RankComparisonRecord():
            rank.compared = record
        case PlacementSnapshot():
            rank.placements.append(record)
        case StepRecord():
            rank.steps.append(record)
        case WarningRecord():
            rank.warnings.append(record)
        case StallRecord():
            rank.stalls.append(record)
        case StallEndRecord():
            rank.resumed.append(record)
        case NonFiniteRecord():
            rank.nonfinite.append(record)
        case ExceptionRecord():
            rank.exceptions.append(record)
        case GuardFaultRecord():
            rank.faults.append(record)
        case EndRecord():
            rank.end = record


def read_heartbeat(path: Path) -> Heartbeat | None:
    """A rank's last heartbeat, or None if there is none or it is incomplete."""
    try:
        data = path.read_bytes()[: HEARTBEAT_STRUCT.size]
    except OSError:
        return None
    if len(data) < HEARTBEAT_STRUCT.size:
        return None
    mark, time, step, phase, inside, pid, collectives = HEARTBEAT_STRUCT.unpack(data)
    if mark != HEARTBEAT_MAGIC or phase >= len(PHASES):
        return None
    return Heartbeat(time, step, PHASES[phase], collectives, bool(inside), pid)
