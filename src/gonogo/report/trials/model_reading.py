"""What other releases show, and what a model made of a failure, as sections of a report: one form for all formats."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.finding import Report, Text
from gonogo.finding.second_opinion.model_reading import CheckedClaim, ModelReading
from gonogo.report.trials.cure import Section
from gonogo.report.untrusted import clean, clean_line
from gonogo.report.words import colon

_UPSTREAM = Text("Other releases", "其他版本")
_READ = Text(
    "Read by {model}; {count} of {all} claims hold; not certain by itself",
    "由 {model} 解读；{all} 条说法中 {count} 条成立；本身不构成确定的结论",
)
_NONE_MADE = Text("Read by {model}; it made no claim that can be checked", "由 {model} 解读；没有可以检验的说法")
_NONE_HOLD = Text(
    "Read by {model}; none of its {all} claims holds: don't rely on it",
    "由 {model} 解读；{all} 条说法全不成立：不要采信",
)
_NO_ANSWER = Text("{model} at {server} gave no answer: {why}", "{server} 上的 {model} 没有给出回答：{why}")
_CAUSE = Text("it says", "它认为")
_HOLDS = Text("holds", "成立")
_STRUCK = Text("struck", "不成立")
_CHANGE = Text("it proposes", "它建议")
_NEXT = Text("it would look at", "它建议查看")
_PROVEN = Text("proven by rehearsal", "已由排练证实")
_NOT_PROVEN = Text("not proven", "未被证实")
_KINDS = {
    "quote": Text("quote", "引文"),
    "place": Text("place", "位置"),
    "version": Text("version", "版本"),
    "number": Text("number", "数值"),
}
_PINS = Text("releases: {pins}", "版本：{pins}")


def reader_sections(report: Report, language: str) -> Iterator[Section]:
    """The sections of a report that has any of these."""
    if report.upstream:
        yield Section(
            _UPSTREAM.in_language(language),
            tuple(clean_line(one.said.in_language(language)) for one in report.upstream),
        )
    if report.reading is not None:
        yield _section(report.reading, language)


def reader_lines(report: Report, language: str) -> Iterator[str]:
    """The same, each section in one line, for formats that have no sections."""
    for section in reader_sections(report, language):
        yield f"{section.title}{colon(language)}{'; '.join(section.said)}"


def _section(reading: ModelReading, language: str) -> Section:
    model = clean_line(reading.model)
    if reading.failed is not None:
        text = _NO_ANSWER.format(model=model, server=clean_line(reading.server), why=reading.failed)
        return Section(clean_line(text.in_language(language)), ())
    said = [_labelled(_CAUSE, reading.cause, language)]
    said += [_claim(claim, language) for claim in reading.claims]
    if reading.change:
        said.append(_labelled(_CHANGE, reading.change, language))
    diff = ""
    if reading.proof is not None:
        head = _PROVEN if reading.proof.proven else _NOT_PROVEN
        said.append(_labelled(head, reading.proof.outcome.in_language(language), language))
        if reading.proof.pins:
            said.append(clean_line(_PINS.format(pins=", ".join(reading.proof.pins)).in_language(language)))
        diff = clean(reading.proof.patch)
    if reading.next_step:
        said.append(_labelled(_NEXT, reading.next_step, language))
    title = _NONE_MADE if not reading.claims else _READ if reading.holding else _NONE_HOLD
    titled = title.format(model=model, count=reading.holding, all=len(reading.claims))
    return Section(titled.in_language(language), tuple(said), diff)


def _labelled(label: Text, text: str, language: str) -> str:
    return f"{label.in_language(language)}{colon(language)}{clean_line(text)}"


def _claim(claim: CheckedClaim, language: str) -> str:
    verdict = (_HOLDS if claim.holds else _STRUCK).in_language(language)
    kind = _KINDS[claim.kind].in_language(language) if claim.kind in _KINDS else clean_line(claim.kind)
    why = clean_line(claim.why.in_language(language))
    said = clean_line(claim.said)
    shown = f"{said[:200]} …" if len(said) > 200 else said
    if language == "zh":
        return f"{verdict}，{kind}：{shown}（{why}）"
    return f"{verdict}, {kind}: {shown} ({why})"
