"""A DataLoader's workers, whose work a rehearsal does in the training process: checks what a forked worker can't do.

A process forked after the accelerator was initialised can't use it; torch rejects that in ``torch/cuda/__init__.py``
and torch_npu in ``torch_npu/npu/__init__.py``, both in ``_lazy_init``.
"""

from __future__ import annotations

import contextlib
import functools
import io
import multiprocessing
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gonogo.evidence.rehearsal.loading import LoaderSharedMemory
from gonogo.finding import translated
from gonogo.virtual import private
from gonogo.virtual.mode import VirtualMode
from gonogo.virtual.stack import OURS
from gonogo.virtual.tensor import VirtualTensor, resolve_device

_PAGE_BYTES = 4096
_MAX_PICKLED_BYTES = 64 << 20
LOADED_IN_TRAINING_PROCESS = translated("the data is loaded in the training process, not in worker processes")


def iterate_without_workers(loader: Any, make: Callable[[Any], Any], mode: VirtualMode) -> Any:
    """Iterate over the loader in this process, under the restrictions that its worker processes would have.

    Raises torch's RuntimeError from ``next`` if a forked worker would use the accelerator; and pickle's error if the
    data set can't be passed to a spawned worker.
    """
    if not loader.num_workers:
        return make(loader)
    context = loader.multiprocessing_context or multiprocessing
    if context.get_start_method() != "fork":
        _pickle_worker_arguments(loader)
    mode.ledger.assume(LOADED_IN_TRAINING_PROCESS)
    workers, loader.__dict__["num_workers"] = loader.num_workers, 0
    try:
        iterator = make(loader)
    finally:
        loader.__dict__["num_workers"] = workers
    fetcher = getattr(iterator, "_dataset_fetcher", None)
    if fetcher is not None and context.get_start_method() == "fork":
        fetcher.fetch = _fetch_in_fork(fetcher.fetch)
    if fetcher is not None:
        fetcher.fetch = _fetch_in_daemon(fetcher.fetch)
    return iterator


def _fetch_in_daemon(fetch: Callable[..., Any]) -> Callable[..., Any]:
    """Make the process daemonic while fetching, as workers are: multiprocessing doesn't let them start processes."""

    @functools.wraps(fetch)
    def fetch_as_daemon(*args: Any) -> Any:
        process = multiprocessing.current_process()
        before, process.daemon = process.daemon, True
        try:
            return fetch(*args)
        finally:
            process.daemon = before

    return fetch_as_daemon


class _DiscardingStream(io.RawIOBase):
    """Discards pickled data; raises OverflowError after a limit, when all classes will have been seen."""

    def __init__(self) -> None:
        self._left = _MAX_PICKLED_BYTES

    def writable(self) -> bool:
        """Always True."""
        return True

    def write(self, data: Any) -> int:
        """Count the bytes and discard them."""
        self._left -= len(data)
        if self._left < 0:
            raise OverflowError
        return len(data)


def _pickle_worker_arguments(loader: Any) -> None:
    """Pickle what a spawned worker would receive, as multiprocessing does."""
    given = (loader.dataset, loader.collate_fn, loader.worker_init_fn)
    try:
        ForkingPickler(io.BufferedWriter(_DiscardingStream())).dump(given)
    except OverflowError:
        return
    except Exception as error:
        if not _is_caused_by_gonogo(error):
            raise


def _is_caused_by_gonogo(error: BaseException) -> bool:
    """Whether the unpicklable object is gonogo's: a virtual tensor or a wrapped function."""
    trace = error.__traceback__
    while trace is not None:
        if (
            trace.tb_frame.f_code.co_filename.startswith(OURS)
            and trace.tb_frame.f_code is not _pickle_worker_arguments.__code__
        ):
            return True
        trace = trace.tb_next
    return "Virtual" in str(error) or "gonogo" in str(error)


def measure_loader_shared_memory(
    loader: Any, batch: Any, before: LoaderSharedMemory | None
) -> LoaderSharedMemory | None:
    """The most shared memory that the loader's workers keep, judging by a batch as they would produce it."""
    workers = getattr(loader, "num_workers", 0)
    if not workers:
        return before
    ahead = workers * (getattr(loader, "prefetch_factor", None) or 2)
    with contextlib.suppress(TypeError, NotImplementedError):  # a data set without a length
        ahead = min(ahead, len(loader))
    now = LoaderSharedMemory(workers, ahead, sum(_shared_memory_bytes(batch, {}).values()))
    return now if before is None or now.held_bytes > before.held_bytes else before


def _shared_memory_bytes(batch: Any, page_bytes: dict[int, int]) -> dict[int, int]:
    """Bytes, in full pages, of each storage in main memory; objects without tensors go through a pipe."""
    if isinstance(batch, torch.Tensor):
        if batch.device.type == "cpu" and type(batch) is torch.Tensor:
            storage = batch.untyped_storage()
            page_bytes[storage.data_ptr()] = -(-storage.nbytes() // _PAGE_BYTES) * _PAGE_BYTES
    elif isinstance(batch, dict) or isinstance(getattr(batch, "data", None), dict):
        for value in (batch if isinstance(batch, dict) else batch.data).values():
            _shared_memory_bytes(value, page_bytes)
    elif isinstance(batch, list | tuple):
        for value in batch:
            _shared_memory_bytes(value, page_bytes)
    return page_bytes


def _fetch_in_fork(fetch: Callable[..., Any]) -> Callable[..., Any]:
    accelerators = (getattr(torch, kind, None) for kind in ("cuda", "npu"))
    if not any(accelerator is not None and accelerator.is_initialized() for accelerator in accelerators):
        return fetch

    @functools.wraps(fetch)
    def fetch_as_forked_worker(*args: Any) -> Any:
        with _InForkedWorker():  # type: ignore[no-untyped-call]
            return fetch(*args)

    return fetch_as_forked_worker


class _InForkedWorker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises torch's error if a forked worker process uses an accelerator."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator, unless it would initialise the accelerator again."""
        kwargs = kwargs or {}
        if types and private.has_foreign_dispatch(tuple(types)):
            return NotImplemented
        used = [resolve_device(kwargs["device"])] if kwargs.get("device") is not None else []
        used += [argument._device for argument in args if isinstance(argument, VirtualTensor)]
        for device in used:
            if device.type not in ("cpu", "meta"):
                name = device.type.upper()
                raise RuntimeError(
                    f"Cannot re-initialize {name} in forked subprocess. To use {name} with multiprocessing, you must "
                    "use the 'spawn' start method"
                )
        return func(*args, **kwargs)
