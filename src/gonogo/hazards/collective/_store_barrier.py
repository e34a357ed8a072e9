"""What the barrier at the rendezvous store says: how many processes came, and of how many."""

from collections.abc import Iterator

import msgspec

from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.match import one_line
from gonogo.hazards.rule import Pattern

_BARRIER = Pattern(
    r"(?P<state>Timed out|Waiting) (?:initializing process group )?in store based "
    r"barrier.{0,160}\(world_size=(?P<world>\d{1,6}), "
    r"(?:worker_count|num_workers_joined)=(?P<joined>\d{1,6})"
)


class StoreBarrier(msgspec.Struct, frozen=True):
    """One line of it."""

    evidence: LoggedError | LineMatch
    world: int
    joined: int
    timed_out: bool


def joined_at_store(log: FailureLog) -> Iterator[StoreBarrier]:
    """All that the log says of it: exceptions first, then lines."""
    said: list[tuple[LoggedError | LineMatch, str]] = [(one, one.message) for one in log.errors_of(says=_BARRIER)]
    said += [(line, line.text) for line in log.find_all(_BARRIER)]
    for evidence, text in said:
        if (match := _BARRIER.search(one_line(text))) is not None:
            world, joined = (int(str(match.group(name))) for name in ("world", "joined"))
            yield StoreBarrier(evidence, world, joined, match.group("state") == "Timed out")
