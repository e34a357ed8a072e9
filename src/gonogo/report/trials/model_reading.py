"""What other releases show, and what a model made of a failure, as report sections in a form for all formats."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.finding import Report, Text, translated
from gonogo.finding.second_opinion.model_reading import CheckedClaim, ModelReading
from gonogo.report.trials.cure import Section
from gonogo.report.untrusted import clean, clean_line
from gonogo.report.words import colon

_OTHER_RELEASES_TITLE = translated("Other releases")
_READ_BY_MODEL = translated("Analysis by {model}; {count} of {all} claims confirmed; not conclusive on its own")
_NO_CLAIMS = translated("Analysis by {model}; it makes no claim that can be checked")
_NO_VALID_CLAIMS = translated("Analysis by {model}: none of its {all} claims could be verified; don't rely on it")
_NO_ANSWER = translated("{model} at {server} gave no answer: {why}")
_CAUSE = translated("it says")
_HOLDS = translated("holds")
_REJECTED = translated("rejected")
_CHANGE = translated("it proposes")
_SUGGESTED_CHECK_LABEL = translated("it suggests checking")
_PROVEN_BY_REHEARSAL = translated("proven by rehearsal")
_NOT_PROVEN = translated("not proven")
_CLAIM_KIND_TEXTS = {
    "quote": translated("quote"),
    "place": translated("place"),
    "version": translated("version"),
    "number": translated("number"),
}
_PINS = translated("releases: {pins}")


def reader_sections(report: Report, language: str) -> Iterator[Section]:
    """The sections; none for a report without such content."""
    if report.upstream:
        yield Section(
            _OTHER_RELEASES_TITLE.in_language(language),
            tuple(clean_line(one.said.in_language(language)) for one in report.upstream),
        )
    if report.reading is not None:
        yield _reading_section(report.reading, language)


def reader_lines(report: Report, language: str) -> Iterator[str]:
    """The same content with each section on one line, for formats without sections."""
    for section in reader_sections(report, language):
        yield f"{section.title}{colon(language)}{'; '.join(section.said)}"


def _reading_section(reading: ModelReading, language: str) -> Section:
    model = clean_line(reading.model)
    if reading.failed is not None:
        text = _NO_ANSWER.format(model=model, server=clean_line(reading.server), why=reading.failed)
        return Section(clean_line(text.in_language(language)), ())
    lines = [_labelled_line(_CAUSE, reading.cause, language)]
    lines += [_claim_line(claim, language) for claim in reading.claims]
    if reading.change:
        lines.append(_labelled_line(_CHANGE, reading.change, language))
    diff = ""
    if reading.proof is not None:
        head = _PROVEN_BY_REHEARSAL if reading.proof.proven else _NOT_PROVEN
        lines.append(_labelled_line(head, reading.proof.outcome.in_language(language), language))
        if reading.proof.pins:
            lines.append(clean_line(_PINS.format(pins=", ".join(reading.proof.pins)).in_language(language)))
        diff = clean(reading.proof.patch)
    if reading.next_step:
        lines.append(_labelled_line(_SUGGESTED_CHECK_LABEL, reading.next_step, language))
    title = _NO_CLAIMS if not reading.claims else _READ_BY_MODEL if reading.confirmed_count else _NO_VALID_CLAIMS
    titled = title.format(model=model, count=reading.confirmed_count, all=len(reading.claims))
    return Section(titled.in_language(language), tuple(lines), diff)


def _labelled_line(label: Text, text: str, language: str) -> str:
    return f"{label.in_language(language)}{colon(language)}{clean_line(text)}"


def _claim_line(claim: CheckedClaim, language: str) -> str:
    verdict = (_HOLDS if claim.holds else _REJECTED).in_language(language)
    kind = (
        _CLAIM_KIND_TEXTS[claim.kind].in_language(language)
        if claim.kind in _CLAIM_KIND_TEXTS
        else clean_line(claim.kind)
    )
    why = clean_line(claim.why.in_language(language))
    text = clean_line(claim.said)
    shown = f"{text[:200]} …" if len(text) > 200 else text
    if language == "zh":
        return f"{verdict}，{kind}：{shown}（{why}）"
    return f"{verdict}, {kind}: {shown} ({why})"
