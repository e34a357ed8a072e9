"""Splits shell source into words as bash does: quotes, escapes, expansions; adjacent parts form one word.

tree-sitter's grammar determines the statements of a script. Its word boundaries are often wrong (``$d/$m/x`` is two
words to it), so words are lexed from the bytes here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby, pairwise

import msgspec

_BLANK = frozenset(b" \t")
_WORD_ENDS = frozenset(b" \t\n;&|<>()")
_NAME_PATTERN = re.compile(rb"[A-Za-z_](?:(?:\\\n)*[A-Za-z0-9_])*")  # bash joins lines first
_ASSIGNMENT_TARGET_PATTERN = re.compile(rb"([A-Za-z_][A-Za-z0-9_]*)(\[)?")
_SPECIAL_PARAMETERS = b"@*#?$!-0123456789"
_EXPANSION_OPERATORS = (
    *(":-", ":=", ":?", ":+", "##", "%%", "//", "/#", "/%", "^^", ",,"),
    *("-", "=", "?", "+", "#", "%", "/", "^", ",", ":", "@"),
)
_REDIRECTS = (b"<<<", b"<<-", b"<<", b"<&", b"<>", b"<", b">>", b">&", b">|", b">", b"&>>", b"&>")
_C_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}
_MAX_WORDS = 4096
_MAX_DEPTH = 24
_MAX_BRACE_CHARACTERS = 20_000
"""Maximum length of a word whose braces are expanded, since each of its characters becomes an object."""
_MAX_BRACE_WORDS = 256
"""Maximum number of words that brace expansion may make of one word."""


class WordPart(msgspec.Struct, frozen=True):
    """A part of a word, from ``start_byte`` to before ``end_byte``; ``quoted`` if it is in quotes."""

    start_byte: int
    end_byte: int
    quoted: bool = False


class Literal(WordPart, frozen=True):
    """Literal text; an escaped character also counts as ``quoted``."""

    text: str = ""
    exact: bool = True
    """True if the text equals the source bytes."""


class Parameter(WordPart, frozen=True):
    """``$X``, ``${X…}``. ``index`` and ``argument`` are byte ranges."""

    name: str = ""
    kind: str = ""
    """``#`` for a length, ``!`` for an indirect expansion."""
    index: tuple[int, int] | None = None
    operator: str = ""
    argument: tuple[int, int] = (0, 0)


class Substitution(WordPart, frozen=True):
    """``$(…)`` or backquotes; ``inner`` is the byte range of the script in it."""

    inner: tuple[int, int] = (0, 0)
    backquoted: bool = False


class Arithmetic(WordPart, frozen=True):
    """``$((…))``."""

    inner: tuple[int, int] = (0, 0)


class UnsupportedSyntax(WordPart, frozen=True):
    """Syntax that isn't evaluated: ``<(…)``, or something unterminated."""


class SyntaxWord(msgspec.Struct, frozen=True):
    """One word before expansion."""

    parts: tuple[WordPart, ...]
    start_byte: int
    end_byte: int


class ShellAssignment(msgspec.Struct, frozen=True):
    """``NAME=value``, ``NAME+=value``, ``NAME[i]=value``, ``NAME=(…)``."""

    name: str
    start_byte: int
    end_byte: int
    appending: bool = False
    index: tuple[int, int] | None = None
    value: SyntaxWord | None = None
    array: tuple[SyntaxWord, ...] | None = None


class Redirect(msgspec.Struct, frozen=True):
    """``> file``, ``<<< text``."""

    operator: str
    target: SyntaxWord


class SimpleCommand(msgspec.Struct, frozen=True):
    """A simple command: its assignments, words and redirections; ``end_byte`` is where it ends."""

    assignments: tuple[ShellAssignment, ...]
    words: tuple[SyntaxWord | ShellAssignment, ...]
    redirects: tuple[Redirect, ...]
    end_byte: int


_DECLARATION_BUILTINS = frozenset({"export", "declare", "typeset", "local", "readonly"})


@lru_cache(maxsize=4)
def _closing_offsets(_data: bytes) -> dict[tuple[int, int], int | None]:
    """A cache of where brackets close in a script."""
    return {}


