"""The options of a command line with their places, and edits that change them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from functools import cached_property

import msgspec

from gonogo.evidence.field import Field
from gonogo.evidence.shell.text import ShellWord
from gonogo.evidence.source_file import Place, SourceFile
from gonogo.finding import Edit, translated

Word = ShellWord
"""A word of a command: ``value`` (None if unknown), ``place``, ``reason``."""

SEVERAL_VALUES = translated("the option is given several values")
_NOT_READ = translated("an argument whose value is not known may be this option")


class OptionTable(msgspec.Struct, frozen=True):
    """The options of a known program: those with a value, and flags."""

    with_value: frozenset[str]
    flags: frozenset[str]
    short: dict[str, str] = {}
    """Short options with their long names."""
    abbreviations: bool = True

    def option_name_of(self, word: str) -> str | None:
        """The option that a word such as ``--num-nodes=2`` sets (no dashes, ``_`` for ``-``); None if none."""
        name = normalize_option_name(word)
        if name in self.with_value or name in self.flags:
            return name
        if not word.startswith("--"):
            return self.short.get(name)
        if self.abbreviations:
            found = {known for known in (*self.with_value, *self.flags) if known.startswith(name)}
            if len(found) == 1:
                return found.pop()
        return None


def split_names(text: str) -> frozenset[str]:
    """The names in a string, separated by white space."""
    return frozenset(text.split())


class Option(msgspec.Struct, frozen=True):
    """An option as written: its own word, and the words of its value."""

    name: str
    word: ShellWord
    values: tuple[ShellWord, ...] = ()
    attached: bool = False
    """Whether the value is in the option's own word, after ``=``."""

    @property
    def place(self) -> Place:
        """The place from the option's word to the end of its value."""
        return _join_places(self.word.place, self.values[-1].place) if self.values else self.word.place

    @property
    def field(self) -> Field:
        """The value; True for an option without a value, a tuple of strings if there are several."""
        if self.attached:
            value = self.word.value
            if value is None:
                return Field.not_known(self.word.place, self.word.reason)
            return Field.of(value.partition("=")[2], _value_place(self.word), self.word.reason)
        if not self.values:
            return Field.of(True, self.word.place)
        unknown = next((word for word in self.values if word.value is None), None)
        if unknown is not None:
            return Field.not_known(unknown.place, unknown.reason)
        place = _join_places(self.values[0].place, self.values[-1].place)
        if len(self.values) == 1:
            return Field.of(self.values[0].value, place, self.values[0].reason)
        return Field.of(tuple(word.value for word in self.values), place, SEVERAL_VALUES)


def normalize_option_name(word: str) -> str:
    """An option's name: without its dashes, with ``_`` for ``-``."""
    return word.lstrip("-").replace("-", "_")


def _join_places(first: Place, last: Place) -> Place:
    if first.source is last.source and first.start <= last.end:
        return Place(first.source, first.start, last.end)
    return first


def _value_place(word: ShellWord) -> Place:
    place = word.place
    data = place.source.data[place.start : place.end]
    at = data.find(b"=")
    return Place(place.source, place.start + at + 1, place.end) if at >= 0 else place


