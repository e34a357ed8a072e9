"""One frame of a Python stack, as a fact."""

from __future__ import annotations

from typing import Literal

import msgspec

Owner = Literal["user", "library", "torch"]


class Frame(msgspec.Struct, frozen=True):
    """One frame of a Python stack. ``owner`` is whose code it is: the user's, a library's, or torch's."""

    path: str
    line: int
    function: str
    text: str = ""
    owner: Owner = "library"