class Lexer:
    """Splits shell source into words, up to ``limit``."""

    def __init__(self, data: bytes, limit: int | None = None) -> None:
        self.data = data
        self.limit = len(data) if limit is None else min(limit, len(data))
        self._closed = _closing_offsets(data)

    def parse_simple_command(self, start: int) -> SimpleCommand:
        """The simple command that begins at ``start``."""
        data, at = self.data, start
        assignments: list[ShellAssignment] = []
        words: list[SyntaxWord | ShellAssignment] = []
        redirects: list[Redirect] = []
        declares = False
        end = at
        while len(words) < _MAX_WORDS:
            at = self.skip_blanks(at)
            if at >= self.limit:
                break
            operator = self._redirect_operator(at)
            if operator:
                target = self.parse_word(self.skip_blanks(at + len(operator)))
                redirects.append(Redirect(operator.decode(), target))
                at = end = max(target.end_byte, at + len(operator))
                continue
            if self._is_word_end(at) or (data[at] == 35 and at != start):  # a comment
                break
            if not words or declares:
                found = self.parse_assignment(at)
                if found is not None:
                    (words if words else assignments).append(found)
                    at = end = found.end_byte
                    continue
            word = self.parse_word(at)
            if word.end_byte == at:
                break
            at = end = word.end_byte
            digits = data[word.start_byte : word.end_byte]
            if digits.isdigit() and at < self.limit and data[at] in b"<>" and self._redirect_operator(at):
                continue  # 2>
            if not words:
                declares = plain_text(word) in _DECLARATION_BUILTINS
            words.append(word)
        return SimpleCommand(tuple(assignments), tuple(words), tuple(redirects), end)

    def parse_words(self, start: int, limit: int = _MAX_WORDS) -> tuple[SyntaxWord, ...]:
        """The words from ``start`` to the end of the enclosing command, the first ``limit`` of them."""
        found: list[SyntaxWord] = []
        at = self.skip_blanks(start)
        while at < self.limit and len(found) < limit and not self._is_word_end(at):
            word = self.parse_word(at)
            if word.end_byte == at:
                break
            found.append(word)
            at = self.skip_blanks(word.end_byte)
        return tuple(found)

    def skip_blanks(self, offset: int, *, lines: bool = False) -> int:
        """The offset after blanks and line continuations; with ``lines`` also after line ends and comments."""
        data, limit = self.data, self.limit
        while offset < limit:
            if data[offset] in _BLANK or (lines and data[offset] in b"\r\n"):
                offset += 1
            elif data[offset] == 92 and data[offset + 1 : offset + 2] == b"\n":
                offset += 2
            elif data[offset] == 92 and data[offset + 1 : offset + 3] == b"\r\n":
                offset += 3
            elif lines and data[offset] == 35:
                stop = data.find(b"\n", offset, limit)
                offset = limit if stop < 0 else stop
            else:
                break
        return offset

    def find_closing_parenthesis(self, offset: int) -> int | None:
        """The offset of the parenthesis that closes the one around ``offset``."""
        return self._find_closing(offset, 41)

    def _is_word_end(self, offset: int) -> bool:
        byte = self.data[offset]
        if byte in b"<>" and self.data[offset + 1 : offset + 2] == b"(":
            return False
        return byte in _WORD_ENDS or (byte == 13 and self.data[offset + 1 : offset + 2] in (b"\n", b""))

    def _redirect_operator(self, offset: int) -> bytes:
        if self.data[offset] not in b"<>&" or self.data[offset : offset + 2] in (b"<(", b">("):
            return b""
        return next((each for each in _REDIRECTS if self.data.startswith(each, offset, self.limit)), b"")

    def parse_assignment(self, offset: int) -> ShellAssignment | None:
        """The assignment that begins at ``offset``; None if there is none."""
        match = _ASSIGNMENT_TARGET_PATTERN.match(self.data, offset, self.limit)
        if match is None:
            return None
        stop = match.end()
        index = None
        if match[2]:
            close = self._find_closing(stop, 93)
            if close is None:
                return None
            index, stop = (stop, close), close + 1
        appending = self.data[stop : stop + 2] == b"+="
        if not appending and self.data[stop : stop + 1] != b"=":
            return None
        stop += 2 if appending else 1
        name = match[1].decode()
        if self.data[stop : stop + 1] == b"(" and index is None:
            array, end = self._array_words(stop + 1)
            return ShellAssignment(name, offset, end, appending, None, None, array)
        word = self.parse_word(stop)
        return ShellAssignment(name, offset, word.end_byte, appending, index, word)

    def _array_words(self, offset: int) -> tuple[tuple[SyntaxWord, ...], int]:
        found: list[SyntaxWord] = []
        while True:
            offset = self.skip_blanks(offset, lines=True)
            if offset >= self.limit:
                return tuple(found), offset
            if self.data[offset] == 41:
                return tuple(found), offset + 1
            word = self.parse_word(offset)
            if word.end_byte == offset:
                offset += 1
                continue
            found.append(word)
            offset = word.end_byte

    def _find_closing(self, offset: int, close: int) -> int | None:
        """The offset of the bracket that closes the one around ``offset``; None if it isn't closed."""
        known = self._closed.get((offset, close))
        if known is None or known >= self.limit:
            known = self._closed[offset, close] = self._search_closing(offset, close)
        return known

    def _search_closing(self, offset: int, close: int) -> int | None:
        opened = {93: 91, 125: 123, 41: 40}[close]
        depth = 0
        data = self.data
        while offset < self.limit:
            byte = data[offset]
            if byte == 92:
                offset += 2
                continue
            if byte in b"'\"`":
                offset = self._skip_quotes(offset)
                continue
            if byte == 36 and data[offset + 1 : offset + 2] in (b"{", b"("):
                inner = self._find_closing(offset + 2, 125 if data[offset + 1] == 123 else 41)
                if inner is None:
                    return None
                offset = inner + 1
                continue
            if byte == opened:
                depth += 1
            elif byte == close:
                if not depth:
                    return offset
                depth -= 1
            elif close == 41 and byte == 35 and data[offset - 1] in b" \t\n;(":
                stop = data.find(b"\n", offset, self.limit)
                offset = self.limit if stop < 0 else stop
                continue
            offset += 1
        return None

    def _skip_quotes(self, offset: int) -> int:
        """The offset after the quoted string that begins at ``offset``."""
        mark = self.data[offset]
        offset += 1
        while offset < self.limit and self.data[offset] != mark:
            if self.data[offset] == 92 and mark != 39:
                offset += 2
            elif mark == 34 and self.data[offset] == 36 and self.data[offset + 1 : offset + 2] in (b"{", b"("):
                inner = self._find_closing(offset + 2, 125 if self.data[offset + 1] == 123 else 41)
                offset = self.limit if inner is None else inner + 1
            else:
                offset += 1
        return offset + 1

    def parse_word(self, start: int, *, pattern: bool = False, regex: bool = False) -> SyntaxWord:
        """The word at ``start``, empty if there is none. In a ``pattern``, ``@(a|b)`` belongs to the word."""
        parts: list[WordPart] = []
        at = begin = start
        data = self.data
        nested = 0

        def add_literal() -> None:
            if at > begin:
                parts.append(Literal(begin, at, False, decode_source(data[begin:at])))

        while at < self.limit:
            byte = data[at]
            if byte in b"<>" and data[at + 1 : at + 2] == b"(" and not pattern:
                add_literal()
                close = self._find_closing(at + 2, 41)
                end = self.limit if close is None else close + 1
                parts.append(UnsupportedSyntax(at, end))
                at = begin = end
                continue
            opens = byte == 40 and (regex or (at > start and data[at - 1] in b"?*+@!"))
            if pattern and byte in b"()|" and (nested or opens or (regex and byte == 124)):
                nested += (byte == 40) - (byte == 41)
                at += 1
                continue
            if byte in _WORD_ENDS or (byte == 13 and data[at + 1 : at + 2] in (b"\n", b"")):
                break
            if byte in b"\\'\"$`":
                before = at
                made, end = self._read_special(at, quoted=False)
                if made is not None:
                    add_literal()
                    parts += made
                    begin = end
                at = end
                if end == before:
                    break
                continue
            at += 1
        add_literal()
        return SyntaxWord(tuple(parts), start, at)

    def parse_text(
        self, start: int, end: int, *, quoted: bool, heredoc: bool = False, argument: bool = False
    ) -> tuple[WordPart, ...]:
        """The parts of a text in double quotes, of a here-document, or after an operator in ``${…}``."""
        inner = Lexer(self.data, end)
        if not quoted:
            return tuple(inner._parse_unquoted_text(start, end))
        return tuple(inner._read_quoted(start, end, heredoc=heredoc, argument=argument))

    def _parse_unquoted_text(self, start: int, end: int) -> list[WordPart]:
        """The parts of a text in which blanks don't end a word."""
        parts: list[WordPart] = []
        at = begin = start
        while at < end:
            if self.data[at] in b"\\'\"$`":
                made, stop = self._read_special(at, quoted=False)
                if made is not None:
                    if at > begin:
                        parts.append(Literal(begin, at, False, decode_source(self.data[begin:at])))
                    parts += made
                    begin = stop
                at = max(stop, at + 1)
            else:
                at += 1
        if end > begin:
            parts.append(Literal(begin, end, False, decode_source(self.data[begin:end])))
        return parts

    def _read_special(self, offset: int, *, quoted: bool) -> tuple[list[WordPart] | None, int]:
        """The parts that begin at a backslash, quote, dollar or backquote, and their end; None: a plain character."""
        data = self.data
        byte = data[offset]
        if byte == 92:
            return self._read_escape(offset)
        if byte == 39:
            stop = data.find(b"'", offset + 1, self.limit)
            if stop < 0:
                return [UnsupportedSyntax(offset, self.limit)], self.limit
            return [Literal(offset + 1, stop, True, decode_source(data[offset + 1 : stop]))], stop + 1
        if byte == 34:
            stop = self._skip_quotes(offset)
            inside = Lexer(data, stop - 1)._read_quoted(offset + 1, min(stop - 1, self.limit))
            if stop > self.limit:
                return [UnsupportedSyntax(offset, self.limit)], self.limit
            return inside or [Literal(offset + 1, offset + 1, True)], stop
        if byte == 96:
            stop = self._skip_quotes(offset)
            return [Substitution(offset, stop, quoted, (offset + 1, stop - 1), True)], stop
        following = data[offset + 1 : offset + 2]
        if following == b"'" and not quoted:
            return self._ansi_c_string(offset)
        if following == b'"' and not quoted:
            return self._read_special(offset + 1, quoted=False)
        return self._dollar_expansion(offset, quoted)

    def _read_escape(self, offset: int) -> tuple[list[WordPart], int]:
        data = self.data
        if data[offset + 1 : offset + 2] == b"\n":
            return [], offset + 2
        if data[offset + 1 : offset + 3] == b"\r\n":
            return [], offset + 3
        if offset + 1 >= self.limit:
            return [Literal(offset, offset + 1, True, "\\")], offset + 1
        stop = offset + 2
        while stop < self.limit and data[stop] & 0xC0 == 0x80:  # the remaining bytes of a UTF-8 character
            stop += 1
        return [Literal(offset + 1, stop, True, decode_source(data[offset + 1 : stop]))], stop

    def _ansi_c_string(self, offset: int) -> tuple[list[WordPart], int]:
        stop = offset + 2
        while stop < self.limit and self.data[stop] != 39:
            stop += 2 if self.data[stop] == 92 else 1
        if stop >= self.limit:
            return [UnsupportedSyntax(offset, self.limit)], self.limit
        raw = decode_source(self.data[offset + 2 : stop])
        text = re.sub(r"\\(['\"\\?ntrabeEfv])", lambda match: _C_ESCAPES.get(match[1], match[1]), raw)
        if re.search(r"\\(?!['\"\\?ntrabeEfv])", re.sub(r"\\\\", "", raw)):
            return [UnsupportedSyntax(offset, stop + 1, True)], stop + 1
        return [Literal(offset + 2, stop, True, text, "\\" not in raw)], stop + 1

    def _read_quoted(self, start: int, end: int, *, heredoc: bool = False, argument: bool = False) -> list[WordPart]:
        parts: list[WordPart] = []
        at = begin = start
        data = self.data

        def add_literal() -> None:
            if at > begin:
                parts.append(Literal(begin, at, True, decode_source(data[begin:at])))

        while at < end:
            byte = data[at]
            if byte == 92 and at + 1 < end:
                if data[at + 1 : at + 3] == b"\r\n":
                    add_literal()
                    at = begin = at + 3
                elif data[at + 1] == 10:
                    add_literal()
                    at = begin = at + 2
                elif data[at + 1] in (b"$`\\" if heredoc else b'$`"\\}' if argument else b'$`"\\'):
                    add_literal()
                    begin, at = at + 1, at + 2
                else:
                    at += 2
                continue
            if argument and byte == 34:
                add_literal()
                at = begin = at + 1
                continue
            if byte in (36, 96):
                made, stop = self._read_special(at, quoted=True)
                if made is not None:
                    add_literal()
                    parts += made
                    at = begin = stop
                else:
                    at = max(stop, at + 1)
                continue
            at += 1
        at = end
        add_literal()
        return parts

    def _dollar_expansion(self, offset: int, quoted: bool) -> tuple[list[WordPart] | None, int]:
        data = self.data
        following = data[offset + 1 : offset + 2]
        if offset + 1 >= self.limit or not following:
            return None, offset + 1
        match = _NAME_PATTERN.match(data, offset + 1, self.limit)
        if match is not None:
            return [Parameter(offset, match.end(), quoted, match[0].replace(b"\\\n", b"").decode())], match.end()
        if following in _SPECIAL_PARAMETERS:
            return [Parameter(offset, offset + 2, quoted, following.decode())], offset + 2
        if following == b"{":
            close = self._closing_brace(offset + 2, quoted)
            if close is None:
                return [UnsupportedSyntax(offset, self.limit, quoted)], self.limit
            return [self._read_braced(offset, close, quoted)], close + 1
        if following == b"(":
            close = self._find_closing(offset + 2, 41)
            if close is None:
                return [UnsupportedSyntax(offset, self.limit, quoted)], self.limit
            doubled = data[offset + 2 : offset + 3] == b"(" and data[close - 1] == 41
            if doubled and self._find_closing(offset + 3, 41) == close - 1:
                return [Arithmetic(offset, close + 1, quoted, (offset + 3, close - 1))], close + 1
            return [Substitution(offset, close + 1, quoted, (offset + 2, close))], close + 1
        if following == b"[":
            close = self._find_closing(offset + 2, 93)
            if close is not None:
                return [Arithmetic(offset, close + 1, quoted, (offset + 2, close))], close + 1
        return None, offset + 1

    def _closing_brace(self, offset: int, quoted: bool) -> int | None:
        """The offset at which ``${…`` ends; in double quotes, a single quote after ``:-`` and the like is literal."""
        match = re.compile(rb"[#!]?(?:\w+|[@*#?$!-])(?:\[[^\]]*\])?(:?[-=?+])").match(self.data, offset, self.limit)
        if not (quoted and match is not None):
            data = self.data
            while offset < self.limit:
                byte = data[offset]
                if byte == 125:
                    return offset
                offset = self._offset_after(offset)
            return None
        offset = match.end()
        while offset < self.limit:
            if self.data[offset] == 125:
                return offset
            offset = offset + 1 if self.data[offset] == 39 else self._offset_after(offset)
        return None

    def _offset_after(self, offset: int) -> int:
        """The offset after a character, or after the construct that begins with it."""
        data = self.data
        if data[offset] == 92:
            return offset + 2
        if data[offset] in b"'\"`":
            return self._skip_quotes(offset)
        if data[offset] == 36 and data[offset + 1 : offset + 2] == b"{":
            close = self._closing_brace(offset + 2, False)
            return self.limit if close is None else close + 1
        if data[offset] == 36 and data[offset + 1 : offset + 2] == b"(":
            close = self._find_closing(offset + 2, 41)
            return self.limit if close is None else close + 1
        return offset + 1

    def _read_braced(self, offset: int, close: int, quoted: bool) -> WordPart:
        """Parse ``${…}``."""
        data = self.data
        position = offset + 2
        kind = ""
        first = data[position : position + 1]
        if first in (b"#", b"!") and position + 1 < close and data[position + 1 : position + 2] not in b":-=?+%/,^}":
            kind, position = first.decode(), position + 1
        match = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-]").match(data, position, close)
        if match is None:
            return UnsupportedSyntax(offset, close + 1, quoted)
        name, position = match[0].decode(), match.end()
        index = None
        if data[position : position + 1] == b"[":
            stop = Lexer(data, close)._find_closing(position + 1, 93)
            if stop is None:
                return UnsupportedSyntax(offset, close + 1, quoted)
            index, position = (position + 1, stop), stop + 1
        rest = data[position:close].decode("utf-8", "surrogateescape")
        operator = next((each for each in _EXPANSION_OPERATORS if rest.startswith(each)), "")
        if rest and not operator:
            return UnsupportedSyntax(offset, close + 1, quoted)
        return Parameter(offset, close + 1, quoted, name, kind, index, operator, (position + len(operator), close))


