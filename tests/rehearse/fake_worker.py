"""Stands for ``python -m gonogo.virtual PLAN`` in tests of the parent: runs the program as it is, without devices."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path

import msgspec

from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.virtual.protocol.plan import Progress, WorkerPlan

plan = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=WorkerPlan)
record = RankRecord(rank=plan.rank, local_rank=plan.local_rank, device=f"cuda:{plan.local_rank}", outcome="completed")


def write() -> None:
    Path(plan.record).write_bytes(msgspec.json.encode(record))


def end(number: int, _frame: object) -> None:
    record.outcome = "timed-out" if number == signal.SIGTERM else "interrupted"
    record.last_activity = "told to end"
    write()
    os._exit(0)


signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, end)
line = Progress(plan.rank, "forward", 1, 123, 1 << 30, 2 << 30, "model.layers.3")
Path(plan.progress).write_bytes(msgspec.json.encode(line) + b'\n{"rank": 0, "pha')
sys.argv = [plan.program, *plan.arguments]
if plan.program_kind == "module":
    runpy.run_module(plan.program, run_name="__main__")
else:
    runpy.run_path(plan.program, run_name="__main__")
record.events.append(f"plan: {msgspec.json.encode(plan).decode()}")
write()
