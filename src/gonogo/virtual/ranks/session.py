"""One virtual rank: sets up the environment of a program, runs it, and creates its record."""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import resource
import runpy
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from gonogo.evidence.environment.package_name import canonical_package_name
from gonogo.evidence.launch.command_words import shorten_command
from gonogo.evidence.notebook import SUFFIX, notebook_to_python
from gonogo.evidence.prepared import read_prepared
from gonogo.evidence.rehearsal.record import (
    Failure,
    Frame,
    MemoryShortage,
    MissingInput,
    Outcome,
    RankRecord,
    UnsupportedPart,
)
from gonogo.evidence.rehearsal.work import PhaseWork
from gonogo.finding import UserError
from gonogo.finding.as_run import AsRun
from gonogo.virtual import operands, private
from gonogo.virtual.collectives import c10d_operators, sharded_tensors
from gonogo.virtual.collectives.peers import Peers, PeerStepLimitReached, RanksDiverged, worker_connection
from gonogo.virtual.failure import (
    AutogradOrigin,
    attach_failed_call,
    describe_failure,
    find_in_chain,
    is_from_autograd,
    unwrap_exit_cause,
)
from gonogo.virtual.hooks import data_parallel, engine, fsdp, megatron, memory_ownership, trainer, training
from gonogo.virtual.hooks.decoding import Decoding
from gonogo.virtual.hooks.engine import defer_compile_passes
from gonogo.virtual.hooks.lifecycle import RehearsalComplete
from gonogo.virtual.hooks.micro_batches import CounterTally, MicroBatchSelector, NumbersTally, Tally
from gonogo.virtual.hooks.pipeline import pipeline_sizes
from gonogo.virtual.hooks.training_facts import describe_run
from gonogo.virtual.internal_failures import exception_chain, find_internal_failure
from gonogo.virtual.kernels.async_io import NvmeTraffic
from gonogo.virtual.life.life_recorder import LifeRecorder, recording_components
from gonogo.virtual.lookups import failed_lookups as asked_in_vain
from gonogo.virtual.memory.tracking import DeviceRecord, MemoryRecord
from gonogo.virtual.operators import (
    attention,
    autocast,
    compiling,
    data_dependent,
    embedding_bounds,
    grouped_products,
    native_functions,
    normalization,
    reductions,
    refusals,
    softmax,
    subclasses,
    writes,
)
from gonogo.virtual.operators.compiling import install_scripting
from gonogo.virtual.operators.native_functions import install_argument_conversions, install_dropout, install_storages
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.protocol.messages import End, Reply
from gonogo.virtual.protocol.plan import SPAWN, WorkerPlan
from gonogo.virtual.ranks import environment_setup, newer_python, process_ranks, spawned_ranks, started_commands
from gonogo.virtual.ray import install as ray
from gonogo.virtual.ray.waits import EveryoneWaits
from gonogo.virtual.rollout import install as rollout
from gonogo.virtual.sandbox import prepared
from gonogo.virtual.sandbox.started_processes import StartedProcesses
from gonogo.virtual.stack import current_place, frames_of_call, frames_of_traceback, place_text
from gonogo.virtual.tensor import CPU, VirtualTensor
from gonogo.virtual.tracing.components import PLAIN, ComponentFactories, traced_components
from gonogo.virtual.tracing.recorder import Recorder
from gonogo.virtual.unsupported import UnsupportedOperator
from gonogo.virtual.values import batches, data_shapes
from gonogo.virtual.values.assumptions import Ledger
from gonogo.virtual.waits.sides import EndedThreads, objects_given
from gonogo.virtual.waits.watch import WaitWatch
from gonogo.virtual.weights import adapters, loading

STACK = ("torch", "deepspeed", "transformers", "accelerate", "peft", "trl", "ms-swift", "safetensors", "tokenizers",
         "huggingface_hub", "datasets", "numpy", "bitsandbytes", "flash-attn")  # fmt: skip
"""Packages whose versions are recorded."""


