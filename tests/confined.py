"""Worlds for tests of what runs in one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gonogo.confinement.confinement import Confinement
from gonogo.confinement.world import World


@contextmanager
def a_world() -> Iterator[World]:
    """A world of its own, with a scratch folder of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="gonogo-", ignore_cleanup_errors=True) as folder,
        Confinement(Path(folder)).world() as world,
    ):
        yield world
