"""Styled lines wrapped to a width: what a text report consists of.

Rich draws the report's tables only: its import and layout alone would take a fifth of the time of ``gonogo check``,
which runs before each commit. So lines are laid out here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, TextIO
from unicodedata import category, east_asian_width

if TYPE_CHECKING:
    from gonogo.report.table import Table

_SGR = {"bold": 1, "dim": 2, "reverse": 7, "red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36}
"""Select Graphic Rendition parameters (ECMA-48, 8.3.117)."""
_WIDE = (
    *(("\u1100", "\u115f"), ("\u2e80", "\u3000"), ("\u3003", "\u3007"), ("\u3012", "\u3013"), ("\u3020", "\u4dbf")),
    *(("\u4e00", "\ua4cf"), ("\uac00", "\ud7a3"), ("\uf900", "\ufaff")),
)
_CLOSING = "\u3001\u3002\u3009\u300b\u300d\u300f\u3011\u3015\uff01\uff09\uff0c\uff1a\uff1b\uff1f”’…"
_ENGLISH_WORD_PATTERN = re.compile(r"\s*\S+\s*")
_DEFAULT_WIDTH = 80
_BLOCKS, _ASCII_BLOCKS = ("█", "░"), ("#", ".")
_MIN_BAR, _MAX_BAR = 4, 10
_COLUMN_GAP = 2
_MIN_WRAPPED_COLUMN_WIDTH = 10
"""Text cells are wrapped to no less than this width, to leave room for figures."""


def column_width(text: str) -> int:
    """Terminal columns that the text takes: two for a wide character, none for a combining one."""
    return len(text) if text.isascii() else sum(_character_width(character) for character in text)


@cache
def _character_width(character: str) -> int:
    if category(character) in ("Mn", "Me", "Cf", "Cc"):
        return 0
    return 2 if east_asian_width(character) in ("W", "F") else 1


class StyledText:
    """Text with a style per part, such as ``bold red reverse``, or none."""

    __slots__ = ("parts",)

    def __init__(self, text: str = "", style: str = "") -> None:
        self.parts = [(text, style)] if text else []

    @classmethod
    def assemble(cls, *parts: str | tuple[str, str] | StyledText) -> StyledText:
        """Concatenate several parts: plain, or with a style."""
        whole = cls()
        for part in parts:
            if isinstance(part, tuple):
                whole.append(*part)
            else:
                whole.append(part)
        return whole

    def append(self, text: str | StyledText, style: str = "") -> StyledText:
        """Append a text. Returns itself."""
        if isinstance(text, StyledText):
            self.parts += text.parts
        elif text:
            self.parts.append((text, style))
        return self

    @property
    def plain(self) -> str:
        """The text without its styles."""
        return "".join(text for text, _ in self.parts)

    def cut(self, start: int, end: int) -> StyledText:
        """The characters from ``start`` up to ``end``, with their styles."""
        piece, at = StyledText(), 0
        for text, style in self.parts:
            piece.append(text[max(start - at, 0) : max(end - at, 0)], style)
            at += len(text)
        return piece


def _is_wide(character: str) -> bool:
    return character >= "\u1100" and any(first <= character <= last for first, last in _WIDE)


def _words(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of what is kept on one line, with the blanks around it.

    Chinese may break after any character, but not before closing punctuation. Not a regex: a class of these characters
    takes longer to compile than a report to print.
    """
    if text.isascii():
        yield from (word.span() for word in _ENGLISH_WORD_PATTERN.finditer(text))
        return
    end, length = 0, len(text)
    while True:
        start = end
        while end < length and text[end].isspace():
            end += 1
        if end == length:
            return
        if _is_wide(text[end]):
            end += 1
        else:
            while end < length and not text[end].isspace() and not _is_wide(text[end]):
                end += 1
        while end < length and text[end] in _CLOSING:
            end += 1
        while end < length and text[end].isspace():
            end += 1
        yield start, end


