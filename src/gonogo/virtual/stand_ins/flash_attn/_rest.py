"""All names of flash-attn that its stand-in does not implement."""

from __future__ import annotations

from pathlib import Path

from gonogo.finding import translated
from gonogo.virtual.kernels.names_only import NamesOnlyFinder

_REST = NamesOnlyFinder(
    Path(__file__).with_name("names.json"),
    translated(
        "flash-attn is not installed here, and gonogo's stand-in for it has only this name, without an implementation"
    ),
)
module_getattr = _REST.module_getattr
_REST.install()
