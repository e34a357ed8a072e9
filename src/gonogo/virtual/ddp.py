"""DistributedDataParallel: its C++ reducer runs as it is, but for what reads memory or waits for a real backend."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as _distributed
from torch.nn.parallel import DistributedDataParallel

from gonogo.virtual.patching import Patches

dist: Any = _distributed


def install(assume: Callable[[str], object]) -> Callable[[], None]:
    """Take the comparison of parameter shapes across ranks for granted, and finish each bucket's all-reduce at once."""
    patches = Patches()
    future_class: Any = torch.futures.Future
    forward: Any = DistributedDataParallel.forward
    register: Any = DistributedDataParallel.register_comm_hook

    def verify(process_group: Any, tensors: Any, logger: Any = None) -> None:
        assume("every rank's model has the same parameters")

    def all_reduce(state: Any, bucket: Any) -> Any:
        buffer = bucket.buffer()
        dist.all_reduce(buffer, group=state)
        future = future_class(devices=[])
        future.set_result(buffer)
        return future

    all_reduce.__annotations__ = {"bucket": dist.GradBucket, "return": future_class[torch.Tensor]}

    @functools.wraps(forward)
    def with_hook(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.__dict__.get("gonogo_hooked"):
            self.__dict__["gonogo_hooked"] = True
            if not self._comm_hooks:
                register(self, self.process_group, all_reduce)
        return forward(self, *args, **kwargs)

    def keep_buckets(reducer: Any) -> bool:
        """Buckets keep their first order: to rebuild them, C++ writes their numbers into memory."""
        return False

    patches.set(dist.Reducer, "_rebuild_buckets", keep_buckets)
    patches.set(dist, "_verify_params_across_processes", verify)
    patches.set(DistributedDataParallel, "forward", with_hook)
    return patches.undo