def decode_source(data: bytes) -> str:
    """Source bytes as text."""
    return data.decode("utf-8", "surrogateescape")


def plain_text(word: SyntaxWord) -> str:
    """The text of a word that consists of unquoted literal text only; else empty."""
    part = word.parts[0] if len(word.parts) == 1 else None
    return part.text if isinstance(part, Literal) and not part.quoted else ""


def expand_braces(parts: Sequence[WordPart]) -> list[tuple[WordPart, ...]]:
    """Brace expansion (``x{a,b}``, ``{1..3}``): the words that one word becomes before any other expansion."""
    if not any(isinstance(part, Literal) and not part.quoted and "{" in part.text for part in parts):
        return [tuple(parts)]
    text = "".join(part.text for part in parts if isinstance(part, Literal) and not part.quoted)
    if "," not in text and ".." not in text:
        return [tuple(parts)]
    if len(text) > _MAX_BRACE_CHARACTERS:
        return [(UnsupportedSyntax(parts[0].start_byte, parts[-1].end_byte),)]
    return [_join_names(made) for made in _braced_words(_split_into_characters(parts), 0)]


def _braced_words(cells: Sequence[WordPart], depth: int) -> list[tuple[WordPart, ...]]:
    """The words of a word that is given in cells: each unquoted character, and each other part."""
    texts = [cell.text if isinstance(cell, Literal) and not cell.quoted else "" for cell in cells]
    braces = _match_braces(texts) if depth < _MAX_DEPTH else {}
    closings = texts.count("}")
    bare = False
    for place, text in enumerate(texts):
        if text == "}":
            closings -= 1
        if text != "{" or depth >= _MAX_DEPTH:
            continue
        alternatives = _brace_alternatives(cells, place, *braces[place]) if place in braces else None
        if alternatives is not None and bare:  # {a},b}: bash's result depends on its implementation
            return [(UnsupportedSyntax(cells[0].start_byte, cells[-1].end_byte),)]
        if alternatives is not None:
            before, after = _merge_literals(cells[:place]), cells[braces[place][0] + 1 :]
            inner = [made for each in alternatives for made in _braced_words(each, depth + 1)]
            behind = _braced_words(after, depth + 1)
            if len(inner) * len(behind) > _MAX_BRACE_WORDS:
                return [(UnsupportedSyntax(cells[0].start_byte, cells[-1].end_byte),)]
            return [(*before, *each, *rest) for each in inner for rest in behind]
        bare = bare or closings > 1
    if bare and "," in texts:
        return [(UnsupportedSyntax(cells[0].start_byte, cells[-1].end_byte),)]
    return [tuple(_merge_literals(cells))]


