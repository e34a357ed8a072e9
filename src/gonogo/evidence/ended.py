"""How ranks ended, in one shape for records and logs: the chain of exceptions, the first cause first, with its frames.

What an exception was raised from, or while handling, is often what tells the cause: transformers raises "Failed to
import … because of the following error" over whatever an import met.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import msgspec

from gonogo.evidence.environment.package_name import canonical
from gonogo.evidence.log.failure_log import FailureLog, is_library
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.log.role import Role
from gonogo.evidence.log.traceback import Raised, raised_in
from gonogo.evidence.patterns import compiled_when_used
from gonogo.evidence.rehearsal.failures import failed_ranks, is_shortage
from gonogo.evidence.rehearsal.frame import Frame, Owner
from gonogo.evidence.rehearsal.record import Failure, RehearsalRecord

_LAID_OVER = "/gonogo/packages/"
_PACKAGE = compiled_when_used(r"(?:(?:site|dist)-packages|/gonogo/packages/[^/]+)[/\\]([\w-]+)")
_OTHER_NAMES = {"yaml": "pyyaml", "PIL": "pillow", "sklearn": "scikit-learn", "cv2": "opencv-python"}
"""Packages that are imported by another name than they are installed by."""


class Told(msgspec.Struct, frozen=True):
    """One exception of a chain; ``frames`` go from the outermost call to the innermost. Of ranks that diverge, which
    raised nothing, ``type`` and ``message`` are empty."""

    type: str
    message: str
    frames: tuple[Frame, ...]

    @property
    def users(self) -> Frame | None:
        """The innermost frame of the user's own code, or None."""
        return next((frame for frame in reversed(self.frames) if frame.owner == "user"), None)


class Ended(msgspec.Struct, frozen=True):
    """What ended ranks: the exceptions that led to it, the first cause first."""

    ranks: tuple[int, ...]
    chain: tuple[Told, ...]
    reading: str | None = None
    """The JSON or YAML file that was being read, where its syntax is at fault."""

    @property
    def frames(self) -> Iterator[Frame]:
        """The frames of all of them."""
        for told in self.chain:
            yield from told.frames

    @property
    def message(self) -> str:
        """What all of them say."""
        return "\n".join(f"{told.type}: {told.message}" for told in self.chain)


def ended_in_record(record: RehearsalRecord) -> tuple[Ended, ...]:
    """What ended the ranks of a rehearsal, or of a guarded run in that shape: exceptions, and where the ranks diverge.

    Without what says only that memory ran out: that is its own cause.
    """
    ends = [
        Ended(failed.ranks, chain_of(failed.failure), failed.failure.reading)
        for failed in failed_ranks(record)
        if not is_shortage(failed.first, failed.failure)
    ]
    if (divergence := record.divergence) is not None:
        sides = divergence.earlier or divergence.sides
        told = tuple(Told("", "", side.call.frames) for side in sides if side.call is not None)
        diverged = {rank for side in divergence.sides for rank in side.ranks}
        diverged |= {rank.rank for rank in record.ranks if rank.outcome == "diverged"}
        ends.append(Ended(tuple(sorted(diverged)), told))
    return tuple(ends)


def ended_in_log(log: FailureLog) -> tuple[Ended, ...]:
    """The exceptions of a log that are no consequence of another's."""
    return tuple(Ended(error.ranks, _chain(error.raised)) for error in log.errors if error.role is Role.ROOT)


def chain_of(failure: Failure) -> tuple[Told, ...]:
    """The exceptions that led to a failure, the first cause first, the one that ended the rank last."""
    own = Told(failure.type, failure.message, failure.frames)
    lines = [LogLine("", number, line) for number, line in enumerate(failure.traceback.splitlines(), 1)]
    raised = list(raised_in(lines))
    if not raised or raised[-1].cause is None:
        return (own,)
    owners = {frame.path: frame.owner for frame in failure.frames}
    return (*_chain(raised[-1].cause, owners), own)


def package_of(path: str) -> str | None:
    """The package (canonical name) that a frame's file belongs to; None for the user's own code and Python's."""
    found = _PACKAGE.search(path)
    return canonical(_OTHER_NAMES.get(found[1], found[1])) if found is not None else None


def _chain(raised: Raised, owners: dict[str, Owner] | None = None) -> tuple[Told, ...]:
    chain: list[Told] = []
    one: Raised | None = raised
    while one is not None:
        chain.append(Told(one.type, one.message, tuple(_frames(one, owners or {}))))
        one = one.cause
    return tuple(reversed(chain))


def _frames(raised: Raised, owners: dict[str, Owner]) -> Iterable[Frame]:
    for frame in raised.frames:
        owner = owners.get(frame.path) or _owner(frame.path)
        yield Frame(frame.path, frame.line, frame.function, frame.code, owner)


def _owner(path: str) -> Owner:
    if package_of(path) == "torch":
        return "torch"
    return "library" if is_library(path) or _LAID_OVER in path.replace(os.sep, "/") else "user"
