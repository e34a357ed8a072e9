"""``--ray``: runs the ranks as tasks of a Ray cluster.

A task starts the worker on its node, as the local pool would here, and returns its record and its log. An actor on
this node, the board, collects each rank's progress and tells it when to end. Ranks of a lost node are run again on
another one; ``ray_shipment.py`` describes what the nodes need.

Uses only Ray's public interface. Tested with Ray 2.60.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from gonogo.evidence.rehearsal.record import Outcome, RankRecord
from gonogo.finding import Text, UserError, translated
from gonogo.rehearse.progress import RankStatus, ended_status
from gonogo.rehearse.workers.pool import NodeLost, OnRanks
from gonogo.rehearse.workers.ray_rank import run_rank
from gonogo.rehearse.workers.ray_shipment import RankResult, pack
from gonogo.rehearse.workers.workers import Assignment, record_without_worker
from gonogo.virtual.protocol.plan import Progress

MAX_NODE_RETRIES = 2
"""How often the ranks of a lost node are run again."""
_POLL_SECONDS = 0.3
# It takes Ray fifteen seconds to notice that a node doesn't respond; until then it would send tasks there.
_NODE_LOSS_TIMEOUT_SECONDS = 45.0
# A worker that is told to end has five seconds to write its record, and Ray needs some to transfer it.
_EXIT_SECONDS = 20.0
_MAX_UPDATES_PER_SECOND = 400


class RayPool:
    """Runs ranks on the cluster that this process is connected to."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        exceptions = ray.exceptions
        self._lost = (exceptions.NodeDiedError, exceptions.WorkerCrashedError, exceptions.ObjectLostError)

    @property
    def host(self) -> str:
        """The address of this node for the other nodes."""
        return str(self._ray.util.get_node_ip_address())

    def run(self, assignments: Sequence[Assignment], deadline: float, on_progress: OnRanks) -> list[RankRecord]:
        """Like ``run_workers``; a rank whose node is lost is run again, or its record says what happened."""
        running = _PoolRun(self._ray, self._lost, assignments, on_progress)
        try:
            running.run_until(deadline)
        except KeyboardInterrupt:
            running.end("interrupted")
        finally:
            running.close()
        return running.records()


class _PoolRun:
    """One :meth:`RayPool.run`."""

    def __init__(self, ray: Any, lost_errors: tuple[Any, ...], assignments: Sequence[Assignment], on_progress: OnRanks):
        self._ray = ray
        self._lost_errors = lost_errors
        self._assignments = assignments
        self._on_progress = on_progress
        self._together = any(assignment.plan.exchange is not None for assignment in assignments)
        self._cpu_fraction_per_rank = _cpu_fraction_per_rank(ray, len(assignments)) if self._together else 1.0
        self._between = max(0.5, len(assignments) / _MAX_UPDATES_PER_SECOND)
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        self._board = ray.remote(_ProgressActor).options(num_cpus=0, scheduling_strategy=here).remote()
        self._records: dict[int, RankRecord] = {}
        self._progress: dict[int, Progress | None] = {}
        self._times: dict[int, int] = {}
        self._node_lost = False
        self._running: dict[Any, Assignment] = {self._start_rank(assignment): assignment for assignment in assignments}

    def _start_rank(self, assignment: Assignment) -> Any:
        task = self._ray.remote(_run_rank).options(
            num_cpus=self._cpu_fraction_per_rank, max_retries=0, scheduling_strategy="SPREAD"
        )
        return task.remote(msgspec.msgpack.encode(pack(assignment)), assignment.plan.rank, self._board, self._between)

    def run_until(self, deadline: float) -> None:
        """Run until all ranks have ended or the deadline has passed. Raises NodeLost for connected ranks."""
        while self._running:
            self._poll_ranks()
            if self._together and self._node_lost:
                self.end("interrupted")
                raise NodeLost(self.records())
            if time.monotonic() > deadline:
                self.end("timed-out")
                return

    def end(self, outcome: Outcome) -> None:
        """Let running ranks write their records; a second Ctrl-C aborts at once."""
        until = time.monotonic() + _EXIT_SECONDS
        with contextlib.suppress(KeyboardInterrupt, self._ray.exceptions.RayError):
            self._ray.get(self._board.end_ranks.remote(outcome), timeout=_EXIT_SECONDS)
            while self._running and time.monotonic() < until:
                heard = set(self._progress)
                if all(assignment.plan.rank not in heard for assignment in self._running.values()):
                    break  # the remaining ones never started
                self._poll_ranks(may_retry=False)
        for reference, assignment in self._running.items():
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(reference, force=True)
            self._records[assignment.plan.rank] = self._record_without_result(
                assignment, outcome, "it did not answer in time"
            )
        self._running.clear()

    def close(self) -> None:
        """Remove its tasks and its actor from the cluster."""
        for reference in self._running:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(reference, force=True)
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(self._board)

    def records(self) -> list[RankRecord]:
        """The records in the order of the assignments."""
        return [self._records[assignment.plan.rank] for assignment in self._assignments]

    def _poll_ranks(self, may_retry: bool = True) -> None:
        ready, _ = self._ray.wait(list(self._running), num_returns=len(self._running), timeout=_POLL_SECONDS)
        for reference in ready:
            assignment = self._running.pop(reference)
            try:
                returned = msgspec.msgpack.decode(self._ray.get(reference), type=RankResult)
            except self._lost_errors as error:
                self._handle_lost_node(assignment, error, may_retry)
            except self._ray.exceptions.RayTaskError as error:
                _raise_if_gonogo_missing(error)
                raise
            else:
                self._records[assignment.plan.rank] = _receive_record(assignment, returned)
        heard: dict[int, bytes] = self._ray.get(self._board.lines_by_rank.remote())
        for rank, line in heard.items():
            self._progress[rank] = msgspec.json.decode(line, type=Progress) if line else None
        self._on_progress(self._rank_statuses())

    def _handle_lost_node(self, assignment: Assignment, error: BaseException, may_retry: bool) -> None:
        rank = assignment.plan.rank
        self._node_lost = True
        how = f"its Ray node was lost: {str(error).strip().partition(chr(10))[0]}"
        times = self._times[rank] = self._times.get(rank, 0) + 1
        if may_retry and isinstance(error, self._ray.exceptions.NodeDiedError):
            self._wait_for_node_removal(rank)
        if may_retry and not self._together and times <= MAX_NODE_RETRIES:
            self._running[self._start_rank(assignment)] = assignment
            return
        if times > 1:
            how += f" (it was tried {times} times)"
        self._records[rank] = self._record_without_result(assignment, "killed", how)

    def _wait_for_node_removal(self, rank: int) -> None:
        """Wait until Ray knows that the rank's node is gone."""
        until = time.monotonic() + _NODE_LOSS_TIMEOUT_SECONDS
        place = self._ray.get(self._board.node_of.remote(rank))
        while time.monotonic() < until and any(node["Alive"] and node["NodeID"] == place for node in self._ray.nodes()):
            time.sleep(_POLL_SECONDS)

    def _record_without_result(self, assignment: Assignment, outcome: Outcome, exit_description: str) -> RankRecord:
        """The record of a rank that returned none."""
        plan = assignment.plan
        record = record_without_worker(plan, outcome)
        if plan.rank in self._progress:
            doing = self._progress[plan.rank]
            record.events = [f"the worker wrote no record: {exit_description}"]
            if doing is not None:
                record.steps, record.operators = doing.step, doing.operators
                record.last_activity = f"{doing.phase}, step {doing.step}, {doing.activity}"
        elif outcome == "killed":
            record.events = [f"the worker wrote no record: {exit_description}"]
        return record

    def _rank_statuses(self) -> tuple[RankStatus, ...]:
        statuses = []
        for assignment in self._assignments:
            rank = assignment.plan.rank
            if rank in self._records:
                statuses.append(ended_status(self._records[rank]))
            elif rank in self._progress:
                statuses.append(RankStatus(rank, "running", self._progress[rank]))
            else:
                statuses.append(RankStatus(rank, "waiting"))
        return tuple(statuses)


