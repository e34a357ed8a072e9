"""What every test starts from."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from warm_worlds import WarmWorlds

# DeepSpeed's compiled operators, kept from one test run to the next.
OPERATORS = Path(__file__).parents[1] / ".pytest_cache" / "torch_extensions"

# What is about the start of processes, and whole runs, as they are for users: there each Python is started.
COLD = ("confinement", "examples", "launchers", "cure", "rehearse/test_forking.py")


@pytest.fixture(scope="session")
def warm_worlds() -> Iterator[WarmWorlds]:
    worlds = WarmWorlds()
    yield worlds
    worlds.close()


@pytest.fixture(scope="module", autouse=True)
def worlds_are_warm(request: pytest.FixtureRequest, warm_worlds: WarmWorlds) -> Iterator[None]:
    """Python programs in worlds that a test makes in its own process find torch imported."""
    own = request.path.relative_to(Path(__file__).parent).as_posix()
    if own.startswith(COLD) or os.environ.get("GONOGO_TESTS_COLD"):
        yield
        return
    with warm_worlds.in_use():
        yield


def pytest_configure(config: pytest.Config) -> None:
    """Keep DeepSpeed's compiled operators apart from the user's own.

    torch guards a build with a file named ``lock``, and waits for ever on one that a killed build left behind.
    """
    os.environ["TORCH_EXTENSIONS_DIR"] = str(OPERATORS)
    os.environ["GONOGO_CACHE_SIZE"] = "0"  # what a test rehearses is rehearsed; those of the cache give it a size
    # A shell that runs the tests in the background has them, and what they start, ignore Ctrl-C; nohup, a hang-up.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if hasattr(config, "workerinput"):  # a worker of pytest-xdist: the builds of its siblings may be under way
        return
    OPERATORS.mkdir(parents=True, exist_ok=True)
    running = os.open(OPERATORS, os.O_RDONLY)  # held by each run of the tests until it ends
    try:
        fcntl.flock(running, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for lock in OPERATORS.glob("*/lock"):
            lock.unlink()
    except BlockingIOError:  # another run of the tests may be building them
        pass
    fcntl.flock(running, fcntl.LOCK_SH)
