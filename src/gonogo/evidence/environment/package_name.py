"""Normalized package names (as on PyPI), without the time it takes to import ``packaging.utils``."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=8192)
def canonical_package_name(name: str) -> str:
    """A package's normalized name (PEP 503): ``flash_attn`` and ``Flash.Attn`` both give ``flash-attn``."""
    return re.sub(r"[-_.]+", "-", name).lower()
