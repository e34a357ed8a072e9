"""Shared by the hazards of a resumed run: which states it lost, and how to name them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gonogo.evidence.rehearsal.life_table import life_report
from gonogo.finding.lives.life_report import LifeReport, StateRow
from gonogo.finding.lives.state_names import state_text
from gonogo.finding.text import join_texts
from gonogo.hazards.rule import Finding, Hazard, RehearsalRecord, Severity, Text, translated

_MAX_SHOWN = 3
_READ_STATUSES = ("restored", "partly", "other-state", "other-dtype")
_REASONS_BY_STATUS = {
    "not-written": translated("not in any checkpoint file"),
    "not-read": translated("saved, but not loaded"),
    "partly": translated("partly loaded"),
    "other-state": translated("holding the values saved for another state"),
    "other-dtype": translated("loaded in another dtype"),
    "drawn-anew": translated("reinitialized at each start, and not saved"),
}
_OTHER_SHARD = translated("the shard of another rank")


def resumed_life_report(record: RehearsalRecord) -> LifeReport | None:
    """The report of both runs if the second has read any of the first one's checkpoint and trains on; else None."""
    life = life_report(record)
    if life is None or not life.trains_on or not has_resumed(life):
        return None
    return life


def may_have_resumed(report: LifeReport) -> bool:
    """Whether a state was read from the first run's files, or the origin of one is unknown."""
    return has_resumed(report) or any(row.status == "unknown" for row in report.states)


def has_resumed(report: LifeReport) -> bool:
    """Whether any state of the second run was read from the first one's files."""
    return any(row.status in _READ_STATUSES for row in report.states)


def states_by_status_text(rows: Sequence[StateRow]) -> Text:
    """How many of the states have each status, with the names of a few."""
    kinds: dict[str, list[StateRow]] = {}
    for row in rows:
        kinds.setdefault(row.status, []).append(row)
    parts = [
        Text("{count} {why} ({names})", "{count} 个{why}（{names}）").format(
            count=len(same), why=_REASONS_BY_STATUS.get(status, Text(status, status)), names=state_names_text(same)
        )
        for status, same in kinds.items()
    ]
    return join_texts(parts, "; ", "；")


def state_names_text(rows: Sequence[StateRow]) -> Text:
    """The names of the first few states."""
    return join_texts(
        [*map(_state_name, rows[:_MAX_SHOWN]), *([Text("…", "…")] if len(rows) > _MAX_SHOWN else [])], comma_zh=", "
    )


def _state_name(row: StateRow) -> Text:
    name = state_text(row.name, row.slot)
    if row.status == "other-state":
        held = _OTHER_SHARD if row.holds == row.name else Text(row.holds, row.holds)
        return Text(f"{name.en} ← {held.en}", f"{name.zh} ← {held.zh}")
    if row.status == "other-dtype":
        return Text("{name}: {before} → {now}", "{name}：{before} → {now}").format(
            name=name, before=row.dtype_before, now=row.dtype
        )
    return name


def ranks_of_rows(rows: Iterable[StateRow]) -> tuple[int, ...]:
    """The ranks of the second run that the rows are about."""
    return tuple(sorted({rank for row in rows for rank in row.ranks}))


def counter_findings(
    hazard: Hazard, record: RehearsalRecord, kind: str, cause: Text, severity: Severity | None = None
) -> Iterator[Finding]:
    """A finding for each counter of this kind that does not go on from where it was saved."""
    life = resumed_life_report(record)
    for counter in life.counters if life is not None else ():
        if counter.kind == kind and counter.status in ("restarted", "differs"):
            yield hazard.finding(
                cause.format(name=counter.name, saved=counter.saved or 0.0, now=counter.resumed or 0.0),
                ranks=tuple(rank.rank for rank in record.ranks),
                severity=severity,
            )
