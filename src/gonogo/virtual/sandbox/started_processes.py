"""Processes that a program starts in addition to its own: each Python among them finds what the program finds.

A forked process inherits it. A fresh one (``subprocess``, multiprocessing's ``spawn``, its servers) starts with
``start/sitecustomize.py``, which is found through ``PYTHONPATH``; one that multiprocessing starts without this
variable attaches itself by unpickling its preparation data, before any code of the program runs.

What these processes tell is in a folder of the rank: accelerators they used, assumptions, names they missed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import msgspec

import gonogo
from gonogo.evidence.rehearsal.record import Assumption, MissingInput
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.protocol.encoding import json_bytes
from gonogo.virtual.protocol.plan import WorkerPlan

_MULTIPROCESSING_PACKAGES = ("multiprocessing", "multiprocess")
"""The standard library's package, and its dill-based copy, which datasets uses."""
_ROOT = str(Path(gonogo.__file__).resolve().parent.parent)
_SITECUSTOMIZE = Path(__file__).parent.parent / "start" / "sitecustomize.py"
_PLAN, _USES, _ASSUMPTIONS, _MISSED = "plan.json", "accelerators-used", "assumptions", "missed"
_ATTACH_CODE = (  # remove gonogo's folder from sys.path at once: the parent's path follows
    "import sys; sys.path.append({root!r}); from gonogo.virtual.ranks.started_process import attach; sys.path.pop(); "
    "attach({folder!r})"
)
_Told = TypeVar("_Told")


class StartedProcesses:
    """The folder that a rank shares with the processes that its program starts."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    @classmethod
    def of_rank(cls, plan: WorkerPlan) -> StartedProcesses:
        """The folder of a plan's rank."""
        return cls(os.path.join(plan.scratch, f"started-by-{plan.rank}"))

    def write(self, plan: WorkerPlan) -> None:
        """Create the folder with all that these processes need."""
        os.makedirs(self.folder, exist_ok=True)
        shutil.copyfile(_SITECUSTOMIZE, os.path.join(self.folder, _SITECUSTOMIZE.name))
        Path(self.folder, "gonogo").write_text(_ROOT, encoding="utf-8")
        alone = msgspec.structs.replace(plan, exchange=None, trace="", life="")
        Path(self.folder, _PLAN).write_bytes(json_bytes(alone))

    def plan(self) -> WorkerPlan:
        """The plan of the program's own rank."""
        return msgspec.json.decode(Path(self.folder, _PLAN).read_bytes(), type=WorkerPlan)

    def record_accelerator_use(self, place: str) -> None:
        """Note ``file:line`` of a place where such a process used an accelerator or a process group.

        Only the program's own process has virtual ones: this one would fail, or compute on the CPU.
        """
        self._append_line(_USES, place)

    def record_assumption(self, assumption: Assumption) -> None:
        """Note an assumption that such a process made."""
        self._append_line(_ASSUMPTIONS, assumption)

    def record_missing_input(self, missing: MissingInput) -> None:
        """Note a model or data set that such a process did not find."""
        self._append_line(_MISSED, missing)

    def accelerator_uses(self) -> list[str]:
        """Every place that used an accelerator."""
        return sorted(set(self._read_lines(_USES, str)))

    def assumptions(self) -> list[Assumption]:
        """The assumptions of these processes."""
        return list(dict.fromkeys(self._read_lines(_ASSUMPTIONS, Assumption)))

    def missing_inputs(self) -> list[MissingInput]:
        """The models and data sets that these processes did not find."""
        return list(dict.fromkeys(self._read_lines(_MISSED, MissingInput)))

    def _append_line(self, name: str, what: Any) -> None:
        with open(os.path.join(self.folder, name), "ab") as stream:
            stream.write(json_bytes(what) + b"\n")

    def _read_lines(self, name: str, kind: type[_Told]) -> list[_Told]:
        try:
            lines = Path(self.folder, name).read_bytes().splitlines()
        except FileNotFoundError:
            return []
        return [msgspec.json.decode(line, type=kind) for line in lines]


class _Attachment:
    """Attaches a process when unpickled, in a Python that may not have gonogo installed."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return exec, (_ATTACH_CODE.format(root=_ROOT, folder=self.folder),)


def install(folder: str) -> Callable[[], None]:
    """Have processes that this one starts attach themselves; returns the undo."""
    patches = Patches()
    others = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place not in ("", folder)]
    patches.set_item(os.environ, "PYTHONPATH", os.pathsep.join([folder, *others]))

    def patch_preparation_data(module: ModuleType) -> None:
        prepare: Any = vars(module)["get_preparation_data"]

        def get_preparation_data(name: str) -> dict[str, Any]:
            return {"gonogo": _Attachment(folder), **prepare(name)}

        patches.set(module, "get_preparation_data", get_preparation_data)

    for package in _MULTIPROCESSING_PACKAGES:
        patches.on_undo(after_import(f"{package}.spawn", patch_preparation_data))
    return patches.undo
