"""Where the rehearsed ranks part, as a report has it: the fields of the record, of which a page draws some."""

from __future__ import annotations

import msgspec


class Frame(msgspec.Struct, frozen=True):
    """One frame of a Python stack; ``owner`` is whose code it is: ``user``, ``library`` or ``torch``."""

    path: str
    line: int
    function: str
    text: str
    owner: str


class Call(msgspec.Struct, frozen=True):
    """One collective as one rank made it; ``index`` counts those that it had made in this group before."""

    operator: str
    group: tuple[int, ...]
    index: int
    sizes: tuple[int, ...]
    dtype: str | None
    reduction: str | None
    root: int | None
    module: str | None
    parameters: tuple[str, ...]
    phase: str
    step: int
    frames: tuple[Frame, ...]
    """Outermost call first."""


class Side(msgspec.Struct, frozen=True):
    """Ranks that did the same; ``call`` is None for those that have ended, ``before`` their last calls until then."""

    ranks: tuple[int, ...]
    call: Call | None
    before: tuple[Call, ...]
    guards: object
    batch: tuple[tuple[str, str], ...]
    batches: int
    steps: int
    functions: tuple[str, ...]


class Divergence(msgspec.Struct, frozen=True):
    """The first collective that the ranks do not make together; ``sides`` with most ranks first."""

    kind: str
    sides: tuple[Side, ...]
    agreed: Call | None
    earlier: tuple[Side, ...]
