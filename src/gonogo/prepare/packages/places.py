"""Where gonogo keeps packages, and how it reports progress meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from gonogo.finding import Text

ReportProgress = Callable[[Text], None]


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/gonogo/packages``, or the same below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "gonogo" / "packages"


def state_folder() -> Path:
    """``$XDG_STATE_HOME/gonogo``, or ``~/.local/state/gonogo``: the user's decisions."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base) / "gonogo"
