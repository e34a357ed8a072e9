"""``gonogo rehearse``: resolves the command, runs its ranks on virtual accelerators and combines their records."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import msgspec
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from gonogo.confinement.confinement import Confinement, raise_if_ended
from gonogo.confinement.messages import ONLY_LANDLOCK, UNCONFINED
from gonogo.confinement.world import World
from gonogo.evidence.environment.hardware import DEFAULT_ACCELERATOR, Machine, parse_machine
from gonogo.evidence.rehearsal.lives import RESULT_STAGES
from gonogo.evidence.rehearsal.record import AcceleratorFacts, RankRecord, RehearsalRecord
from gonogo.finding import Text, UserError, translated
from gonogo.finding.divergence import Divergence
from gonogo.finding.remedy import Purpose, Reason, rehearse_again
from gonogo.prepare.packages import PackageOverlay, packages_for
from gonogo.prepare.provided_files import (
    describe_substitutes,
    environment_with_project_package,
    find_prepared_folder,
    inferred_shapes,
    prepared_files,
)
from gonogo.rehearse.interruptions import rehearse_interruptions, rehearse_later_interruptions
from gonogo.rehearse.launch.build_tools import with_build_tools
from gonogo.rehearse.launch.capture import LauncherNotInEnvironment, LauncherNotInstalled, LauncherRefused
from gonogo.rehearse.launch.launch import UNSPECIFIED_GPU_COUNT, LaunchMachine, is_unspecified_count
from gonogo.rehearse.launch.own_processes import may_start_processes, processes_as_ranks, started_process_count
from gonogo.rehearse.launch.torch_installed import check_torch
from gonogo.rehearse.launch.worker_environment import activated_environment, worker_environment
from gonogo.rehearse.limits.certificate import apply_limits
from gonogo.rehearse.limits.undeclared import undeclared_packages
from gonogo.rehearse.limits.world import ProjectWorld, python_specifier
from gonogo.rehearse.lives import (
    LifePass,
    add_files_of_other_ranks,
    default_stage_command,
    has_saved_checkpoint,
    is_completed,
    parse_disk,
    resume_command,
    weight_file_sizes,
    written_file_sizes,
)
from gonogo.rehearse.progress import OnProgress, ProgressReporter, RankStatus
from gonogo.rehearse.ranks.call_log import CallLog
from gonogo.rehearse.ranks.comparison import add_parameter_names, discard_records_after_divergence
from gonogo.rehearse.ranks.exchange import Exchange
from gonogo.rehearse.ranks.sample import add_ranks_for_batch_shapes, is_sample
from gonogo.rehearse.ranks.world import machine_for, ranks_to_run
from gonogo.rehearse.request import RehearsalRequest, check_encodable, in_prepared_environment
from gonogo.rehearse.resolve import CommandContext, ResolvedCommand, resolve
from gonogo.rehearse.resumed_launch import give_name, missing_checkpoint
from gonogo.rehearse.sent_signal import signal_of_request
from gonogo.rehearse.shell.devices import install_smi_program
from gonogo.rehearse.started_command import resolve_started_command
from gonogo.rehearse.variables import ProgramVariables
from gonogo.rehearse.viewers.write import write_viewer_files
from gonogo.rehearse.workers.keep import check_keep_folder, keep_records
from gonogo.rehearse.workers.pool import NodeLost, OnRanks, Pool
from gonogo.rehearse.workers.scratch import raise_if_disk_full, scratch_folder
from gonogo.rehearse.workers.workers import Assignment, run_workers
from gonogo.virtual.protocol.plan import WorkerPlan, is_programs_own, target_of_processes


class LocalPool:
    """Runs workers as processes on this machine."""

    host = None

    def run(self, assignments: Sequence[Assignment], deadline: float, on_progress: OnRanks) -> list[RankRecord]:
        """Like ``run_workers``."""
        return run_workers(assignments, deadline, on_progress)


# Before launching, a script takes seconds; a framework that imports everything takes a minute on a busy machine.
# Anything that takes longer is waiting for something.
_SCRIPT_TIMEOUT = 150.0
# How often connected ranks are run again after a node was lost.
_MAX_RETRIES = 2
_ASSUMED_GPUS = 8
"""The accelerators of a node, if neither the command nor the user says how many there are."""
_GPUS_ASSUMED = Reason(
    translated(
        "neither the command nor --gpus says how many GPUs each node has: assuming {count}; --gpus {half}x{name}, for "
        "example, says otherwise"
    ),
    rehearse_again("--gpus", "{half}x{name}", purpose=Purpose.COUNT_OF_NODE),
)

_MADE_CHECKPOINT = translated(
    "{path} isn't on this machine: the run was started without it, and resumed from what that saved ({saved}), under "
    "its name; what the real one has is unknown"
)


def rehearse(request: RehearsalRequest, on_progress: OnProgress | None = None) -> RehearsalRecord:
    """Rehearse a command.

    Raises UserError for what the user has to change (the command, the options, the disk). Ctrl-C or SIGTERM ends
    running ranks, whose records say ``interrupted``; before ranks run, it raises KeyboardInterrupt.
    """
    started = time.monotonic()
    progress = ProgressReporter(on_progress, started, request.steps)
    check_encodable(request.command)
    request = in_prepared_environment(request, Path.cwd())
    check_keep_folder(request.keep)
    request.viewers.check_writable()
    check_torch()
    with _sigterm_as_interrupt(), scratch_folder() as scratch:
        stated = parse_machine(request.gpus, request.nodes, request.host_memory, UNSPECIFIED_GPU_COUNT)
        agreed = {"yes": request.yes, "unconfined": request.unconfined}
        asked = time.monotonic()
        overlay = packages_for(request.environment, request.with_packages, request.as_of, progress, **agreed)
        # The minutes that an environment takes the first time are none of the program's.
        request = dataclasses.replace(request, timeout=request.timeout + time.monotonic() - asked)
        if request.life:
            record = _run_lives(request, stated, overlay, scratch, started, progress)
        else:
            record = _run_rehearsal(request, stated, overlay, scratch, started, progress, LifePass())
    record.shm_bytes = request.shm_bytes
    record.saves_wanted = request.saves
    saved = record.first_life or record
    saved.disk_bytes, saved.write_bytes_per_second = parse_disk(request.disk)
    for rank_record in (*record.ranks, *(record.first_life.ranks if record.first_life is not None else ())):
        if rank_record.user_error is not None:
            raise UserError(Text(*rank_record.user_error))
    return record


def _run_lives(
    request: RehearsalRequest,
    requested_machine: Machine,
    overlay: PackageOverlay,
    scratch: Path,
    start_time: float,
    progress: ProgressReporter,
) -> RehearsalRecord:
    """Rehearse the command up to its save, then the requested stages: resume from its files, merge, load."""

    def run_life(part: RehearsalRequest, machine: Machine, number: int, life: LifePass) -> RehearsalRecord:
        keep = request.keep / f"life-{number}" if request.keep is not None and number else None
        part = dataclasses.replace(part, keep=keep)
        return _run_rehearsal(part, machine, overlay, scratch, start_time, progress, life)

    if request.keep is not None:
        request.keep.mkdir(parents=True, exist_ok=True)
    first_pass = LifePass("first")
    missing = None
    if "resume" in request.life and not request.kill_between_writes and not {*RESULT_STAGES} & {*request.life}:
        missing = missing_checkpoint(request.command, request.steps)
    started = request if missing is None else dataclasses.replace(request, command=missing.first_command)
    record = first = run_life(started, requested_machine, 1, first_pass)
    first.life_stages = request.life
    if not has_saved_checkpoint(first) or not first_pass.trees:
        return first
    (tree, *_) = first_pass.trees
    first.checkpoint_bytes = written_file_sizes(tree, first.ranks)
    notes = list(add_files_of_other_ranks(tree, first.ranks, first.world_size, first.checkpoint_bytes))
    if missing is not None and (saved := give_name(tree, first, missing.path)) is not None:
        notes.append(_MADE_CHECKPOINT.format(path=missing.path, saved=saved))
    number, second = 1, None
    if "resume" in request.life:
        machine = requested_machine
        if request.resume_on is not None:
            machine = parse_machine(request.resume_on, None, request.host_memory, UNSPECIFIED_GPU_COUNT)
        count = None if request.resume_on is None or machine.count == UNSPECIFIED_GPU_COUNT else machine.count
        command = resume_command(request.command, request.resume_with, count)
        part = dataclasses.replace(
            request, command=command, gpus=request.resume_on or request.gpus,
            nodes=request.nodes if request.resume_on is None else None,
        )  # fmt: skip
        number = 2
        second_pass = LifePass("second", below=(tree,), confinement=first_pass.confinement, first=first)
        record = second = run_life(part, machine, number, second_pass)
        record.life_stages = request.life
        record.resumes_as_given = missing is None and command == list(request.command)
    record.notes += [(note.en, note.zh) for note in notes]
    if second is not None and not is_completed(second):
        return second
    if second is not None and request.kill_between_writes:

        def resume_from(left: Path) -> RehearsalRecord:
            return run_life(part, machine, 0, first_pass.resume_pass(left, tree, first))

        deadline = start_time + request.timeout
        rehearse_interruptions(first, second, tree, scratch / "first-save", resume_from, deadline)
        if second.interruptions:
            again = functools.partial(run_life, part, machine, 0)
            _kill_next_save(first_pass, first, second, scratch / "later-save", again, deadline)
    return _run_result_stages(request, requested_machine, first_pass, record, first, tree, run_life, number)


def _kill_next_save(
    first_pass: LifePass,
    first: RehearsalRecord,
    second: RehearsalRecord,
    scratch: Path,
    run: Callable[[LifePass], RehearsalRecord],
    deadline: float,
) -> None:
    """Run the resumed program up to its own save, and resume again after a kill at each moment of that one."""
    (tree, *_) = first_pass.trees
    saving = LifePass("first", below=(tree,), confinement=first_pass.confinement, first=first)
    if time.monotonic() > deadline or not has_saved_checkpoint(later := run(saving)) or not saving.trees:
        return
    (newer, *_) = saving.trees
    written = written_file_sizes(newer, later.ranks)
    list(add_files_of_other_ranks(newer, later.ranks, later.world_size, written))
    later.checkpoint_bytes = first.checkpoint_bytes | written  # what either save wrote is nowhere else

    def resume(left: Path) -> RehearsalRecord:
        return run(saving.resume_pass(left, newer, later))

    rehearse_later_interruptions(later, second, resume(newer), (tree, newer), scratch, resume, deadline)


def _run_result_stages(
    request: RehearsalRequest,
    stated: Machine,
    first_pass: LifePass,
    record: RehearsalRecord,
    first: RehearsalRecord,
    tree: Path,
    run: Callable[[RehearsalRequest, Machine, int, LifePass], RehearsalRecord],
    number: int,
) -> RehearsalRecord:
    """Run the stages after the lives, each with the files of the earlier ones.

    Returns the record of the stage that failed, or else that of the last life.
    """
    below: tuple[Path, ...] = (tree,)
    stages = [first]
    for stage in RESULT_STAGES:
        if stage not in request.life:
            continue
        command = request.stage_commands.command_of(stage) or default_stage_command(stage, below[-1], stages)
        if command is None:
            break
        number += 1
        life = LifePass(stage, below=below, confinement=first_pass.confinement, first=first, between=(*stages[1:],))
        done = run(dataclasses.replace(request, command=command), stated, number, life)
        if not is_completed(done):
            done.life_stages, done.afterwards, record.afterwards = request.life, record.afterwards, []
            done.second_life = record if record is not first else None
            done.resumes_as_given = record.resumes_as_given
            return done
        done.first_life = None  # it is part of the record that contains this one
        record.afterwards = [*record.afterwards, done]
        done.checkpoint_bytes = weight_file_sizes(life.trees[0], done) if life.trees else {}
        below = (*below, *life.trees[:1])
        stages.append(done)
    return record


def _apply_limits(record: RehearsalRecord, request: RehearsalRequest, gpus_assumed: Reason | None) -> None:
    """Mark failures that this machine's packages, data or confinement may have caused as limits of the rehearsal."""
    if any(rank.outcome in ("raised", "diverged") for rank in record.ranks):
        whole = record.whole_environment
        world = ProjectWorld.from_files(Path.cwd(), Path(record.cwd), request.environment, is_complete=whole)
        apply_limits(record, dataclasses.replace(world, gpus_assumed=gpus_assumed))


