"""One rank on a Ray node: runs there as a task, and starts the worker as the local pool would."""

from __future__ import annotations

import contextlib
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from gonogo.confinement.confinement import Confinement
from gonogo.confinement.trees import remove_tree
from gonogo.confinement.untrusted_files import read_untrusted
from gonogo.evidence.rehearsal.record import Outcome
from gonogo.rehearse.workers.ray_shipment import RankResult, Shipment, unpack, unsuitable_node_reason
from gonogo.rehearse.workers.workers import Assignment, RankProcess, end_all
from gonogo.virtual.collectives.peers import connect_over_network

_POLL_SECONDS = 0.05

ReportProgress = Callable[[bytes], Outcome | None]
"""Reports this rank's progress (JSON) to the rehearsal; returns how the rank has to end, or None."""


def run_rank(
    shipment_bytes: bytes, node: str, report_progress: ReportProgress, report_interval_seconds: float
) -> bytes:
    """Run the rank until it ends or is told to end; returns an encoded :class:`RankResult`."""
    shipment = msgspec.msgpack.decode(shipment_bytes, type=Shipment)
    refused = unsuitable_node_reason(shipment, node)
    if refused is not None:
        return msgspec.msgpack.encode(RankResult(refused=(refused.en, refused.zh)))
    folder = Path(tempfile.mkdtemp(prefix="gonogo-"))
    try:
        return msgspec.msgpack.encode(_run_shipment(shipment, folder, report_progress, report_interval_seconds))
    finally:
        remove_tree(folder)


def _run_shipment(
    shipment: Shipment, folder: Path, report_progress: ReportProgress, report_interval_seconds: float
) -> RankResult:
    confinement = Confinement(folder, unconfined=shipment.plan.confinement == "none")
    assignment = unpack(shipment, confinement)
    with confinement.world(below=assignment.below) as world, _relay_connection(assignment) as line:
        assignment = replace(assignment, world=world)
        where = assignment.plan.exchange
        if where is not None:
            assignment = assignment.connected_to(msgspec.structs.replace(where, address=""), line)
        return _run_assignment(assignment, report_progress, report_interval_seconds)


@contextlib.contextmanager
def _relay_connection(assignment: Assignment) -> Iterator[int | None]:
    """The worker's end of a relay to the exchange on another machine: only this process has network access."""
    where = assignment.plan.exchange
    if where is None:
        yield None
        return
    there = connect_over_network(where)
    ours, theirs = socket.socketpair()
    here = Connection(ours.detach())
    with there, here, theirs:
        for source, target in ((there, here), (here, there)):
            threading.Thread(target=_forward_messages, args=(source, target), daemon=True, name="gonogo-line").start()
        yield theirs.fileno()


def _forward_messages(source: Connection, target: Connection) -> None:
    with contextlib.suppress(OSError, EOFError):
        while True:
            target.send_bytes(source.recv_bytes())


def _run_assignment(
    assignment: Assignment, report_progress: ReportProgress, report_interval_seconds: float
) -> RankResult:
    worker = RankProcess(assignment)
    ending: Outcome | None = None
    reported = 0.0
    try:
        while worker.process.poll() is None and ending is None:
            time.sleep(_POLL_SECONDS)
            if time.monotonic() - reported >= report_interval_seconds:
                worker.read_progress()
                ending = report_progress(b"" if worker.progress is None else msgspec.json.encode(worker.progress))
                reported = time.monotonic()
    except KeyboardInterrupt:
        ending = "interrupted"
    finally:
        end_all([worker], signal.SIGTERM if ending == "timed-out" else signal.SIGINT)
    record = worker.record(ending or "killed")
    return RankResult(
        record=msgspec.json.encode(record),
        log=assignment.log.read_bytes(),
        progress=read_untrusted(assignment.plan.progress) or b"",
        trace=(read_untrusted(assignment.plan.trace) or b"") if assignment.plan.trace else b"",
    )
