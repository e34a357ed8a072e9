"""Parses words into options, for programs whose options are known and for those whose are not."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gonogo.evidence.launch.command_line import CommandOptions, Option, OptionTable, normalize_option_name
from gonogo.evidence.shell.text import ShellWord
from gonogo.evidence.source_file import Place


def is_option(value: str | None) -> bool:
    """Whether a word is an option rather than a value: ``-1`` and ``-1e-5`` are values."""
    if value is None or len(value) < 2 or not value.startswith("-"):
        return False
    if value[1] in "0123456789.":
        try:
            float(value)
        except ValueError:
            return True
        return False
    return True


def parse_options(words: Sequence[ShellWord], end: Place | None = None) -> CommandOptions:
    """The options of a program whose parser is unknown: non-option words after an option are its values."""
    options: list[Option] = []
    positional: list[ShellWord] = []
    complete = True
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        written = _option_name_in(word)
        if written is None:
            if word.may_split or (word.value is None and not word.quoted and not is_positional(word)):
                complete = complete and not (word.may_split or word.place.text.startswith("$"))
            positional.append(word)
            continue
        name, attached = written
        if attached:
            options.append(Option(normalize_option_name(name), word, attached=True))
            continue
        values: list[ShellWord] = []
        while index < len(words) and not is_option(words[index].value) and _option_name_in(words[index]) is None:
            if words[index].may_split and (values or not words[index].place.text.lstrip('"').startswith("$")):
                break
            values.append(words[index])
            index += 1
            if values[-1].may_split and not values[-1].place.text.startswith(("$(", "`")):
                complete = False
                break
        options.append(Option(normalize_option_name(name), word, tuple(values)))
    return CommandOptions(options, positional, complete=complete, end=end or _end_place(words), words=words)


def is_positional(word: ShellWord) -> bool:
    """Whether a partly unknown word begins with text that no option begins with: ``data/$X``."""
    first = word.pieces[0].text if word.pieces else None
    return bool(first) and not str(first).startswith("-")


def _option_name_in(word: ShellWord) -> tuple[str, bool] | None:
    """The option's name that a word starts with, and whether its value is attached; None if it is no option."""
    value = word.value
    if value is None:
        first = word.pieces[0].text if word.pieces else None
        if first and first.startswith("--") and "=" in first:
            return first.partition("=")[0], True
        return None
    if not is_option(value):
        return None
    if value.startswith("--") and "=" in value:
        return value.partition("=")[0], True
    return value, False


def _end_place(words: Sequence[ShellWord]) -> Place | None:
    if not words:
        return None
    last = words[-1].place
    return Place(last.source, last.end, last.end)


def parse_known_options(words: Sequence[ShellWord], table: OptionTable) -> tuple[CommandOptions, tuple[ShellWord, ...]]:
    """The options of a known program, and the words from the first that isn't one of its options."""
    options: list[Option] = []
    complete = True
    index = 0
    while index < len(words):
        word = words[index]
        if word.value is None and word.may_split:
            complete = False
            index += 1
            continue
        written = _option_name_in(word)
        if written is None:
            break
        index += 1
        name, attached = written
        if name == "--":
            break
        known = table.option_name_of(name)
        short = not name.startswith("--") and known is None and len(name) > 2 and table.short.get(name[1])
        if short and word.value is not None:
            # -n8: the value is part of the word.
            place = Place(word.place.source, word.place.start + 2, word.place.end)
            piece = msgspec.structs.replace(word.pieces[0], text=word.value[2:], literal=False)
            options.append(Option(short, word, (ShellWord((piece,), place),)))
            continue
        takes = known in table.with_value if known is not None else False
        if attached or not takes or index >= len(words):
            options.append(Option(known or normalize_option_name(name), word, attached=attached))
            continue
        options.append(Option(known or normalize_option_name(name), word, (words[index],)))
        index += 1
    used = words[:index]
    return CommandOptions(options, (), complete=complete, end=_end_place(used), words=used), tuple(words[index:])
