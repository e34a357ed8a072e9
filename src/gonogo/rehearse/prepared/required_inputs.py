"""What a launch will open, one by one: what it is, where it is named, whether it is here, what can be made of it."""

from __future__ import annotations

from typing import Literal

import msgspec

from gonogo.finding import Text

Kind = Literal["model", "data", "media", "variable"]
State = Literal["here", "made", "can-be-made", "missing", "unknown"]


class RequiredInput(msgspec.Struct):
    """One thing that the launch opens or reads.

    ``name`` is as it is written: a hub name, a path, a variable; ``path`` is where it lies or would lie, None for a
    name of the hub. ``found`` says where it is, ``why`` what it can be made of, or why not.
    """

    kind: Kind
    name: str
    place: str = ""
    """``file:line`` that names it; empty where a rehearsal has shown it."""
    path: str | None = None
    state: State = "unknown"
    found: str | None = None
    why: Text | None = None
    parts: dict[str, bool] = {}
    """Of a model: configuration, tokenizer, processor, chat template, and whether each is here or made."""
    columns: tuple[str, ...] = ()
    """Of a data set: the columns that the program reads, as far as its files tell."""
    format: str | None = None
    """Of a data set: the format of its rows."""
    subset: str | None = None
    """Of a data set of the hub: the configuration that is asked for."""
    splits: tuple[str, ...] = ()
    rows: int = 0
    """Of a data set: the fewest rows for the parts of it that are asked for; 0 where it is asked for whole."""
    separator: str = ""
    """Of a file of data: what separates its columns, where that is told."""

    suffix: str = ""
    """Of a folder of data: how the names of the files end that the program was seen to look for in it."""

    @property
    def key(self) -> tuple[str, str]:
        """What makes two the same."""
        return self.kind, self.path or self.name.lower()


class PrepareOptions(msgspec.Struct, frozen=True):
    """What the user chose: how many rows of how many tokens, and which model stands for a path that names none."""

    rows: int = 64
    tokens: int | None = None
    models: dict[str, str] = {}
    """By the path or name that the launch has (``*`` for all that are not known): a published model's name."""
    columns: dict[str, tuple[str, ...]] = {}
    """By data set (``*`` for all): columns that the program was seen to read."""
    rows_of: dict[tuple[str, str], int] = {}
    """By ``RequiredInput.key``: of a data set that the program was seen to want more rows of."""