def truncate(text: str, width: int) -> str:
    """The text, shortened with an ellipsis if it takes more than ``width`` columns."""
    if column_width(text) <= width:
        return text
    return f"{text[: _fitting_end(text, 0, width - 1)]}…"


def wrap_text(line: StyledText, width: int) -> Iterator[StyledText]:
    """Wrap the text to ``width`` columns: between words, and within words that are wider than a line."""
    plain = line.plain
    if "\n" not in plain and column_width(plain) <= width:
        yield line
        return
    start = 0
    for paragraph in plain.split("\n"):
        for first, last in _line_spans(paragraph, max(width, 2)):
            yield line.cut(start + first, start + last)
        start += len(paragraph) + 1


def _line_spans(text: str, width: int) -> Iterator[tuple[int, int]]:
    """Start and end of each line, without trailing blanks."""
    start = taken = 0
    for first, last in _words(text):
        word = text[first:last]
        wanted = column_width(word.rstrip())
        if taken + wanted > width:
            if taken and (wanted <= width or first > start):
                yield start, start + len(text[start:first].rstrip())
                start, taken = first, 0
            while (end := _fitting_end(text, start, width)) < first + len(word.rstrip()):
                yield start, end
                start = end
            taken = column_width(text[start:last])
        else:
            taken += column_width(word)
    yield start, start + len(text[start:].rstrip())


def _fitting_end(text: str, start: int, width: int) -> int:
    """The end of the longest piece from ``start`` that fits ``width`` columns; at least one character."""
    taken = 0
    for end in range(start, len(text)):
        taken += _character_width(text[end])
        if taken > width and end > start:
            return end
    return len(text)


