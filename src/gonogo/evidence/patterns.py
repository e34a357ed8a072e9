"""Patterns for untrusted text: RE2, which takes linear time, so that no log can hang it.

A pattern is compiled at first use, and only if the text contains literals that every match needs: the hazards have a
thousand patterns, compiling one takes longer than reading a short log, and a log needs few of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any, Protocol, TypeVar, cast

_Text = TypeVar("_Text", str, bytes)


class Match(Protocol):
    """The result of a search; the subset of ``re.Match`` that gonogo uses."""

    def group(self, *groups: int | str) -> Any:
        """The text of a group (None if it didn't participate)."""

    def groups(self) -> tuple[str | None, ...]:
        """The texts of all groups."""

    def groupdict(self) -> dict[str, str | None]:
        """The texts of the named groups."""

    def start(self, group: int = 0) -> int:
        """Start offset of a group."""

    def end(self, group: int = 0) -> int:
        """End offset of a group."""


class Pattern:
    """A regular expression in RE2's syntax (no look-around, no back-references), compiled at first use.

    ``text`` is written as for :mod:`re`; a leading ``(?i)`` makes it case-insensitive. ``^`` and ``$`` match at the
    start and end of each line, and ``.`` doesn't match a newline.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"

    @cached_property
    def _required_literals(self) -> tuple[str, ...]:
        """Literals at least one of which is in every matching text."""
        return required_literals(self.text)

    @cached_property
    def _required_literal_bytes(self) -> tuple[bytes, ...]:
        return tuple(words.encode() for words in self._required_literals)

    @cached_property
    def _required_shapes(self) -> tuple[bytes, ...]:
        """The required literals with their numbers replaced by 0."""
        return tuple(map(with_numbers_zeroed, self._required_literal_bytes))

    def may_match(self, shapes: bytes) -> bool:
        """False if no text with these shapes (:func:`with_numbers_zeroed`) can match."""
        return any(words in shapes for words in self._required_shapes)

    @cached_property
    def _compiled(self) -> Any:
        import re2

        options = re2.Options()
        options.log_errors = False
        return re2.compile(f"(?m){self.text}", options)

    def search(self, text: str, start: int = 0) -> Match | None:
        """The first match in the text, or None."""
        if not any(words in text for words in self._required_literals):
            return None
        found: Match | None = self._compiled.search(_without_surrogates(text), start)
        return found

    @cached_property
    def _compiled_for_bytes(self) -> Any:
        import re2

        options = re2.Options()
        options.log_errors = False
        return re2.compile(f"(?m){self.text}".encode(), options)

    def search_bytes(self, data: bytes, start: int = 0) -> Match | None:
        """The first match in UTF-8 text, or None; groups and offsets are in bytes."""
        # Checked at the start only: callers that continue after a match would scan the whole log each time.
        if start == 0 and not any(words in data for words in self._required_literal_bytes):
            return None
        found: Match | None = self._compiled_for_bytes.search(data, start)
        return found

    def match(self, text: str) -> Match | None:
        """A match at the start of the text, or None."""
        if not any(words in text for words in self._required_literals):
            return None
        found: Match | None = self._compiled.match(_without_surrogates(text))
        return found

    def finditer(self, text: str) -> Iterator[Match]:
        """All non-overlapping matches."""
        return iter(self._compiled.finditer(_without_surrogates(text)))

    def sub(self, replacement: str, text: str) -> str:
        """The text with each match replaced."""
        replaced: str = self._compiled.sub(replacement, _without_surrogates(text))
        return replaced


_REGEX_TOKEN_PATTERN = re.compile(r"\\[^A-Za-z0-9]|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[?*+]\??|\{[\d,]*\}\??|.", re.DOTALL)


def required_literals(pattern: str) -> tuple[str, ...]:
    """Literals at least one of which is in every text that the pattern matches; ``("",)`` if none can be determined.

    Of each alternative, the longest run of letters outside groups and classes that no quantifier makes optional.
    """
    if pattern.startswith("(?"):
        flags, _, rest = pattern[2:].partition(")")
        if flags.isalpha():
            if set(flags) & set("ix"):
                return ("",)  # case-insensitive or verbose
            pattern = rest
    runs, run, depth = [""], "", 0
    for piece in _REGEX_TOKEN_PATTERN.findall(pattern):
        optional = piece[0] in "?*{"
        if depth == 0 and piece[0] == "|":
            runs[-1] = max(runs[-1], run, key=len)
            runs.append("")
            run = ""
        elif piece[0] in "()":
            depth += 1 if piece[0] == "(" else -1
            runs[-1], run = max(runs[-1], run, key=len), ""
        elif depth:
            continue
        elif optional or piece[0] in "+.^$[" or (piece[0] == "\\" and piece[1].isalnum()):
            runs[-1], run = max(runs[-1], run[:-1] if optional else run, key=len), ""
        else:
            run += piece[-1]
    runs[-1] = max(runs[-1], run, key=len)
    return ("",) if "" in runs else tuple(runs)


_DIGITS = bytes.maketrans(b"0123456789", b"0" * 10)


def with_numbers_zeroed(data: bytes) -> bytes:
    """Text with each number replaced by 0, so that a pattern can be ruled out for many similar lines at once."""
    data = data.translate(_DIGITS)
    while b"00" in data:
        data = data.replace(b"00", b"0")
    return data


class _LazyPattern:
    """Wraps a pattern of :mod:`re` that is compiled when it is first used."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._source = text, flags
        self._literals: tuple[str, ...] | None = None

    def search(self, text: Any, *bounds: int) -> Any:
        """The first match; a text without the pattern's literals is told by them alone."""
        if self._literals is None:
            source, flags = self._source
            plain = isinstance(source, str) and not flags & (re.IGNORECASE | re.VERBOSE)
            self._literals = required_literals(str(source)) if plain else ("",)
        if isinstance(text, str) and not any(words in text for words in self._literals):
            return None
        return self.__getattr__("search")(text, *bounds)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        compiled: Any = re.compile(*self._source)
        for method in ("search", "match", "fullmatch", "finditer", "findall", "sub", "split", "pattern"):
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def lazy_compile(text: _Text, flags: int = 0) -> re.Pattern[_Text]:
    """A pattern of :mod:`re`, for what RE2 doesn't support (look-around), on text of bounded length.

    Compiled at first use: otherwise a hundred patterns would be compiled at startup that are never used.
    """
    return cast("re.Pattern[_Text]", _LazyPattern(text, flags))


@cache
def cached_lazy_pattern(text: str) -> re.Pattern[str]:
    """One pattern of :func:`lazy_compile` for each text, as tables of rules have them."""
    return lazy_compile(text)


def _without_surrogates(text: str) -> str:
    """The text with surrogate escapes, which RE2 doesn't accept, replaced by U+FFFD; its length is unchanged."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)
    return text
