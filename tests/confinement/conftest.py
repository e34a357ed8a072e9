"""What this machine allows: a means that its kernel does not have is not tested, and that is said."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from users import user_called

_PROBE = """
import sys, tempfile
from pathlib import Path
from gonogo.confinement.confinement import Confinement
from gonogo.finding import UserError
with tempfile.TemporaryDirectory(dir=sys.argv[1]) as folder:
    try:
        with Confinement(Path(folder)).world():
            pass
    except UserError as error:
        print(str(error))
"""
_REFUSED: dict[tuple[str, str], str] = {}


@pytest.fixture
def needs() -> Callable[[str, str], None]:
    """Skips where a user can't have a means here, with the kernel's reason."""

    def check(means: str, name: str) -> None:
        if (means, name) not in _REFUSED:
            with user_called(name) as user:
                _REFUSED[means, name] = user.run("-c", _PROBE, str(user.folder), means=means).strip()
        if _REFUSED[means, name]:
            pytest.skip(_REFUSED[means, name])

    return check
