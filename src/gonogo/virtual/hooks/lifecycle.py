"""The state of a training program: its phase, its number of steps, and whether it has run long enough."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from gonogo.evidence.rehearsal.lives import SavePlan
from gonogo.evidence.rehearsal.loading import LoaderSharedMemory
from gonogo.evidence.rehearsal.record import AdvancedLoop, Assumption, OmittedPart, Phase, TensorPlacement
from gonogo.finding import translated
from gonogo.virtual.fsdp_loading import first_rank_alone_holds
from gonogo.virtual.hooks.advanced_loops import LoopAdvancer
from gonogo.virtual.hooks.ended_data import EndedData
from gonogo.virtual.hooks.last_batch import LastBatchTracker
from gonogo.virtual.hooks.training_facts import TrainingFacts
from gonogo.virtual.memory.tracking import MemoryRecord
from gonogo.virtual.values.assumptions import Ledger

_CATEGORY_OF_PHASE: dict[str, str] = {
    "load": "parameters",
    "init": "optimizer",
    "generate": "activations",
    "reward": "activations",
    "score": "activations",
    "sync": "communication",
    "forward": "activations",
    "backward": "temporary",
    "step": "temporary",
    "evaluate": "activations",
    "save": "temporary",
    "exit": "temporary",
}
_STEADY_PHASES = ("generate", "reward", "score", "sync", "forward", "backward", "step", "evaluate")
"""Phases in which all ranks of a node do the same; before the first step, this includes initialization."""
_MAX_EXTRA_STEPS = 8
"""A program that doesn't stop when its data ends is stopped after this many steps beyond the requested ones."""
_MAX_CHEAP_STEPS = 400
_MAX_CHEAP_CPU_SECONDS = 8.0
_MAX_CHEAP_WALL_SECONDS = 30.0
"""Cheap steps continue for at most this many seconds, so that a short loop reaches its end.

What the program does at its fortieth step, at its last batch and after its loop is then actually run. The same limit
holds for reading all the remaining data.
"""
_MAX_PASSES_WITH_BATCH = 12
"""Epochs after the requested steps that still get a batch each; more than most fine-tunes have."""
_MAX_PASSES = 1000
_MAX_LOOP_BATCHES = 64
EVALUATION_BATCHES = 2
_COMES_TO = translated("training continues until {counter} is {value}")


_LATER_STEPS = translated("{place}: training steps beyond the first {steps}")
_LOOP_CUT_SHORT = translated(
    "the program continues with these steps, but the rehearsal ends here; the code after the "
    "training loop was not run either"
)


def _unreached_loop_note(one: AdvancedLoop) -> OmittedPart:
    what = translated("{place}: the code under {test}").format(place=one.place, test=one.text)
    why = translated("the rehearsed steps don't reach this code, and its condition depends on more than a counter")
    return OmittedPart(what.en, what.zh, why.en, why.zh)


def affordable_repetitions(
    cpu_seconds: float, wall_seconds: float, spent_seconds: tuple[float, float] = (0.0, 0.0)
) -> int:
    """How many more repetitions are affordable, given CPU and wall-clock seconds per repetition.

    ``spent_seconds``: what has already been used of both budgets.
    """
    by_processor = (_MAX_CHEAP_CPU_SECONDS - spent_seconds[0]) / max(cpu_seconds, 1e-3)
    by_clock = (_MAX_CHEAP_WALL_SECONDS - spent_seconds[1]) / max(wall_seconds, 1e-3)
    return max(0, min(_MAX_CHEAP_STEPS, int(by_processor), int(by_clock)))


class RehearsalComplete(BaseException):
    """Raised in the program after it has shown what was requested, if it would not end by itself."""


def attach_phase(error: BaseException, phase: Phase) -> None:
    """Attach the phase in which an exception was raised; an inner phase that is already attached is kept."""
    if not hasattr(error, "gonogo_phase"):
        error.gonogo_phase = phase  # type: ignore[attr-defined]


