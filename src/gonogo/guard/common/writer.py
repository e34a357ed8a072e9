"""Writes records to disk as they are made, so that they survive the process."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque

from gonogo.evidence.guarded.files import (
    HEARTBEAT_MAGIC,
    HEARTBEAT_STRUCT,
    PHASES,
    encode_record,
    heartbeat_path,
    records_path,
)
from gonogo.evidence.guarded.records import GuardFaultRecord, Phase, Record
from gonogo.guard.common.faults import disable_part
from gonogo.guard.injection import FOLDER

_LOCK_TIMEOUT_SECONDS = 5.0  # seconds: a hanging shared folder must not delay an exception for longer


class RecordWriter:
    """Appends one rank's records to its file and updates its heartbeat.

    The training's own thread only queues records; the watcher thread writes them. If the folder is deleted or can't
    be written to any more, writing stops, with one message.
    """

    def __init__(self, folder: str, rank: int) -> None:
        self.folder = folder
        self.rank = rank
        self._queue: deque[Record] = deque(maxlen=10_000)
        self._lock = threading.Lock()
        self._file: int | None = None
        self._beat: int | None = None
        self._beaten = b""
        self.broken = False
        # `gonogo run` has created its folder and reports its deletion itself, so it isn't created again here.
        self._ours = os.environ.get(FOLDER) != os.path.realpath(folder)
        if not self._ours and not os.path.isdir(folder):
            self.broken = True
            return
        try:
            os.makedirs(folder, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(records_path(folder, rank), flags | os.O_APPEND, 0o666)
            self._beat = os.open(heartbeat_path(folder, rank), flags, 0o666)
        except OSError as error:
            self._stop_writing(error)

    def put(self, record: Record) -> None:
        """Queue a record, without any I/O."""
        if not self.broken:
            self._queue.append(record)

    def write_now(self, record: Record) -> None:
        """Write a record, and all that are queued, before this returns."""
        self.put(record)
        self.flush()

    def flush(self) -> None:
        """Write what is queued."""
        if not self._queue or self.broken or not self._lock.acquire(timeout=_LOCK_TIMEOUT_SECONDS):
            return
        try:
            while self._queue and self._file is not None and not self.broken:
                line = memoryview(_serialize(self._queue.popleft()))
                while line:
                    line = line[os.write(self._file, line) :]
        except OSError as error:
            self._stop_writing(error)
        finally:
            self._lock.release()

    def write_heartbeat(self, step: int, phase: Phase, in_collective: bool, collectives: int) -> None:
        """Write the rank's progress to its heartbeat file if it has changed."""
        if self._beat is None or self.broken:
            return
        if self._is_deleted():
            self._stop_after_deletion()
            return
        rest = (step, PHASES.index(phase), in_collective, os.getpid(), collectives)
        state = HEARTBEAT_STRUCT.pack(HEARTBEAT_MAGIC, 0.0, *rest)
        if state == self._beaten:
            return
        self._beaten = state
        try:
            os.pwrite(self._beat, HEARTBEAT_STRUCT.pack(HEARTBEAT_MAGIC, time.time(), *rest), 0)
        except OSError as error:
            self._stop_writing(error)

    def _is_deleted(self) -> bool:
        """Whether the open file of records was deleted: anything written to it is lost."""
        return self._file is not None and os.fstat(self._file).st_nlink == 0

    def _stop_after_deletion(self) -> None:
        if self._ours:
            self._stop_writing(FileNotFoundError(errno.ENOENT, "it was deleted", self.folder))
        else:
            self.broken = True
            self._queue.clear()

    def close(self) -> None:
        """Close the files; called in a process that was forked off the rank."""
        self.broken = True
        self._queue.clear()
        for file in (self._file, self._beat):
            if file is not None:
                os.close(file)
        self._file = self._beat = None

    def _stop_writing(self, error: OSError) -> None:
        self.broken = True
        self._queue.clear()
        disable_part(f"records in {self.folder}", error)


def _serialize(record: Record) -> bytes:
    """Serialize a record as a line; one that can't be serialized is replaced by a record of that error."""
    try:
        return encode_record(record)
    except Exception as error:
        part = f"a record of {type(record).__name__}"
        disable_part(part, error)
        return encode_record(GuardFaultRecord(time.time(), part, type(error).__name__, str(error)[:2000]))
