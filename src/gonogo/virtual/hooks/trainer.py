"""transformers' Trainer, ended through its own control flow."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from gonogo.evidence.rehearsal.lives import SavePlan
from gonogo.virtual.hooks.lifecycle import Lifecycle
from gonogo.virtual.hooks.micro_batches import MicroBatchSelector
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches


def install(lifecycle: Lifecycle, micro_batches: MicroBatchSelector) -> Callable[[], None]:
    """Make every Trainer stop after the requested steps, with an evaluation and a save if configured."""
    patches = Patches()
    patches.on_undo(
        after_import("transformers.trainer", lambda module: _patch_trainer(patches, module, lifecycle, micro_batches))
    )
    return patches.undo


def _patch_trainer(patches: Patches, module: Any, lifecycle: Lifecycle, micro_batches: MicroBatchSelector) -> None:
    from transformers import TrainerCallback

    class StopWhenRehearsed(TrainerCallback):  # type: ignore[misc]
        """Ends the training loop after the last rehearsed step, or after the remaining data has been read."""

        one_more = False
        """Whether another batch follows: accelerate prefetches one."""
        saves = 0
        """How often it was told to evaluate and save after the last rehearsed step."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.saves = 0
            if _is_strategy_enabled(args, "eval_strategy", "evaluation_strategy"):
                lifecycle.expect_phases("evaluate")
            if _is_strategy_enabled(args, "save_strategy"):
                lifecycle.expect_phases("save")
                lifecycle.save_plan = _save_plan(args, state)
            if lifecycle.save_plan is not None or not lifecycle.saves_wanted:
                lifecycle.goes_on_with_data = lifecycle.goes_on_after_save

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            reads_on = lifecycle.has_made_steps and lifecycle.should_read_on
            if lifecycle.has_made_steps and not reads_on and not self.one_more:
                ends = not lifecycle.goes_on_with_data or lifecycle.step > lifecycle.target + lifecycle.steps_beyond
                control.should_training_stop = ends or (control.should_training_stop and not lifecycle.saves_wanted)
            if (
                lifecycle.has_made_steps and self.saves < lifecycle.saves_wanted
            ):  # the data may end with the loop, and no callback follows
                control.should_log = True
                self.saves += 1
                if _is_strategy_enabled(args, "eval_strategy", "evaluation_strategy"):
                    control.should_evaluate = True
                if _is_strategy_enabled(args, "save_strategy"):
                    control.should_save = True
            self.one_more = reads_on
            return control

    train = module.Trainer.train

    @functools.wraps(train)
    def train_and_track(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(c, StopWhenRehearsed) for c in trainer.callback_handler.callbacks):
            trainer.add_callback(StopWhenRehearsed)
        lifecycle.seen.arguments = trainer.args
        lifecycle.seen.processing = getattr(trainer, "processing_class", None) or getattr(trainer, "tokenizer", None)
        with lifecycle.during("init", "Trainer.train"), micro_batches.skipping_repeats(trainer):
            return train(trainer, *args, **kwargs)

    patches.set(module.Trainer, "train", train_and_track)
    for name in ("evaluate", "predict"):
        _wrap_in_phase(patches, module.Trainer, name, lifecycle, "evaluate")
    for name in ("save_model", "_save_checkpoint"):
        _wrap_in_phase(patches, module.Trainer, name, lifecycle, "save")


def _save_plan(args: Any, state: Any) -> SavePlan:
    """How many checkpoints the settings make and keep."""
    strategy = str(getattr(args.save_strategy, "value", args.save_strategy))
    steps, every = int(state.max_steps or 0), float(args.save_steps or 0)
    saves = None
    if strategy == "steps" and steps > 0 and every > 0:
        saves = math.ceil(steps / (every if every >= 1 else max(1, round(steps * every))))
    elif strategy == "epoch" and args.max_steps <= 0:
        saves = math.ceil(args.num_train_epochs)
    is_exact = args.max_steps > 0 or strategy == "epoch"
    return SavePlan(saves, is_exact, args.save_total_limit or None)


def _is_strategy_enabled(args: Any, *names: str) -> bool:
    value = next((getattr(args, name) for name in names if hasattr(args, name)), "no")
    return str(getattr(value, "value", value)) != "no"


def _wrap_in_phase(patches: Patches, owner: Any, name: str, lifecycle: Lifecycle, phase: Any) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def run_in_phase(self: Any, *args: Any, **kwargs: Any) -> Any:
        with lifecycle.during(phase, f"{owner.__name__}.{name}"):
            return original(self, *args, **kwargs)

    patches.set(owner, name, run_in_phase)