def _join_names(parts: Sequence[WordPart]) -> tuple[WordPart, ...]:
    """Let names absorb text that brace expansion puts after them: ``$A{x,y}`` is ``$Ax $Ay``."""
    found: list[WordPart] = []
    for part in _merge_literals(parts):
        last = found[-1] if found else None
        named = isinstance(last, Parameter) and last.end_byte - last.start_byte == len(last.name) + 1
        if named and isinstance(last, Parameter) and last.name.isidentifier() and not last.quoted:
            more = re.match(r"\w+", part.text, re.ASCII) if isinstance(part, Literal) and not part.quoted else None
            if more is not None and isinstance(part, Literal):
                name = last.name + more[0]
                found[-1] = Parameter(last.start_byte, last.end_byte + len(more[0]), False, name)
                size = len(more[0]) if part.exact else 0
                found.append(
                    Literal(part.start_byte + size, part.end_byte, False, part.text[len(more[0]) :], part.exact)
                )
                continue
        found.append(part)
    return tuple(found)


def _split_into_characters(parts: Sequence[WordPart]) -> list[WordPart]:
    """The parts, with each unquoted character as a part of its own."""
    found: list[WordPart] = []
    for part in parts:
        if isinstance(part, Literal) and not part.quoted:
            at = part.start_byte
            for each in part.text:
                size = 0 if not part.exact else 1 if each.isascii() else len(each.encode("utf-8", "surrogateescape"))
                found.append(Literal(at, at + size, False, each, part.exact))
                at += size
        else:
            found.append(part)
    return found


