"""A JSON file with the places of all keys and values, read as far as possible even if it is invalid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gonogo.evidence.document.json_problems import (
    TEMPLATE_REASON,
    UNREADABLE_REASON,
    ConfigProblem,
    make_problem,
    shorten_for_message,
)
from gonogo.evidence.document.json_tokens import Token, parse_scalar, tokenize
from gonogo.evidence.document.tree import Member, TreeNode
from gonogo.evidence.field import Field
from gonogo.evidence.source_file import Place, SourceFile
from gonogo.finding import Edit

MAX_DEPTH = 100
"""Maximum nesting of objects; Python's own parser fails at several hundred."""

_MAX_PROBLEMS = 100
# No hand-written config has more tokens; the rest is skipped, which is reported.
_MAX_TOKENS = 20_000
_CLOSING_BRACKETS = {b"}": True, b"]": False}


class JsonFile(msgspec.Struct, frozen=True):
    """A parsed JSON file: ``root`` is its object (None if it has none), ``problems`` are its deviations from JSON."""

    source: SourceFile
    root: TreeNode | None
    problems: tuple[ConfigProblem, ...]
    tokens: tuple[Token, ...] = ()
    """Without comments; edits use them to find commas."""


def read_json(source: SourceFile) -> JsonFile:
    """Parse a file's object. Never raises: what can't be parsed is recorded as a problem."""
    return _JsonReader(source).read()


class _OpenContainer:
    """An object or array that is not closed yet. ``state`` is what is expected next: key, colon, value or comma."""

    __slots__ = ("comma", "is_object", "items", "key", "key_place", "members", "plain", "start", "state")

    def __init__(self, start: int, is_object: bool) -> None:
        self.start = start
        self.is_object = is_object
        self.state = "key" if is_object else "value"
        self.key: str | None = None
        self.key_place: Place | None = None
        self.comma: Token | None = None
        self.members: dict[str, Member] = {}
        self.plain: dict[str, Any] = {}
        self.items: list[Any] = []


