"""How the guard gets into the processes of a command: a folder first on ``PYTHONPATH``, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import msgspec

from gonogo.report.atomic import write_atomically

FOLDER = "GONOGO_GUARD_FOLDER"
"""The variable that names the folder of the run, for whoever looks; the guard itself goes by ``PYTHONPATH``."""
WORKER = "GONOGO_GUARD_WORKER"
"""Set by a guarded rank to its process number, so that the processes that it starts are none."""
_PACKAGES = ("gonogo", "msgspec")
_OPTIONS = "options.json"


class GuardOptions(msgspec.Struct, frozen=True):
    """What the guard of each rank is told; stands in the folder of the run."""

    stall_seconds: float = 60.0
    """The least time without any sign of progress that counts as a stall."""
    join_seconds: float = 60.0
    """How long a rank waits, before its first step, for the others to state their facts."""
    sample_seconds: float = 1.0
    """The least time between two samples of memory (taken at the end of a step)."""
    nonfinite: bool = False
    """Whether to look for the first value that is not finite (which synchronises)."""
    language: str = "en"
    """Of what is added to exceptions: ``en`` or ``zh``."""
    trackers: bool = True
    """Whether the report is handed to W&B and others, where the training reports there."""
    python: str = ""
    """The Python that gonogo is installed for, where it may be another than the training's."""


def read_options(folder: str) -> GuardOptions:
    """The options in a run's folder; the defaults where there are none."""
    try:
        return msgspec.json.decode(Path(folder, _OPTIONS).read_bytes(), type=GuardOptions)
    except FileNotFoundError:
        return GuardOptions()


def inject(folder: Path, options: GuardOptions, environment: Mapping[str, str]) -> dict[str, str]:
    """Put what starts the guard into a run's folder (which exists); the environment in which it starts.

    Raises OSError where the folder can't be written to.
    """
    folder = folder.resolve()
    start = folder / "start"
    start.mkdir(exist_ok=True)
    packages = "".join(f"{name}={_place(name)}\n" for name in _PACKAGES)
    _put(folder / _OPTIONS, msgspec.json.encode(options))
    _put(start / "packages", packages.encode())
    _put(start / "sitecustomize.py", (Path(__file__).parent / "start" / "sitecustomize.py").read_bytes())
    before = environment.get("PYTHONPATH")
    path = f"{start}{os.pathsep}{before}" if before else str(start)
    kept = {name: value for name, value in environment.items() if name != WORKER}
    return {**kept, "PYTHONPATH": path, FOLDER: str(folder)}


def _put(path: Path, data: bytes) -> None:
    """Several nodes may put the same at once, while ranks of the first read it."""
    if not path.exists() or path.read_bytes() != data:
        write_atomically(path, data)


def _place(name: str) -> str:
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).resolve().parent.parent)
