"""Follows a training program through torch's own calls: backward, optimizer steps, data, parameters, modes."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

import torch
from torch import nn

from gonogo.evidence.rehearsal.record import ROLLOUT_PHASES, Assumption, OmittedPart
from gonogo.finding import Text, translated
from gonogo.virtual import private
from gonogo.virtual.frame_variables import local_variable
from gonogo.virtual.hooks.batches.evaluation_growth import EvaluationGrowth
from gonogo.virtual.hooks.batches.loader_wrappers import patch_loader_wrappers
from gonogo.virtual.hooks.batches.odd_batches import MAX_ODD_BATCHES, OddBatches
from gonogo.virtual.hooks.batches.pass_costs import PassCosts
from gonogo.virtual.hooks.data_workers import iterate_without_workers, measure_loader_shared_memory
from gonogo.virtual.hooks.lifecycle import EVALUATION_BATCHES, Lifecycle, attach_phase
from gonogo.virtual.hooks.memory_ownership import assign_model_owners, assign_state_owners
from gonogo.virtual.hooks.modules import ModuleTracker, owns_storage
from gonogo.virtual.mode import VirtualMode
from gonogo.virtual.operators import foreach
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.garbage import restore_gc_thresholds
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.reentrancy import InternalWork
from gonogo.virtual.tensor import VirtualTensor, local_tensors
from gonogo.virtual.values.data_mode import running_on_real_data


def install(mode: VirtualMode, lifecycle: Lifecycle, modules: ModuleTracker) -> Callable[[], None]:
    """Patch torch so that ``lifecycle`` follows the program; returns a function that undoes all patches."""
    patches = Patches()
    patches.on_undo(modules.install())
    patches.on_undo(foreach.install())
    modules.on_enter_root = functools.partial(_note_root_forward, lifecycle, modules)
    modules.on_embedding = functools.partial(_record_embedding, lifecycle)
    _track_backward(patches, lifecycle, modules)
    _track_optimizers(patches, lifecycle, modules)
    _make_parameters_virtual(patches, mode)
    _track_data_loading(patches, lifecycle, mode)
    lifecycle.ahead.track_schedulers(patches)
    return patches.undo


def _drop_root_that_is_gone(lifecycle: Lifecycle, modules: ModuleTracker, root: nn.Module) -> None:
    """Let the first trained model go, with its parameters, if the program has: it now trains another one."""
    held = lifecycle.trained_root
    if sys.getrefcount(held) <= _OWN_REFERENCES:
        modules.forget(held)
        lifecycle.trained_root = root


def _note_root_forward(lifecycle: Lifecycle, modules: ModuleTracker, root: nn.Module) -> None:
    """Note that a top-level module begins a forward: training, evaluation, or recomputation in backward."""
    if lifecycle.in_backward:
        lifecycle.seen.record_recompute(root)
        return
    if lifecycle.phase in ("evaluate", "save", *ROLLOUT_PHASES):
        return
    trains = _is_in_training_mode(root)
    if torch.is_grad_enabled() and (trains or (not lifecycle.mode_chosen and _is_trainable(root))):
        lifecycle.model_in_eval_mode = False
        if "forward" not in lifecycle.reached:
            gc.collect()
            gc.freeze()  # imports and models stay alive, so later collections can skip them
            lifecycle.left_on_cpu = modules.tensors_left_on_cpu(root)
            lifecycle.trained_root = root
            if not lifecycle.has_engine:
                _categorise_parameters(root, lifecycle)
            assign_model_owners(root, modules)
        elif lifecycle.trained_root is not root:
            _drop_root_that_is_gone(lifecycle, modules, root)
        modules.watch_gradients(root)
        lifecycle.enter("forward")
    elif lifecycle.step and not trains:
        lifecycle.enter("evaluate")


def _is_in_training_mode(root: nn.Module) -> bool:
    """Whether a wrapper or its model is training: Lightning calls ``eval()`` on DDP, but ``train()`` on the model."""
    while not root.training:
        inner = list(root.children())
        if len(inner) != 1 or root._parameters:
            return False
        root = inner[0]
    return True


def _is_trainable(root: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in root.parameters())


def _record_embedding(lifecycle: Lifecycle, module: Any, inputs: Any) -> None:
    if lifecycle.phase == "forward" and not lifecycle.in_backward and torch.is_grad_enabled():
        lifecycle.seen.record_embedding(module, inputs)


def _track_backward(patches: Patches, lifecycle: Lifecycle, modules: ModuleTracker) -> None:
    followed = functools.partial(_run_backward, lifecycle, modules)
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> None:
        followed(original, *args, **kwargs)

    patches.set(torch.autograd, "backward", backward)
    patches.set(torch.autograd.Variable, "_execution_engine", _AutogradEngine(torch.autograd.Variable, followed))


def _run_backward(
    lifecycle: Lifecycle, modules: ModuleTracker, original: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    lifecycle.in_backward += 1
    if lifecycle.in_backward == 1:
        lifecycle.seen.backwards += 1
        lifecycle.enter("backward")
    try:
        return original(*args, **kwargs)
    except BaseException as error:
        attach_phase(error, lifecycle.phase)
        raise
    finally:
        lifecycle.in_backward -= 1
        if not lifecycle.in_backward:
            _categorise_gradients(lifecycle, modules)
            modules.memory.module = None


class _AutogradEngine:
    """Wraps autograd's engine, since programs such as pipelines may bypass ``torch.autograd.backward``."""

    def __init__(self, variable: Any, run_backward: Callable[..., Any]) -> None:
        self._engine = variable._execution_engine
        self._followed = run_backward

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        """Follow a backward only if it accumulates gradients, which ``torch.autograd.grad`` doesn't."""
        if kwargs.get("accumulate_grad"):
            return self._followed(self._engine.run_backward, *args, **kwargs)
        return self._engine.run_backward(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def _categorise_parameters(root: nn.Module, lifecycle: Lifecycle) -> None:
    """Count the parameters in their current form, which FSDP may have created during its setup."""
    for parameter in root.parameters():
        for tensor in local_tensors(parameter):
            lifecycle.memory.recategorise(tensor.cell, "parameters")


def _categorise_gradients(lifecycle: Lifecycle, modules: ModuleTracker) -> None:
    """Count the gradients of the largest live model as gradient memory."""
    for root in modules.roots()[:1]:
        for parameter in root.parameters():
            gradient = parameter.grad if parameter.is_leaf else None
            for local in local_tensors(gradient):
                if local is not gradient or owns_storage(local):  # a DTensor's shares one buffer with its group's
                    lifecycle.memory.recategorise(local.cell, "gradients")
        assign_model_owners(root, modules)


def _track_optimizers(patches: Patches, lifecycle: Lifecycle, modules: ModuleTracker) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    def before_optimizer_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not lifecycle.has_engine:
            lifecycle.enter("step")
        assign_state_owners(optimizer, lifecycle.memory)
        has_closure = bool(args[1:] or kwargs.get("closure"))  # args[0] is the optimizer
        lifecycle.seen.record_stepping_optimizer(
            optimizer, has_gradients=has_closure or modules.has_any_gradient(_optimizer_parameters(optimizer))
        )

    def after_optimizer_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        categorise_optimizer_states(optimizer, lifecycle)
        assign_state_owners(optimizer, lifecycle.memory)
        lifecycle.seen.record_optimizer_states(optimizer)
        if not lifecycle.has_engine:
            lifecycle.on_optimizer_step(optimizer)

    made = torch.optim.Optimizer.__init__

    @functools.wraps(made)
    def init_optimizer(optimizer: Any, *args: Any, **kwargs: Any) -> None:
        lifecycle.has_optimizer = True
        made(optimizer, *args, **kwargs)

    patches.set(torch.optim.Optimizer, "__init__", init_optimizer)
    patches.on_undo(register_optimizer_step_pre_hook(before_optimizer_step).remove)
    patches.on_undo(register_optimizer_step_post_hook(after_optimizer_step).remove)


def _optimizer_parameters(optimizer: Any) -> Iterator[torch.Tensor]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def categorise_optimizer_states(optimizer: Any, lifecycle: Lifecycle) -> None:
    """Count an optimizer's state tensors as optimizer memory."""
    for state in getattr(optimizer, "state", {}).values():
        if isinstance(state, Mapping):
            for value in state.values():
                if isinstance(value, VirtualTensor):
                    lifecycle.memory.recategorise(value.cell, "optimizer")


def _make_parameters_virtual(patches: Patches, mode: VirtualMode) -> None:
    """Make parameters virtual from the start, with unknown values, since nothing may depend on them."""
    original = nn.Parameter.__new__

    def new_parameter(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        restore_gc_thresholds()
        if type(data) is torch.Tensor and data.device.type == "cpu" and not InternalWork.now:
            data = mode.virtualise(data)
        if cls is not nn.Parameter and isinstance(data, VirtualTensor):
            return torch.Tensor._make_subclass(cls, data, requires_grad)
        parameter = original(cls, data, requires_grad)
        if isinstance(parameter, VirtualTensor):
            parameter.cell.values = None
            mode.memory.recategorise(parameter.cell, "parameters")
        return parameter

    patches.set(nn.Parameter, "__new__", staticmethod(new_parameter))
    is_one = private.parameter_instance_check()
    if is_one is not None:
        patches.set(type(nn.Parameter), "__instancecheck__", is_one)


def _track_data_loading(patches: Patches, lifecycle: Lifecycle, mode: VirtualMode) -> None:
    from torch.utils.data import DataLoader
    from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

    train = nn.Module.train

    @functools.wraps(train)
    def train_and_track(module: Any, mode: bool = True) -> Any:
        if not _is_incidental_train_call(module) and (mode or _is_trained(module)):
            lifecycle.model_in_eval_mode, lifecycle.mode_chosen = not mode, True
        return train(module, mode)

    _patch_loader(patches, DataLoader, _SingleProcessDataLoaderIter, lifecycle, mode)
    patches.set(nn.Module, "train", train_and_track)

    def patch_stateful_loader(module: Any) -> None:  # replaces DataLoader's iteration by its own
        owner = module.StatefulDataLoader
        _patch_loader(patches, owner, owner._get_iterator, lifecycle, mode)

    patches.on_undo(after_import("torchdata.stateful_dataloader.stateful_dataloader", patch_stateful_loader))
    patch_loader_wrappers(patches, lifecycle)


def _patch_loader(
    patches: Patches, owner: Any, make_iterator: Callable[[Any], Any], lifecycle: Lifecycle, mode: VirtualMode
) -> None:
    """Replace a data loader class's iterator by :class:`BatchIterator`."""
    original = owner.__iter__

    def make_batch_iterator(loader: Any) -> Any:
        if lifecycle.on_loader is not None and not lifecycle.model_in_eval_mode and torch.is_grad_enabled():
            lifecycle.empty_pass = lifecycle.empty_pass or has_no_batches(loader)
            lifecycle.on_loader(loader)
        return BatchIterator(loader, original, lifecycle, mode)

    original_length = owner.__len__

    def loader_length(loader: Any) -> int:
        """The loader's length; notes if it is 0, because a Trainer then raises without iterating over the data."""
        count: int = original_length(loader)
        lifecycle.empty_pass = lifecycle.empty_pass or count == 0
        return count

    patches.set(owner, "__iter__", make_batch_iterator)
    patches.set(owner, "__len__", loader_length)
    patches.set(owner, "_get_iterator", lambda loader: iterate_without_workers(loader, make_iterator, mode))


def has_no_batches(loader: Any) -> bool:
    """Whether a data loader reports a length of 0; False if it has no length or raises."""
    try:
        return len(loader) == 0
    except Exception:
        return False


def _is_trained(module: nn.Module) -> bool:
    """Whether a module has parameters to train: ``eval()`` of a frozen copy, teacher or encoder ends no training."""
    return any(parameter.requires_grad for parameter in module.parameters())


def _is_incidental_train_call(module: nn.Module) -> bool:
    """Whether ``train`` is called for a child module, or by ``from_pretrained``, which ends with ``eval()``."""
    caller: FrameType | None = sys._getframe(2)
    while (
        caller is not None and caller.f_code.co_name in ("train", "eval") and local_variable(caller, "self") is module
    ):
        caller = caller.f_back
    return caller is not None and caller.f_code.co_name in ("train", "from_pretrained")


_MAX_BATCHES_TO_FINISH = 64
"""If ranks have different numbers of batches left, and one at most this many, the data continues to its end."""
_LOOKED_AHEAD, _FEW = 64, 8
"""Batches to prefetch from a data set without a length, to compare the counts of ranks; fewer of large ones."""
_LARGE = 4 << 20
_OWN_REFERENCES = 3
"""References to the trained model that are gonogo's: its own, and two of whoever counts them."""
_READ_SECONDS, _READ_CLOCK = 6.0, 20.0
"""Remaining data is read without running it if that takes at most this long, in CPU and wall-clock seconds."""
_MAX_ODD_REHEARSED = 2 * MAX_ODD_BATCHES
"""Over all ranks together."""
_FARTHEST, _MOST_READ = 8192, 100_000
_MAX_BUFFERED_BYTES = 128 << 20
"""Bytes of batches that are prefetched."""
_SKIPPED_TRAINING_BATCHES = translated("{place}: training batches beyond the first {given} of {total}")
_GOES_ON = translated("training continues to the end of its data, all {total} batches")
_ASSUMED_SIMILAR = translated("these batches are assumed to be like the first ones: their rows were not read")
_UNKNOWN_DATASET_LENGTH = translated(
    "the data set has no length: only up to here was it checked that all ranks get the same number of batches"
)
_SKIPPED_EVALUATION_BATCHES = translated("{place}: evaluation batches beyond the first {given} of {total}")
_SKIPPED_BATCHES = translated("{place}: batches beyond the first {given} of {total}")
_UNKNOWN_BATCH_COUNT = translated(
    "the data loader has no length, so the number of batches is unknown: memory that grows from batch to batch is "
    "not counted"
)
_LATER_BATCHES_ASSUMPTION = translated(
    "these batches are assumed to be like the first ones; growth from batch to batch is counted"
    " for GPU memory, but not for host memory"
)


class BatchIterator:
    """A data loader's iterator that runs the program's data pipeline on real tensors, and ends early.

    Training data ends after the requested steps; an evaluation gets only a few batches.
    """

    def __init__(self, loader: Any, original: Callable[[Any], Any], lifecycle: Lifecycle, mode: VirtualMode) -> None:
        self._life = lifecycle
        self._mode = mode
        self._loader = loader
        self._given = 0
        self._at_once = lifecycle.batches_at_once
        self._ahead: list[Any] = []
        """Batches that were read to see whether there are any."""
        self._until: int | None = None
        """How many batches are given for what the later ones show, once that was asked."""
        self._goes_on: bool | None = None
        """Whether the data goes on to its own end, once the ranks have been asked."""
        self._asked_for_all = False
        """Whether the ranks have been asked whether all of it is read."""
        self._bytes = 0
        """Of the last batch."""
        self._growth = EvaluationGrowth(lifecycle)
        self._costs = PassCosts(lifecycle)
        self._odd = OddBatches()
        self._reads, self._seconds = 0, [0.0, 0.0]
        """Of batches after the first."""
        self._whole: bool | None = None
        """Whether all of a pass that trains nothing is read, once that was asked."""
        self._step_before = lifecycle.step
        with running_on_real_data():
            self._iterator = original(loader)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self._iterator)

    def __next__(self) -> Any:
        life = self._life
        evaluating = life.model_in_eval_mode or not torch.is_grad_enabled()
        if self._given % self._at_once:
            pass  # part of a batch that has been begun
        elif life.in_evaluation or (evaluating and life.step):
            if (
                self._given >= EVALUATION_BATCHES * self._at_once
                and not life.counts_evaluation
                and not self._must_not_end_data()
                and not self._growth.should_read_more(self._given)
                and not self._should_read_whole_pass()
            ):
                self._growth.allocate_remaining(self._evaluation_batches_left())
                self._record_skipped(_SKIPPED_EVALUATION_BATCHES)
                raise self._end_iteration()
            self._growth.record_memory()
        elif (
            life.has_made_steps
            and not life.goes_on_with_data
            and not life.needs_loop_batch
            and not self._must_not_end_data()
            and not self._should_read_further()
        ):
            anew = isinstance(sys.exc_info()[1], StopIteration)
            if not (self._should_continue_unseen_data() if self._given else life.should_repeat_data(anew=anew)):
                self._record_unread()
                life.read_beyond = None
                raise self._end_iteration()
        before, life.activity = life.activity, "reading data"
        try:
            batch = self._ahead.pop(0) if self._ahead else self._read_batch()
        except StopIteration:
            life.empty_pass = life.empty_pass or not (self._given or life.step or evaluating)
            raise
        finally:
            life.activity = before
        self._given += 1
        life.end.record_batch_given()
        self._costs.record_batch_read()
        life.loading = measure_loader_shared_memory(self._loader, batch, life.loading)
        self._bytes = batch_bytes(batch)
        given = make_batch_virtual(batch, self._mode)
        if not evaluating:
            if life.to_the_end and not self._asked_for_all:
                with running_on_real_data():
                    self._odd.record_seen(batch)
            if not life.has_made_steps:
                life.trained_on.add(id(self._loader.dataset))
            life.reading = self._should_read_all
            life.seen.record_batch(given)
            life.ahead.record_batch_read()
        if life.on_batch is not None:
            life.on_batch(given)
        return given

    def _read_batch(self) -> Any:
        began = time.process_time(), time.monotonic()
        with running_on_real_data():
            batch = next(self._iterator)
        if self._given:  # the first read includes startup costs
            self._reads += 1
            self._seconds[0] += time.process_time() - began[0]
            self._seconds[1] += time.monotonic() - began[1]
        return batch

    def _end_iteration(self) -> StopIteration:
        if self._life.data_ended is None and self._batches_left(1):
            self._life.end_data(self._given)
        return self._life.end.stop_after(self._given)

    def _evaluation_batches_left(self) -> int | None:
        """How many batches of an evaluation are left; None if the data has no length."""
        length = self._batches_per_pass
        return max(0, length - self._given) if length is not None else None

    @functools.cached_property
    def _batches_per_pass(self) -> int | None:
        """How many batches a pass has; None for a stream, and for a sampler of the program that has no length."""
        if getattr(self._iterator, "_dataset_kind", None) != 0:
            return None
        with contextlib.suppress(Exception):
            return len(self._iterator)
        return None

    def _should_continue_unseen_data(self) -> bool:
        """Whether to continue a pass over data that was not trained on, begun after the last optimizer step.

        A callback that looks at a held-out batch at the end of training may do so without switching to evaluation.
        """
        life = self._life
        if not life.to_the_end or life.step != self._step_before or id(self._loader.dataset) in life.trained_on:
            return False
        if self._given < EVALUATION_BATCHES or self._should_read_whole_pass():
            return True
        self._record_skipped(_SKIPPED_BATCHES)
        return False

    def _should_read_whole_pass(self) -> bool:
        """Whether to read all the rest of a pass without training, because it is cheap on each rank.

        Its last batch may be smaller than the others, and the code after its loop gets the results of all batches.
        """
        life = self._life
        if self._whole is None and life.to_the_end:
            left = self._evaluation_batches_left()
            can = int(bool(left) and self._costs.is_affordable(self._given, left or 0))
            everywhere = life.ask_left(can) if life.ask_left is not None else None
            self._whole = bool(can) and (not everywhere or min(everywhere) > 0)
        return bool(self._whole)

    def _record_skipped(self, kind: Text) -> None:
        """Note what is left out of a pass without training, once per place in the program."""
        left = self._evaluation_batches_left()
        if left is not None and not left:
            return
        place = self._life.ledger.current_place()
        total = "?" if left is None else f"{self._given + left:,}"
        what = kind.format(place=place, given=self._given, total=total)
        why = _UNKNOWN_BATCH_COUNT if left is None else _LATER_BATCHES_ASSUMPTION
        self._life.cut.setdefault(place, OmittedPart(what.en, what.zh, why.en, why.zh))

    def _must_not_end_data(self) -> bool:
        """Whether the data must not be ended here, because the rehearsed ranks have different amounts left."""
        life = self._life
        if self._goes_on is None:
            self._goes_on = False
            if life.ask_left is not None and self._given:
                limits = life.ask_left(self._lookahead_batches())
                far = min(limits) if limits else _FEW
                left = self._batches_left(far)
                everywhere = life.ask_left(left)
                if everywhere is not None and len(everywhere) > 1 and min(everywhere) >= far:
                    self._record_lookahead(far)
                if everywhere is not None and len(set(everywhere)) > 1:
                    self._goes_on = min(everywhere) <= _MAX_BATCHES_TO_FINISH
                    if self._goes_on:
                        life.more_steps += min(everywhere)
                    else:
                        life.batches_left = left
        return self._goes_on

    def _should_read_further(self) -> bool:
        """Whether to read on to a later batch that shows something new; all ranks read on together, or none does."""
        life = self._life
        if self._until is None and self._given:
            left = self._batches_left(1) if self._batches_per_pass is not None else 0
            more = life.ahead.extra_batches_to_read(self._loader, left)
            everywhere = life.ask_left(more) if life.ask_left is not None else [more]
            more = more if everywhere is not None and set(everywhere) == {more} else 0
            self._until = self._given + more
            life.more_steps += more
        return self._until is not None and self._given < self._until

    def _should_read_all(self) -> bool:
        """Whether to read all remaining data, because it is cheap on each rank, and some of it is left."""
        life = self._life
        if life.to_the_end and not self._asked_for_all:
            self._asked_for_all = True
            left = self._batches_left(1) if self._batches_per_pass is not None else 0
            can = 0 if life.ahead.is_made else life.affordable_batches()
            limits = life.ask_left(can) if life.ask_left is not None else [can]
            more = left if limits and left <= min(limits) else 0
            everywhere = life.ask_left(more) if life.ask_left is not None else [more]
            if not (more and everywhere and set(everywhere) == {more}):
                more = self._collect_odd_batches(left)
            if more:
                self._until = self._given + more
                life.more_steps += more
        return self._until is not None and self._given < self._until

    def _lookahead_batches(self) -> int:
        """How many batches to prefetch if the data has no length; more if reading is cheap."""
        if self._bytes > _LARGE:
            return _FEW
        if not self._reads or not self._bytes or not self._life.to_the_end:
            return _LOOKED_AHEAD
        affordable = min(self._affordable_reads(), _MAX_BUFFERED_BYTES // self._bytes)
        return max(_LOOKED_AHEAD, min(affordable, _FARTHEST))

    def _affordable_reads(self) -> int:
        """How many more batches may be read, judging by the time of those after the first; 0 if that is unknown."""
        if not self._reads:
            return 0
        processor, clock = (max(seconds / self._reads, 1e-5) for seconds in self._seconds)
        return min(int(_READ_SECONDS / processor), int(_READ_CLOCK / clock))

    def _collect_odd_batches(self, left: int) -> int:
        """Read all remaining data, if that is cheap, and keep only the batches that differ from earlier ones.

        Returns how many are kept, the same number on each rank. If the data can't be read this way, 0.
        """
        life = self._life
        can = left <= min(self._affordable_reads(), _MOST_READ) and left * self._bytes <= _MAX_BUFFERED_BYTES
        can = can and not life.ahead.is_made and not life.ahead.extra_batches_to_read(self._loader, left)
        can = (
            can
            and id(self._loader.dataset) not in life.read_through
            and life.affordable_batches() >= _MAX_ODD_REHEARSED
        )
        everywhere = life.ask_left(left * can) if life.ask_left is not None else [left * can]
        if not can or not left or set(everywhere or ()) != {left}:  # with unequal amounts, the data is not shortened
            return 0
        what = _GOES_ON.format(total=f"{self._given + left:,}")
        life.read_beyond = Assumption(what.en, life.ledger.current_place(), 1, what.zh)
        with running_on_real_data():
            rest = [*self._ahead, *self._iterator]
            mine = self._odd.find_odd_indices(rest)
        # All ranks use the same indices: collectives may rely on what batches at an index share, such as lengths.
        places = set(mine)
        for at in range(MAX_ODD_BATCHES if life.ask_left is not None else 0):
            everywhere = life.ask_left(mine[at] if at < len(mine) else -1) if life.ask_left is not None else None
            places |= set(everywhere or ()) - {-1}
        life.read_through.add(id(self._loader.dataset))
        self._ahead = [rest[place] for place in sorted(places)[:_MAX_ODD_REHEARSED] if place < len(rest)]
        count = len(self._ahead)
        if not count:
            life.read_beyond = None
        return count

    def _record_unread(self) -> None:
        """Note which training data was neither run nor read, once per place in the program."""
        left = self._evaluation_batches_left()
        life = self._life
        if not left or life.ahead.is_made or not life.to_the_end or id(self._loader.dataset) in life.read_through:
            return
        place = self._life.ledger.current_place()
        what = _SKIPPED_TRAINING_BATCHES.format(place=place, given=self._given, total=f"{self._given + left:,}")
        self._life.cut.setdefault(place, OmittedPart(what.en, what.zh, _ASSUMED_SIMILAR.en, _ASSUMED_SIMILAR.zh))

    def _record_lookahead(self, count: int) -> None:
        """Note how far the lookahead went, for data without a length."""
        if self._batches_per_pass is not None:
            return
        place = self._life.ledger.current_place()
        what = translated("{place}: training batches beyond the next {count}").format(place=place, count=count)
        self._life.cut.setdefault(
            place, OmittedPart(what.en, what.zh, _UNKNOWN_DATASET_LENGTH.en, _UNKNOWN_DATASET_LENGTH.zh)
        )

    def _batches_left(self, max_batches: int) -> int:
        """How many batches are left; for data without a length, at most ``max_batches``, which are prefetched."""
        with running_on_real_data():
            if not isinstance(getattr(self._iterator, "_dataset_kind", None), int):
                return 0
            if self._batches_per_pass is not None:
                return self._batches_per_pass - self._given
            self._ahead += itertools.islice(self._iterator, max(0, max_batches - len(self._ahead)))
        return len(self._ahead)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


def batch_bytes(batch: Any) -> int:
    """The bytes of all tensors in a batch, as the loader returned it."""
    if isinstance(batch, torch.Tensor):
        return batch.nbytes
    inner = batch if isinstance(batch, dict) else getattr(batch, "data", None)
    if isinstance(inner, dict):
        return sum(map(batch_bytes, inner.values()))
    return sum(map(batch_bytes, batch)) if isinstance(batch, list | tuple) else 0


def make_batch_virtual(batch: Any, mode: VirtualMode) -> Any:
    """The batch with every real CPU tensor replaced by a virtual one with known values."""
    if type(batch) is torch.Tensor:
        return mode.virtualise(batch) if batch.device.type == "cpu" else batch
    if isinstance(batch, dict):
        for key in batch:
            batch[key] = make_batch_virtual(batch[key], mode)
        return batch
    if isinstance(getattr(batch, "data", None), dict):  # BatchEncoding, BatchFeature
        make_batch_virtual(batch.data, mode)
        return batch
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(make_batch_virtual(value, mode) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(make_batch_virtual(value, mode) for value in batch)
    return batch
