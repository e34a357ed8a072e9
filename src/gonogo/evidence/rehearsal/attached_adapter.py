"""An adapter that a program has put on a base model of another name than the adapter's config has."""

from __future__ import annotations

import msgspec


class AttachedAdapter(msgspec.Struct, frozen=True):
    """``stated``: ``base_model_name_or_path`` of its config; ``opened``: the name of the model that it was put on."""

    adapter: str
    stated: str
    opened: str
    same_weights: bool | None = None
    """Whether both have the same weights, by samples; None if the contents of one aren't here."""