class Lifecycle:
    """Phase and step of the program. ``target``: the number of optimizer steps to make."""

    def __init__(self, target: int, memory: MemoryRecord, ledger: Ledger) -> None:
        self.target = target
        self.memory = memory
        self.ledger = ledger
        self.phase: Phase = "load"
        self.step = 0
        self._stepped: set[int] = set()
        """The optimizers that have stepped since the last step began: of several, each steps once in an iteration."""
        self.reached: list[Phase] = ["load"]
        self.expected: list[Phase] = ["forward", "backward", "step"]
        """What a real run reaches: a program that never trains has shown nothing of its training."""
        self.activity = ""
        self.in_backward = 0
        self.has_engine = False
        self.has_optimizer = False
        self.model_in_eval_mode = False
        """By the program's own word: ``from_pretrained`` gives each model so."""
        self.mode_chosen = False
        """Whether the program has called ``train()`` or ``eval()``: else it trains what it was given."""
        self.in_evaluation = 0
        self.seen = TrainingFacts()
        self.trained_root: Any = None
        """The model of the first training forward."""
        self.left_on_cpu: list[TensorPlacement] = []
        self.on_batch: Callable[[Any], None] | None = None
        """Told of each batch that the program reads."""
        self.to_the_end = False
        """Whether data is read to its own end where that costs little, as a rehearsal does."""
        self.reading: Callable[[], bool] | None = None
        """Whether the training data that the program reads goes on for all that is left of it."""
        self.on_loader: Callable[[Any], None] | None = None
        """Told of each data loader that the program begins to read for training."""
        self.ask_left: Callable[[int], list[int] | None] | None = None
        """Asks the ranks that are rehearsed together how many batches each has left, given the own number."""
        self.loading: LoaderSharedMemory | None = None
        self.batches_left: int | None = None
        """How many there were where the rehearsal ended the data, if that is known."""
        self.end = EndedData()
        self.batches_at_once = 1
        """How many batches of the loader that is being opened make one of the program's."""
        self.data_ended: Assumption | None = None
        """Where the rehearsal first ended data before its end."""
        self.world = 1
        """How many ranks the program's process group has."""
        self.ahead = LastBatchTracker()
        self.trained_on: set[int] = set()
        """Data sets, by ``id``, that batches were read of before the steps asked for had been made."""
        self.read_beyond: Assumption | None = None
        """While data is read, or given, that training comes to much later, if at all: it may count its steps."""
        self.read_through: set[int] = set()
        """Data sets, by ``id``, all of whose rows were read, though not all given."""
        self.spent_on_passes = (0.0, 0.0)
        """Seconds, of the processor and by the clock, of evaluations that were read to their ends."""
        self.loops = LoopAdvancer()
        self._more_batches = 0
        self.cut: dict[str, OmittedPart] = {}
        """What was left out of the run, by its place."""
        self.more_steps = 0
        """Steps to be made beyond the target: the ranks' data ends at different steps, or its end is worth seeing."""
        self._enough_at: tuple[float, float] | None = None
        """When the steps asked for had been made, in processor time and by the clock: a step may sleep."""
        self._went_on_cheaply = False
        self._first_step: tuple[float, float, int] | None = None
        """When the first step, which costs more than others, had been made, as above; the batches that were read."""
        self._all_read: bool | None = None
        """Whether all ranks read data whose end a rehearsal may bring forward (True), or none does (False)."""
        self._later_passes = 0
        self._gave_nothing = False
        """Whether a pass over the data was given no batch."""
        self.empty_pass = False
        """Whether the program's own data came to no batch, before any step."""
        self._after_save = False
        self.goes_on_after_save = False
        """Whether training is to go on after its save, which the rehearsal waits for."""
        self.goes_on_with_data = False
        self.saves_wanted = 1
        """How many saves the program is to make before it ends."""
        self.steps_beyond = 0
        """Steps that training goes on for meanwhile."""
        self.save_plan: SavePlan | None = None
        """What the Trainer's settings say of its checkpoints."""
        """Whether data goes on meanwhile, where the program itself counts its steps."""
        self.counts_evaluation = False
        """Whether the program itself counts the batches of an evaluation, so that its data must not end before."""

    @property
    def has_made_steps(self) -> bool:
        """Whether the requested steps have been made."""
        return self.step >= self.target

    def enter(self, phase: Phase) -> None:
        """Switch to ``phase``."""
        if phase == self.phase and not self._after_save:
            return
        self._after_save = False
        self._switch_phase(phase)

    def _switch_phase(self, phase: Phase) -> None:
        for record in self.memory.devices.values():
            record.save_peak()
            record.end_phase(self.phase)
            if record.load_peak is None and self.phase == "load" != phase:
                record.load_peak = record.peak
            starts = phase == "init" and not self.step and not first_rank_alone_holds()
            record.steady = phase in _STEADY_PHASES or starts
        self.phase = phase
        if phase not in self.reached:
            self.reached.append(phase)
        self.memory.set_category(_CATEGORY_OF_PHASE[phase])
        self.memory.makes_states = phase == "step"

    @contextmanager
    def during(self, phase: Phase, activity: str = "") -> Iterator[None]:
        """Within the block, the program is in ``phase``."""
        before, before_activity = self.phase, self.activity
        self.activity = activity or self.activity
        self.in_evaluation += phase == "evaluate"
        if phase == "save" and self.phase != "save":
            gc.collect()  # collect now: the time of automatic collection is not deterministic
        self.enter(phase)
        try:
            yield
        except BaseException as error:
            attach_phase(error, self.phase)
            raise
        finally:
            self.in_evaluation -= phase == "evaluate"
            self._switch_phase(before)
            self.activity = before_activity
            if phase == "save":  # what was gathered on one rank may not have been freed yet
                self._after_save = True
                for record in self.memory.devices.values():
                    record.steady = False

    @contextmanager
    def reading_several_batches(self, count: int) -> Iterator[None]:
        """Context in which ``count`` batches of a loader make one batch of the program."""
        before, self.batches_at_once = self.batches_at_once, count
        try:
            yield
        finally:
            self.batches_at_once = before

    def expect_phases(self, *phases: Phase) -> None:
        """Expect that a real run, as configured, reaches these phases."""
        self.expected += [phase for phase in phases if phase not in self.expected]

    def on_program_end(self) -> None:
        """Note that the program has ended. Without an optimizer, no optimizer step is expected of it."""
        ended_early = self.data_ended is not None or self.empty_pass
        if "backward" in self.reached and not (self.has_optimizer or self.has_engine or ended_early):
            self.expected = [phase for phase in self.expected if phase != "step"]

    def on_optimizer_step(self, optimizer: object) -> None:
        """Note a step of an optimizer or engine; of several optimizers, only the first one per iteration counts.

        Raises RehearsalComplete if the program continues far beyond the target.
        """
        self.seen.record_step(self.trained_root)
        if self._stepped and id(optimizer) not in self._stepped:
            self._stepped.add(id(optimizer))
            return
        self._stepped = {id(optimizer)}
        self.step += 1
        if dist.is_available() and dist.is_initialized():
            self.world = max(self.world, dist.get_world_size())
        self.ledger.step = self.step
        if self._first_step is None:
            self._first_step = time.process_time(), time.monotonic(), self.ahead.batches
        if self.has_made_steps:
            if self._enough_at is None:
                self._enough_at = time.process_time(), time.monotonic()
                self._all_read = self._agree_on_reading()
            # Advance a loop only if it won't get there by itself, or it would happen twice.
            if self._all_read is not False and not self.should_read_on:
                self._advance_loops()
        if (
            self.step >= self.target + self.more_steps + _MAX_EXTRA_STEPS * max(1, self.saves_wanted)
            and not self._can_continue_cheaply()
            and not self._advance_loop_at_end()
        ):
            place = self.ledger.current_place()
            what = _LATER_STEPS.format(place=place, steps=self.step)
            self.cut.setdefault(place, OmittedPart(what.en, what.zh, _LOOP_CUT_SHORT.en, _LOOP_CUT_SHORT.zh))
            raise RehearsalComplete

    def _can_continue_cheaply(self) -> bool:
        """Extend the run, once, by as many steps as are cheap on every rank; returns False if there are none."""
        if self._went_on_cheaply or self._enough_at is None or self.data_ended is not None:
            return False
        self._went_on_cheaply = True
        processor, clock = self._enough_at
        more = affordable_repetitions(
            (time.process_time() - processor) / _MAX_EXTRA_STEPS, (time.monotonic() - clock) / _MAX_EXTRA_STEPS
        )
        everywhere = self.ask_left(more) if self.ask_left is not None else [more]
        if not everywhere:  # a rank has ended, or is waiting elsewhere
            return False
        self.more_steps += min(everywhere)
        return min(everywhere) > 0

    @property
    def should_read_on(self) -> bool:
        """Whether all ranks continue to read data beyond the requested steps, and some of it is left."""
        return bool(self._all_read) and self.reading is not None and self.reading()

    def affordable_batches(self) -> int:
        """How many more batches are cheap, judging by those after the first step; 0 while that is unknown."""
        if self._first_step is None:
            return 0
        processor, clock, before = self._first_step
        read = self.ahead.batches - before
        if read <= 0:
            return 0
        return affordable_repetitions((time.process_time() - processor) / read, (time.monotonic() - clock) / read)

    def _agree_on_reading(self) -> bool | None:
        if not self.to_the_end:
            return None
        reads = self.reading is not None or self.data_ended is not None
        everywhere = self.ask_left(int(reads)) if self.ask_left is not None else [int(reads)]
        return reads if everywhere and set(everywhere) == {int(reads)} else None

    def _advance_loop_at_end(self) -> bool:
        """Advance a loop that continues after the rehearsed steps and reads no loader; False if there is none."""
        if self._all_read is not False or self.data_ended is not None:
            return False
        before = len(self.loops.led)
        self._advance_loops()
        return len(self.loops.led) > before

    def _advance_loops(self) -> None:
        before = len(self.loops.led)
        self.loops.after_step()
        self.more_steps += self.loops.waiting
        for one in self.loops.led[before:]:
            if not one.sure:
                self.ledger.assume(_COMES_TO.format(counter=one.counter, value=one.value))

    @property
    def needs_loop_batch(self) -> bool:
        """Whether to give a loop one more batch, so that it can be advanced to another number."""
        if not self.loops.waiting or self._more_batches >= _MAX_LOOP_BATCHES:
            return False
        self._more_batches += 1
        return True

    def omitted_parts(self) -> list[OmittedPart]:
        """What a real run reaches through its loops but the rehearsal did not, and what was cut short."""
        unmet = [_unreached_loop_note(one) for kind, one in self.loops.unmet if kind not in self.reached]
        return [*unmet, *self.cut.values()]

    def end_data(self, batch_count: int) -> None:
        """End the program's data after ``batch_count`` batches, although there is more."""
        what = translated("the rehearsal ends the data after {given} batches").format(given=batch_count)
        self.ahead.was_ended = True
        self.data_ended = Assumption(what.en, self.ledger.current_place(), 1, what.zh)

    def should_repeat_data(self, *, anew: bool) -> bool:
        """Whether to give one batch to a program that iterates over its data again after the requested steps.

        A loop without any batch might divide by zero. ``anew``: it iterates again because the data ended, so it gets
        none. Raises RehearsalComplete if this has happened very often.
        """
        self._later_passes += 1
        if anew or self._later_passes > _MAX_PASSES:
            raise RehearsalComplete
        goes = self._later_passes <= _MAX_PASSES_WITH_BATCH
        self.more_steps += goes
        self._gave_nothing = not goes
        return goes

    def is_caused_by_ended_data(self, error: BaseException) -> bool:
        """Whether a program failed because the rehearsal ended its data after the requested steps.

        An empty loop leaves variables undefined, averages divide by zero, and there is no first batch.
        """
        if self.end.is_end_of_data(error, enough=self.has_made_steps):
            return True
        if not (self._gave_nothing and self.has_made_steps) or self.phase_and_step()[0] == "save":
            return False
        kinds = (UnboundLocalError, ZeroDivisionError, StopIteration)
        return isinstance(error, kinds) or self.end.is_due_to_empty_pass(error)

    def phase_and_step(self) -> tuple[Phase, int]:
        """The current phase and step; after a save, memory counts as the save's until the next phase begins."""
        return "save" if self._after_save else self.phase, self.step

    def describe(self, module: str | None) -> str:
        """What the program is doing, for the progress display and for a worker that is ended."""
        parts: list[Any] = [
            self.phase,
            f"step {self.step + 1}" if self.phase in ("forward", "backward", "step") else "",
        ]
        return ", ".join(part for part in (*parts, module or self.activity) if part)
