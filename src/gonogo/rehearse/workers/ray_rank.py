"""One rank on a Ray node: runs there as a task, and starts the worker as the local pool would."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from gonogo.evidence.rehearsal.record import Outcome
from gonogo.rehearse.workers.ray_shipment import Returned, Shipment, refusal, unpack
from gonogo.rehearse.workers.workers import Worker, end_all

_POLL = 0.05

Tell = Callable[[bytes], Outcome | None]
"""Tells the rehearsal of this rank's progress (JSON); the answer is how it is to end, if it is."""


def run_rank(shipped: bytes, node: str, tell: Tell, seconds_between: float) -> bytes:
    """Run the rank to its end, or until it is told to end; a :class:`Returned`, encoded."""
    shipment = msgspec.msgpack.decode(shipped, type=Shipment)
    refused = refusal(shipment, node)
    if refused is not None:
        return msgspec.msgpack.encode(Returned(refused=(refused.en, refused.zh)))
    folder = Path(tempfile.mkdtemp(prefix="gonogo-"))
    try:
        return msgspec.msgpack.encode(_run(shipment, folder, tell, seconds_between))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(shipment: Shipment, folder: Path, tell: Tell, seconds_between: float) -> Returned:
    assignment = unpack(shipment, folder)
    worker = Worker(assignment)
    ending: Outcome | None = None
    reported = 0.0
    try:
        while worker.process.poll() is None and ending is None:
            time.sleep(_POLL)
            if time.monotonic() - reported >= seconds_between:
                worker.look()
                ending = tell(b"" if worker.progress is None else msgspec.json.encode(worker.progress))
                reported = time.monotonic()
    except KeyboardInterrupt:
        ending = "interrupted"
    finally:
        end_all([worker], signal.SIGTERM if ending == "timed-out" else signal.SIGINT)
    record = worker.record(ending or "killed")
    return Returned(
        record=msgspec.json.encode(record),
        log=_bytes_of(assignment.log),
        progress=_bytes_of(Path(assignment.plan.progress)),
        trace=_bytes_of(Path(assignment.plan.trace)) if assignment.plan.trace else b"",
    )


def _bytes_of(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""