def _merge_literals(cells: Sequence[WordPart]) -> list[WordPart]:
    """Merge adjacent unquoted literals again."""
    found: list[WordPart] = []
    for unquoted, group in groupby(cells, lambda cell: isinstance(cell, Literal) and not cell.quoted):
        run = list(group)
        if not unquoted:
            found.extend(run)
            continue
        literals = [cell for cell in run if isinstance(cell, Literal)]
        adjacent = all(cell.exact and cell.end_byte == after.start_byte for cell, after in pairwise(literals))
        text = "".join(cell.text for cell in literals)
        found.append(Literal(run[0].start_byte, run[-1].end_byte, False, text, adjacent and literals[-1].exact))
    return found


def _match_braces(texts: Sequence[str]) -> dict[int, tuple[int, list[int]]]:
    """Where each brace that is closed opens: where it closes, and where the commas between its alternatives are."""
    found: dict[int, tuple[int, list[int]]] = {}
    open_braces: list[tuple[int, list[int]]] = []
    for place, text in enumerate(texts):
        if text == "{":
            open_braces.append((place, []))
        elif text == "}" and open_braces:
            opening, commas = open_braces.pop()
            found[opening] = (place, commas)
        elif text == "," and open_braces:
            open_braces[-1][1].append(place)
    return found