class _JsonReader:
    """A parser without recursion, since a file may be nested arbitrarily deeply."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.problems: list[ConfigProblem] = []
        self.open: list[_OpenContainer] = []
        self.levels_left_out = 0
        self.root: TreeNode | None = None
        self.ended = False

    def read(self) -> JsonFile:
        data, start = self.source.data, self.source.start
        if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data[:4]:
            self.add_problem("encoding", 0, min(2, len(data)))
            return JsonFile(self.source, None, tuple(self.problems))
        if start:
            self.add_problem("byte-order-mark", 0, start, repair="")
        if not self.source.is_utf8:
            self.check_utf8()
        tokens: list[Token] = []
        for count, token in enumerate(tokenize(data, start)):
            if count == _MAX_TOKENS:
                self.add_problem_at_token("too-long", token)
                break
            if token.kind == "comment":
                self.add_problem("comment", token.start, token.end)
            else:
                tokens.append(token)
        for index, token in enumerate(tokens):
            self.consume_token(token, tokens[index + 1] if index + 1 < len(tokens) else None)
        if self.open:
            self.add_problem("unclosed", self.open[-1].start, self.open[-1].start + 1)
            while self.open:
                self.close_container(len(data))
        elif not self.ended:
            self.add_problem("empty", start, start)
        return JsonFile(self.source, self.root, tuple(self.problems), tuple(tokens))

    def add_problem(self, kind: str, start: int, end: int, *, repair: str | None = None, **value: Any) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            place = self.source.place(start, end)
            edit = place.edit(repair) if repair is not None else None
            self.problems.append(make_problem(kind, place, repair=edit, **value))

    def add_problem_at_token(self, kind: str, token: Token, *, repair: str | None = None, **value: Any) -> None:
        self.add_problem(kind, token.start, token.end, repair=repair, **value)

    def is_first_on_line(self, token: Token) -> bool:
        """Whether the token is the first on its line, where Hjson needs no comma before it."""
        start = self.source.data.rfind(b"\n", 0, token.start)
        return start >= 0 and not self.source.data[start : token.start].strip()

    def check_utf8(self) -> None:
        """Record a problem if the file isn't UTF-8."""
        try:
            self.source.data.decode("utf-8")
        except UnicodeDecodeError as error:
            self.add_problem("encoding", error.start, error.end)

    # Tokens in their context ----------------------------------------------------------------------------------------

    def consume_token(self, token: Token, following: Token | None) -> None:
        if self.levels_left_out:
            self.levels_left_out += (token.data in (b"{", b"[")) - (token.data in (b"}", b"]"))
            return
        if not self.open:
            self.consume_top_level_token(token)
        elif token.kind != "mark":
            self.consume_word(token, following)
        elif token.data in (b"{", b"["):
            self.consume_opening_bracket(token)
        elif token.data in _CLOSING_BRACKETS:
            self.consume_closing_bracket(token)
        elif token.data == b",":
            self.consume_comma(token)
        else:
            self.consume_colon(token)

    def consume_top_level_token(self, token: Token) -> None:
        if not self.ended and token.data in (b"{", b"["):
            self.open.append(_OpenContainer(token.start, token.data == b"{"))
        elif not self.ended:
            self.ended = True
            self.add_problem_at_token("not-an-object", token)
        elif not self.problems or self.problems[-1].kind not in ("extra", "not-an-object"):
            self.add_problem_at_token("extra", token)

    def consume_word(self, token: Token, following: Token | None) -> None:
        top = self.open[-1]
        if top.state == "comma":
            is_entry = not top.is_object or (following is not None and following.data in (b":", b"="))
            if not is_entry:
                self.add_problem_at_token("syntax", token)
                return
            self.add_problem_at_token("missing-comma", token, hjson=self.is_first_on_line(token))
            top.state, top.comma = ("key" if top.is_object else "value"), None
        if top.state == "key":
            self.consume_key(token)
        elif top.state == "colon":
            if token.data == b"=":
                self.add_problem_at_token("syntax", token, repair=":")
            else:
                self.add_problem_at_token("missing-colon", token, text=top.key or "")
            top.state = "value"
            if token.data != b"=":
                self.consume_scalar(token)
        else:
            self.consume_scalar(token)

    def consume_key(self, token: Token) -> None:
        top = self.open[-1]
        scalar = parse_scalar(token)
        text = token.data.decode("utf-8", "replace")
        if token.kind in ("string", "open"):
            text = scalar.value
            if scalar.problem:
                self.add_problem_at_token(scalar.problem, token, repair=scalar.correct)
        else:
            kind = scalar.problem if scalar.problem in ("template", "syntax") else "unquoted-key"
            self.add_problem_at_token(kind, token, repair=f'"{text}"' if kind == "unquoted-key" else None)
        top.key, top.key_place, top.comma = text, self.source.place(token.start, token.end), None
        top.state = "colon"

    def consume_scalar(self, token: Token) -> None:
        scalar = parse_scalar(token)
        place = self.source.place(token.start, token.end)
        if scalar.problem:
            self.add_problem_at_token(scalar.problem, token, repair=scalar.correct)
        if scalar.known:
            self.add_value(TreeNode(Field(scalar.value, place=place)), scalar.value)
            return
        reason = TEMPLATE_REASON if scalar.problem == "template" else UNREADABLE_REASON
        stated = token.data.decode("utf-8", "replace")
        self.add_value(TreeNode(Field.not_known(place, reason.format(text=shorten_for_message(stated)))), stated)

    def consume_opening_bracket(self, token: Token) -> None:
        top = self.open[-1]
        if top.state in ("key", "comma"):
            # A value without a key: its brackets are tracked, so that the rest can be parsed.
            if top.is_object:
                self.add_problem_at_token("syntax", token)
                top.key = top.key_place = None
            else:
                self.add_problem_at_token("missing-comma", token, hjson=self.is_first_on_line(token))
        elif top.state == "colon":
            self.add_problem_at_token("missing-colon", token, text=top.key or "")
        if len(self.open) >= MAX_DEPTH:
            self.add_problem_at_token("nesting", token)
            self.levels_left_out = 1
            self.add_value(TreeNode(Field.not_known(self.source.place(token.start, token.end))), None)
            return
        self.open.append(_OpenContainer(token.start, token.data == b"{"))

    def consume_closing_bracket(self, token: Token) -> None:
        is_object = _CLOSING_BRACKETS[token.data]
        if not any(one.is_object is is_object for one in self.open):
            self.add_problem_at_token("mismatched", token)
            return
        while self.open[-1].is_object is not is_object:
            self.add_problem("unclosed", self.open[-1].start, self.open[-1].start + 1)
            self.close_container(token.start)
        top = self.open[-1]
        if top.comma is not None and top.state in ("key", "value"):
            self.add_problem_at_token("trailing-comma", top.comma, repair="")
        self.close_container(token.end)

    def consume_comma(self, token: Token) -> None:
        top = self.open[-1]
        if top.state == "comma":
            top.state, top.comma = ("key" if top.is_object else "value"), token
            return
        if top.is_object and top.state in ("colon", "value"):
            self.add_missing_value()
            top.state, top.comma = "key", token
        else:
            self.add_problem_at_token("syntax", token, repair="")

    def consume_colon(self, token: Token) -> None:
        top = self.open[-1]
        if top.state == "colon":
            top.state = "value"
        else:
            self.add_problem_at_token("syntax", token)

    # Results -------------------------------------------------------------------------------------------------------

    def add_value(self, node: TreeNode, plain: Any) -> None:
        """Add a value to the innermost object or array, or as the file's root."""
        if not self.open:
            self.ended = True
            if node.members is None and node.field.place is not None:
                self.add_problem("not-an-object", node.field.place.start, node.field.place.start + 1)
            else:
                self.root = node
            return
        top = self.open[-1]
        top.state, top.comma = "comma", None
        if not top.is_object:
            top.items.append(plain)
        elif top.key is not None:
            earlier = top.members.get(top.key)
            if earlier is not None and top.key_place is not None and earlier.key_place is not None:
                place, line = top.key_place, earlier.key_place.line
                self.add_problem("duplicate-key", place.start, place.end, text=top.key, line=line)
            top.members[top.key] = Member(top.key_place, node)
            top.plain[top.key] = plain

    def add_missing_value(self) -> None:
        """Add an unknown value for a key that has none."""
        top = self.open[-1]
        if top.key_place is not None:
            reason = UNREADABLE_REASON.format(text="")
            self.add_problem("missing-value", top.key_place.start, top.key_place.end)
            self.add_value(TreeNode(Field.not_known(top.key_place, reason)), None)

    def close_container(self, end: int) -> None:
        """Close the innermost object or array at the offset ``end``."""
        top = self.open[-1]
        if top.is_object and top.state in ("colon", "value"):
            self.add_missing_value()
        self.open.pop()
        place = self.source.place(top.start, end)
        value: Any = top.plain if top.is_object else top.items
        self.add_value(TreeNode(Field(value, place=place), top.members if top.is_object else None), value)


def repairs(problems: Sequence[ConfigProblem]) -> tuple[Edit, ...]:
    """Edits that turn parts of the file into valid JSON, each for a single problem."""
    return tuple(problem.repair for problem in problems if problem.repair is not None)
