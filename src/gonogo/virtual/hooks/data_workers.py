"""A loader's worker processes, whose work a rehearsal does in the training process: what a forked one can't do.

A process that is forked after the training process has used the accelerator can't use it itself; torch refuses it in
``torch/cuda/__init__.py`` and torch_npu in ``torch_npu/npu/__init__.py``, both named ``_lazy_init``.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gonogo.evidence.rehearsal.loading import Loading
from gonogo.finding import Text
from gonogo.virtual import private
from gonogo.virtual.mode import VirtualMode
from gonogo.virtual.tensor import VirtualTensor, resolve

_PAGE = 4096
IN_THIS_PROCESS = Text(
    "the data is loaded in the training process, not in worker processes", "数据在训练进程中加载，而不是在工作进程中"
)


def in_this_process(loader: Any, make: Callable[[Any], Any], mode: VirtualMode) -> Any:
    """The iterator that ``make`` makes of a loader without workers; where there would be some, they can't use CUDA.

    Raises RuntimeError, in torch's words, from its ``next`` where a forked worker would use the accelerator.
    """
    if not loader.num_workers:
        return make(loader)
    mode.ledger.assume(IN_THIS_PROCESS)
    workers, loader.__dict__["num_workers"] = loader.num_workers, 0
    try:
        iterator = make(loader)
    finally:
        loader.__dict__["num_workers"] = workers
    context = loader.multiprocessing_context or multiprocessing
    fetcher = getattr(iterator, "_dataset_fetcher", None)
    if fetcher is not None and context.get_start_method() == "fork":
        fetcher.fetch = _fetch_in_fork(fetcher.fetch)
    return iterator


def loading_of(loader: Any, batch: Any, before: Loading | None) -> Loading | None:
    """What the loader's workers would keep in shared memory, by a batch as they would make it: the most so far."""
    workers = getattr(loader, "num_workers", 0)
    if not workers:
        return before
    ahead = workers * (getattr(loader, "prefetch_factor", None) or 2)
    with contextlib.suppress(TypeError, NotImplementedError):  # a data set without a length
        ahead = min(ahead, len(loader))
    now = Loading(workers, ahead, sum(_pages(batch, {}).values()))
    return now if before is None or now.held_bytes > before.held_bytes else before


def _pages(batch: Any, found: dict[int, int]) -> dict[int, int]:
    """Bytes, in whole pages, of each storage in main memory; what holds no tensors goes through a pipe."""
    if isinstance(batch, torch.Tensor):
        if batch.device.type == "cpu" and type(batch) is torch.Tensor:
            storage = batch.untyped_storage()
            found[storage.data_ptr()] = -(-storage.nbytes() // _PAGE) * _PAGE
    elif isinstance(batch, dict) or isinstance(getattr(batch, "data", None), dict):
        for value in (batch if isinstance(batch, dict) else batch.data).values():
            _pages(value, found)
    elif isinstance(batch, list | tuple):
        for value in batch:
            _pages(value, found)
    return found


def _fetch_in_fork(fetch: Callable[..., Any]) -> Callable[..., Any]:
    accelerators = (getattr(torch, kind, None) for kind in ("cuda", "npu"))
    if not any(accelerator is not None and accelerator.is_initialized() for accelerator in accelerators):
        return fetch

    @functools.wraps(fetch)
    def in_worker(*args: Any) -> Any:
        with _InForkedWorker():  # type: ignore[no-untyped-call]
            return fetch(*args)

    return in_worker


class _InForkedWorker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator, unless it would start the accelerator once more."""
        kwargs = kwargs or {}
        if types and private.are_foreign(tuple(types)):
            return NotImplemented
        used = [resolve(kwargs["device"])] if kwargs.get("device") is not None else []
        used += [argument._device for argument in args if isinstance(argument, VirtualTensor)]
        for device in used:
            if device.type not in ("cpu", "meta"):
                name = device.type.upper()
                raise RuntimeError(
                    f"Cannot re-initialize {name} in forked subprocess. To use {name} with multiprocessing, you must "
                    "use the 'spawn' start method"
                )
        return func(*args, **kwargs)