def _brace_alternatives(
    cells: Sequence[WordPart], opening: int, closing: int, commas: Sequence[int]
) -> list[Sequence[WordPart]] | None:
    """The words that ``{a,b}`` or ``{1..3}`` stands for; None where bash leaves it as it is."""
    if commas:
        return [cells[a + 1 : b] for a, b in pairwise([opening, *commas, closing])]
    inside = cells[opening + 1 : closing]
    if not all(isinstance(cell, Literal) and not cell.quoted for cell in inside):
        return None
    values = _expand_sequence("".join(cell.text for cell in inside if isinstance(cell, Literal)))
    if values is None:
        return None
    first, last = cells[opening].start_byte, cells[closing].end_byte
    return [[Literal(first, last, False, value, False)] for value in values]


def _expand_sequence(text: str) -> list[str] | None:
    match = re.fullmatch(r"(-?\d{1,6})\.\.(-?\d{1,6})(?:\.\.(-?\d{1,6}))?", text)
    if match is not None:
        first, last = int(match[1]), int(match[2])
        step = abs(int(match[3] or 1)) or 1
        padded = any(re.match(r"-?0\d", each) for each in (match[1], match[2]))
        width = max(len(match[1]), len(match[2])) if padded else 0
        numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
        return [f"{number:0{width}d}" for number in numbers] if len(numbers) <= 256 else None
    letters = re.fullmatch(r"([A-Za-z])\.\.([A-Za-z])", text)
    if letters is None:
        return None
    first, last = ord(letters[1]), ord(letters[2])
    codes = range(first, last + 1) if first <= last else range(first, last - 1, -1)
    return None if any(not chr(code).isalpha() for code in codes) else [chr(code) for code in codes]