def _run_rehearsal(
    request: RehearsalRequest,
    requested_machine: Machine,
    overlay: PackageOverlay,
    scratch: Path,
    start_time: float,
    progress: ProgressReporter,
    life_pass: LifePass,
) -> RehearsalRecord:
    deadline = start_time + request.timeout
    progress(translated("reading the launch command"))
    variables = ProgramVariables.from_request(request)
    notes: list[Text] = []
    log = CallLog() if request.viewers.flight_recorder is not None else None
    with contextlib.ExitStack() as stack:
        stack.enter_context(raise_if_disk_full(scratch))
        stack.enter_context(variables.explain_user_errors())
        confinement = life_pass.confinement or Confinement(scratch, unconfined=request.unconfined)
        life_pass.confinement = confinement
        situation = CommandContext(
            surroundings=LaunchMachine.from_machine(requested_machine, request.nodes),
            environment=environment_with_project_package(
                activated_environment(variables.environment, overlay.python), Path.cwd()
            ),
            cwd=os.getcwd(),
            confinement=confinement,
            timeout=max(1.0, min(_SCRIPT_TIMEOUT, deadline - time.monotonic())),
            made=prepared_files(Path.cwd(), scratch / "made"),
            packages=overlay.folders,
            python=str(overlay.python or sys.executable),
        )
        try:
            resolved = resolve(request.command, situation)
        except LauncherNotInstalled as missing:
            reason = overlay.reasons.get(canonicalize_name(missing.package))
            if reason is None:
                raise
            raise LauncherNotInEnvironment(missing.package, *reason) from None
        except LauncherRefused as refused:
            if (name := canonicalize_name(refused.package)) not in overlay.by_date:
                refused.difference = overlay.reasons.get(name)
            raise
        gpus_assumed = None
        if requested_machine.count == UNSPECIFIED_GPU_COUNT and is_unspecified_count(
            resolved.launch.processes_per_node
        ):
            requested_machine = replace(requested_machine, count=_ASSUMED_GPUS)
            surroundings = LaunchMachine.from_machine(requested_machine, request.nodes)
            situation = dataclasses.replace(situation, surroundings=surroundings)
            resolved = resolve(request.command, situation)
            gpus_assumed = _GPUS_ASSUMED.format(
                count=_ASSUMED_GPUS, half=_ASSUMED_GPUS // 2, name=requested_machine.accelerator.name
            )
            notes.append(gpus_assumed.why)
        machine = machine_for(resolved.launch, request, requested_machine)
        ranks = ranks_to_run(
            request.ranks, resolved.launch, machine, program_may_start_more=may_start_processes(resolved.launch)
        )
        with pool_for(request.ray) as pool:
            job = _RankRuns(
                pool,
                request,
                confinement,
                resolved,
                machine,
                overlay,
                situation.made,
                deadline,
                progress,
                log,
                life_pass,
            )
            assignments, records, divergence = job.run(ranks)
            if (count := started_process_count(records, resolved.launch)) is not None:
                resolved = dataclasses.replace(
                    resolved, launch=processes_as_ranks(resolved.launch, count, records[0].starts_by)
                )
                machine = machine_for(resolved.launch, request, requested_machine)
                job = dataclasses.replace(job, resolved=resolved, machine=machine)
                assignments, records, divergence = job.run(ranks_to_run(request.ranks, resolved.launch, machine))
            elif (training := records[0].starts_training) is not None and life_pass.part == "":
                started = resolve_started_command(training, resolved, situation, life_pass.trees)
                if started is not None:
                    resolved = started
                    machine = machine_for(resolved.launch, request, requested_machine)
                    job = dataclasses.replace(job, resolved=resolved, machine=machine)
                    assignments, records, divergence = job.run(ranks_to_run(request.ranks, resolved.launch, machine))
            elif records[0].outcome == "completed":
                ranks_to_run(request.ranks, resolved.launch, machine)  # reject ranks that it doesn't have after all
        notes += [*job.notes, *_confinement_notes(confinement)]
        _raise_if_disk_full(records, scratch)
    record = _make_record(request, resolved, machine, overlay, records, time.monotonic() - start_time)
    record.divergence = divergence
    record.notes += [(note.en, note.zh) for note in notes]
    record = variables.redact_record(record)
    record.life_part, record.first_life = life_pass.part, life_pass.first
    if life_pass.part == "first":
        record.signal = signal_of_request(request, resolved.launch.processes[0].signals)
    _apply_limits(record, request, gpus_assumed)
    if request.keep is not None:
        with raise_if_disk_full(scratch):
            keep_records(request.keep, record, assignments, variables.kept)
    if request.viewers:
        progress(translated("writing viewer files"))
        record.notes += write_viewer_files(request.viewers, record, assignments, log)
    return record


