"""The hooks that the guard sets in training libraries when the program imports them. Each costs microseconds."""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from gonogo.evidence.guarded.records import Phase
from gonogo.guard.common.faults import disable_part, harmless
from gonogo.guard.rank.worker import Guard, current
from gonogo.guard.trackers.detection import writers

_HOOKED = "gonogo_hooked"


def hook_module(name: str, module: ModuleType) -> None:
    """Set the hooks for the module ``name``."""
    try:
        _HOOKS[name](module)
    except Exception as error:  # a version that the guard doesn't know
        disable_part(name, error)


def _wrap(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace a method or function by ``wrapper(original, *arguments)``, once."""
    original = getattr(owner, name, None)
    if original is None or getattr(original, _HOOKED, False):
        return

    @functools.wraps(original)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        return wrapper(original, *arguments, **named)

    setattr(wrapped, _HOOKED, True)
    setattr(owner, name, wrapped)


class _StepPhase:
    """Marks a phase of a step: exceptions that leave it are recorded; then the previous phase is restored."""

    __slots__ = ("_before", "_guard", "_phase")

    def __init__(self, guard: Guard, phase: Phase) -> None:
        self._guard = guard
        self._phase = phase

    def __enter__(self) -> None:
        self._before: Phase = self._guard.phase
        self._guard.enter(self._phase)

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, Exception):
            self._guard.record_exception(error)
        else:
            self._guard.enter("between" if self._before in ("load", "init") else self._before)


# torch.distributed


def _hook_distributed(module: ModuleType) -> None:
    guard = current()
    if guard is None:
        return
    guard.ring.watch(module)
    _wrap(module, "init_process_group", _init_process_group)
    public = sys.modules.get("torch.distributed")
    if public is not None and hasattr(public, "init_process_group"):
        public.init_process_group = module.init_process_group  # type: ignore[attr-defined]


def _init_process_group(original: Any, *arguments: Any, **named: Any) -> Any:
    guard = current()
    if guard is None:
        return original(*arguments, **named)
    _begin_guard(guard, named)
    before = guard.phase
    guard.enter("init")
    answer = original(*arguments, **named)
    guard.enter(before)
    return answer


@harmless("the rank")
def _begin_guard(guard: Guard, named: dict[str, Any]) -> None:
    rank = named.get("rank")
    if "RANK" not in os.environ and isinstance(rank, int) and rank >= 0:
        guard.begin(rank)
    elif "RANK" in os.environ:
        guard.begin(int(os.environ["RANK"]))
    else:
        guard.begin()


# torch


def _hook_optimizers(module: Any) -> None:
    clock: list[Any] = []

    def after_step(optimizer: Any, arguments: Any, kwargs: Any) -> None:
        guard = current()
        if guard is None or any(hasattr(one(), "global_steps") for one in guard.models):
            return  # DeepSpeed's engine counts its steps itself
        if not clock or clock[0]() is None:
            clock[:] = [weakref.ref(optimizer)]
        if clock[0]() is optimizer:
            guard.begin()
            guard.before_first_step("Optimizer.step")
            guard.record_step(guard.step + 1)
            guard.enter("between")

    module.register_optimizer_step_post_hook(after_step)


def _hook_data_loaders(module: Any) -> None:
    _wrap(module.DataLoader, "__iter__", _guarded_iter)


def _guarded_iter(original: Any, loader: Any, *arguments: Any, **named: Any) -> Any:
    guard = current()
    if guard is not None and guard.writer is not None and not guard.joined:
        _note_data(guard, loader)
    return original(loader, *arguments, **named)


@harmless("data")
def _note_data(guard: Guard, loader: Any) -> None:
    guard.data = {"samples": _length_text(loader.dataset), "batches": _length_text(loader)}


def _length_text(value: Any) -> str:
    try:
        return str(len(value))
    except Exception:  # a stream has no length
        return ""


def _hook_ddp(module: Any) -> None:
    _wrap(module.DistributedDataParallel, "forward", _wrapper_forward)


def _hook_fsdp(module: Any) -> None:
    _wrap(module.FullyShardedDataParallel, "forward", _wrapper_forward)


def _wrapper_forward(original: Any, model: Any, *arguments: Any, **named: Any) -> Any:
    guard = current()
    if guard is None or guard.phase in ("forward", "backward"):  # FSDP wraps nested modules as well
        return original(model, *arguments, **named)
    _register_model(guard, model)
    if model.training and sys.modules["torch"].is_grad_enabled():
        guard.before_first_step("forward")
    with _StepPhase(guard, "forward"):
        return original(model, *arguments, **named)


# DeepSpeed


def _hook_deepspeed_engine(module: Any) -> None:
    engine = module.DeepSpeedEngine
    _wrap(engine, "__init__", _engine_init)
    _wrap(engine, "forward", _engine_forward)
    _wrap(engine, "backward", _engine_backward)
    _wrap(engine, "step", _engine_step)


def _hook_pipeline_engine(module: Any) -> None:
    _wrap(module.PipelineEngine, "train_batch", _train_batch)


def _engine_init(original: Any, engine: Any, *arguments: Any, **named: Any) -> Any:
    guard = current()
    if guard is None:
        return original(engine, *arguments, **named)
    guard.begin()
    with _StepPhase(guard, "init"):
        answer = original(engine, *arguments, **named)
    _register_model(guard, engine)
    return answer


@harmless("the model")
def _register_model(guard: Guard, model: Any) -> None:
    if not any(known() is model for known in guard.models):
        guard.models.append(weakref.ref(model))


def _engine_forward(original: Any, engine: Any, *arguments: Any, **named: Any) -> Any:
    guard = current()
    if guard is None:
        return original(engine, *arguments, **named)
    if not guard.joined and engine.training and sys.modules["torch"].is_grad_enabled():
        guard.before_first_step("forward")
    with _StepPhase(guard, "forward"):
        return original(engine, *arguments, **named)


def _engine_backward(original: Any, engine: Any, *arguments: Any, **named: Any) -> Any:
    guard = current()
    if guard is None:
        return original(engine, *arguments, **named)
    loss = arguments[0] if arguments else named.get("loss")
    guard.check_loss(loss)
    with _StepPhase(guard, "backward"):
        return original(engine, *arguments, **named)


def _engine_step(original: Any, engine: Any, *arguments: Any, **named: Any) -> Any:
    guard = current()
    if guard is None:
        return original(engine, *arguments, **named)
    return _run_engine_step(guard, "step", original, engine, arguments, named)


def _train_batch(original: Any, engine: Any, *arguments: Any, **named: Any) -> Any:
    guard = current()
    if guard is None:
        return original(engine, *arguments, **named)
    guard.before_first_step("train_batch")
    return _run_engine_step(guard, "forward", original, engine, arguments, named)


def _run_engine_step(guard: Guard, phase: Phase, original: Any, engine: Any, arguments: Any, kwargs: Any) -> Any:
    before = engine.global_steps
    with _StepPhase(guard, phase):
        answer = original(engine, *arguments, **kwargs)
    if engine.global_steps != before:
        guard.record_step(engine.global_steps)
        guard.after_first_step()
    return answer


# transformers


def _hook_trainer(module: Any) -> None:
    _wrap(module.Trainer, "_inner_training_loop", _training_loop)
    _wrap(module.Trainer, "training_step", _training_step)


def _training_loop(original: Any, trainer: Any, *arguments: Any, **named: Any) -> Any:
    guard = current()
    if guard is not None:
        guard.begin()
        _note_trainer(guard, trainer)
    return original(trainer, *arguments, **named)


@harmless("the Trainer")
def _note_trainer(guard: Guard, trainer: Any) -> None:
    guard.trainer = weakref.ref(trainer)
    settings = trainer.args
    guard.trainer_facts = {
        "seed": str(settings.seed),
        "data seed": str(settings.data_seed) if settings.data_seed is not None else "",
        "training samples": _length_text(trainer.train_dataset),
    }


def _training_step(original: Any, trainer: Any, *arguments: Any, **named: Any) -> Any:
    guard = current()
    if guard is None:
        return original(trainer, *arguments, **named)
    if guard.trainer is None:  # the guard started after training did, as with GonogoCallback
        _note_trainer(guard, trainer)
    if not guard.models:  # neither DeepSpeed nor DDP, which have hooks in their own forward
        guard.before_first_step("training_step")
    with _StepPhase(guard, "forward"):
        loss = original(trainer, *arguments, **named)
    guard.check_loss(loss)
    return loss


# Trackers


def _hook_summary_writers(module: Any) -> None:
    _wrap(module.SummaryWriter, "__init__", _writer_init)


def _writer_init(original: Any, writer: Any, *arguments: Any, **named: Any) -> Any:
    answer = original(writer, *arguments, **named)
    if current() is not None and getattr(writer, "log_dir", None):
        writers.setdefault(str(writer.log_dir), type(writer))
    return answer


def _before_close(name: str) -> Callable[[Any], None]:
    def upload_before_finish(original: Any, run: Any, *arguments: Any, **named: Any) -> Any:
        guard = current()
        if guard is not None:
            guard.trackers.upload_report(name)
        return original(run, *arguments, **named)

    return lambda module: _wrap(module.Run, "finish", upload_before_finish)


_HOOKS: dict[str, Callable[[Any], None]] = {
    "torch.distributed.distributed_c10d": _hook_distributed,
    "torch.optim.optimizer": _hook_optimizers,
    "torch.utils.data.dataloader": _hook_data_loaders,
    "torch.nn.parallel.distributed": _hook_ddp,
    "torch.distributed.fsdp.fully_sharded_data_parallel": _hook_fsdp,
    "deepspeed.runtime.engine": _hook_deepspeed_engine,
    "deepspeed.runtime.pipe.engine": _hook_pipeline_engine,
    "transformers.trainer": _hook_trainer,
    "torch.utils.tensorboard.writer": _hook_summary_writers,
    "tensorboardX.writer": _hook_summary_writers,
    "wandb.sdk.wandb_run": _before_close("wandb"),
    "swanlab.sdk.internal.run": _before_close("swanlab"),
}
