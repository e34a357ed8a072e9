"""Edits of a JSON file that leave all other bytes unchanged: comments, indentation, line endings."""

from __future__ import annotations

import json
from bisect import bisect_left
from typing import Any

from gonogo.evidence.document.json_file import JsonFile
from gonogo.evidence.document.json_tokens import Token, tokenize
from gonogo.evidence.document.tree import Member, TreeNode
from gonogo.evidence.source_file import Place, SourceFile
from gonogo.finding import Edit

_INDENT = 2
_BLANK = b" \t"


class JsonEditor:
    """Makes edits of one JSON file. Each method raises KeyError for keys that have no place in it."""

    def __init__(self, file: JsonFile) -> None:
        self._file = file
        self._source: SourceFile = file.source

    def replacing(self, keys: tuple[str, ...], value: Any) -> Edit:
        """An edit that replaces the value under the keys."""
        member = self._require_member(keys)
        place = _place_of(member.node, keys)
        return place.edit(self._format_json(value, self._indent_at(_key_place(member, keys).start)))

    def removing(self, keys: tuple[str, ...]) -> Edit:
        """An edit that removes the key with its value and comma, and its line if nothing else is on it."""
        member = self._require_member(keys)
        start, end = _key_place(member, keys).start, _place_of(member.node, keys).end
        before, after = self._token_before(start), self._first_token_at_or_after(end)
        data = self._source.data
        if after is not None and after.data == b",":
            end = after.end
            line = self._source.line_start(self._source.line_of(start))
            if not data[line:start].strip():
                rest = self._line_end(end)
                if _is_only_comment(data[end:rest]):
                    return self._source.place(line, min(rest + self._line_break_at(rest), len(data))).edit("")
            while end < len(data) and data[end] in _BLANK:
                end += 1
            return self._source.place(start, end).edit("")
        if before is not None and before.data == b",":
            rest = self._line_end(end)
            if _is_only_comment(data[end:rest]):
                end = rest
            kept = data[before.end : start].decode("utf-8", "surrogateescape").rstrip()
            return self._source.place(before.start, end).edit(kept)
        if before is not None and after is not None:
            alone = not data[before.end : start].strip() and not data[end : after.start].strip()
            start, end = (before.end, after.start) if alone else (start, end)
        return self._source.place(start, end).edit("")

    def inserting(self, keys: tuple[str, ...], value: Any) -> Edit:
        """An edit that sets the value of the keys: as a new last entry, or in place of the existing value.

        Missing parent objects are created.
        """
        if not keys or self._file.root is None:
            raise KeyError(keys)
        if self._file.root.member(keys) is not None:
            return self.replacing(keys, value)
        depth = len(keys) - 1
        while (parent := self._file.root.find(keys[:depth])) is None:
            depth -= 1
        if parent.members is None:
            raise KeyError(keys)
        for key in reversed(keys[depth + 1 :]):
            value = {key: value}
        return self._append_member(parent, keys[:depth], keys[depth], value)

    def _append_member(self, parent: TreeNode, path: tuple[str, ...], key: str, value: Any) -> Edit:
        place = _place_of(parent, path)
        opening = self._first_token_at_or_after(place.start)
        last = self._last_member(parent)
        if opening is None or (parent.members and last is None):
            raise KeyError((*path, key))
        name = json.dumps(key, ensure_ascii=False)
        if last is None:
            return self._insert_into_empty_object(place, opening, path, name, value)
        first = min(one.key_place.start for one in (parent.members or {}).values() if one.key_place is not None)
        end = _place_of(last.node, (*path, key)).end
        following = self._first_token_at_or_after(end)
        separator = ","
        if following is not None and following.data == b",":
            separator, end = "", following.end
        if self._source.line_of(first) == self._source.line_of(place.start):
            return self._source.place(end, end).edit(f"{separator} {name}: {self._format_json(value, None)}")
        indent = self._indent_at(first)
        # A comment on the last entry's line stays on it.
        rest = self._line_end(end)
        comment = self._source.data[end:rest]
        if not comment.strip() or not _is_only_comment(comment):
            rest, comment = end, b""
        kept = comment.decode("utf-8", "surrogateescape").rstrip()
        return self._source.place(end, rest).edit(
            f"{separator}{kept}{self._line_break}{indent}{name}: {self._format_json(value, indent)}"
        )

    def _insert_into_empty_object(
        self, place: Place, opening: Token, path: tuple[str, ...], name: str, value: Any
    ) -> Edit:
        closing = self._first_token_at_or_after(opening.end)
        end = closing.start if closing is not None and closing.data == b"}" else opening.end
        inner = self._source.data[opening.end : end]
        if path and b"\n" not in inner:
            return self._source.place(opening.end, opening.end).edit(f"{name}: {self._format_json(value, None)}")
        outer = self._indent_at(place.start)
        indent = outer + self._indent_step
        text = f"{self._line_break}{indent}{name}: {self._format_json(value, indent)}"
        if inner.strip():
            return self._source.place(opening.end, opening.end).edit(text)
        return self._source.place(opening.end, end).edit(f"{text}{self._line_break}{outer}")

    def _require_member(self, keys: tuple[str, ...]) -> Member:
        member = self._file.root.member(keys) if self._file.root is not None else None
        if member is None:
            raise KeyError(keys)
        return member

    @staticmethod
    def _last_member(parent: TreeNode) -> Member | None:
        placed = [one for one in (parent.members or {}).values() if one.node.field.place is not None]
        return max(placed, key=lambda one: one.node.field.place.end if one.node.field.place else 0, default=None)

    # Surroundings of an offset --------------------------------------------------------------------------------------

    def _first_token_at_or_after(self, offset: int) -> Token | None:
        """The first token that starts at or after the offset."""
        index = bisect_left(self._file.tokens, offset, key=_start_of)
        return self._file.tokens[index] if index < len(self._file.tokens) else None

    def _token_before(self, offset: int) -> Token | None:
        index = bisect_left(self._file.tokens, offset, key=_start_of) - 1
        return self._file.tokens[index] if index >= 0 else None

    def _line_end(self, offset: int) -> int:
        """The end of the line, before its line break."""
        end = self._source.data.find(b"\n", offset)
        end = len(self._source.data) if end < 0 else end
        return end - 1 if end > offset and self._source.data[end - 1 : end] == b"\r" else end

    def _line_break_at(self, offset: int) -> int:
        """The length of the line break at the offset; 0 if there is none."""
        data = self._source.data
        return 2 if data[offset : offset + 2] == b"\r\n" else 1 if data[offset : offset + 1] == b"\n" else 0

    @property
    def _line_break(self) -> str:
        """The file's line break: ``\\n`` or ``\\r\\n``."""
        first = self._source.data.find(b"\n")
        return "\r\n" if first > 0 and self._source.data[first - 1 : first] == b"\r" else "\n"

    def _indent_at(self, offset: int) -> str:
        """The indentation of the line that contains the offset."""
        line = self._source.data[self._source.line_start(self._source.line_of(offset)) : offset]
        return line[: len(line) - len(line.lstrip(_BLANK))].decode("ascii", "replace")

    @property
    def _indent_step(self) -> str:
        """The indentation of each level, taken from the file's first entry."""
        members = self._file.root.members if self._file.root is not None else None
        for member in (members or {}).values():
            if member.key_place is not None and (indent := self._indent_at(member.key_place.start)):
                return indent
        return " " * _INDENT

    def _format_json(self, value: Any, indent: str | None) -> str:
        """A value as JSON; an object is written over several lines if ``indent``, its key's indentation, is given."""
        if not isinstance(value, dict) or not value or indent is None:
            return json.dumps(value, ensure_ascii=False)
        inner = indent + self._indent_step
        entries = (
            f"{inner}{json.dumps(str(key), ensure_ascii=False)}: {self._format_json(one, inner)}"
            for key, one in value.items()
        )
        between = f",{self._line_break}"
        return f"{{{self._line_break}{between.join(entries)}{self._line_break}{indent}}}"


def _start_of(token: Token) -> int:
    return token.start


def _place_of(node: TreeNode, keys: tuple[str, ...]) -> Place:
    if node.field.place is None:
        raise KeyError(keys)
    return node.field.place


def _key_place(member: Member, keys: tuple[str, ...]) -> Place:
    if member.key_place is None:
        raise KeyError(keys)
    return member.key_place


def _is_only_comment(rest: bytes) -> bool:
    """Whether the rest of a line is blank or consists of complete comments."""
    return all(token.kind == "comment" and not _is_unclosed(token.data) for token in tokenize(rest))


def _is_unclosed(comment: bytes) -> bool:
    """Whether a block comment has no end."""
    return comment.startswith(b"/*") and not comment.endswith(b"*/")