@dataclasses.dataclass(frozen=True)
class _RankRuns:
    """Runs ranks of a launch, each time in a new copy-on-write world."""

    pool: Pool
    request: RehearsalRequest
    confinement: Confinement
    resolved: ResolvedCommand
    machine: Machine
    overlay: PackageOverlay
    made: Path | None
    deadline: float
    progress: ProgressReporter
    log: CallLog | None
    life: LifePass
    notes: list[Text] = dataclasses.field(default_factory=list)
    """Notes on how they were run."""

    def run(self, ranks: list[int]) -> tuple[list[Assignment], list[RankRecord], Divergence | None]:
        """Run the ranks; for a sample, add ranks with other batch shapes."""
        request = self.request
        if request.probe_only:
            looking, records = self._probe_batches(ranks[0])
            return [looking], records, None
        if is_sample(request.ranks) and len(ranks) < self.resolved.launch.world_size:
            self.progress(translated("reading the ranks' data"))
            _, (looked,) = self._probe_batches(0)
            ranks, note = add_ranks_for_batch_shapes(ranks, looked)
            self.notes.append(note)
        with self._make_world() as world:
            assignments = [self._assignment(rank, world, counts=rank in (min(ranks), max(ranks))) for rank in ranks]
            request.viewers.check_ranks(len(assignments))
            records, divergence = _run_ranks(self.pool, assignments, self.deadline, self.progress, self.log)
            if world is not None:
                raise_if_ended(world)
                self.life.trees[:] = [world.tree]
        return assignments, records, divergence

    def _probe_batches(self, rank: int) -> tuple[Assignment, list[RankRecord]]:
        """Run a worker that only reads which batches the ranks will get."""
        with self._make_world() as world:
            looking = _probe_assignment(self._assignment(rank, world))
            return looking, self.pool.run([looking], self.deadline, self.progress.report_ranks)

    def _make_world(self) -> contextlib.AbstractContextManager[World | None]:
        if self.pool.host is not None:  # workers on other machines create their worlds there
            return contextlib.nullcontext()
        return self.confinement.world(below=(*self.life.below, *self.resolved.below), prepared=self.made)

    def _assignment(self, rank: int, world: World | None, *, counts: bool = False) -> Assignment:
        """A worker's plan and environment, with new folders. ``counts``: whether to measure its work, if requested."""
        launch, request, machine = self.resolved.launch, self.request, self.machine
        process = launch.processes[rank]
        folder = Path(tempfile.mkdtemp(prefix=f"rank-{rank}-", dir=self.confinement.shared))
        shown = self.confinement.readable / folder.name
        own = folder / "scratch"
        for made in (own, shown):
            made.mkdir()
        logs = self.confinement.scratch / "logs"
        logs.mkdir(exist_ok=True)
        sent = signal_of_request(request, process.signals) if self.life.part == "first" else None
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
            started_by_program=is_programs_own(launch.launcher),
            process_target=target_of_processes(launch.launcher),
            counts_work=request.count_work and counts,
            every=request.every or request.viewers.flight_recorder is not None or bool(self.life.part),
            to_the_end=self.life.part not in ("first", "second"),
            required_python=python_specifier(Path(launch.cwd), request.environment),
            life=self.life.part,
            saves=self.request.saves,
            signal=sent.number if sent is not None else 0,
            signal_reaches=sent is None or sent.reaches_program,
            written_folders=self.life.written_folders,
            prepared=str(find_prepared_folder(Path.cwd()) or ""),
            trace=str(folder / "trace.msgpack") if request.viewers.needs_events else "",
            confinement=self.confinement.means or ("none" if request.unconfined else "namespaces"),
        )
        environment = worker_environment(launch, process, packages=self.overlay.folders, scratch=folder / "caches")
        if world is not None:
            environment["TMPDIR"] = str(self.confinement.short_path(Path(environment["TMPDIR"])))
            programs = install_smi_program(
                self.confinement.readable / "programs", LaunchMachine.from_machine(machine, None)
            )
            environment = with_build_tools(environment, launch.interpreter or sys.executable, programs)
        return Assignment(
            plan=plan,
            python=launch.interpreter or sys.executable,
            environment=environment,
            cwd=launch.cwd,
            folder=folder,
            shown=shown,
            log=logs / f"{folder.name}.log",
            world=world,
            below=self.resolved.below,
        )


