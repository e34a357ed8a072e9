"""Checks whether the program's Python has a torch that rehearsals support."""

from __future__ import annotations

import importlib.util
import sys

from gonogo.finding import UserError, translated
from gonogo.finding.install import install_hint
from gonogo.prepare.packages import installed_version
from gonogo.prepare.packages.names import OLDEST_TORCH


def check_torch() -> None:
    """Raise UserError if torch is missing or too old to rehearse with. Doesn't import torch."""
    if importlib.util.find_spec("torch") is None:
        raise UserError(
            translated(
                "torch is not installed for {python}, which would run the program: {install}; or install gonogo "
                "into your training environment"
            ).format(python=sys.executable, install=install_hint("rehearse"))
        )
    version = installed_version("torch")
    if version is not None and version < OLDEST_TORCH:
        raise UserError(
            translated(
                "torch {version} of {python} is too old for rehearsals: torch {oldest} or newer is required "
                "(a CPU build is enough), in a separate Python environment if necessary"
            ).format(version=version, python=sys.executable, oldest=OLDEST_TORCH)
        )
