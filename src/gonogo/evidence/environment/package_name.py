"""Names of packages as they are compared (PyPI's normalisation), without what ``packaging.utils`` costs to import."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=8192)
def canonical(name: str) -> str:
    """A package's name as it is compared: ``flash_attn``, ``Flash.Attn`` and ``flash-attn`` are one."""
    return re.sub(r"[-_.]+", "-", name).lower()
