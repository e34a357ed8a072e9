"""An earlier rehearsal of the same: found again, or this one kept for the next time.

What is known before it starts names the entries (``key.py``); what it read while it ran has to be as it was
(``reads.py``). A rehearsal of which not all is known that it read is not kept: a stale answer would be a wrong one.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gonogo.confinement.system_calls import can_trace_calls
from gonogo.evidence.environment.hardware import Machine
from gonogo.evidence.rehearsal.record import RankRecord, RehearsalRecord
from gonogo.finding import Text
from gonogo.prepare.packages import PackageOverlay
from gonogo.rehearse.cache.key import ROOT, conditions_hold, conditions_named, key_of
from gonogo.rehearse.cache.reads import Changed, Read, ReadChecker, reads_of
from gonogo.rehearse.cache.store import Store, cache_folder, max_bytes
from gonogo.rehearse.path_access import AccessRecorder, recording
from gonogo.rehearse.request import RehearsalRequest

FOLDER = "rehearsals"
# How a rehearsal ends that would end so again.
_ENDS = frozenset({"completed", "raised", "out-of-memory", "diverged", "unsupported"})
# What a program fails with for want of something here, and not for what it is.
_PASSING = ("No space left", "Too many open files", "Cannot allocate memory", "Disk quota", "timed out", "Timeout")
_PASSING_TYPES = frozenset({"MemoryError", "TimeoutError", "DistStoreError", "BlockingIOError", "KeyboardInterrupt"})


class CacheEntry(msgspec.Struct, frozen=True):
    """A rehearsal that is kept."""

    made_at: float
    reads: tuple[Read, ...]
    conditions: dict[str, str | None]
    record: RehearsalRecord


class CachedRehearsal:
    """The rehearsals of one request, as it stands now, that are kept."""

    def __init__(self, request: RehearsalRequest, stated: Machine, overlay: PackageOverlay) -> None:
        self._request = request
        self._store = Store(FOLDER)
        self._key = key_of(request, stated, overlay)
        self._watch: AccessRecorder | None = None

    def record(self) -> RehearsalRecord | None:
        """The record of one that read what is there now; its notes say when it was made."""
        looking = ReadChecker()
        for name in self._store.names(self._key):
            entry = self._entry(name)
            if (
                entry is not None
                and conditions_hold(entry.conditions)
                and all(looking.is_same(read) for read in entry.reads)
            ):
                self._store.read(name)  # it counts as used
                entry.record.notes.insert(0, _note(entry.made_at))
                return entry.record
        return None

    def _entry(self, name: str) -> CacheEntry | None:
        data = self._store.read(name, used=False)
        if data is None:
            return None
        try:
            return msgspec.msgpack.decode(zlib.decompress(data), type=CacheEntry)
        except (msgspec.DecodeError, zlib.error, ValueError, MemoryError):
            self._store.drop(name)
            return None

    @contextlib.contextmanager
    def watching(self, scratch: Path) -> Iterator[AccessRecorder | None]:
        """Within the block, what is started is watched, so that the record can be kept."""
        if not can_trace_calls():
            yield None
            return
        self._watch = AccessRecorder(scratch)
        with recording(self._watch):
            yield self._watch

    def keep(self, record: RehearsalRecord) -> None:
        """Keep the record, if all is known that it hangs on, and it would come out so again."""
        watch = self._watch
        if watch is None or watch.unseen or not all(_would_end_so_again(rank) for rank in record.ranks):
            return
        own = (f"{ROOT}/", f"{cache_folder(FOLDER)}/")
        with contextlib.suppress(Changed, OSError):
            reads = reads_of(watch.asked, own)
            conditions = conditions_named(reads, self._request.command)
            entry = CacheEntry(time.time(), reads, conditions, record)
            read = hashlib.sha256(msgspec.msgpack.encode((reads, conditions))).hexdigest()
            self._store.write(f"{self._key}-{read[:16]}", zlib.compress(msgspec.msgpack.encode(entry), 1))


def cached_rehearsal(request: RehearsalRequest, stated: Machine, overlay: PackageOverlay) -> CachedRehearsal | None:
    """What is kept of a request; None where nothing is to be. Raises UserError for a size that is none."""
    if not request.use_cache or request.ray is not None or max_bytes() == 0:
        return None
    return CachedRehearsal(request, stated, overlay)


def _would_end_so_again(rank: RankRecord) -> bool:
    failure = rank.failure
    passing = failure is not None and (
        failure.type in _PASSING_TYPES or any(words in failure.message for words in _PASSING)
    )
    return rank.outcome in _ENDS and rank.user_error is None and not passing


def _note(made_at: float) -> tuple[str, str]:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(made_at))
    note = Text(
        "cached result of the rehearsal of {when}: nothing that it read has changed since (--no-cache rehearses again)",
        "直接采用 {when} 那次排练的结果：它读取的内容此后没有变化（--no-cache 可重新排练）",
    ).format(when=when)
    return note.en, note.zh
