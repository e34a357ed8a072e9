"""The names of Apex that have no implementation here: those of its last commit with ``amp`` and ``parallel``."""

from __future__ import annotations

from pathlib import Path

from gonogo.finding import translated
from gonogo.virtual.kernels.names_only import NamesOnlyFinder

_REST = NamesOnlyFinder(
    Path(__file__).with_name("names.json"),
    translated(
        "Apex is not installed here, and gonogo's stand-in for it has only this name, without an implementation"
    ),
)
module_getattr = _REST.module_getattr
install = _REST.install
