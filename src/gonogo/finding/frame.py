"""A frame of a Python stack, with its owner."""

from __future__ import annotations

from typing import Literal

import msgspec

Owner = Literal["user", "library", "torch"]


class Frame(msgspec.Struct, frozen=True):
    """One frame of a Python stack. ``owner`` is the owner of its code: the user, a library, or torch."""

    path: str
    line: int
    function: str
    text: str = ""
    owner: Owner = "library"
