"""``gonogo rehearse``: the command understood, its ranks run on virtual accelerators, their records put together."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

import msgspec

from gonogo.evidence.environment.hardware import DEFAULT_ACCELERATOR, Machine, machine_from
from gonogo.evidence.rehearsal.divergence import Divergence
from gonogo.evidence.rehearsal.record import AcceleratorFacts, RankRecord, RehearsalRecord
from gonogo.finding import Text
from gonogo.finding.errors import UserError
from gonogo.rehearse.kept.earlier import Earlier, earlier
from gonogo.rehearse.launch.environment import in_environment, worker_environment
from gonogo.rehearse.launch.launch import UNSTATED, ResolvedLaunch, Surroundings
from gonogo.rehearse.launch.resolve import Resolved, Situation, resolve
from gonogo.rehearse.launch.started_by_program import as_ranks, may_start_processes, started_by
from gonogo.rehearse.launch.torch_installed import check_torch
from gonogo.rehearse.made_data import set_data_apart
from gonogo.rehearse.not_as_there import set_apart
from gonogo.rehearse.packages import PackageOverlay, packages_for
from gonogo.rehearse.packages.differing import spare_differing
from gonogo.rehearse.prepared.given import in_prepared_environment, note_on, prepared_beside, show, with_own_package
from gonogo.rehearse.progress import OnProgress, RankStatus, Shown
from gonogo.rehearse.ranks.call_log import CallLog
from gonogo.rehearse.ranks.diverged_records import settle, with_names
from gonogo.rehearse.ranks.exchange import Exchange
from gonogo.rehearse.ranks.sample import is_sample, with_each_shape
from gonogo.rehearse.ranks.world import machine_for, ranks_to_run
from gonogo.rehearse.request import RehearsalRequest
from gonogo.rehearse.viewers.write import write_viewer_files
from gonogo.rehearse.workers.keep import check_keep, keep_records
from gonogo.rehearse.workers.places import pool_for
from gonogo.rehearse.workers.pool import NodeLost, Pool
from gonogo.rehearse.workers.scratch import say_if_full, scratch_folder
from gonogo.rehearse.workers.workers import Assignment
from gonogo.virtual.ranks.plan import SPAWN, WorkerPlan

# What a launch script does before it launches takes seconds, a framework that imports all it has on a busy machine a
# minute; one that takes longer waits for something.
_LONGEST_SCRIPT = 150.0
# How often ranks that are in touch with each other are run again after a node was lost.
_TIMES_AGAIN = 2


def rehearse(request: RehearsalRequest, on_progress: OnProgress | None = None) -> RehearsalRecord:
    """Rehearse a command.

    Raises UserError for what the user has to change (the command, the options, the disk). Ctrl-C or SIGTERM while
    ranks run ends them, and the record says ``interrupted`` for them; before that, KeyboardInterrupt comes through.
    """
    started = time.monotonic()
    show = Shown(on_progress, started)
    _check_words(request.command)
    request = in_prepared_environment(request, Path.cwd())
    check_keep(request.keep)
    request.viewers.check()
    check_torch()
    with _sigterm_interrupts(), scratch_folder() as scratch:
        stated = machine_from(request.gpus, request.nodes, request.host_memory, UNSTATED)
        overlay = packages_for(request.environment, request.with_packages, request.as_of, show, yes=request.yes)
        kept = earlier(request, stated, overlay)
        raw = request.keep is not None or bool(request.viewers)
        if kept is not None and not raw and (record := kept.record()) is not None:
            _tell_apart(record, request)
        else:
            record = _rehearsed(request, stated, overlay, kept, scratch, started, show)
    record.shm_bytes = request.shm_bytes  # which an earlier one need not have had
    for rank_record in record.ranks:
        if rank_record.user_error is not None:
            raise UserError(Text(*rank_record.user_error))
    return record


def _tell_apart(record: RehearsalRecord, request: RehearsalRequest) -> None:
    """What the packages and the data here have brought about is a limit of the rehearsal."""
    set_apart(record, request.environment)
    set_data_apart(record, Path.cwd())


def _check_words(command: Sequence[str]) -> None:
    """Raise UserError for a word that can't be handed on: no text in UTF-8, or with a zero byte."""
    for word in command:
        told = word.encode("utf-8", "backslashreplace").decode()
        if told != word or "\0" in word:
            raise UserError(
                Text(
                    "{word!r} in the command is no UTF-8 text: rename what it names, or leave it out",
                    "命令中的 {word!r} 不是 UTF-8 文本：请改名，或去掉它",
                ).format(word=told)
            )


