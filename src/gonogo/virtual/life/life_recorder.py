"""Records one of a run's two lives: the first until it is killed after its save, the second from its resume on."""

from __future__ import annotations

import functools
import hashlib
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, get_args

import msgspec
import torch
from torch import nn

from gonogo.evidence.rehearsal.checkpoints.shared_memory import SHM
from gonogo.evidence.rehearsal.lives import (
    RESULT_STAGES,
    FileEvent,
    LifePart,
    RankRunState,
    RankSave,
    SavedTensor,
    SavedWeight,
    SignalHandling,
    SignalOutcome,
    StateKind,
    StateMoment,
    StateOrigin,
    TensorSample,
    is_at_or_below,
)
from gonogo.evidence.rehearsal.record import Outcome, Phase
from gonogo.virtual.hooks.lifecycle import Lifecycle, RehearsalComplete
from gonogo.virtual.hooks.modules import ModuleTracker
from gonogo.virtual.life import random_states
from gonogo.virtual.life.averages import Averages
from gonogo.virtual.life.background_saves import BackgroundSaves, ProgramMoment
from gonogo.virtual.life.inventory import StateInventory, origins_of_pieces
from gonogo.virtual.life.origin_mode import BATCH, OriginMode
from gonogo.virtual.memory.caching_allocator import CachingAllocator
from gonogo.virtual.memory.shared_memory import SharedMemory
from gonogo.virtual.mode import VirtualMode
from gonogo.virtual.origins import Described, Origins, real_path, set_labels
from gonogo.virtual.tensor import VirtualTensor
from gonogo.virtual.tracing.components import PLAIN, ComponentFactories
from gonogo.virtual.weights.sharded_saves import InlineExecutor

_FILE_EVENTS = frozenset({"open", "os.rename", "os.remove", "shutil.rmtree"})
_MAX_FILE_EVENTS = 4096
_STEPS_AFTER_SIGNAL = 6
_MAX_PAUSES = 4
_PAUSE_SECONDS = 1.0
_NO_CHECKPOINTS = ("/dev/", "/proc/", "/sys/", f"{sys.prefix}/", f"{sys.base_prefix}/lib/")
_CODE = (".py", ".pyc", ".so")
_STATE_KINDS = get_args(StateKind)
_MIXED_IN_LOADING = frozenset({"base", "drawn"})
"""While a model is put together: an adapter that is merged into it, rows that are added to its embeddings."""
_MIXED_IN_RESULTS = _MIXED_IN_LOADING | {*_STATE_KINDS, "rank"}
_ALLOCATOR: Callable[..., CachingAllocator] = PLAIN.allocator


def recording_components(recorder: LifeRecorder) -> ComponentFactories:
    """Session components that record which state a run saves, and which state it resumes from."""
    return ComponentFactories(OriginMode, ModuleTracker, functools.partial(_RecordedLifecycle, recorder), _ALLOCATOR)


