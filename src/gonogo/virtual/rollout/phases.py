"""The phases of a trainer with rollouts, by the methods of TRL, ms-swift and verl: rewards, scoring, weight sync."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from gonogo.evidence.rehearsal.record import Phase
from gonogo.virtual.hooks.lifecycle import Lifecycle
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches

_METHODS: dict[str, Phase] = {
    "sync_weights": "sync",
    "_move_model_to_vllm": "sync",
    "generate": "generate",
    "_generate_and_score_completions": "generate",
    "_calculate_rewards": "reward",
    "_compute_rewards_per_func": "reward",
    "update_weights": "sync",
    "compute_ref_log_prob": "score",
    "compute_log_prob": "score",
    "compute_values": "score",
}
_LOGPS_METHODS = ("_get_per_token_logps_and_entropies", "_get_per_token_logps")
"""Methods that compute log-probabilities: with gradients for the loss, without for the old policy and the
reference."""
_TRL_TRAINER_MODULES = ("grpo_trainer", "rloo_trainer", "online_dpo_trainer", "gkd_trainer")
_ROLLOUT_MODULES = (
    "trl.generation.vllm_generation",
    "trl.experimental.online_dpo.online_dpo_trainer",
    *(f"trl.trainer.{name}" for name in _TRL_TRAINER_MODULES),
    "verl.workers.fsdp_workers",
    "verl.workers.engine_workers",
    *(f"swift.rlhf_trainers.{name}" for name in ("rollout_mixin", "grpo_trainer", "gkd_trainer")),
)


def install(patches: Patches, lifecycle: Lifecycle) -> None:
    """Patch the trainers' classes once they are imported."""

    def wrap_methods(module: ModuleType) -> None:
        for owner in list(vars(module).values()):
            if not isinstance(owner, type) or owner.__module__ != module.__name__:
                continue
            for name, method in list(vars(owner).items()):
                activity = f"{owner.__name__}.{name}"
                if name in _METHODS:
                    patches.set(owner, name, _wrap_in_phase(method, lifecycle, _METHODS[name], activity))
                elif name in _LOGPS_METHODS:
                    patches.set(owner, name, _wrap_scoring(method, lifecycle, activity))

    for module in _ROLLOUT_MODULES:
        patches.on_undo(after_import(module, wrap_methods))


def _wrap_scoring(method: Callable[..., Any], lifecycle: Lifecycle, activity: str) -> Callable[..., Any]:
    """Wrap a method so that its calls without gradients count as scoring of completions."""
    scoring = _wrap_in_phase(method, lifecycle, "score", activity)

    @functools.wraps(method)
    def score_if_without_gradients(*args: Any, **kwargs: Any) -> Any:
        return (method if torch.is_grad_enabled() else scoring)(*args, **kwargs)

    return score_if_without_gradients


def _wrap_in_phase(method: Callable[..., Any], lifecycle: Lifecycle, phase: Phase, activity: str) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with lifecycle.during(phase, activity):
                return await method(*args, **kwargs)

        return awaited

    @functools.wraps(method)
    def run_in_phase(*args: Any, **kwargs: Any) -> Any:
        with lifecycle.during(phase, activity):
            return method(*args, **kwargs)

    return run_in_phase