def _rehearsed(
    request: RehearsalRequest,
    stated: Machine,
    overlay: PackageOverlay,
    kept: Earlier | None,
    scratch: Path,
    started: float,
    show: Shown,
) -> RehearsalRecord:
    deadline = started + request.timeout
    show(Text("reading the launch command", "解析启动命令"))
    situation = Situation(
        surroundings=Surroundings.of(stated, request.nodes),
        environment=with_own_package(in_environment(os.environ, overlay.python), Path.cwd()),
        cwd=os.getcwd(),
        scratch=scratch,
        timeout=max(1.0, min(_LONGEST_SCRIPT, deadline - time.monotonic())),
        packages=overlay.folders,
        python=str(overlay.python or sys.executable),
    )
    notes: list[Text] = []
    log = CallLog() if request.viewers.flight_recorder is not None else None
    with kept.watching(scratch) if kept is not None else contextlib.nullcontext(), say_if_full(scratch):
        resolved = resolve(request.command, situation)
        machine = machine_for(resolved.launch, request, stated)
        ranks = ranks_to_run(request.ranks, resolved.launch, machine, may_be_more=may_start_processes(resolved.launch))
        with pool_for(request.ray) as pool:
            run = functools.partial(_run, pool, request, notes=notes, deadline=deadline, show=show, log=log)
            assigned = functools.partial(_assignment, resolved, request, machine, overlay, scratch)
            assignments, records, divergence = run(ranks, resolved.launch, assigned)
            if (count := started_by(records, resolved.launch)) is not None:
                resolved = dataclasses.replace(resolved, launch=as_ranks(resolved.launch, count))
                machine = machine_for(resolved.launch, request, stated)
                ranks = ranks_to_run(request.ranks, resolved.launch, machine)
                assigned = functools.partial(_assignment, resolved, request, machine, overlay, scratch / "processes")
                assignments, records, divergence = run(ranks, resolved.launch, assigned)
            elif records[0].outcome == "completed":
                ranks_to_run(request.ranks, resolved.launch, machine)  # of one that it does not have after all
        _say_if_the_disk_was_full(records, scratch)
    spare_differing(records, overlay.differing)
    record = _record(request, resolved, machine, overlay, records, time.monotonic() - started)
    record.divergence = divergence
    record.notes += [(note.en, note.zh) for note in notes]
    if kept is not None:
        kept.keep(record)
    _tell_apart(record, request)
    if request.keep is not None:
        with say_if_full(scratch):
            keep_records(request.keep, record, assignments)
    if request.viewers:
        show(Text("writing the files for viewers", "写出供查看器打开的文件"))
        record.notes += write_viewer_files(request.viewers, record, assignments, log)
    return record


def _run(
    pool: Pool,
    request: RehearsalRequest,
    ranks: list[int],
    launch: ResolvedLaunch,
    assigned: Callable[..., Assignment],
    *,
    notes: list[Text],
    deadline: float,
    show: Shown,
    log: CallLog | None,
) -> tuple[list[Assignment], list[RankRecord], Divergence | None]:
    """Run ranks of a launch; of a sample, those too whose batches differ. What is to be said of them is added."""
    if request.only_looks:
        looking = [_looking(assigned(ranks[0]))]
        return looking, pool.run(looking, deadline, show.ranks), None
    if is_sample(request.ranks) and len(ranks) < launch.world_size:
        show(Text("looking at the ranks' data", "查看各 rank 的数据"))
        (looked,) = pool.run([_looking(assigned(0, "looking"))], deadline, show.ranks)
        ranks, note = with_each_shape(ranks, looked)
        notes.append(note)
    assignments = [assigned(rank) for rank in ranks]
    request.viewers.check_ranks(len(assignments))
    return assignments, *_run_assigned(pool, assignments, deadline, show, log)


def _run_assigned(
    pool: Pool, assignments: Sequence[Assignment], deadline: float, show: Shown, log: CallLog | None
) -> tuple[list[RankRecord], Divergence | None]:
    """Run the ranks, several of them in touch with each other; those of a lost node again, all together."""
    if len(assignments) == 1:
        return pool.run(assignments, deadline, show.ranks), None
    for _ in range(_TIMES_AGAIN):
        with contextlib.suppress(NodeLost):
            return _run_in_touch(pool, assignments, deadline, show, log)
    try:
        return _run_in_touch(pool, assignments, deadline, show, log)
    except NodeLost as lost:
        return lost.records, None


def _run_in_touch(
    pool: Pool, assignments: Sequence[Assignment], deadline: float, show: Shown, log: CallLog | None
) -> tuple[list[RankRecord], Divergence | None]:
    with Exchange([assignment.plan.rank for assignment in assignments], pool.host, log) as exchange:

        def watch(statuses: tuple[RankStatus, ...]) -> None:
            exchange.watch(statuses)
            show.ranks(statuses)

        together = [one.meeting(exchange.address) for one in assignments]
        if pool.host is None:
            together = [_writing_to(together[0].plan.scratch, one) for one in together]
        records = pool.run(together, deadline, watch)
    divergence = exchange.divergence
    if divergence is not None:
        divergence = with_names(divergence, records)
        settle(records, divergence)
    return records, divergence


