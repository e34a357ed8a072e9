"""Collectives that timed out, with their sequence number, sizes and durations."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.patterns import Pattern, lazy_compile
from gonogo.finding.failure import LoggedCollective

_TIMEOUT_LINE_PATTERN = Pattern(r"(?:Watchdog caught collective operation timeout: |Work )Work[NH]CCL\(")
_STATUS_LINE_PATTERN = Pattern(r"(?:at work: |at work sequence id: )\d+,? .*last enqueued")
_FIELD_PATTERN = lazy_compile(
    r"SeqNum=(?P<sequence>\d{1,12})|OpType=(?P<operation>\w{1,40})|NumelIn=(?P<elements_in>\d{1,15})"
    r"|NumelOut=(?P<elements_out>\d{1,15})|Timeout\(ms\)=(?P<timeout>\d{1,15})"
    r"|ran for (?P<elapsed>\d{1,15}) milliseconds|\[(?:Rank|rank) ?(?P<rank>\d{1,5})\]"
    r"|\[PG (?:ID )?(?P<group>\d{1,4})"
)
_STATUS_FIELD_PATTERN = lazy_compile(
    r"at work(?: sequence id)?: (?P<sequence>\d{1,12})|last enqueued (?:NCCL )?work: (?P<enqueued>-?\d{1,12})"
    r"|last completed (?:NCCL )?work: (?P<completed>-?\d{1,12})|Rank (?P<rank>\d{1,5})\]"
)
_MAX_CALLS = 512


def collective_calls(log: FailureLog) -> Iterator[LoggedCollective]:
    """The timed-out collectives of each rank without duplicates, in the order of the log."""
    statuses: dict[tuple[int | None, int | None], dict[str, str]] = {}
    for found in log.find_all(_STATUS_LINE_PATTERN):
        fields = _matched_fields(_STATUS_FIELD_PATTERN, found.text)
        rank = _int_or_none(fields.get("rank")) if "rank" in fields else found.line.rank
        statuses.setdefault((rank, _int_or_none(fields.get("sequence"))), fields)
    seen: set[tuple[int | None, int | None, str]] = set()
    for found in log.find_all(_TIMEOUT_LINE_PATTERN):
        fields = _matched_fields(_FIELD_PATTERN, found.text)
        rank = _int_or_none(fields.get("rank")) if "rank" in fields else found.line.rank
        sequence, operation = _int_or_none(fields.get("sequence")), fields.get("operation", "")
        if (rank, sequence, operation) in seen or len(seen) >= _MAX_CALLS:
            continue
        seen.add((rank, sequence, operation))
        status = statuses.get((rank, sequence), {})
        yield LoggedCollective(
            rank=rank,
            operation=operation,
            sequence=sequence,
            elements_in=_int_or_none(fields.get("elements_in")),
            elements_out=_int_or_none(fields.get("elements_out")),
            timeout_seconds=_to_seconds(fields.get("timeout")),
            elapsed_seconds=_to_seconds(fields.get("elapsed")),
            group=fields.get("group", ""),
            log=found.line.path,
            line=found.line.number,
            enqueued=_int_or_none(status.get("enqueued")),
            completed=_int_or_none(status.get("completed")),
        )


def _matched_fields(pattern: re.Pattern[str], text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for match in pattern.finditer(text):
        for name, value in match.groupdict().items():
            if value is not None:
                fields.setdefault(name, value)
    return fields


def _int_or_none(text: str | None) -> int | None:
    return int(text) if text is not None else None


def _to_seconds(milliseconds: str | None) -> float | None:
    return int(milliseconds) / 1000 if milliseconds is not None else None
