"""Normalized package names (as on PyPI), without the time it takes to import ``packaging.utils``."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=8192)
def canonical(name: str) -> str:
    """A package's normalized name: ``flash_attn``, ``Flash.Attn`` and ``flash-attn`` give the same."""
    return re.sub(r"[-_.]+", "-", name).lower()
