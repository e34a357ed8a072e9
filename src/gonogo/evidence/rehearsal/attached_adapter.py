"""An adapter that a program has put on a base model of another name than the adapter's config has."""

from __future__ import annotations

import msgspec


class AttachedAdapter(msgspec.Struct, frozen=True):
    """A PEFT adapter and its base model: as its config states it, and as it was opened."""

    adapter: str
    stated: str
    opened: str
    same_weights: bool | None = None
    """Whether both have the same weights, by samples; None if the contents of one aren't here."""