def _looking(assignment: Assignment) -> Assignment:
    """A worker that only looks at what batches the ranks will read."""
    return dataclasses.replace(assignment, plan=msgspec.structs.replace(assignment.plan, only_looks=True))


def _writing_to(scratch: str, assignment: Assignment) -> Assignment:
    """The ranks of a rehearsal see each other's files, as they do on one node, or on a shared file system."""
    return dataclasses.replace(assignment, plan=msgspec.structs.replace(assignment.plan, scratch=scratch))


@contextlib.contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM end a rehearsal as Ctrl-C does, so that no worker outlives it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _assignment(
    resolved: Resolved,
    request: RehearsalRequest,
    machine: Machine,
    overlay: PackageOverlay,
    parent: Path,
    rank: int,
    name: str | None = None,
) -> Assignment:
    """A worker's plan and environment; makes its folder, which is named after its rank."""
    launch = resolved.launch
    process = launch.processes[rank]
    folder = parent / (name or f"rank-{rank}")
    own = folder / "scratch"
    own.mkdir(parents=True)
    if resolved.files is not None:
        _hand_on_files(resolved.files, own / "files")
    prepared = prepared_beside(Path.cwd())
    if prepared is not None:
        show(prepared, own / "files")
    plan = WorkerPlan(
        program_kind=launch.program_kind,
        program=launch.program,
        arguments=process.arguments,
        rank=process.rank,
        local_rank=process.local_rank,
        world_size=process.world_size,
        local_world_size=process.local_world_size,
        accelerator=machine.accelerator,
        host_bytes=machine.host_bytes,
        steps=request.steps,
        scratch=str(own),
        record=str(folder / "record.json"),
        progress=str(folder / "progress.jsonl"),
        devices=machine.count,
        started_by_program=launch.launcher == SPAWN,
        counts_work=request.count_work and rank == 0,
        prepared=str(prepared or ""),
        trace=str(folder / "trace.msgpack") if request.viewers.needs_events else "",
    )
    return Assignment(
        plan=plan,
        python=launch.interpreter or sys.executable,
        environment=worker_environment(launch, process, packages=overlay.folders, scratch=folder / "caches"),
        cwd=launch.cwd,
        folder=folder,
    )


def _hand_on_files(files: Path, target: Path) -> None:
    """What the launch script wrote, where the worker finds it: under each file's path without links."""
    for folder, _, names in os.walk(files):
        for name in names:
            source = Path(folder, name)
            path = os.path.join("/", os.path.relpath(source, files))
            place = Path(f"{target}{os.path.realpath(os.path.dirname(path))}", name)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)


def _say_if_the_disk_was_full(records: list[RankRecord], scratch: Path) -> None:
    """A worker that could not write its record for want of room says so only in its log."""
    for record in records:
        if record.outcome == "killed" and any("No space left on device" in event for event in record.events):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(scratch))


def _default_accelerator(request: RehearsalRequest, machine: Machine) -> list[Text]:
    """Says which accelerator was taken, where ``--gpus`` names none."""
    only_a_count = request.gpus is None or request.gpus.strip().isdigit()  # 4090 is a name all the same
    if not only_a_count or machine.accelerator.name != DEFAULT_ACCELERATOR:
        return []
    return [
        Text("--gpus names no accelerator: {name} was taken", "--gpus 没有指明加速卡型号：按 {name} 排练").format(
            name=machine.accelerator.name
        )
    ]


def _record(
    request: RehearsalRequest,
    resolved: Resolved,
    machine: Machine,
    overlay: PackageOverlay,
    records: list[RankRecord],
    seconds: float,
) -> RehearsalRecord:
    launch = resolved.launch
    skipped = [*resolved.skipped, *overlay.skipped]
    accelerator = machine.accelerator
    formed = max((record.formed_world for record in records), default=1)
    world_size = max(launch.world_size, formed)
    return RehearsalRecord(
        command=list(request.command),
        cwd=launch.cwd,
        world_size=world_size,
        launched=launch.world_size if formed > launch.world_size else None,
        nodes=launch.nodes,
        ranks_per_node=max(launch.processes_per_node, world_size // launch.nodes),
        accelerator=AcceleratorFacts(
            name=accelerator.name,
            device_type=accelerator.device_type,
            total_bytes=accelerator.total_bytes,
            allowance_bytes=accelerator.allowance_bytes,
        ),
        steps=request.steps,
        host_memory_bytes=machine.host_bytes,
        shm_bytes=request.shm_bytes,
        seconds=seconds,
        ranks=records,
        launcher=launch.launcher,
        skipped=[(what.en, why.en) for what, why in skipped],
        skipped_zh=[(what.zh, why.zh) for what, why in skipped],
        notes=[
            (note.en, note.zh)
            for note in (*_default_accelerator(request, machine), *launch.notes, *overlay.notes, *note_on(Path.cwd()))
        ],
        laid_over={name: str(version) for name, version in overlay.versions.items()},
        whole_environment=overlay.python is not None,
    )