def _confinement_notes(confinement: Confinement) -> Iterator[Text]:
    """A note if the available confinement doesn't protect against everything."""
    if confinement.means == "none":
        yield UNCONFINED
    elif confinement.means == "landlock":
        yield ONLY_LANDLOCK


def _run_ranks(
    pool: Pool, assignments: Sequence[Assignment], deadline: float, progress: ProgressReporter, log: CallLog | None
) -> tuple[list[RankRecord], Divergence | None]:
    """Run the ranks, connected if there are several; if a node is lost, run all of them again."""
    if len(assignments) == 1:
        return pool.run(assignments, deadline, progress.report_ranks), None
    for _ in range(_MAX_RETRIES):
        with contextlib.suppress(NodeLost):
            return _run_connected_ranks(pool, assignments, deadline, progress, log)
    try:
        return _run_connected_ranks(pool, assignments, deadline, progress, log)
    except NodeLost as lost:
        return lost.records, None


def _run_connected_ranks(
    pool: Pool, assignments: Sequence[Assignment], deadline: float, progress: ProgressReporter, log: CallLog | None
) -> tuple[list[RankRecord], Divergence | None]:
    with Exchange([assignment.plan.rank for assignment in assignments], pool.host, log) as exchange:

        def report_statuses(statuses: tuple[RankStatus, ...]) -> None:
            exchange.note_workers(statuses)
            progress.report_ranks(statuses)

        together = [one.connected_to(exchange.address, exchange.descriptor(one.plan.rank)) for one in assignments]
        if pool.host is None:
            together = [_with_scratch_folder(together[0].plan.scratch, one) for one in together]
        records = pool.run(together, deadline, report_statuses)
    for record in records:
        if record.rank in exchange.waits:
            record.outcome, record.waits = "stuck", [exchange.waits[record.rank]]
    divergence = exchange.divergence
    if divergence is not None:
        divergence = add_parameter_names(divergence, records)
        discard_records_after_divergence(records, divergence)
    return records, divergence


