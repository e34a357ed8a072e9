"""A reader is told of one kind in one line, and of a few kinds; the JSON has all."""

from __future__ import annotations

from gonogo.finding import Certainty, Finding, Report, Severity, Skipped, Span, Text, Verdict
from gonogo.finding.finding_groups import MAX_SHOWN_NOTES, grouped_notes, grouped_skipped, shown_findings


def text(words: str) -> Text:
    return Text(words, words)


def warning(number: int, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(
        f"hazard-{number}", Certainty.CERTAIN, severity, text("t"), text("c"), spans=(Span("a.py", number + 1),)
    )


def test_notes_of_a_kind_are_one_line() -> None:
    notes = tuple(text(f"the folder data/{number} stands for `x{number}`") for number in range(256))
    (line,) = grouped_notes(Report("rehearse", Verdict.GO, notes=(*notes,)))
    assert line.en == "the folder data/0 stands for `x0` (and 255 more like it)"
    several = tuple(text(f"{word} is so") for word in ("this", "that", "it", "one", "all", "none", "some"))
    lines = grouped_notes(Report("rehearse", Verdict.GO, notes=several))
    assert len(lines) == MAX_SHOWN_NOTES
    assert lines[-1].en == "3 more notes: --format json lists them all"
    assert [line.en for line in grouped_notes(Report("rehearse", Verdict.GO, notes=several[:5]))] == [
        one.en for one in several[:5]
    ]


def test_errors_are_all_told_and_remarks_are_few() -> None:
    errors = [warning(number, Severity.ERROR) for number in range(9)]
    remarks = [warning(number) for number in range(20, 28)]
    found, rest = shown_findings(Report("check", Verdict.NO_GO, findings=(*errors, *remarks)))
    assert [one.finding for one in found] == [*errors, *remarks[:MAX_SHOWN_NOTES]]
    assert rest is not None
    assert rest.en.startswith("3 more warnings and notes (hazard-25, hazard-26, hazard-27)")
    assert shown_findings(Report("check", Verdict.NO_GO, findings=(*errors, *remarks[:5])))[1] is None


def test_what_was_not_covered_for_one_reason_is_one_line() -> None:
    cuda = [Skipped(text(f"nvidia-{number}"), text("built for CUDA")) for number in range(16)]
    other = Skipped(text("save"), text("not reached"))
    first, second = grouped_skipped(Report("rehearse", Verdict.GO, skipped=(*cuda[:8], other, *cuda[8:])))
    assert first.what.en == "nvidia-0; nvidia-1; nvidia-2 and 13 more"
    assert (second.what, second.why) == (other.what, other.why)
