"""A source excerpt in the style of rustc: the location, the line, and a marker under the relevant part."""

from __future__ import annotations

import re

from gonogo.finding import Span
from gonogo.report.page import Page, StyledText, column_width, truncate
from gonogo.report.untrusted import clean, clean_line

_TOKEN_PATTERN = re.compile(r"[\w.]+|\S")


def print_excerpt(span: Span, page: Page, language: str, gutter_width: int, *, is_primary: bool, style: str) -> None:
    """Print the location, then the source line with a marker under the relevant part."""
    arrow = "-->" if is_primary else ":::"
    place = f"{clean_line(span.path)}:{span.line}:{span.column}"
    page.line(StyledText.assemble((f"{' ' * (gutter_width - 1)}{arrow} ", "blue"), place), wrap=False)
    label = clean_line(span.label.in_language(language)) if span.label else ""
    source = clean(span.text).replace("\n", " ").rstrip()
    bar = StyledText.assemble((f"{' ' * gutter_width}|", "blue"))
    mark_style = style if is_primary else "bold blue"
    cut_before = span.end_column and span.column > len(span.text) + 1  # the text holds only the start of a long line
    if not source.strip() or cut_before:
        if label:
            page.line(StyledText.assemble(bar, (f" {label}", mark_style)))
        return
    start, end = marker_range(span, source)
    before = column_width(source[:start])
    width = max(column_width(source[start:end]), 1)
    room = max(page.width - gutter_width - 3, 20)
    if before + width > room:  # show the part of a long line that has the marker
        cut = max(start - room // 3, 0)
        if cut:
            source, start, end = f"…{source[cut:]}", start - cut + 1, end - cut + 1
        before = column_width(source[:start])
        width = min(max(column_width(source[start:end]), 1), room - before)
    page.line(bar)
    number = (f"{span.line:>{gutter_width - 1}} | ", "blue")
    page.line(StyledText.assemble(number, truncate(source, room)), wrap=False)
    mark = ("^" if is_primary else "-") * width
    line = StyledText.assemble(bar, (f" {' ' * before}{mark}", mark_style))
    if label and gutter_width + 2 + before + width + 1 + column_width(label) <= page.width:
        page.line(line.append(f" {label}", mark_style))
    else:
        page.line(line)
        if label:
            page.line(StyledText(label, mark_style), indent=gutter_width + 2)


def marker_range(span: Span, source: str) -> tuple[int, int]:
    """Start and end of the marker within ``source``.

    They are those of the span; if it has no end, those of the token at its column, or the whole line if there is
    none.
    """
    indent = len(source) - len(source.lstrip())
    column = len(clean(span.text[: span.column - 1]))  # clean() has expanded tabs before it
    if span.end_column and column < len(source):
        last = span.end_line in (0, span.line)  # of a span of several lines, the first line is shown
        end = len(clean(span.text[: span.end_column - 1])) if last else len(source)
        return column, max(min(end, len(source)), column + 1)
    if span.column > 1 and indent <= column < len(source) and (token := _TOKEN_PATTERN.match(source, column)):
        return token.span()
    return indent, len(source)
