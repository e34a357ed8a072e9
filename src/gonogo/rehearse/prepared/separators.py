"""What separates the columns of a file of rows that a program reads, where that is no comma."""

from __future__ import annotations

import re

from gonogo.evidence.run import Run

_OPTION = re.compile(r"-*(?:\w+[-_])?(?:separator|sep|delimiter)")
_READERS = ("*.read_csv", "csv.reader", "csv.DictReader")


def separator_in(run: Run) -> str:
    """By the option of the launch, the option's default, else the only one that its readers are given; "": not told."""
    for name in run.arguments.names():
        value = run.arguments.get(name).string if _OPTION.fullmatch(name.lower()) else None
        if value is not None and (told := _one(value)):
            return told
    defaults: set[str] = set()
    read: set[str | None] = set()
    for script in run.scripts:
        for call in script.calls("*.add_argument"):
            option = call.argument(0).string
            if option is not None and _OPTION.fullmatch(option.lower()):
                defaults.add(_one(call.keyword("default").string or ""))
        for call in script.calls(*_READERS):
            given = next((one for one in (call.keyword("sep"), call.keyword("delimiter")) if not one.absent), None)
            read.add("," if given is None else given.string)
    only = [next(iter(found)) for found in (defaults, read) if len(found) == 1]
    return next((_one(told) for told in only if told), "")


def _one(text: str) -> str:
    """The character that a text stands for."""
    text = {"\\t": "\t", "tab": "\t", "comma": ","}.get(text.lower(), text)
    return text if len(text) == 1 else ""
