"""One program in two worlds: for real on the CPU with its memory tracked, and on virtual accelerators."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from confined import runs_of

from gonogo.evidence.environment.hardware import find_accelerator
from gonogo.evidence.rehearsal.record import DeviceMemory, RankRecord
from gonogo.virtual.protocol.plan import WorkerPlan
from gonogo.virtual.ranks.session import Session

MASTER = {"MASTER_ADDR": "127.0.0.1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}

TRACKED = """
import runpy, sys
from torch.distributed._tools.mem_tracker import MemTracker
from torch.optim.optimizer import register_optimizer_step_post_hook
tracker = MemTracker()
register_optimizer_step_post_hook(lambda *_: tracker.reset_mod_stats())  # it follows modules for one step only
with tracker:
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
    snapshot = tracker.get_tracker_snapshot("peak")
print("PEAK", sum(sizes["Total"] for sizes in snapshot.values()), flush=True)
import os
os._exit(0)
"""
"""Runs a program under PyTorch's own MemTracker."""

COUNTED = """
import runpy, sys, weakref
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
class Storages(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.live = self.peak = 0
        self.seen = set()
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.device.type != "meta":
                self.count(tensor.untyped_storage())
        return out
    def count(self, storage):
        key = storage._cdata
        if key in self.seen:
            return
        self.seen.add(key)
        self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self.gone, key, storage.nbytes())
    def gone(self, key, nbytes):
        self.seen.discard(key)
        self.live -= nbytes
storages = Storages()
with storages:
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
print("PEAK", storages.peak, flush=True)
import os
os._exit(0)
"""
"""Runs a program and counts every storage itself: for programs whose modules MemTracker's hooks do not survive."""


def write(folder: Path, program: str) -> Path:
    """The program as a file in ``folder``."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(program))
    return path


def rehearse(folder: Path, program: str, *arguments: str, world: int = 1, steps: int = 2) -> RankRecord:
    """Run a program's first rank as a worker does, in a world; its record."""
    path = write(folder, program)
    shared = runs_of(folder).shared
    plan = WorkerPlan(
        program_kind="script",
        program=str(path),
        arguments=arguments,
        rank=0,
        local_rank=0,
        world_size=world,
        local_world_size=world,
        accelerator=find_accelerator("H100-80G"),
        host_bytes=None,
        steps=steps,
        scratch=str(shared),
        record=str(shared / "record.json"),
        progress=str(shared / "progress.jsonl"),
    )
    (shared / "plan.json").write_bytes(msgspec.json.encode(plan))
    environment = {
        **os.environ, **MASTER, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world), "MASTER_PORT": "29542", "TMPDIR": str(shared / "tmp"),
    }  # fmt: skip
    environment.pop("DS_ACCELERATOR", None)
    done = subprocess.run(
        runs_of(folder).world.command([sys.executable, "-m", "gonogo.virtual", str(shared / "plan.json")]),
        cwd=folder,
        env=runs_of(folder).world.environment(environment),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    record = msgspec.json.decode((shared / "record.json").read_bytes(), type=RankRecord)
    assert record.outcome == "completed", done.stderr[-6000:]
    return record


def on_device(record: RankRecord) -> int:
    """The most bytes that the program's tensors took at once on its accelerator, as they were asked for.

    ``peak_allocated_bytes`` is no less: the caching allocator hands out whole blocks.
    """
    (device,) = record.devices
    return of_tensors(device)


def of_tensors(device: DeviceMemory) -> int:
    """The bytes of the peak without cuBLAS's workspaces, which the same program on a CPU hasn't."""
    return sum(nbytes for category, nbytes in device.by_category.items() if category != "workspace")


@contextmanager
def virtual_session(folder: Path, total_bytes: int | None = None, name: str = "H100-80G") -> Iterator[Session]:
    """This process believes it has eight accelerators meanwhile; gonogo's own files land in ``folder``."""
    accelerator = find_accelerator(name)
    if total_bytes is not None:
        accelerator = msgspec.structs.replace(accelerator, total_bytes=total_bytes, allowance_bytes=0)
    plan = WorkerPlan(
        program_kind="script",
        program="program.py",
        arguments=(),
        rank=0,
        local_rank=0,
        world_size=8,
        local_world_size=8,
        accelerator=accelerator,
        host_bytes=None,
        steps=2,
        scratch=str(folder),
        record=str(folder / "record.json"),
        progress=str(folder / "progress.jsonl"),
    )
    session = Session(plan)
    with session, session.mode:
        yield session
