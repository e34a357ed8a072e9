"""Places in a script and changes of it; None where a change can't be made without touching more than it should."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING

from gonogo.evidence.document.source_file import Place, SourceFile
from gonogo.evidence.script.calls import Call
from gonogo.evidence.script.index import Index
from gonogo.evidence.script.parse import Parsed
from gonogo.finding import Edit

if TYPE_CHECKING:
    from gonogo.evidence.script.edits import Editor


class Changes:
    """The part of a script that knows its bytes."""

    source: SourceFile

    @property
    def index(self) -> Index:
        """Parents and scopes."""
        raise NotImplementedError

    @property
    def parsed(self) -> Parsed:
        """The tree, or what is wrong with the file."""
        raise NotImplementedError

    @property
    def editable(self) -> bool:
        """Whether edits can be made: of a file in UTF-8 whose lines end alike."""
        data = self.source.data
        return (
            self.parsed.tree is not None
            and self.source.writable
            and self.parsed.encoding is None
            and (b"\r" not in data or data.count(b"\r") == data.count(b"\r\n") == data.count(b"\n"))
        )

    def place(self, node: ast.AST) -> Place:
        """Where a node stands."""
        source = self.source
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_column = getattr(node, "end_col_offset", None)
        if self.parsed.encoding is not None:
            column = self._column(line, column)
            end_column = self._column(end_line, end_column) if end_column is not None else None
        start = source.offset(line, column)
        return source.place(start, source.offset(end_line, end_column) if end_column is not None else start)

    def _column(self, line: int, column: int) -> int:
        """The column in the file's own encoding of one in UTF-8."""
        encoding = self.parsed.encoding or "utf-8"
        text = self.source.line_bytes(line).decode(encoding, "replace").encode("utf-8")
        return len(text[:column].decode("utf-8", "ignore").encode(encoding, "replace"))

    def headline(self, node: ast.AST) -> Place:
        """The first line of a node: of a class or a loop, what a report should underline."""
        place = self.place(node)
        end = self.source.data.find(b"\n", place.start)
        return place if end < 0 or end >= place.end else self.source.place(place.start, end)

    @cached_property
    def _editor(self) -> Editor | None:
        from gonogo.evidence.script.edits import Editor

        return Editor(self.source, self.index) if self.editable else None

    def removing_keyword(self, call: Call | ast.Call, name: str) -> Edit | None:
        """Take a keyword out of a call; None where the call doesn't hold it itself, or nothing can be edited."""
        node = call.node if isinstance(call, Call) else call
        keyword = next((each for each in node.keywords if each.arg == name), None)
        return self._editor.remove_keyword(node, keyword) if self._editor is not None and keyword is not None else None

    def setting_keyword(self, call: Call | ast.Call, name: str, source_text: str) -> Edit | None:
        """Give a call a keyword, or the keyword another value."""
        node = call.node if isinstance(call, Call) else call
        if self._editor is None:
            return None
        keyword = next((each for each in node.keywords if each.arg == name), None)
        if keyword is None:
            return self._editor.add_keyword(node, name, source_text)
        return self.replacing(keyword, f"{name}={source_text}")

    def removing_statement(self, node: ast.stmt) -> Edit | None:
        """Take a statement out, with the comment lines right above it; the only one of its block becomes ``pass``."""
        return self._editor.remove_statement(node) if self._editor is not None else None

    def replacing(self, node: ast.AST, text: str) -> Edit | None:
        """Write something else in a node's place."""
        return self.place(node).edit(text) if self._editor is not None else None

    def inserting_before(self, statement: ast.stmt, text: str) -> Edit | None:
        """Put a statement before another, at its indentation."""
        return self._editor.insert_before(statement, text) if self._editor is not None else None

    def inserting_after(self, statement: ast.stmt, text: str) -> Edit | None:
        """Put a statement after another, at its indentation."""
        return self._editor.insert_after(statement, text) if self._editor is not None else None

    def inserting_import(self, text: str) -> Edit | None:
        """Add an import to those at the script's top."""
        return self._editor.insert_import(text) if self._editor is not None else None
