"""As whom the confinement is tested: as whoever runs the tests, and as an ordinary user where those are root's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from gonogo.confinement.trees import remove_tree

HERE = Path(__file__).parent
SOURCES = Path(sys.modules["gonogo"].__path__[0]).parent
NOBODY = 65534
USERS = ("self", "ordinary")
_USABLE = "import os, sys, battery; assert os.access(sys.executable, os.X_OK)"


@dataclass(frozen=True)
class User:
    """Words before a command of Python's that run it as that user, and the variables that it needs."""

    words: list[str]
    environment: dict[str, str]
    folder: Path
    """The user's own, and empty."""

    def run(self, *arguments: str, means: str = "", timeout: float = 300, **variables: str) -> str:
        """What a Python program prints."""
        environment = {**self.environment, **variables, **({"GONOGO_CONFINEMENT": means} if means else {})}
        done = subprocess.run(
            [*self.words, *arguments], env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout


@contextmanager
def user_called(name: str) -> Iterator[User]:
    """Skips where there is no such user."""
    folder = Path(tempfile.mkdtemp(prefix="gonogo-confinement-"))
    folder.chmod(0o755)
    environment = {
        "PATH": os.defpath + ":/usr/sbin:/sbin:" + os.environ.get("PATH", ""),
        "HOME": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join([str(SOURCES), str(HERE)]),
    }
    try:
        if name == "self":
            words = [sys.executable]
            if os.geteuid() == 0 and _can("unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"):
                words = ["unshare", "-m", sys.executable]
                environment["MOUNT_A_FOLDER"] = "1"
            yield User(words, environment, folder)
            return
        if os.geteuid() != 0:
            pytest.skip("the tests run as an ordinary user already")
        if shutil.which("setpriv") is None:
            pytest.skip("setpriv is not here, to become an ordinary user")
        become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        os.chown(folder, NOBODY, NOBODY)
        environment["PYTHONPATH"] += os.pathsep + str(Path(msgspec.__file__).parents[1])
        for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
            if _can(*become, python, "-c", _USABLE, env=environment):
                yield User([*become, python], environment, folder)
                return
        pytest.skip("no Python that an ordinary user can start has gonogo: it lies in a folder of root's")
    finally:
        remove_tree(folder)


def _can(*words: str, env: dict[str, str] | None = None) -> bool:
    try:
        return subprocess.run(words, capture_output=True, env=env, check=False, timeout=60).returncode == 0
    except OSError:
        return False
