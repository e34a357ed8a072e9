"""Edits of a script that leave everything else unchanged: keyword arguments, statements, imports.

Each method returns None if the change can't be made without affecting more than it should.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gonogo.evidence.script.syntax_index import ScriptIndex, start_position
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Edit

_BLANK = b" \t\f"
_WHITESPACE_AND_NEWLINES = b" \t\f\r\n"
_DIRECTIVES = ("#!", "# noqa", "# fmt:", "# type:", "# %%", "# pylint:", "# ---", "# ===", "####", "# region", "# ruff")


class ScriptEditor:
    """Makes the edits of one script."""

    def __init__(self, source: SourceFile, index: ScriptIndex) -> None:
        self.source = source
        self.data = source.data
        self.index = index
        self.newline = "\r\n" if b"\r\n" in source.data else "\n"

    def span(self, node: ast.AST) -> tuple[int, int]:
        """The byte range of a node; a decorated definition starts at its first decorator."""
        source = self.source
        start = source.offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        end = source.offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        decorators = getattr(node, "decorator_list", None)
        if decorators:
            first = decorators[0]
            start = self.data.rfind(b"@", 0, source.offset(first.lineno, first.col_offset))
        return start, end

    def replace(self, start: int, end: int, text: str) -> Edit:
        """An edit that replaces these bytes by a text."""
        return self.source.place(start, end).edit(text)

    # Keywords

    def remove_keyword(self, call: ast.Call, keyword: ast.keyword) -> Edit | None:
        """Remove a keyword argument from a call, with its comma, and with its line if nothing else is on it."""
        start, end = self.span(keyword)
        after = self._skip_whitespace_and_comments(end)
        comma = after if self.data[after : after + 1] == b"," else None
        stop = comma + 1 if comma is not None else end
        arguments = _arguments(call)
        at = next((i for i, each in enumerate(arguments) if each is keyword), None)
        if at is None:
            return None
        line_start = self._line_start(start)
        line_end = self._line_end(stop)
        rest = self.data[stop:line_end].strip()
        alone = not self.data[line_start:start].strip() and (not rest or rest.startswith(b"#"))
        if comma is None and at > 0:
            previous = self._comma_after(arguments[at - 1], start)
            if previous is None:
                return None
            if alone:  # the line before keeps its comma, as each argument on a line of its own has one
                return self.replace(line_start, self._next_line(line_end), "")
            kept = self.data[previous + 1 : start]
            return self.replace(previous, end, kept.decode() if kept.strip() else "")
        if alone:
            return self.replace(line_start, self._next_line(line_end), "")
        following = self._skip_blanks(stop)
        if following < line_end and not rest.startswith(b"#"):
            return self.replace(start, following, "")
        if self.data[:start].rstrip(_BLANK)[-1:] == b"(" and not rest:
            return self.replace(start, self._skip_whitespace(stop) if at + 1 < len(arguments) else stop, "")
        begin = start
        while begin > line_start and self.data[begin - 1 : begin] in (b" ", b"\t"):
            begin -= 1
        return self.replace(begin, stop, "")

    def add_keyword(self, call: ast.Call, name: str, text: str) -> Edit | None:
        """Add a keyword argument to a call, on a line of its own if the others have one each."""
        arguments = _arguments(call)
        closing = self.span(call)[1] - 1
        if self.data[closing : closing + 1] != b")":
            return None
        if not arguments:
            return self.replace(closing, closing, f"{name}={text}")
        last = arguments[-1]
        start, end = self.span(last)
        if isinstance(last, ast.GeneratorExp) and end == closing + 1:
            return None  # the call's parentheses also delimit the generator
        comma = self._comma_after(last, closing)
        end = self._argument_end(last, closing)
        line_start = self._line_start(start)
        own_line = not self.data[line_start:start].strip() and line_start > self.span(call.func)[1]
        if not own_line:
            return self.replace(end, end, f", {name}={text}")
        indent = self.data[line_start:start].decode()
        last_comma = comma if comma is not None else end
        line_end = self._line_end(last_comma)
        if line_end >= closing:  # the parenthesis closes on the same line
            line_end = end if comma is None else comma + 1
            between = self.data[end:line_end].decode()
            return self.replace(end, line_end, f"{between.rstrip(',')},{self.newline}{indent}{name}={text}")
        between = self.data[end:line_end].decode()
        if comma is None:
            return self.replace(end, line_end, f",{between}{self.newline}{indent}{name}={text}")
        return self.replace(line_end, line_end, f"{self.newline}{indent}{name}={text},")

    def _argument_end(self, argument: ast.AST, limit: int) -> int:
        """The end offset of an argument, including parentheses around it."""
        end = self.span(argument)[1]
        at = self._skip_whitespace_and_comments(end)
        while at < limit and self.data[at : at + 1] == b")":
            end = at + 1
            at = self._skip_whitespace_and_comments(end)
        return end

    def _comma_after(self, argument: ast.AST, limit: int) -> int | None:
        at = self._skip_whitespace_and_comments(self._argument_end(argument, limit))
        return at if at < limit and self.data[at : at + 1] == b"," else None

    # Statements

    def remove_statement(self, node: ast.stmt) -> Edit | None:
        """Remove a statement and the comment lines directly above it; a block's only statement becomes ``pass``."""
        found = self.index.block(node)
        if found is None or self._is_elif(node):
            return None
        block, _, at = found
        start, end = self.span(node)
        line_start, line_end = self._line_start(start), self._line_end(end)
        rest = self.data[end:line_end].strip()
        alone = not self.data[line_start:start].strip() and not self._is_continued(line_start)
        alone = alone and (not rest or rest.startswith(b"#") or rest == b";")
        only = len(block) == 1 and not isinstance(self.index.parents.get(node), ast.Module)
        if not alone:
            return self.replace(start, end, "pass") if only else self._remove_from_line(block, at, start, end)
        begin = self._comments_above(node, block, at, line_start)
        if only:
            indent = self.data[line_start:start].decode()
            return self.replace(begin, end, f"{indent}pass")
        return self.replace(begin, self._next_line(line_end), "")

    def _remove_from_line(self, block: Sequence[ast.stmt], index: int, start: int, end: int) -> Edit | None:
        """Remove a statement from ``a; b; c``."""
        if index + 1 < len(block):
            following = self.span(block[index + 1])[0]
            if self.data[end:following].strip(_BLANK) == b";":
                return self.replace(start, following, "")
        if index > 0:
            previous = self.span(block[index - 1])[1]
            if self.data[previous:start].strip(_BLANK) == b";":
                return self.replace(previous, end, "")
        return self.replace(start, end, "pass")

    def _comments_above(self, node: ast.stmt, block: Sequence[ast.stmt], index: int, line_start: int) -> int:
        """The start offset of the comment lines directly above a statement with its indentation."""
        source = self.source
        indent = self.data[line_start : self.span(node)[0]]
        above = block[index - 1].end_lineno or 0 if index else self._header_end(node)
        line = source.line_of(line_start)
        while line - 1 > above:
            text = source.line_bytes(line - 1)
            comment = text.strip()
            if not text.startswith(indent + b"#") or comment.decode("utf-8", "replace").lower().startswith(_DIRECTIVES):
                break
            line -= 1
        return source.line_start(line) if line < source.line_of(line_start) else line_start

    def _header_end(self, node: ast.stmt) -> int:
        """The last line of the block header above a statement that is the block's first."""
        parent = self.index.parents.get(node)
        last = getattr(parent, "lineno", 0)
        for child in ast.iter_child_nodes(parent) if parent is not None else ():
            if start_position(child) < start_position(node):
                last = max(last, getattr(child, "end_lineno", 0) or 0)
        return int(last)

    def insert_before(self, node: ast.stmt, text: str) -> Edit | None:
        """Insert a statement before another one, at its indentation."""
        start = self.span(node)[0]
        line_start = self._line_start(start)
        indent = self.data[line_start:start].decode()
        if self._is_elif(node):
            return None
        if indent.strip() or self._is_continued(line_start):
            single = "\n" not in text and not isinstance(node, _COMPOUND_STATEMENTS)
            return self.replace(start, start, f"{text}; ") if single else None
        return self.replace(line_start, line_start, self._indent_lines(text, indent))

    def insert_after(self, node: ast.stmt, text: str) -> Edit | None:
        """Insert a statement after another one, at its indentation."""
        start, end = self.span(node)
        line_start, line_end = self._line_start(start), self._line_end(end)
        indent = self.data[line_start:start].decode()
        rest = self.data[end:line_end].strip()
        if indent.strip() or self._is_continued(line_start) or (rest and not rest.startswith(b"#")):
            single = "\n" not in text and not isinstance(node, _COMPOUND_STATEMENTS) and (not rest or rest[:1] in b"#;")
            return self.replace(end, end, f"; {text}") if single else None
        at = self._next_line(line_end)
        lines = self._indent_lines(text, indent)
        if at == line_end:  # the file has no trailing newline
            return self.replace(at, at, self.newline + lines.removesuffix(self.newline))
        return self.replace(at, at, lines)

    def insert_import(self, text: str) -> Edit | None:
        """Add an import after those at the top of the script, or after its docstring."""
        last: ast.stmt | None = None
        for statement in self.index.tree.body:
            documents = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not isinstance(statement, (ast.Import, ast.ImportFrom)) and not (documents and last is None):
                break
            last = statement
        if last is not None:
            blank = "" if isinstance(last, (ast.Import, ast.ImportFrom)) else "\n"
            return self.insert_after(last, blank + text)
        if self.index.tree.body:
            return self.insert_before(self.index.tree.body[0], text)
        return self.replace(len(self.data), len(self.data), text + self.newline)

    def _indent_lines(self, text: str, indent: str) -> str:
        lines = [indent + line if line.strip() else line for line in text.split("\n")]
        return self.newline.join(lines) + self.newline

    def _is_elif(self, node: ast.stmt) -> bool:
        start = self.span(node)[0]
        return isinstance(node, ast.If) and self.data[start : start + 4] == b"elif"

    def _is_continued(self, line_start: int) -> bool:
        """Whether the line above ends in a line continuation."""
        return self.data[:line_start].rstrip(b"\r\n").endswith(b"\\") and line_start > 0

    # Bytes

    def _line_start(self, offset: int) -> int:
        start = self.data.rfind(b"\n", 0, offset) + 1
        return max(start, self.source.start)

    def _line_end(self, offset: int) -> int:
        end = self.data.find(b"\n", offset)
        if end < 0:
            return len(self.data)
        return end - 1 if end > offset and self.data[end - 1 : end] == b"\r" else end

    def _next_line(self, line_end: int) -> int:
        if self.data[line_end : line_end + 1] == b"\r":
            line_end += 1
        return min(line_end + 1, len(self.data))

    def _skip_blanks(self, offset: int) -> int:
        while offset < len(self.data) and self.data[offset : offset + 1] in (b" ", b"\t", b"\f"):
            offset += 1
        return offset

    def _skip_whitespace(self, offset: int) -> int:
        while offset < len(self.data) and self.data[offset] in _WHITESPACE_AND_NEWLINES:
            offset += 1
        return offset

    def _skip_whitespace_and_comments(self, offset: int) -> int:
        """Skip blanks, line ends, comments and line continuations, as inside parentheses."""
        data = self.data
        while offset < len(data):
            if data[offset] in _WHITESPACE_AND_NEWLINES or data[offset : offset + 2] in (b"\\\n", b"\\\r"):
                offset += 1
            elif data[offset : offset + 1] == b"#":
                offset = self._line_end(offset)
            else:
                break
        return offset


_COMPOUND_STATEMENTS = (
    ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.FunctionDef, ast.AsyncFunctionDef,
    ast.ClassDef,
)  # fmt: skip


def _arguments(call: ast.Call) -> list[ast.expr | ast.keyword]:
    """Positional and keyword arguments in source order."""
    return sorted([*call.args, *call.keywords], key=start_position)