_REPEATS_QUESTION = "whether this micro-batch repeats the one before"
_END_BY_OUTCOME: dict[Outcome, End] = {"raised": "raised", "unsupported": "unsupported"}

__all__ = [
    "Session",
    "data_dependent",
    "embedding_bounds",
    "grouped_products",
    "native_functions",
    "reductions",
    "softmax",
    "writes",
]


class Session:
    """A process that sees virtual accelerators. A context manager, to be used once per process."""

    def __init__(self, plan: WorkerPlan) -> None:
        self.plan = plan
        private.register_device_type(plan.accelerator.device_type)
        self.device = torch.device(plan.accelerator.device_type, plan.local_rank)
        self.memory = MemoryRecord(self._device_record)
        self.ledger = Ledger(os.path.dirname(torch.__file__))
        self.recorder = Recorder(plan.rank) if plan.trace else None
        self.of_life = LifeRecorder(plan.life, plan.saves, plan.signal, plan.signal_reaches) if plan.life else None
        parts = self._parts = self._select_components()
        self.mode = parts.mode(self.memory, self.ledger)
        self.modules = parts.modules(self.memory)
        self.life = parts.life(plan.steps, self.memory, self.ledger)
        self.life.to_the_end = plan.to_the_end
        self.peers = Peers(plan.rank, plan.exchange, worker_connection()) if plan.exchange is not None else None
        """The connection to the ranks that are rehearsed together with this one, or None."""
        self.collectives = c10d_operators.CollectiveRecord(self.peers)
        self.facts: dict[str, Any] = {}
        self.events: list[str] = []
        self.saved_bytes = 0
        self.nvme: NvmeTraffic | None = None
        """The traffic of DeepSpeed's NVMe offload."""
        self.started = time.monotonic()
        self.raw_traceback = ""
        """The program's last traceback including gonogo's own frames, for debugging gonogo."""
        self.origin = AutogradOrigin()
        self._diverged: Reply | None = None
        self._work_done: Callable[[], tuple[PhaseWork, ...]] = tuple
        self.work_tallies: Sequence[Tally] = ()
        """The counters of FLOPs and memory traffic."""
        self.batch: tuple[tuple[str, str], ...] = ()
        self.batches = 0
        self.data_shapes: list[str] = []
        self.missed: list[MissingInput] = []
        self.started_processes = StartedProcesses.of_rank(plan)
        record_use = self.started_processes.record_accelerator_use
        self._process_ranks = process_ranks.ProcessRanks(plan, self._has_used_accelerator, record_use)
        self._started_commands = started_commands.StartedCommands(plan, self._has_used_accelerator)
        table = read_prepared(Path(plan.prepared)) if plan.prepared else None
        self.lookups = asked_in_vain.FailedLookups(
            os.path.join(os.path.dirname(plan.scratch), "caches"), table.paths if table is not None else ()
        )
        self.lookups.moment = lambda: (self.life.phase, self.life.step)
        self._why: dict[str, Any] = {}
        self._undo: list[Callable[[], None]] = []
        self._ray: ray.RayInstallation | None = None
        self.watch = WaitWatch(lambda: (self.mode.operators, self.batches, self.collectives.count.total()))
        """Notices if all threads of the program wait."""

    def _select_components(self) -> ComponentFactories:
        if self.of_life is not None:
            return recording_components(self.of_life)
        return traced_components(self.recorder) if self.recorder is not None else PLAIN

    def _device_record(self, name: str) -> DeviceRecord:
        plan = self.plan
        record = environment_setup.device_record(plan.accelerator, plan.host_bytes, name, self._parts.allocator)
        if record.allocator is not None:
            record.on_shortage = self._describe_shortage
        record.moment = self.life.phase_and_step
        record.here = lambda: (self.mode.current, current_place())
        record.told = _operator_and_location
        return record

    def _describe_shortage(self, record: DeviceRecord, requested: int) -> MemoryShortage:
        allocator = record.allocator
        assert allocator is not None
        assert allocator.shortage is not None
        return MemoryShortage(
            device=record.name,
            requested_bytes=requested,
            allocated_bytes=allocator.shortage.allocated,
            reserved_bytes=allocator.shortage.reserved,
            capacity_bytes=allocator.capacity_bytes,
            phase=self.life.phase,
            step=self.life.step,
            operator=str(self.mode.current) if self.mode.current is not None else None,
            module=self.modules.current_path,
            frames=frames_of_call(),
            by_category=record.bytes_by_category(),
        )

    def __enter__(self) -> Session:
        VirtualTensor.virtual_mode = self.mode
        VirtualTensor.accelerator_type = self.plan.accelerator.device_type
        self.memory.device(CPU)
        self.memory.device(self.device)
        self.memory.set_category("parameters")
        undo = self._undo
        undo.append(newer_python.install(self.plan.required_python, self.ledger.assume))
        undo.append(asked_in_vain.install(self.lookups))
        undo.append(c10d_operators.install(self.collectives))
        undo.append(private.lift_only_cpu_tensors())
        undo.append(memory_ownership.install(self.modules))  # before DDP's buckets are set up for reduction
        placed = environment_setup.install(
            self.plan, self.mode, self.peers, self.record_event, self.record_save, self.missed.append
        )
        undo += placed.undo
        self.nvme = placed.nvme
        undo.append(attention.install(self.plan.accelerator.compute_capability))
        undo.append(autocast.install())
        undo.append(install_dropout())
        undo.append(normalization.install())
        undo.append(compiling.install(self.ledger.assume))
        together = self.peers is not None and len(self.peers.ranks) == self.plan.world_size
        undo.append(refusals.install(all_ranks_rehearsed=together))
        undo.append(install_scripting())
        undo.append(spawned_ranks.install(self.plan))
        undo.append(self._process_ranks.install())
        undo.append(self._started_commands.install())
        self._ray = ray.install(self.memory, self.life, placed.accelerators, self.plan, self.ledger.assume)
        undo.append(self._ray.undo)
        undo.append(install_argument_conversions())
        undo.append(install_storages())
        undo.append(subclasses.install(self.memory))
        undo.append(sharded_tensors.install())
        undo.append(training.install(self.mode, self.life, self.modules))
        undo.append(fsdp.install(self.mode))
        undo.append(data_parallel.install(self.plan.accelerator.device_type))
        undo.append(trainer.install(self.life, self._micro_batches()))
        undo.append(Decoding(self.life, self.memory, self._tallies, self._should_run_all_micro_batches).install())
        undo.append(megatron.install(self.life, all_ranks_rehearsed=together or self.plan.world_size == 1))
        self.life.ahead.is_made = prepared.has_rows(self.plan.prepared)
        undo.append(defer_compile_passes())
        undo.append(rollout.install(self.mode, self.life, self.plan, self.peers, self._ray.start_engine_workers))
        undo.append(engine.install(self.life, self.modules, self.facts))
        undo.append(loading.install(self.life, self.modules, self.facts))
        undo.append(_run_threads_in_mode(self.mode, self.watch.ended))
        self.mode.on_failure = functools.partial(attach_failed_call, self.modules)
        if self.peers is not None:
            self.connect_peers(self.peers)
            undo.append(self.peers.track_thread_joins())
        if self.of_life is not None:
            calls = self.collectives
            self.of_life.collectives_done = lambda: (calls.of_all_ranks, calls.since_all_ranks)
            undo.append(self.of_life.install(self.mode, self.life, self.modules))
        if self.plan.probe_only and not prepared.has_inferred_shapes(self.plan.prepared):
            self.life.on_loader = self._record_data_shapes
        torch.manual_seed(0)
        return self

    def __exit__(self, *exception: object) -> None:
        while self._undo:
            self._undo.pop()()

    def connect_peers(self, peers: Peers) -> None:
        """Share this rank's current phase and batches with the other ranks."""
        peers.situation = lambda: (self.modules.current_path, self.life.phase, self.life.step)
        self.life.on_batch = functools.partial(_on_batch_read, self, peers)
        self.life.ask_left = functools.partial(_batches_left_everywhere, peers)

    def _has_used_accelerator(self) -> bool:
        allocator = self.memory.device(self.device).allocator
        return self.life.step > 0 or (allocator is not None and allocator.peak_allocated > 0)

    def _record_data_shapes(self, loader: Any) -> None:
        plan = self.plan
        self.data_shapes = data_shapes.shapes_by_rank(loader, plan.rank, plan.world_size, plan.steps)
        raise RehearsalComplete

    def run(self) -> RankRecord:
        """Run the program to its end; never raises for what the program does."""
        outcome: Outcome = "completed"
        failure: Failure | None = None
        unsupported: list[UnsupportedPart] = []
        user_error = processes = training = None
        starter = ""
        stood_still: EveryoneWaits | None = None
        ended: End = "completed"
        try:
            watched = self.origin.recording_forward_calls() if self.plan.trace_autograd else contextlib.nullcontext()
            to_the_end = self.of_life.until_the_end() if self.of_life is not None else contextlib.nullcontext()
            with self.mode, watched, self._counting(), to_the_end:
                _run_program(self.plan)
            self.life.on_program_end()
            self.life.enter("exit")
        except (RehearsalComplete, PeerStepLimitReached):
            ended = self._end_after_enough_steps()
        except spawned_ranks.RankProcessExited:
            self.events.append(f"stopped: what the program does after {SPAWN} was not run")
            self.life.enter("exit")
        except spawned_ranks.ProcessLaunchRequested as starts:
            outcome, processes, starter = "unsupported", starts.count, starts.starter
            place = _innermost_location(frames_of_traceback(starts.__traceback__))
            unsupported.append(spawned_ranks.spawn_not_rehearsed(starter, place))
        except started_commands.TrainingLaunched as launched:
            outcome, training = "unsupported", launched.command
            place = _innermost_location(frames_of_traceback(launched.__traceback__))
            unsupported.append(spawned_ranks.spawn_not_rehearsed(shorten_command(training.words), place))
        except RanksDiverged as diverged:
            outcome, ended = "diverged", "stopped"
            self._diverged = diverged.reply
        except EveryoneWaits as stands_still:
            outcome = "stuck"
            stood_still = stands_still
        except KeyboardInterrupt:
            outcome = "interrupted"
        except BaseException as raised:
            error = unwrap_exit_cause(raised)
            self.raw_traceback = traceback.format_exc()
            found = find_in_chain(error, UnsupportedOperator)
            user_error_ = find_in_chain(error, UserError)
            if isinstance(error, SystemExit) and error.code in (None, 0):
                self.life.enter("exit")
            elif self.life.is_caused_by_ended_data(error) or self.life.loops.is_caused_by_advance(error):
                ended = self._end_after_enough_steps()
            elif user_error_ is not None:
                outcome, user_error = "raised", (user_error_.text.en, user_error_.text.zh)
            elif found is not None:
                outcome, failure = "unsupported", describe_failure(error, self.life, self.modules, ())
                unsupported.append(
                    UnsupportedPart(found.operator, _innermost_location(failure.frames), found.why.en, found.why.zh)
                )
            else:
                outcome = "raised"
                failure = describe_failure(error, self.life, self.modules, self.origin.frames)
                self._record_failure_context(error)
                known = self.plan.scratch, self.mode.uses_meta, self.plan.written_folders
                if (trace := find_internal_failure(error, failure, *known)) is not None:
                    outcome, place = "unsupported", _innermost_location(failure.frames)
                    unsupported.append(UnsupportedPart.of(trace.what, place, trace.reason))
        if outcome == "completed":
            self._process_ranks.join()
        uses = self.started_processes.accelerator_uses()
        if uses and (several := self._process_ranks.several()) is not None:
            outcome, (processes, starter) = "unsupported", several
            unsupported.append(spawned_ranks.spawn_not_rehearsed(starter, uses[0]))
        for where in uses:
            unsupported.append(spawned_ranks.accelerator_in_subprocess(where))
            outcome = "unsupported" if outcome == "raised" else outcome
        if self.peers is not None:
            how = ended if outcome in ("completed", "diverged") else _END_BY_OUTCOME.get(outcome, "killed")
            self.peers.report_end(how, self.life.step)
        record = self.record(outcome, failure)
        record.unsupported = unsupported
        if stood_still is not None:
            record.stuck, record.waits = stood_still.kind, list(stood_still.waits)
        record.work = list(self._work_done())
        record.user_error = user_error
        record.starts_processes, record.starts_by = processes, starter
        if (
            outcome == "completed"
            or unsupported
            or (failure is not None and failure.type.endswith("CalledProcessError"))
        ):
            record.starts_training = training or self._started_commands.training()
        if self._diverged is not None:
            record.stopped_by = self._diverged.stopped_by
        if self.peers is not None:
            record.parameter_names = self.modules.parameter_names_by_ds_id()
        return record

    def _should_run_all_micro_batches(self) -> bool:
        """True if repeated micro-batches are run as well, as always when events are traced."""
        return self.plan.every or self.recorder is not None

    def _micro_batches(self) -> MicroBatchSelector:
        """Decides which micro-batches are run."""

        def all_ranks_agree(repeats: bool) -> bool:
            if self.peers is None:
                return repeats
            answers = self.peers.exchange_answers(_REPEATS_QUESTION, b"%d" % repeats)
            return answers is not None and set(answers) == {b"1"}

        return MicroBatchSelector(
            self.life, self.memory, self._tallies, self._should_run_all_micro_batches, all_ranks_agree
        )

    def _tallies(self) -> list[Tally]:
        """The counters that have to be scaled when micro-batches are skipped."""
        found: list[Tally] = [
            CounterTally(self.collectives.count), CounterTally(self.collectives.bytes),
            CounterTally(self.ledger.counts), NumbersTally(self.mode, "operators"),
            NumbersTally(self.life.seen, "backwards"),
        ]  # fmt: skip
        if self.nvme is not None:
            found.append(NumbersTally(self.nvme, "read_bytes", "written_bytes"))
        return [*found, *self.work_tallies]

    def _counting(self) -> contextlib.AbstractContextManager[object]:
        """Count FLOPs and memory traffic if the plan requests it."""
        if not self.plan.counts_work:
            return contextlib.nullcontext()
        from gonogo.virtual.tracing import work  # imports torch's FLOP formulas, which few rehearsals need

        work.count_session_work(self)
        self._work_done = work.phase_work
        return work.counting_work()

    def _end_after_enough_steps(self) -> End:
        self.events.append("stopped: the program went on after the steps that were asked for")
        return "enough"

    def _record_failure_context(self, error: BaseException) -> None:
        """Record what in the environment may have caused a failure: failed lookups, gonogo's objects, imported
        packages."""
        handed = [path for one in exception_chain(error) for path in operands.missing_paths(one)]
        absent = [
            one
            for link in exception_chain(error)
            for one in asked_in_vain.lookups_before_failure(self.lookups, link, handed)
        ]
        self._why = {
            "absent": list(dict.fromkeys(absent)),
            "made_operands": operands.generated_operands(error, self.plan.prepared),
            "imported": _imported_distributions(),
        }

    def record_event(self, event: str) -> None:
        """Record a noteworthy event, once."""
        if event not in self.events:
            self.events.append(event)

    def record_save(self, path: str, nbytes: int, tensors: int) -> None:
        """The program saved tensors: count what a real run would have written."""
        if self.life.phase == "load":  # a checkpoint that gonogo generates in place of a missing one
            return
        self.lookups.record_write(path)
        self.saved_bytes += nbytes
        if "save" not in self.life.reached:
            self.life.reached.append("save")

    def record(self, outcome: Outcome, failure: Failure | None = None) -> RankRecord:
        """The record of everything known so far."""
        for model in self.modules.roots():
            memory_ownership.assign_model_owners(model, self.modules)
        records, workers = (
            self._ray.devices_and_processes(self.memory.devices) if self._ray is not None else (self.memory.devices, [])
        )
        devices = [record.as_device_memory() for device, record in records.items() if device != CPU]
        if outcome == "completed" and any(device.shortage is not None for device in devices):
            outcome = "out-of-memory"
        root = self.life.trained_root
        killed = self.of_life is not None and self.of_life.record.killed  # in the middle of a step
        stepped = root is not None and self.life.step > 0 and not killed
        unused, without = self.modules.parameters_without_gradient(root) if stepped else ([], [])
        drawn = self.facts.get("drawn_weights")
        return RankRecord(
            rank=self.plan.rank,
            local_rank=self.plan.local_rank,
            device=str(self.device),
            outcome=outcome,
            seconds=round(time.monotonic() - self.started, 2),
            steps=self.life.step,
            operators=self.mode.operators,
            phases=list(self.life.reached),
            expected_phases=list(self.life.expected),
            last_activity=self.life.describe(self.modules.current_path),
            failure=failure,
            devices=[d for d in devices if d.peak_allocated_bytes or d.device == str(self.device)],
            host=self.memory.device(CPU).as_host_memory(),
            timelines=[record.as_timeline() for record in records.values()],
            collectives=self.collectives.totals_by_operator(),
            assumptions=[*self.ledger.entries(), *self.started_processes.assumptions()],
            unused_parameters=unused,
            parameters_without_gradient=without,
            left_on_cpu=self.life.left_on_cpu,
            parameter_count=_count_parameters(root),
            as_run=self._as_run(),
            pipeline=pipeline_sizes(self.modules.roots()),
            deepspeed_config=_to_json_types(self.facts.get("deepspeed_config")),
            device_map=self.facts.get("device_map"),
            device_map_frames=self.facts.get("device_map_frames", []),
            drawn_weights=drawn.remaining_loads if drawn is not None else [],
            versions=_versions(),
            saved_bytes=self.saved_bytes,
            events=[*self.events, *self._nvme_notes()],
            batch=list(self.batch),
            batches=self.batches,
            data_shapes=self.data_shapes,
            loading=self.life.loading,
            empty_pass=self.life.empty_pass,
            batches_left=self.life.batches_left,
            read_beyond=self.life.read_beyond,
            data_ended=None if self.life.ahead.overstepped else self.life.data_ended,
            formed_world=self.life.world if not workers else 1,
            workers=workers,
            missed=[*self.missed, *self.started_processes.missing_inputs()],
            advanced_loops=self.life.loops.led,
            left_out=self.life.omitted_parts(),
            confinement=self.plan.confinement,
            attached_adapters=list(adapters.attached),
            life=self.of_life.finish(outcome) if self.of_life is not None else None,
            **self._why,
            rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        )

    def _as_run(self) -> AsRun | None:
        """The configuration that was run, or None with a note if the model's own methods raise while it is read."""
        life = self.life
        try:
            return describe_run(
                life.seen, life.trained_root, self.mode, self.plan.arguments, nvme=bool(self._nvme_notes())
            )
        except Exception as error:
            self.record_event(f"what was run could not be read: {type(error).__name__}: {error}")
            return None

    def _nvme_notes(self) -> list[str]:
        traffic = self.nvme
        if traffic is None or not traffic.written_bytes:
            return []
        return [f"NVMe: {traffic.stored_bytes} bytes in files of this rank, {traffic.written_bytes} written, "
                f"{traffic.read_bytes} read"]  # fmt: skip

    def should_trace_autograd(self, record: RankRecord) -> bool:
        """True if the program has to run again to find where the failing autograd node was created."""
        failure = record.failure
        return failure is not None and not self.plan.trace_autograd and is_from_autograd(failure.message)


