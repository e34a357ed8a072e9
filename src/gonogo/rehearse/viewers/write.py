"""Writes the requested files for viewers, each completely or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec

from gonogo.confinement.untrusted_files import read_untrusted
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.evidence.rehearsal.trace import RankTrace
from gonogo.finding import translated
from gonogo.finding.ranks import ranks_text
from gonogo.rehearse.ranks.call_log import CallLog
from gonogo.rehearse.viewer_files import ViewerFiles, write_error
from gonogo.rehearse.viewers import flight_recorder, memory_viz, trace_events
from gonogo.rehearse.workers.workers import Assignment

Write = Callable[[IO[bytes]], None]
_MAX_TRACE_BYTES = 2 << 30


def write_viewer_files(
    files: ViewerFiles, record: RehearsalRecord, assignments: Sequence[Assignment], calls: CallLog | None
) -> list[tuple[str, str]]:
    """Write the files; returns notes on ranks without events. Raises UserError if they can't be written."""
    traces = dict(_read_traces(assignments)) if files.needs_events else {}
    if files.memory_viz is not None:
        _write_file("--memory-viz", files.memory_viz, lambda file: memory_viz.write(file, traces, record.world_size))
    if files.trace is not None:
        compressed = files.trace.suffix == ".gz"
        _write_file("--trace", files.trace, lambda file: trace_events.write(file, traces, compressed))
    if files.flight_recorder is not None and calls is not None:
        _write_folder("--flight-recorder", files.flight_recorder, flight_recorder.rank_dumps(calls, record))
    missing = [one.plan.rank for one in assignments if one.plan.rank not in traces] if files.needs_events else []
    if not missing:
        return []
    text = translated("viewer files for {ranks} are missing: the worker was killed").format(ranks=ranks_text(missing))
    return [(text.en, text.zh)]


def _read_traces(assignments: Sequence[Assignment]) -> Iterator[tuple[int, RankTrace]]:
    decode = msgspec.msgpack.Decoder(RankTrace).decode
    for assignment in assignments:
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeError):
            yield assignment.plan.rank, decode(read_untrusted(assignment.plan.trace, _MAX_TRACE_BYTES) or b"")


def _write_file(option: str, path: Path, write: Write) -> None:
    path = Path(os.path.realpath(path))
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                write(file)
            _chmod_with_umask(temporary, 0o666)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise write_error(option, path, error) from None


def _write_folder(option: str, path: Path, dumps: Iterator[tuple[str, bytes]]) -> None:
    path = Path(os.path.realpath(path))
    try:
        temporary = tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            for name, data in dumps:
                Path(temporary, name).write_bytes(data)
            _chmod_with_umask(temporary, 0o777)
            os.replace(temporary, path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise write_error(option, path, error) from None


def _chmod_with_umask(path: str, mode: int) -> None:
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(path, mode & ~mask)