def _probe_assignment(assignment: Assignment) -> Assignment:
    """The assignment of a worker that only reads which batches the ranks will get."""
    return dataclasses.replace(assignment, plan=msgspec.structs.replace(assignment.plan, probe_only=True))


def _with_scratch_folder(scratch: str, assignment: Assignment) -> Assignment:
    """The assignment with a scratch folder shared by all ranks, as on one node or a shared file system."""
    return dataclasses.replace(assignment, plan=msgspec.structs.replace(assignment.plan, scratch=scratch))


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end a rehearsal as Ctrl-C does, so that no worker outlives it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_interrupt(_signum: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, raise_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _raise_if_disk_full(records: list[RankRecord], scratch: Path) -> None:
    """Raise OSError if a worker's log shows that it couldn't write its record on a full disk."""
    for record in records:
        if record.outcome == "killed" and any("No space left on device" in event for event in record.events):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(scratch))


def _default_accelerator(request: RehearsalRequest, machine: Machine) -> list[Text]:
    """A note on the accelerator that is used if ``--gpus`` names none."""
    only_a_count = request.gpus is None or request.gpus.strip().isdecimal()  # 4090 is a name all the same
    if not only_a_count or machine.accelerator.name != DEFAULT_ACCELERATOR:
        return []
    return [translated("--gpus names no GPU type: using {name}").format(name=machine.accelerator.name)]


def _make_record(
    request: RehearsalRequest,
    resolved: ResolvedCommand,
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
            for note in (
                *_default_accelerator(request, machine),
                *launch.notes,
                *overlay.notes,
                *describe_substitutes(Path.cwd()),
            )
        ],
        inferred=inferred_shapes(Path.cwd()),
        laid_over={name: str(version) for name, version in overlay.versions.items()},
        differing=list(overlay.differing),
        undeclared=undeclared_packages(request.with_packages, request.environment),
        torch_requested=overlay.torch,
        differing_by_date=list(overlay.by_date),
        without_operators=list(overlay.without_operators),
        whole_environment=overlay.python is not None,
    )


@contextmanager
def pool_for(ray: str | None) -> Iterator[Pool]:
    """The pool that ``--ray`` selects. Raises UserError if there is no such cluster."""
    if ray is None:
        yield LocalPool()
        return
    from gonogo.rehearse.workers.ray_cluster import connect_to_cluster

    with connect_to_cluster(ray) as pool:
        yield pool
