"""A file of the user's as it is on disk: its bytes, its text, and places in it.

Places are byte ranges, so that a fix changes only those bytes, whatever the encoding or the line ends.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from gonogo.evidence.notebook import SUFFIX, notebook_to_python
from gonogo.evidence.paths import open_for_reading
from gonogo.finding import Edit, Span, Text, UserError, translated

MAX_FILE_BYTES = 8 << 20
"""In bytes; larger files aren't configurations, scripts or launch commands that a person wrote."""

_BOM = b"\xef\xbb\xbf"
_MAX_SHOWN = 300
_CANNOT_READ = translated("can't read {path}: {why}")


class SourceFile:
    """One file. ``path`` is shown to users; ``writable`` is False if there is no file, as for a typed command."""

    def __init__(self, path: str, data: bytes, *, writable: bool = True) -> None:
        self.path = path
        self.data = data
        self.writable = writable
        self.gap: Text | None = None
        """Why a reader has not read all of it, such as a limit on its size: whoever reports says it."""

    @classmethod
    def read(cls, path: Path | str, *, limit: int = MAX_FILE_BYTES) -> SourceFile:
        """The file at that path; for a notebook, its Python code.

        Raises UserError if it can't be read or is larger than the limit.
        """
        try:
            with open_for_reading(path) as file:
                data = file.read(limit + 1)
        except OSError as error:
            raise UserError(_CANNOT_READ.format(path=path, why=error.strerror or error)) from None
        if len(data) > limit:
            why = Text(f"it has more than {limit >> 20} MiB", f"超过 {limit >> 20} MiB")
            raise UserError(_CANNOT_READ.format(path=path, why=why))
        if str(path).endswith(SUFFIX) and (python := notebook_to_python(data)) is not None:
            return cls(str(path), python, writable=False)
        return cls(str(path), data)

    @classmethod
    def from_text(cls, path: str, text: str) -> SourceFile:
        """Text that isn't in a file: a command line, standard input."""
        return cls(path, text.encode("utf-8", "surrogateescape"), writable=False)

    @cached_property
    def text(self) -> str:
        """The text without byte-order mark; bytes that aren't UTF-8 are replaced by U+FFFD."""
        return self.data[self.start :].decode("utf-8", "replace")

    @property
    def is_utf8(self) -> bool:
        """Whether all bytes are valid UTF-8."""
        try:
            self.data.decode("utf-8")
        except UnicodeDecodeError:
            return False
        return True

    @property
    def start(self) -> int:
        """The offset at which the text begins: after a byte-order mark."""
        return len(_BOM) if self.data.startswith(_BOM) else 0

    @cached_property
    def _line_starts(self) -> Sequence[int]:
        starts = [0]
        position = self.data.find(b"\n")
        while position >= 0:
            starts.append(position + 1)
            position = self.data.find(b"\n", position + 1)
        return starts

    def line_of(self, offset: int) -> int:
        """The line number, from 1, of the byte at ``offset``."""
        return bisect_right(self._line_starts, max(offset, 0))

    def line_start(self, line: int) -> int:
        """The offset of a line's first byte; lines count from 1. After the last line, the end of the file."""
        starts = self._line_starts
        return starts[line - 1] if 1 <= line <= len(starts) else len(self.data)

    def line_bytes(self, line: int) -> bytes:
        """A line with its line end."""
        return self.data[self.line_start(line) : self.line_start(line + 1)]

    def offset(self, line: int, column: int) -> int:
        """The byte offset of a line (from 1) and a column in UTF-8 bytes (from 0), as :mod:`ast` counts them."""
        start = self.line_start(line) + (self.start if line == 1 else 0)
        return min(start + column, len(self.data))

    def offset_of_character(self, line: int, column: int) -> int:
        """The byte offset of a line (from 1) and a column in characters (from 0), as PyYAML counts them."""
        start = self.line_start(line) + (self.start if line == 1 else 0)
        text = self.data[start : self.line_start(line + 1)].decode("utf-8", "surrogateescape")
        return start + len(text[:column].encode("utf-8", "surrogateescape"))

    def place(self, start: int, end: int) -> Place:
        """The bytes from ``start`` to before ``end``."""
        return Place(self, start, end)


class Place(msgspec.Struct, frozen=True):
    """A location in a file: the bytes from ``start`` to before ``end``."""

    source: SourceFile
    start: int
    end: int

    @property
    def text(self) -> str:
        """The text in this range."""
        return self.source.data[self.start : self.end].decode("utf-8", "replace")

    @property
    def line(self) -> int:
        """The number of its first line, from 1."""
        return self.source.line_of(self.start)

    def span(self, label: Text | None = None) -> Span:
        """The place as shown in reports, with the text of its first line."""
        source = self.source
        line = source.line_of(self.start)
        begin = source.line_start(line)
        column = len(source.data[begin : self.start].removeprefix(_BOM).decode("utf-8", "replace")) + 1
        end = max(self.end, self.start)
        end_line = source.line_of(max(end - 1, self.start))
        end_begin = source.line_start(end_line)
        end_column = len(source.data[end_begin:end].removeprefix(_BOM).decode("utf-8", "replace")) + 1
        shown = source.line_bytes(line).removeprefix(_BOM).decode("utf-8", "replace").rstrip("\r\n")
        return Span(source.path, line, column, shown[:_MAX_SHOWN], label, end_line, end_column)

    def edit(self, replacement: str) -> Edit:
        """An edit that replaces these bytes by ``replacement``."""
        before = self.source.data[self.start : self.end]
        return Edit(self.source.path, self.start, self.end, before, replacement.encode("utf-8", "surrogateescape"))


def display_path(path: str | os.PathLike[str], base: str | os.PathLike[str] = ".") -> str:
    """A path as shown in reports: relative to ``base`` if it is below it, else unchanged."""
    whole = os.path.abspath(path)
    inside = os.path.relpath(whole, base)
    return whole if inside.startswith("..") else inside