def _operator_and_location(here: Any) -> tuple[str, str]:
    """Operator and code place of a moment, or empty strings if nothing was allocated then."""
    if here is None:
        return "", ""
    operator, place = here
    return str(operator) if operator is not None else "", place_text(*place) if place is not None else ""


def _innermost_location(frames: Sequence[Frame]) -> str:
    """``file:line`` of the innermost user frame, or else of the innermost library frame."""
    own = [frame for owner in ("user", "library") for frame in reversed(frames) if frame.owner == owner]
    return f"{own[0].path}:{own[0].line}" if own else "unknown"


def _batches_left_everywhere(peers: Peers, left: int) -> list[int] | None:
    answers = peers.exchange_answers("batches left", str(left).encode())
    return None if answers is None else [int(answer) for answer in answers]


def _on_batch_read(session: Session, peers: Peers, batch: Any) -> None:
    session.batch = batches.describe_batch(batch)
    session.batches += 1
    peers.report_batch_read(session.batch, session.batches, session.life.step)


def _count_parameters(root: Any) -> int:
    """Number of parameters of the model; ZeRO-3 partitioned ones count in full."""
    return sum(getattr(p, "ds_numel", p.numel()) for p in root.parameters()) if root is not None else 0


def _to_json_types(value: Any) -> Any:
    """The value reduced to JSON types; other types become strings."""
    if isinstance(value, dict):
        return {str(key): _to_json_types(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json_types(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _run_threads_in_mode(mode: Any, ended: EndedThreads) -> Callable[[], None]:
    """Enable the dispatch mode in threads that the program starts, and note those that end.

    Dispatch modes are thread-local, and so is the setting for ``torch.tensor``'s device. Returns the undo.
    """
    patches = Patches()
    run = threading.Thread.run

    def run_in_mode(thread: threading.Thread) -> None:
        if getattr(thread, "is_gonogo", False):
            run(thread)
            return
        private.lift_only_cpu_tensors()
        given = objects_given(thread)
        try:
            with mode:
                run(thread)
        except BaseException as error:
            ended.add(thread.name, given, type(error).__name__)
            raise
        ended.add(thread.name, given)

    patches.set(threading.Thread, "run", run_in_mode)
    return patches.undo


def _run_program(plan: WorkerPlan) -> None:
    """Run the program like ``python PATH`` or ``python -m NAME``, or a notebook as if its cells were one script.

    Exceptions of the program, including ``SystemExit``, propagate.
    """
    if plan.program_kind == "module":
        sys.argv = [plan.program, *plan.arguments]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(plan.program, run_name="__main__", alter_sys=True)
        return
    sys.argv = [plan.program, *plan.arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(plan.program)))
    if plan.program.endswith(SUFFIX):
        _run_notebook(plan.program)
        return
    runpy.run_path(plan.program, run_name="__main__")


def _run_notebook(path: str) -> None:
    """Run the code cells in order, keeping their line numbers in the file, so that tracebacks refer to the
    notebook."""
    code = (notebook_to_python(Path(path).read_bytes()) or b"").decode("utf-8", "replace")
    linecache.cache[path] = (len(code), None, code.splitlines(keepends=True), path)
    main = ModuleType("__main__")
    main.__dict__["__file__"] = path
    sys.modules["__main__"] = main
    exec(compile(code, path, "exec"), main.__dict__)


def _versions() -> dict[str, str]:
    """The versions of the training stack as seen by this process, without packages that aren't installed."""
    found = {}
    for name in STACK:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    found["python"] = sys.version.split()[0]
    return found


def _imported_distributions() -> dict[str, str]:
    """The distributions of all imported modules, by canonical name, with their versions."""
    tops = {name.partition(".")[0] for name in list(sys.modules)} - set(sys.stdlib_module_names)
    found = {}
    for module, names in metadata.packages_distributions().items():
        for name in names if module in tops else ():
            with contextlib.suppress(metadata.PackageNotFoundError):
                found[canonical_package_name(name)] = metadata.version(name)
    return found
