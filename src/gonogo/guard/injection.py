"""Gets the guard into the processes of a command: only by a folder that is put first on ``PYTHONPATH``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import msgspec

from gonogo.report.atomic import write_atomically

FOLDER = "GONOGO_GUARD_FOLDER"
"""The variable with the run's folder, for other code to read; the guard itself is found by ``PYTHONPATH``."""
WORKER = "GONOGO_GUARD_WORKER"
"""Set by a guarded rank to its process ID, so that the processes that it starts are not taken for ranks."""
_INJECTED_PACKAGES = ("gonogo", "msgspec")
_OPTIONS_FILE = "options.json"


class GuardOptions(msgspec.Struct, frozen=True):
    """Options of the guard in each rank; stored in the run's folder."""

    stall_seconds: float = 60.0
    """The shortest time without progress that counts as a stall."""
    join_seconds: float = 60.0
    """How long a rank waits for the others' facts before its first step."""
    sample_seconds: float = 1.0
    """The shortest time between two memory samples (taken at the end of a step)."""
    nonfinite: bool = False
    """Whether to look for the first NaN or Inf (which synchronizes with the GPU)."""
    language: str = "en"
    """Language of the notes added to exceptions: ``en`` or ``zh``."""
    trackers: bool = True
    """Whether to send the report to W&B and other trackers that the training reports to."""
    python: str = ""
    """The Python that gonogo is installed for, if it may differ from the training's."""


def read_options(folder: str) -> GuardOptions:
    """Read the options in a run's folder; defaults if there are none."""
    try:
        return msgspec.json.decode(Path(folder, _OPTIONS_FILE).read_bytes(), type=GuardOptions)
    except FileNotFoundError:
        return GuardOptions()


def inject(folder: Path, options: GuardOptions, environment: Mapping[str, str]) -> dict[str, str]:
    """Write the files that start the guard into a run's existing folder, and return the environment for the command.

    Raises OSError if the folder can't be written to.
    """
    folder = folder.resolve()
    start = folder / "start"
    start.mkdir(exist_ok=True)
    packages = "".join(f"{name}={_install_folder(name)}\n" for name in _INJECTED_PACKAGES)
    _write_if_changed(folder / _OPTIONS_FILE, msgspec.json.encode(options))
    _write_if_changed(start / "packages", packages.encode())
    _write_if_changed(start / "sitecustomize.py", (Path(__file__).parent / "start" / "sitecustomize.py").read_bytes())
    before = environment.get("PYTHONPATH")
    path = f"{start}{os.pathsep}{before}" if before else str(start)
    kept = {name: value for name, value in environment.items() if name != WORKER}
    return {**kept, "PYTHONPATH": path, FOLDER: str(folder)}


def _write_if_changed(path: Path, data: bytes) -> None:
    """Write a file unless it is already there: several nodes may write it while ranks of the first one read it."""
    if not path.exists() or path.read_bytes() != data:
        write_atomically(path, data)


def _install_folder(name: str) -> str:
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).resolve().parent.parent)