class _ProgressActor:
    """An actor that collects the progress of ranks and tells them how to end."""

    def __init__(self) -> None:
        self._lines: dict[int, bytes] = {}
        self._places: dict[int, str] = {}
        self._ending: Outcome | None = None

    def report_line(self, rank: int, line: bytes) -> Outcome | None:
        self._lines[rank] = line or self._lines.get(rank, b"")
        return self._ending

    def set_node(self, rank: int, node: str) -> None:
        self._places[rank] = node
        self._lines[rank] = b""

    def node_of(self, rank: int) -> str | None:
        return self._places.get(rank)

    def lines_by_rank(self) -> dict[int, bytes]:
        return self._lines

    def end_ranks(self, outcome: Outcome) -> None:
        self._ending = outcome


def _run_rank(shipment_bytes: bytes, rank: int, progress_board: Any, report_interval_seconds: float) -> bytes:
    """The Ray task that runs one rank; it ends with its rehearsal, as it can no longer report to the actor."""
    ray: Any = importlib.import_module("ray")

    def tell_board(line: bytes) -> Outcome | None:
        ending: Outcome | None = ray.get(progress_board.report_line.remote(rank, line), timeout=60)
        return ending

    ray.get(progress_board.set_node.remote(rank, ray.get_runtime_context().get_node_id()), timeout=60)
    return run_rank(shipment_bytes, str(ray.util.get_node_ip_address()), tell_board, report_interval_seconds)


def _receive_record(assignment: Assignment, rank_result: RankResult) -> RankRecord:
    """The record, which is also written to the rank's folder for ``--keep``."""
    if rank_result.refused is not None:
        raise UserError(Text(*rank_result.refused))
    plan = assignment.plan
    assignment.plan_file.write_bytes(msgspec.json.encode(plan))
    assignment.log.write_bytes(rank_result.log)
    Path(plan.progress).write_bytes(rank_result.progress)
    Path(plan.record).write_bytes(rank_result.record)
    if rank_result.trace:
        Path(plan.trace).write_bytes(rank_result.trace)
    return msgspec.json.decode(rank_result.record, type=RankRecord)


def _cpu_fraction_per_rank(ray: Any, ranks: int) -> float:
    """The CPU fraction with which all ranks fit on the cluster at once, as connected ranks wait for each other."""
    total = ray.cluster_resources().get("CPU", 0.0)
    free = ray.available_resources().get("CPU", 0.0) / total if total else 0.0
    cpus = [node["Resources"].get("CPU", 0.0) * free for node in ray.nodes() if node["Alive"]]
    shares = sorted(
        {1.0} | {cpu / count for cpu in cpus for count in range(1, ranks + 1) if cpu <= count}, reverse=True
    )
    for share in shares:
        rounded = int(share * 1e4) / 1e4  # Ray's smallest fraction
        if rounded and sum(int(cpu / rounded + 1e-6) for cpu in cpus) >= ranks:
            return rounded
    return 0.0


def _raise_if_gonogo_missing(error: Any) -> None:
    if "No module named 'gonogo" in str(error):
        raise UserError(
            translated("gonogo is not installed on a Ray node: every node needs the same Python environment")
        ) from None