class CommandOptions:
    """The options given in a part of a command, in order."""

    def __init__(
        self,
        options: Sequence[Option] = (),
        positional: Sequence[ShellWord] = (),
        *,
        complete: bool = True,
        end: Place | None = None,
        words: Sequence[ShellWord] = (),
    ) -> None:
        self.options = tuple(options)
        self.positional = tuple(positional)
        self.complete = complete
        """False if a word such as ``"$@"`` may contain more options."""
        self.end = end
        """Where a new option would be inserted: an empty place after the last word."""
        self.words = tuple(words)

    @cached_property
    def _options_by_name(self) -> dict[str, list[Option]]:
        found: dict[str, list[Option]] = {}
        for option in self.options:
            found.setdefault(option.name, []).append(option)
        return found

    def __iter__(self) -> Iterator[Option]:
        return iter(self.options)

    def __contains__(self, name: str) -> bool:
        return normalize_option_name(name) in self._options_by_name

    def get(self, *names: str) -> Field:
        """The value of an option under any of its names; the last one takes precedence.

        Absent if it is not given; unknown if a word with an unknown value may contain it.
        """
        wanted = {normalize_option_name(name) for name in names}
        for option in reversed(self.options):
            if option.name in wanted:
                return option.field
        if self.complete:
            return Field.missing()
        hiding = next((word for word in self.words if word.value is None), None)
        reason = (hiding.reason if hiding is not None else None) or _NOT_READ
        return Field.not_known(hiding.place if hiding is not None else None, reason)

    def all_values(self, name: str) -> tuple[Field, ...]:
        """All values given for an option, in order."""
        return tuple(option.field for option in self._options_by_name.get(normalize_option_name(name), ()))

    def place_of(self, name: str) -> Place | None:
        """The place from the option's word to the end of its value; that of the last one if it is repeated."""
        found = self._options_by_name.get(normalize_option_name(name))
        return found[-1].place if found else None

    def names(self) -> tuple[str, ...]:
        """The names of all given options, with ``_`` for ``-``."""
        return tuple(self._options_by_name)

    @property
    def duplicates(self) -> tuple[str, ...]:
        """The names of options that are given more than once."""
        return tuple(name for name, options in self._options_by_name.items() if len(options) > 1)

    def removing(self, name: str) -> Edit:
        """An edit that removes the option with its value, and the blanks or the line continuation before it.

        The edit is empty if the option is not written literally in a file (:meth:`can_edit`).
        """
        found = self._options_by_name.get(normalize_option_name(name))
        if not found or not self.can_edit(name):
            return self._edit_without_change()
        place = found[-1].place
        source = place.source
        start, end = place.start, place.end
        first = source.line_start(source.line_of(start))
        alone = not source.data[first:start].strip()
        if alone:
            ending = _end_of_line(source, end)
            if ending is not None:
                return Place(source, first, ending).edit("")
        while start > 0 and source.data[start - 1 : start] in (b" ", b"\t"):
            start -= 1
        if alone:
            # The option is on the command's last line: the backslash before it is removed too.
            before = source.data[:start].rstrip(b" \t\r\n")
            if before.endswith(b"\\"):
                start = len(before[:-1].rstrip(b" \t"))
        return Place(source, start, end).edit("")

    def replacing(self, name: str, value: str) -> Edit:
        """An edit that changes the option's value, or adds the option if it is not given."""
        found = self._options_by_name.get(normalize_option_name(name))
        if not found:
            return self.adding(name, value)
        if not self.can_edit(name):
            return self._edit_without_change()
        option = found[-1]
        place = option.field.place
        if option.attached and place is not None:
            return place.edit(quote_for_shell(value))
        if not option.values:
            end = option.word.place.end
            return Place(option.word.place.source, end, end).edit(f" {quote_for_shell(value)}")
        return _join_places(option.values[0].place, option.values[-1].place).edit(quote_for_shell(value))

    def adding(self, name: str, value: str | None = None) -> Edit:
        """An edit that appends an option, on a line of its own if the others are on separate lines."""
        if self.end is None or not self.end.source.writable:
            return self._edit_without_change()
        written = name if name.startswith("-") else f"--{name}"
        text = written if value is None else f"{written} {quote_for_shell(value)}"
        return self.end.edit(f"{self._separator()}{text}")

    def can_edit(self, name: str) -> bool:
        """Whether the option is written literally in an editable file."""
        found = self._options_by_name.get(normalize_option_name(name))
        if not found:
            return self.end is not None and self.end.source.writable
        option = found[-1]
        place = option.place
        if not place.source.writable:
            return False
        parts = (option.word, *option.values)
        starts = [part.place.start for part in parts]
        same = all(part.place.source is place.source for part in parts)
        return same and starts == sorted(set(starts)) and self._is_literal(option)

    def _is_literal(self, option: Option) -> bool:
        """Whether the option's own word is written literally, and no other word shares its place."""
        value = option.word.value or ""
        if option.name not in normalize_option_name(option.word.place.text) and value not in option.word.place.text:
            return False
        key = (option.word.place.start, option.word.place.end)
        sharing = sum(1 for word in self.words if (word.place.start, word.place.end) == key)
        return sharing <= 1

    def _edit_without_change(self) -> Edit:
        """An edit at the options' place that changes nothing."""
        place = self.end or (self.words[0].place if self.words else None)
        if place is None:
            return Edit("", 0, 0, b"", b"")
        return Edit(place.source.path, place.start, place.start, b"", b"")

    def _separator(self) -> str:
        """The separator of the last options: a blank, or a line continuation with indentation."""
        if self.end is None:
            return " "
        source = self.end.source
        for option in reversed(self.options):
            place = option.place
            if place.source is not source or place.end > self.end.start:
                continue
            first = source.line_start(source.line_of(place.start))
            indent = source.data[first : place.start]
            if indent.strip() or first == 0:
                return " "
            line_end = "\r\n" if source.data[:first].endswith(b"\r\n") else "\n"
            before = source.data[:first].rstrip(b"\r\n")
            shown = indent.decode("utf-8", "surrogateescape")
            if before.endswith(b"\\"):
                blanks = before[:-1][len(before[:-1].rstrip(b" \t")) :].decode()
                return f"{blanks or ' '}\\{line_end}{shown}"
            return f"{line_end}{shown}"  # the lines of a shell array
        return " "


def _end_of_line(source: SourceFile, end: int) -> int | None:
    """The end of a line that contains nothing else except a continuation; None if it contains more."""
    line_end = source.data.find(b"\n", end)
    rest = source.data[end : line_end if line_end >= 0 else len(source.data)]
    if line_end >= 0 and rest.strip() in (b"", b"\\"):
        # Without a continuation, the command ends here unless the line is in a shell array.
        if rest.strip() == b"" and source.data[: source.line_start(source.line_of(end))].rstrip(b"\r\n").endswith(
            b"\\"
        ):
            return None
        return line_end + 1
    return None


def quote_for_shell(value: str) -> str:
    """A value quoted for a shell."""
    return value if value and all(c.isalnum() or c in "_-./:,=+@%" for c in value) else shlex.quote(value)