class Page:
    """The page that lines are printed on: a stream, its width in columns, and whether it supports colour."""

    def __init__(self, stream: TextIO, *, width: int | None = None, colour: bool = False) -> None:
        """``width`` None: the terminal's own, or 80 if it has none."""
        self._stream = stream
        self.is_terminal = stream.isatty()
        """Whether a person reads it there: what a program reads line by line isn't wrapped."""
        self.width = width or _terminal_width(stream)
        self._colour = colour

    def line(self, line: StyledText | str = "", *, indent: int = 0, wrap: bool = True) -> None:
        """Print a text, wrapped unless the reader has to copy or click it."""
        text = StyledText(line) if isinstance(line, str) else line
        for piece in wrap_text(text, self.width - indent) if wrap else (text,):
            self._write_line(" " * indent, piece)

    def labelled(self, label: StyledText, column: int, line: StyledText) -> None:
        """Print a text that begins at ``column``, with its label before it."""
        before = StyledText(" " * (column - column_width(label.plain))).append(label)
        for piece in wrap_text(line, max(self.width - column, 1)):
            self._write_line("", before.append(piece))
            before = StyledText(" " * column)

    def rule(self, title: str) -> None:
        """Print a title, followed by a rule to the end of the line."""
        text = truncate(title, self.width)
        rest = self.width - column_width(text) - 1
        self._write_line("", StyledText(text, "bold").append(f" {'─' * rest}" if rest > 0 else "", "dim"))

    def table(self, table: Table) -> None:
        """Draw a table under its title."""
        from rich.console import Console
        from rich.table import Table as Grid
        from rich.text import Text as Cell

        self.rule(table.title)
        if self._is_too_narrow(table):
            self._rows_as_lines(table)
            return
        bar = self._bar_width(table)
        drawn = Grid(box=None, padding=(0, _COLUMN_GAP, 0, 0), header_style="dim", pad_edge=False)
        widths = [max(map(column_width, column)) for column in zip(table.columns, *table.rows, strict=True)]
        # Rather wrap a header of two words than a short cell ("cuda:0").
        narrow = sum(widths) + _COLUMN_GAP * (len(widths) - 1) > self.width
        for number, column in enumerate(table.columns):
            numeric = number in table.numeric
            longer = all(column_width(column) > column_width(row[number]) for row in table.rows)
            head = column.replace(" ", "\n") if narrow and numeric and longer else column
            drawn.add_column(Cell(head), justify="right" if numeric else "left", no_wrap=numeric, overflow="fold")
        for row in table.rows:
            drawn.add_row(
                *(Cell(self._with_bar(cell, bar) if n in table.shares else cell) for n, cell in enumerate(row))
            )
        Console(
            file=self._stream,
            width=self.width,
            force_terminal=self._colour,
            color_system="standard" if self._colour else None,
            force_jupyter=False,
            highlight=False,
            emoji=False,
            markup=False,
        ).print(drawn)
        if table.note:
            self.line(StyledText(table.note, "dim"))

    def _is_too_narrow(self, table: Table) -> bool:
        """Whether a word would have to be broken in its cell: a broken name can be neither read nor copied."""
        wanted = _COLUMN_GAP * (len(table.columns) - 1)
        for number, column in enumerate(table.columns):
            whole = number in table.numeric
            parts = [column.split(), *([row[number]] if whole else row[number].split() for row in table.rows)]
            wanted += max((column_width(part) for words in parts for part in words), default=0)
        return wanted > self.width

    def _rows_as_lines(self, table: Table) -> None:
        """Print each row as its first cell, with the other cells below, labelled by their columns."""
        separator = "；" if any(column_width(column) > len(column) for column in table.columns) else "; "
        for row in table.rows:
            (first, head), *others = zip(table.columns, row, strict=True)
            self.line(StyledText.assemble((f"{first} " if head.isdecimal() or not head else "", "dim"), (head, "bold")))
            text = StyledText()
            for name, cell in others:
                if cell:
                    text.append(separator if text.parts else "").append(f"{name} " if name else "", "dim").append(cell)
            self.line(text, indent=2 * _COLUMN_GAP)
        if table.note:
            self.line(StyledText(table.note, "dim"))

    def _bar_width(self, table: Table) -> int:
        """The width of a table's bars: what the columns leave over, or 0."""
        if not table.shares:
            return 0
        rest = self.width
        for number, column in enumerate(table.columns):
            widest = max(column_width(text) for text in (column, *(row[number] for row in table.rows)))
            whole = number in table.numeric or not number
            rest -= _COLUMN_GAP + (widest if whole else min(widest, _MIN_WRAPPED_COLUMN_WIDTH))
        room = rest // len(table.shares) - 1
        return min(room, _MAX_BAR) if room >= _MIN_BAR else 0

    def _with_bar(self, cell: str, width: int) -> str:
        """A percentage, preceded by its bar."""
        if not width or not cell:
            return cell
        percent = float(cell.removesuffix(" %"))
        full = min(max(round(percent * width / 100), 1 if percent > 0 else 0), width)
        block, rest = _BLOCKS if _can_print("".join(_BLOCKS), self._stream) else _ASCII_BLOCKS
        return f"{block * full}{rest * (width - full)} {cell:>5}"

    def _write_line(self, indent: str, line: StyledText) -> None:
        text = "".join(_colourize(*part) for part in line.parts) if self._colour else line.plain
        self._stream.write(f"{indent}{text}\n")


def _can_print(text: str, stream: TextIO) -> bool:
    try:
        text.encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def should_use_colour(stream: TextIO) -> bool:
    """Whether to colour the output: on a capable terminal, unless ``NO_COLOR`` is set (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in ("dumb", "unknown")


def _colourize(text: str, style: str) -> str:
    if not style:
        return text
    return f"\x1b[{';'.join(str(_SGR[name]) for name in style.split())}m{text}\x1b[0m"


def _terminal_width(stream: TextIO) -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or _DEFAULT_WIDTH
    except (OSError, ValueError):
        return _DEFAULT_WIDTH
