"""Reads the messages of the rendezvous store's barrier: how many processes joined, of how many."""

from collections.abc import Iterator

import msgspec

from gonogo.evidence.log.match import collapse_whitespace
from gonogo.hazards.rule import FailureLog, LineMatch, LoggedError, Pattern

_STORE_BARRIER_PATTERN = Pattern(
    r"(?P<state>Timed out|Waiting) (?:initializing process group )?in store based "
    r"barrier.{0,160}\(world_size=(?P<world>\d{1,6}), "
    r"(?:worker_count|num_workers_joined)=(?P<joined>\d{1,6})"
)


class StoreBarrierMessage(msgspec.Struct, frozen=True):
    """A log message of torch's store-based barrier, at which all ranks of a process group meet."""

    evidence: LoggedError | LineMatch
    world: int
    joined: int
    timed_out: bool


def store_barrier_messages(log: FailureLog) -> Iterator[StoreBarrierMessage]:
    """All messages of torch's store-based barrier: those in exceptions first, then those in lines."""
    messages: list[tuple[LoggedError | LineMatch, str]] = [
        (one, one.message) for one in log.errors_of(says=_STORE_BARRIER_PATTERN)
    ]
    messages += [(line, line.text) for line in log.find_all(_STORE_BARRIER_PATTERN)]
    for evidence, text in messages:
        if (match := _STORE_BARRIER_PATTERN.search(collapse_whitespace(text))) is not None:
            world, joined = (int(str(match.group(name))) for name in ("world", "joined"))
            yield StoreBarrierMessage(evidence, world, joined, match.group("state") == "Timed out")
