"""DistributedDataParallel: its C++ reducer runs unchanged, except where it reads memory or awaits a real backend."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as _distributed
from torch.nn.parallel import DistributedDataParallel

from gonogo.finding import translated
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.values.assumptions import Assume

dist: Any = _distributed


class _ReductionState:
    """The progress of gradient reduction in one backward."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.expected = self.begun = self.finished = False

    def start_forward(self, will_reduce: bool) -> None:
        """Note the start of a forward; ``will_reduce`` is False within ``no_sync``."""
        self.expected, self.begun, self.finished = will_reduce, False, False

    def register_gradient_hooks(self, module: torch.nn.Module) -> None:
        """Register hooks that note each gradient that is ready."""
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._on_gradient_ready)  # type: ignore[no-untyped-call]

    def _on_gradient_ready(self, parameter: torch.Tensor) -> None:
        self.begun = True

    @property
    def is_half_done(self) -> bool:
        """Whether some gradients were ready, but not all buckets were filled."""
        return self.expected and self.begun and not self.finished


def install(assume: Assume) -> Callable[[], None]:
    """Assume equal parameter shapes on all ranks, and finish each bucket's all-reduce at once; returns the undo."""
    patches = Patches()
    future_class: Any = torch.futures.Future
    forward: Any = DistributedDataParallel.forward
    register: Any = DistributedDataParallel.register_comm_hook
    rebuild: Any = dist.Reducer._rebuild_buckets
    state_of: Any = DistributedDataParallel.__getstate__

    def assume_same_parameters(process_group: Any, tensors: Any, logger: Any = None) -> None:
        assume(translated("every rank's model has the same parameters"), "peer_parameters")

    def all_reduce(reduction: _ReductionState, bucket: Any) -> Any:
        buffer = bucket.buffer()
        dist.all_reduce(buffer, group=reduction.group)
        reduction.finished = reduction.finished or bucket.is_last()
        future = future_class(devices=[])
        future.set_result(buffer)
        return future

    all_reduce.__annotations__ = {"bucket": dist.GradBucket, "return": future_class[torch.Tensor]}

    @functools.wraps(forward)
    def forward_with_hook(self: Any, *args: Any, **kwargs: Any) -> Any:
        reduction = self.__dict__.get("gonogo_reduction")
        if reduction is None:
            reduction = self.__dict__["gonogo_reduction"] = _ReductionState(self.process_group)
            if not ("gonogo_hooked" in self.__dict__ or getattr(self, "_comm_hooks", None)):
                reduction.register_gradient_hooks(self.module)
                register(self, reduction, all_reduce)
        if torch.is_grad_enabled():
            if reduction.is_half_done:
                rebuild(self.reducer)  # raises if the last reduction is unfinished, which it checks first
            reduction.start_forward(self.require_backward_grad_sync)
        return forward(self, *args, **kwargs)

    @functools.wraps(register)
    def register_and_note_hook(self: Any, state: Any, hook: Any) -> None:
        self.__dict__["gonogo_hooked"] = True  # torch 2.1 to 2.3 don't record the hook
        register(self, state, hook)

    @functools.wraps(state_of)
    def reducer_free_state(self: Any) -> Any:
        """The DDP module's state for a copy or a pickle, whose own reducer gets a hook at its first forward."""
        attributes = state_of(self)
        attributes.pop("gonogo_reduction", None)
        if hooks := attributes.get("_comm_hooks"):
            attributes["_comm_hooks"] = [one for one in hooks if not isinstance(one[1], _ReductionState)]
        return attributes

    def skip_bucket_rebuild(reducer: Any) -> bool:
        """Never rebuild the buckets: C++ would write their indices into tensor memory.

        The check that precedes it in C++, whether the last reduction was finished, is made by ``forward_with_hook``.
        """
        return False

    patches.set(dist.Reducer, "_rebuild_buckets", skip_bucket_rebuild)
    patches.set(dist, "_verify_params_across_processes", assume_same_parameters)
    patches.set(DistributedDataParallel, "forward", forward_with_hook)
    patches.set(DistributedDataParallel, "__getstate__", reducer_free_state)
    patches.set(DistributedDataParallel, "register_comm_hook", register_and_note_hook)
    return patches.undo
