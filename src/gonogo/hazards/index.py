"""The index of hazards: by name, all, and those that given evidence can show, so that only these are imported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from gonogo.evidence.script.parse import gc_disabled
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.loader import load_hazard
from gonogo.hazards.pack import HazardRow, load_pack
from gonogo.hazards.page import HazardPage

if TYPE_CHECKING:
    from gonogo.evidence.log.failure_log import FailureLog
    from gonogo.evidence.log.traceback import RaisedError

MAX_SHORT_LOG_CHARS = 1 << 16
"""The longest log, in characters, searched for all words of the index; beyond, importing all hazards is as fast."""
FILES = ("config", "launch", "script", "environment")
"""What `gonogo check` reads."""


def index_rows() -> dict[str, HazardRow]:
    """The stages and words of each hazard, by name."""
    return load_pack().rows


@cache
def _load_hazard(name: str) -> Hazard:
    return load_hazard(msgspec.msgpack.decode(load_pack().pages[name], type=HazardPage))


def hazard_of(name: str) -> Hazard | None:
    """The hazard called ``name``, or None."""
    return _load_hazard(name) if name in index_rows() else None


@cache
def all_hazards() -> tuple[Hazard, ...]:
    """Every hazard, sorted by name."""
    return _load_hazards(index_rows())


def hazards_at_stages(*stages: str) -> tuple[Hazard, ...]:
    """The hazards with a handler for one of the stages, sorted by name."""
    return _load_hazards(name for name, row in index_rows().items() if not set(stages).isdisjoint(row.stages))


def hazards_possible_in_log(log: FailureLog) -> tuple[Hazard, ...]:
    """The hazards that this log may show, sorted by name; all hazards if it is long."""
    letters = _searchable_text(log)
    if letters is None:
        return hazards_at_stages("log")
    return _load_hazards(
        name
        for name, row in index_rows().items()
        if "log" in row.stages and (row.letters is None or any(word in letters for word in row.letters))
    )


def hazards_possible_in_cut_log(log: FailureLog) -> tuple[Hazard, ...]:
    """The hazards of which this truncated log may contain a trace, sorted by name."""
    letters = _searchable_text(log)
    return _load_hazards(
        name for name, row in index_rows().items() if letters is None or any(word in letters for word in row.left)
    )


def _load_hazards(names: Iterable[str]) -> tuple[Hazard, ...]:
    with gc_disabled():  # the loaded objects stay alive, so collecting garbage is useless
        return tuple(map(_load_hazard, names))


def _searchable_text(log: FailureLog) -> str | None:
    """Everything in a log that hazards search, in lower case; None if it is long or comes with dumps."""
    if log.dumps or sum(len(line.text) for line in log.lines) > MAX_SHORT_LOG_CHARS:
        return None
    setup = log.setup
    return "\n".join((*_searchable_texts(log), setup.launch, setup.script, setup.deepspeed_config_text)).casefold()


def _searchable_texts(log: FailureLog) -> Iterator[str]:
    text = "\n".join(line.text for line in log.lines)
    yield text
    yield " ".join(text.split())  # a message that a terminal wrapped is looked at as one line
    for error in (*log.errors, *log.truncated_errors):
        raised: RaisedError | None = error.raised
        while raised is not None:
            yield f"{raised.qualified}: {' '.join(raised.message.split())}"
            for frame in raised.frames:
                yield f"{frame.path}\n{frame.function}\n{frame.code}".replace("\\", "/")
            raised = raised.cause
