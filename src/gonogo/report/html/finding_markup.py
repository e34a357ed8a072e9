"""A finding as HTML: what, where (with the line of code), why, the cure, and diffs that can be copied."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.finding import Finding, Fix, Span, Text, translated
from gonogo.finding.finding_groups import FindingGroup
from gonogo.finding.ranks import ranks_text
from gonogo.report.excerpt import marker_range
from gonogo.report.html.markup import element, escape_line, escape_lines, format_sentence, link
from gonogo.report.untrusted import clean, clean_line
from gonogo.report.words import colon, how_to_apply, word

_COPY = translated("copy")


def finding_markup(alike: FindingGroup, language: str, number: int, moment: str = "") -> str:
    """The HTML of one finding and of others of its kind; ``number`` makes it unique within the page.

    ``moment`` is the HTML of the button that shows it in the chart of memory over time.
    """
    finding = alike.finding
    name = f"finding-{number}-{language}"
    level = element("span", escape_line(word(finding.level.value, language)), klass="level")
    title = element("h2", level, " ", format_sentence(finding.title.in_language(language)), id=name)
    cause = element("p", element("strong", escape_line(word("cause", language))), colon(language),
                    format_sentence(finding.cause.in_language(language)))  # fmt: skip
    return element(
        "article",
        title,
        _facts_markup(finding, language),
        moment,
        *(_span_figure(span, language) for span in finding.spans),
        cause,
        _advice_markup("help", finding.cure, language),
        _advice_markup("confirm", finding.remaining_confirmations, language),
        *(_fix_markup(fix, language) for fix in finding.fixes),
        *_other_places(alike, language),
        *_sources_markup(finding, language),
        klass=f"finding {finding.level.value}",
        aria_labelledby=name,
    )


def _facts_markup(finding: Finding, language: str) -> str:
    facts = [element("code", escape_line(finding.hazard)), escape_line(word(finding.certainty.value, language))]
    if finding.ranks:
        facts.append(escape_line(ranks_text(finding.ranks).en))
    named = {"module": finding.module, "parameter": finding.parameter}
    facts += [
        f"{escape_line(word(name, language))} {element('code', escape_line(value))}"
        for name, value in named.items()
        if value
    ]
    return element("p", " · ".join(facts), klass="facts")


def _span_figure(span: Span, language: str) -> str:
    place = element("span", escape_line(f"{span.path}:{span.line}:{span.column}"), klass="place")
    label = element(
        "figcaption", place, *([" ", format_sentence(span.label.in_language(language))] if span.label else [])
    )
    source = clean(span.text).replace("\n", " ").rstrip()
    if not source.strip() or (span.end_column and span.column > len(span.text) + 1):
        return element("figure", label)
    start, end = marker_range(span, source)
    indent = min(len(source) - len(source.lstrip()), start)  # a single line needs no indentation
    source, start, end = source[indent:], start - indent, end - indent
    code = "".join(
        [
            escape_lines(source[:start][-400:]),
            element("mark", escape_lines(source[start:end])),
            escape_lines(source[end:][:400]),
        ]
    )
    number = element("span", str(span.line), klass="number")
    block = element("pre", number, element("code", code), tabindex="0", aria_label=clean_line(span.path))
    return element("figure", label, block)


def _advice_markup(name: str, steps: tuple[Text, ...], language: str) -> str:
    if not steps:
        return ""
    listed = element("ul", *(element("li", format_sentence(step.in_language(language))) for step in steps))
    return element("p", element("strong", escape_line(word(name, language)))) + listed


def _fix_markup(fix: Fix, language: str) -> str:
    how = escape_line(word(fix.applicability.value, language))
    shown = f"（{how}）" if language == "zh" else f" ({how})"
    head = element("p", element("strong", escape_line(word("fix", language))), shown, colon(language),
                   format_sentence(fix.title.in_language(language)))  # fmt: skip
    parts = [head, *([diff_markup(fix.diff, language)] if fix.diff else [])]
    if command := how_to_apply(fix):
        parts.append(
            element("p", escape_line(word("apply", language)), colon(language), element("code", escape_line(command)))
        )
    return "".join(parts)


def diff_markup(diff: str, language: str) -> str:
    """A unified diff, coloured, with a copy button."""
    coloured = (
        element("span", escape_lines(line), "\n", klass="added" if line[0] == "+" else "removed")
        if line[:1] in ("+", "-") and not line.startswith(("--- ", "+++ "))
        else f"{escape_lines(line)}\n"
        for line in diff.splitlines()
    )
    copy = element("button", escape_line(_COPY.in_language(language)), type="button", klass="copy")
    return element("div", copy, element("pre", element("code", *coloured), tabindex="0"), klass="diff")


def copyable(content: str, name: str, language: str) -> str:
    """Preformatted text with a copy button."""
    copy = element("button", escape_line(_COPY.in_language(language)), type="button", klass="copy")
    return element(
        "div", copy, element("pre", escape_lines(content), tabindex="0", role="group", aria_label=name), klass="diff"
    )


def _other_places(alike: FindingGroup, language: str) -> Iterator[str]:
    if not alike.others:
        return
    listed = element("ul", *(element("li", element("code", escape_line(place))) for place in alike.places(language)))
    yield element("details", element("summary", escape_line(alike.heading(language))), listed)


def _sources_markup(finding: Finding, language: str) -> Iterator[str]:
    if not finding.sources:
        return
    listed = element("ul", *(element("li", link(source)) for source in finding.sources))
    yield element("details", element("summary", escape_line(word("source", language))), listed)