class LifeRecorder:
    """Records the state that a run saves or resumes from, its batches and its random states."""

    def __init__(self, part: LifePart, saves: int = 1, signal_number: int = 0, signal_reaches: bool = True) -> None:
        self.record = RankRunState(part, began=time.time())
        self._is_first, self._is_afterwards = part == "first", part in RESULT_STAGES
        self.collectives_done: Callable[[], tuple[int, int]] = lambda: (0, 0)
        """How many collectives of all ranks this one has completed, and how many other communications since."""
        self._saved_since_step = False
        self._saves = saves
        self._signal_number, self._signal_reaches = signal_number, signal_reaches
        self._pauses = 0
        """How often time was given to what a signal's handler has started."""
        self._written_since_save: dict[str, None] = {}
        """Files, as they are called now."""
        self._opened: dict[str, None] = {}
        """Files that were opened in this save: only the first time counts."""
        self._drawn: dict[Any, bool] = {}
        self._initial: dict[Any, tuple[StateOrigin, ...]] = {}
        self._averages = Averages(labels=part == "first")
        self._background = BackgroundSaves(self._describe_moment, lambda: self._life.step)
        self._saved_in_background: ProgramMoment | None = None

    def install(self, mode: VirtualMode, lifecycle: Lifecycle, modules: ModuleTracker) -> Callable[[], None]:
        """Attach to the program of a session; returns the undo."""
        assert isinstance(mode, OriginMode)
        self._mode, self._life = mode, lifecycle
        self._inventory = StateInventory(modules)
        undo = [
            self._inventory.install(),
            random_states.install(self._record_random_state_read, self._record_random_state_set),
            self._background.install(),
        ]
        sys.addaudithook(self._record_file_event)
        InlineExecutor.defer = self._defer_save
        Origins.followed = True
        mode.mixed_kinds = _MIXED_IN_RESULTS if self._is_afterwards else _MIXED_IN_LOADING
        mode.averages = None if self._is_afterwards else self._averages
        Origins.on_saved, Origins.on_read = self._record_saved_file, self._record_read_file
        Origins.on_unlabelled, Origins.on_omitted = self._record_unlabelled_file, self._record_omitted_bytes
        Origins.wants_sample, Origins.on_sampled = self._has_no_sample, self._record_sample
        if self._is_first:
            lifecycle.goes_on_after_save = True
            lifecycle.saves_wanted = 0 if self._signal_number else self._saves
            lifecycle.steps_beyond = _STEPS_AFTER_SIGNAL if self._signal_number else self._saves - 1
            self._own_handler = signal.getsignal(self._signal_number) if self._signal_number else None
        on_root, told_of_batch = modules.on_enter_root, lifecycle.on_batch

        def enter_root(root: nn.Module) -> None:
            on_root(root)
            if self._is_afterwards and self.record.at_start is None:
                self.record.at_start = self._describe_state(root, continues_training=False)
            if lifecycle.phase == "forward":
                # Not from on_forward: an engine's step goes back to the phase before it, and the forward after it
                # is no change of phase.
                self._averages.end_detection()
                mode.on_batch_used = self._record_trained_batch

        def label_and_forward_batch(batch: Any) -> None:
            self._label_batch(batch)
            if told_of_batch is not None:
                told_of_batch(batch)

        modules.on_enter_root = enter_root
        lifecycle.on_batch = label_and_forward_batch

        def stop_recording() -> None:
            Origins.followed, InlineExecutor.defer = False, None
            for one in reversed(undo):
                one()

        return stop_recording

    def _window_peak_bytes(self) -> dict[str, int]:
        return {str(device): record.window_peak for device, record in self._mode.memory.devices.items()}

    # -- what the program does ------------------------------------------------------------

    def on_forward(self) -> None:
        """Record the state at the first forward: its labels in the first run, what was resumed in the second."""
        if self._is_first:
            self._life.goes_on_with_data = self._life.goes_on_with_data or bool(self._background.held_since())
            self._wait_for_handler()
            if self._saved_since_step or self._background.is_one_under_way:
                pinned = self._mode.memory.device(torch.device("cpu")).pinned
                self.record.pinned_bytes = max(self.record.pinned_bytes, pinned)
            if self._saved_since_step:
                for device, peak in self._window_peak_bytes().items():
                    self.record.save_peaks[device] = max(peak, self.record.save_peaks.get(device, 0))
            if not self._drawn:
                for held in self._inventory.state_tensors(self._life.trained_root):
                    if held.kind != "optimizer":
                        self._drawn[held.label] = not held.is_from_file
                        if held.kind == "parameter" and not held.trained:
                            self._initial[held.label] = held.initial_origins()
                self._mode.mixed_kinds = frozenset()
                self._label_state_tensors()
        elif self.record.at_start is None:
            self._mode.mixed_kinds = frozenset()
            self.record.resume_peaks = self._window_peak_bytes()
            self.record.at_start = self._describe_state(self._life.trained_root, continues_training=True)

    def on_backward(self) -> None:
        """End the first run once training continues after a save: by then it has read the next batch."""
        self._averages.end_detection()  # where no training forward was seen: what backward writes are gradients
        self._background.settle()
        self._kill_after_save()

    def _kill_after_save(self) -> None:
        if self._is_first and self._saved_since_step and self._life.step:
            self._end_save()
            told = self.record.signal
            if (
                told.saved_at is not None
                if self._signal_number and told is not None
                else (not self._signal_number and len(self.record.saves) >= self._saves)
            ):
                self.record.killed = True
                raise RehearsalComplete
            self.record.saved, self.record.omitted_bytes = [], 0

    def _end_save(self) -> None:
        """Note what the save has left on disk, now that training goes on after it."""
        told = self.record.signal
        if told is not None and told.saved_at is None:
            self.record.signal = msgspec.structs.replace(told, saved_at=self._life.step)
        sizes = {name: os.path.getsize(name) for name in self._written_since_save if os.path.isfile(name)}
        begun = self._saved_in_background
        step = begun.step if begun is not None else self._life.step
        self.record.saves.append(RankSave(step, sizes, self.record.omitted_bytes))
        self._written_since_save, self._opened = {}, {}
        self._saved_since_step = False

    def on_step(self) -> None:
        """Label the state again, since the optimizer has replaced its values."""
        self._averages.start_detection(self._inventory.state_tensors(self._life.trained_root))
        self._background.on_step()
        if self._is_first:
            self._label_state_tensors()
            if self._saved_in_background is None:
                self.record.random_got = {}
            if not self._saved_since_step and not self._background.is_one_under_way:
                for device in self._mode.memory.devices.values():
                    device.restart_window()
            if self._signal_number and self.record.signal is None and self._life.step + 1 >= self._life.target:
                self._send_signal()

    def _send_signal(self) -> None:
        """Have the program get the job's signal; without a handler, it ends here."""
        handler = signal.getsignal(self._signal_number)
        handling: SignalHandling = "handled"
        if not self._signal_reaches:
            handling = "not-passed-on"
        elif handler is signal.SIG_IGN:
            handling = "ignored"
        elif handler in (signal.SIG_DFL, None) or handler is self._own_handler:  # gonogo's, of SIGTERM
            handling = "default"
        self.record.signal = SignalOutcome(handling, self._life.step + 1)
        if handling in ("default", "not-passed-on"):
            self.record.killed = True
            raise RehearsalComplete
        if handling == "handled":
            self._life.goes_on_with_data = True
            signal.raise_signal(self._signal_number)

    def _wait_for_handler(self) -> None:
        """Give real time to a handler that only sets a timer: rehearsed steps take almost none."""
        told = self.record.signal
        waits = told is not None and told.handling == "handled" and not self._saved_since_step
        if waits and self._pauses < _MAX_PAUSES:
            self._pauses += 1
            time.sleep(_PAUSE_SECONDS)

    def until_the_end(self) -> AbstractContextManager[None]:
        """Run the program in this, to its end."""
        return self._background.until_the_end()

    def finish(self, outcome: Outcome) -> RankRunState:
        """The record at the program's end; a program that failed before training leaves no state in it."""
        resumed = not self._is_first and not self._is_afterwards
        self.record.background = self._background.finish()
        self.record.shm_bytes = SharedMemory.peak
        if self._is_first and self._saved_since_step:
            self._end_save()
        self.record.save_plan = self._life.save_plan
        self._averages.end_detection()
        if resumed and self.record.at_start is None and outcome == "completed":
            self.record.at_start = self._describe_state(self._life.trained_root, continues_training=False)
        if self.record.at_start is not None and resumed:
            self.record.at_start = msgspec.structs.replace(
                self.record.at_start,
                held=(*self.record.at_start.held, *self._averages.at_first_update),
                counters=(*self.record.at_start.counters, *self._averages.counters_at_first_update),
            )
        return self.record

    def _label_state_tensors(self) -> None:
        set_labels((held.tensor, held.label) for held in self._inventory.state_tensors(self._life.trained_root))

    def _describe_state(self, root: nn.Module | None, *, continues_training: bool) -> StateMoment:
        held = [
            one.to_held_state(
                randomly_initialized=self._drawn.get(one.label, not one.is_from_file),
                initial=self._initial.get(one.label, ()),
            )
            for one in self._inventory.state_tensors(root)
        ]
        held += self._averages.average_states()
        counters = *self._inventory.step_counters(), *self._averages.update_counters()
        return StateMoment(self._life.step, tuple(held), counters, continues_training)

    # -- files ------------------------------------------------------------

    def _record_saved_file(self, file: str, tensors: list[Described]) -> None:
        if self._is_afterwards:
            self._record_saved_tensors(file, tensors)
            return
        if not self._is_first or self._life.phase == "load":
            return
        if not self._saved_since_step:
            self.record.at_save = self._describe_state(self._life.trained_root, continues_training=True)
            self.record.batches_before_save = len(self.record.batches)
            self._saved_in_background = begun = self._background.task_of_thread
            if begun is not None:  # what it writes is of then
                self.record.at_save = msgspec.structs.replace(
                    self.record.at_save, step=begun.step, counters=begun.counters
                )
                self.record.batches_before_save, self.record.random_got = begun.batches, begun.random_states
        if any(label[0] in (*_STATE_KINDS, "rank") for *_, pieces in tensors for *_, label in pieces):
            self._saved_since_step = True
            self._life.goes_on_with_data = True  # up to the next batch
        self._record_saved_tensors(file, tensors)

    def _record_saved_tensors(self, file: str, tensors: list[Described]) -> None:
        for key, shape, dtype, pieces in tensors:
            if self._is_afterwards:
                whole = math.prod(shape) * _dtype_size(dtype)
                found = tuple(origins_of_pieces(pieces, whole))
                self.record.weights.append(SavedWeight(key, dtype.removeprefix("torch."), shape, found))
            states = dict.fromkeys(label for _, _, label in pieces if label[0] in _STATE_KINDS)
            holds = tuple((label[0], label[1], label[2]) for label in states)
            if holds or any(label[0] == "rank" for _, _, label in pieces):
                self.record.saved.append(SavedTensor(file, key, shape, dtype.removeprefix("torch."), holds))
                self._record_read_file(file)

    def _record_file_event(self, event: str, args: Any) -> None:
        """An audit hook: record files that the program writes, renames or deletes."""
        if event not in _FILE_EVENTS:  # it is called for each id() and sys._getframe(), too
            return
        counts = Origins.followed and (self._life.step or self._is_afterwards)
        if not counts or len(self.record.file_events) >= _MAX_FILE_EVENTS:
            return
        if event == "open" and isinstance(args[2], int):
            path = args[0]
            if not isinstance(path, str | bytes):
                return
            name = os.path.abspath(os.fsdecode(path))
            if name.startswith(_NO_CHECKPOINTS) and not name.startswith(SHM):
                return
            if not args[2] & (os.O_WRONLY | os.O_RDWR):
                self._record_read_event(name)
            else:
                self._background.hold(name)
                if name not in self.record.written:
                    self.record.written.append(name)
                if name not in self._opened:
                    self._opened[name] = self._written_since_save[name] = None
                    self._add_file_event(name, appends=bool(args[2] & os.O_APPEND))
        elif event == "os.rename":
            source, target = (os.path.abspath(os.fsdecode(path)) for path in args[:2])
            self._add_file_event(target, source)
            for name in [one for one in self._written_since_save if is_at_or_below(one, source)]:
                del self._written_since_save[name]
                self._written_since_save[target + name[len(source) :]] = None
        elif event == "shutil.rmtree" or (event == "os.remove" and args[1] == -1):  # else within a tree
            self._add_file_event(os.path.abspath(os.fsdecode(args[0])), is_removed=True)

    def _record_read_event(self, name: str) -> None:
        if self._is_first and not name.endswith(_CODE) and len(self.record.file_reads) < _MAX_FILE_EVENTS:
            self.record.file_reads.append(self._file_event(name))

    def _add_file_event(self, name: str, source: str = "", *, is_removed: bool = False, appends: bool = False) -> None:
        self.record.file_events.append(
            msgspec.structs.replace(self._file_event(name), renamed_from=source, is_removed=is_removed, appends=appends)
        )

    def _file_event(self, name: str) -> FileEvent:
        collectives, others = self.collectives_done()
        return FileEvent(
            time.time(), name, collectives=collectives, save=len(self.record.saves), others_since=others,
            is_meanwhile=self._background.task_of_thread is None and bool(self._background.held_since()),
        )  # fmt: skip

    def _defer_save(self, fn: Callable[[], Any]) -> Any:
        self._life.goes_on_with_data = self._life.goes_on_with_data or self._is_first
        future = self._background.defer(fn)
        # What the program does next may be about this save: it is killed while the one before is the newest.
        self._kill_after_save()
        return future

    def _describe_moment(self) -> ProgramMoment:
        counters = *self._inventory.step_counters(), *self._averages.update_counters()
        return ProgramMoment(
            self._life.ledger.current_place(), self._life.step, len(self.record.batches), counters,
            self.record.random_got,
        )  # fmt: skip

    def _record_omitted_bytes(self, nbytes: int) -> None:
        if self._is_first and self._life.step:
            self.record.omitted_bytes += nbytes

    def _record_unlabelled_file(self, file: str) -> None:
        if file not in self.record.unlabelled and os.path.exists(file):
            self.record.unlabelled[file] = os.stat(file).st_mtime

    def _has_no_sample(self, file: str, key: str) -> bool:
        return key not in self.record.samples.get(real_path(file), ())

    def _record_sample(self, file: str, key: str, sample: TensorSample) -> None:
        self.record.samples.setdefault(real_path(file), {})[key] = sample

    def _record_read_file(self, file: str) -> None:
        if file not in self.record.files:
            self.record.files.append(file)

    # -- data and random numbers ------------------------------------------------------------

    def _label_batch(self, batch: Any) -> None:
        tensors = list(_tensors_in(batch))
        digest = hashlib.sha256()
        for tensor in tensors:
            known = self._mode.known_values(tensor)
            if known is None:
                return
            digest.update(repr((tuple(known.shape), known.tolist())).encode())
        set_labels((tensor, (BATCH, digest.hexdigest()[:16], "", "")) for tensor in tensors)

    def _record_trained_batch(self, digest: str) -> None:
        self.record.batches.append(digest)

    def _record_random_state_read(self, kind: str, digest: str) -> None:
        if self._is_first and self._life.phase not in ("forward", "backward"):
            known = self.record.random_got.setdefault(kind, [])
            if digest not in known:
                known.append(digest)

    def _record_random_state_set(self, kind: str, digest: str) -> None:
        if not self._is_first and self.record.at_start is None:
            known = self.record.random_set.setdefault(kind, [])
            if digest not in known:
                known.append(digest)


def _dtype_size(dtype: str) -> int:
    found = getattr(torch, dtype.removeprefix("torch."), None)
    return found.itemsize if isinstance(found, torch.dtype) else 1


def _tensors_in(batch: Any) -> Any:
    if isinstance(batch, VirtualTensor):
        yield batch
        return
    inner = batch if isinstance(batch, dict) else getattr(batch, "data", None)
    values: Any = inner.values() if isinstance(inner, dict) else batch if isinstance(batch, list | tuple) else ()
    for value in values:
        yield from _tensors_in(value)


class _RecordedLifecycle(Lifecycle):
    def __init__(self, recorder: LifeRecorder, *args: Any) -> None:
        super().__init__(*args)
        self._recorder = recorder

    def _switch_phase(self, phase: Phase) -> None:
        super()._switch_phase(phase)
        if phase == "forward" and not self.in_evaluation:
            self._recorder.on_forward()
        elif phase == "backward":
            self._recorder.on_backward()

    def on_optimizer_step(self, optimizer: object) -> None:
        self._recorder.on_step()
        super().on_optimizer_step(optimizer)
