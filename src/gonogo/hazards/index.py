"""Which hazards evidence can show at all, known without importing them: a start pays for those few, not for all.

``index.json`` says of each where it is met, and of a log the letters of which one that shows it has at least one.
``scripts/hazard_index.py`` reads both off the hazards' code, and ``tests/test_house.py`` holds it to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gonogo.evidence.script.parse import without_collecting
from gonogo.hazards.hazard import Hazard, hazards_in

if TYPE_CHECKING:
    from gonogo.evidence.log.failure_log import FailureLog
    from gonogo.evidence.log.traceback import Raised

PATH = Path(__file__).with_name("index.json")
SHORT = 1 << 16
"""Letters of a log that is searched for all words of the index: in a longer one that takes as long as to import all."""
HANDLERS = {
    "config": "in_config",
    "launch": "in_launch",
    "script": "in_script",
    "environment": "in_environment",
    "rehearsal": "in_rehearsal",
    "log": "in_log",
    "run": "in_guarded_run",
}
"""Where a hazard can be met, and what looks at it there."""
FILES = ("config", "launch", "script", "environment")
"""What `gonogo check` reads."""


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a hazard beforehand. Letters are in lower case (``str.casefold``)."""

    module: str
    """Its theme's folder and its file: ``zero3.zero3_moe_hang``."""
    stages: tuple[str, ...] = ()
    letters: tuple[str, ...] | None = ()
    """A log in which it is found has one of them; None where that can't be told, and any log is asked."""
    left: tuple[str, ...] = ()
    """A log that was cut, and of which it is possible (``ends_at``, ``traces``), has one of them."""


@cache
def rows() -> dict[str, Row]:
    """The index, by the hazards' names."""
    return msgspec.json.decode(PATH.read_bytes(), type=dict[str, Row])


def stages_of(hazard: Hazard) -> list[str]:
    """The stages whose evidence the hazard looks at, in the order of :data:`HANDLERS`."""
    return [
        stage
        for stage, handler in HANDLERS.items()
        if getattr(type(hazard), handler) is not getattr(Hazard, handler) or (stage == "log" and hazard.refusal)
    ]


def hazard_of(name: str) -> Hazard | None:
    """The hazard of that name, if there is one."""
    row = rows().get(name)
    return next((hazard for hazard in hazards_in(row.module) if hazard.name == name), None) if row else None


def met_in(*stages: str) -> tuple[Hazard, ...]:
    """The hazards that are met at one of the stages, by name."""
    return _of(row for row in rows().values() if not set(stages).isdisjoint(row.stages))


def met_in_log(log: FailureLog) -> tuple[Hazard, ...]:
    """The hazards that this log may show, by name; all, where it is long."""
    letters = _letters(log)
    if letters is None:
        return met_in("log")
    return _of(
        row
        for row in rows().values()
        if "log" in row.stages and (row.letters is None or any(word in letters for word in row.letters))
    )


def left_in_log(log: FailureLog) -> tuple[Hazard, ...]:
    """The hazards of which something may be left in this log, which was cut; by name."""
    letters = _letters(log)
    return _of(row for row in rows().values() if letters is None or any(word in letters for word in row.left))


def _of(chosen: Iterable[Row]) -> tuple[Hazard, ...]:
    with without_collecting():  # what is imported stays
        return tuple(hazard for row in chosen for hazard in hazards_in(row.module))


def _letters(log: FailureLog) -> str | None:
    """All that hazards look at in a log, in lower case; None where it is long, or has dumps beside it."""
    if log.dumps or sum(len(line.text) for line in log.lines) > SHORT:
        return None
    setup = log.setup
    return "\n".join((*_texts(log), setup.launch, setup.script, setup.deepspeed_config_text)).casefold()


def _texts(log: FailureLog) -> Iterator[str]:
    text = "\n".join(line.text for line in log.lines)
    yield text
    yield " ".join(text.split())  # a message that a terminal wrapped is looked at as one line
    for error in (*log.errors, *log.cut):
        raised: Raised | None = error.raised
        while raised is not None:
            yield f"{raised.qualified}: {' '.join(raised.message.split())}"
            for frame in raised.frames:
                yield f"{frame.path}\n{frame.function}\n{frame.code}".replace("\\", "/")
            raised = raised.cause
