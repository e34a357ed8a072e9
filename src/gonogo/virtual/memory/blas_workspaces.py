"""cuBLAS workspaces, which PyTorch takes from its caching allocator at the first matrix product.

A workspace belongs to a cuBLAS handle and a stream, and a handle to a thread. Autograd runs the backward pass in a
separate thread per device, so training on one stream holds two. They are never freed, except by
``torch._C._cuda_clearCublasWorkspaces()``; ``empty_cache()`` keeps them.

Based on aten/src/ATen/cuda/CublasHandlePool.cpp and aten/src/ATen/native/cuda/Blas.cpp; by release:

- size, since 2.0: 32 MiB for compute capability 9.0, else 8.125 MiB (``:4096:2:16:8``), or the value of
  ``CUBLAS_WORKSPACE_CONFIG`` (https://github.com/pytorch/pytorch/pull/91564); since 2.12 32 MiB for Blackwell too
  (https://github.com/pytorch/pytorch/pull/175344).
- cuBLASLt, which adds biases: ``CUBLASLT_WORKSPACE_SIZE`` KiB, by default 1 MiB
  (https://github.com/pytorch/pytorch/pull/73439). Up to 2.8 allocated and freed at each call; since 2.9 kept
  (https://github.com/pytorch/pytorch/pull/156495); since 2.12 cuBLAS's workspace is used for it, unless
  ``TORCH_CUBLASLT_UNIFIED_WORKSPACE=0`` (https://github.com/pytorch/pytorch/pull/175879).
- since 2.15 all are allocated and freed at each call, unless ``TORCH_CUBLAS_WORKSPACE_CACHE=1``
  (https://github.com/pytorch/pytorch/pull/194311).

Pull requests are assigned to releases by their merge date.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch
from packaging.version import Version

from gonogo.virtual import private
from gonogo.virtual.memory.tracking import Cell, MemoryRecord

_KIB = 1 << 10
_LARGE, _SMALL = 8 * 4096 * _KIB, (2 * 4096 + 8 * 16) * _KIB
_HOPPER, _BLACKWELL = 9, (10, 12)
_DEFAULT_LT_WORKSPACE_KIB = 1024
_LT_KEPT, _LT_SHARED, _NONE_KEPT = Version("2.9"), Version("2.12"), Version("2.15")
_LARGE_BLACKWELL_SINCE = Version("2.12")
_WORKSPACE_CONFIG_PATTERN = re.compile(r":([0-9]+):([0-9]+)")
_CUBLASLT_ONLY_OPERATORS = frozenset({"_addmm_activation", "_int_mm", "_scaled_mm"})
CUBLAS_OPERATORS = _CUBLASLT_ONLY_OPERATORS | {
    *("addbmm", "addmm", "addmv", "baddbmm", "bmm", "dot", "mm", "mv", "vdot"),
    *("linalg_solve_triangular", "triangular_solve"),
}
"""ATen operators whose CUDA kernels call cuBLAS."""
_BIAS_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_AUTOGRAD = "autograd"

WorkspaceKey = tuple[bool, Any, Any, int, int]
"""(is cuBLASLt, process, thread, device, stream)."""


class BlasWorkspaces:
    """The workspaces of one process on CUDA devices of one compute capability."""

    def __init__(
        self,
        memory: MemoryRecord,
        capability: tuple[int, int],
        get_stream: Callable[[int], int],
        *,
        release: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._memory = memory
        self._capability = capability
        self._stream_of = get_stream
        self._release = Version(Version(release or torch.__version__).base_version)
        self._environment = os.environ if environment is None else environment
        self.process: Callable[[], Any] = lambda: None
        """The current process, if this one simulates several."""
        self._kept: dict[WorkspaceKey, Cell] = {}
        self._threads: dict[int, int] = {}
        """Thread → number of its handle; when a thread ends, its handle is reused by a new one."""
        self._size: int | None = None
        self._lt_size: int | None = None

    @property
    def size(self) -> int:
        """Size of a cuBLAS workspace in bytes, read from the environment at the first use, as in PyTorch."""
        if self._size is None:
            self._size = self._config_workspace_bytes()
        return self._size

    @size.setter
    def size(self, nbytes: int) -> None:
        self._size = nbytes

    @property
    def cublaslt_size(self) -> int:
        """Size of a cuBLASLt workspace in bytes."""
        if self._lt_size is None:
            setting = self._environment.get("CUBLASLT_WORKSPACE_SIZE", "").strip()
            self._lt_size = (int(setting) if re.fullmatch(r"[0-9]+", setting) else _DEFAULT_LT_WORKSPACE_KIB) * _KIB
        return min(self._lt_size, self.size) if self._shares_lt_workspace else self._lt_size

    @cublaslt_size.setter
    def cublaslt_size(self, nbytes: int) -> None:
        self._lt_size = nbytes

    def _config_workspace_bytes(self) -> int:
        major = self._capability[0]
        blackwell = major in _BLACKWELL and self._release >= _LARGE_BLACKWELL_SINCE
        default = _LARGE if major == _HOPPER or blackwell else _SMALL
        parts = _WORKSPACE_CONFIG_PATTERN.findall(self._environment.get("CUBLAS_WORKSPACE_CONFIG", ""))
        return sum(int(size) * int(count) * _KIB for size, count in parts) if parts else default

    @property
    def _caches_workspaces(self) -> bool:
        return self._release < _NONE_KEPT or self._environment.get("TORCH_CUBLAS_WORKSPACE_CACHE") == "1"

    @property
    def _shares_lt_workspace(self) -> bool:
        setting = self._environment.get("TORCH_CUBLASLT_UNIFIED_WORKSPACE")
        default = "1" if self._release >= _LT_SHARED else "0"
        return self._caches_workspaces and (setting if setting in ("0", "1") else default) == "1"

    def allocate_for_operator(self, name: str, args: Any, out: Any) -> None:
        """Allocate the workspace for an operator of :data:`CUBLAS_OPERATORS` that has produced ``out`` on a CUDA
        device."""
        if not isinstance(out, torch.Tensor) or out.device.type != "cuda" or not out.numel():
            return
        index = out.device.index or 0
        by_lt = name in _CUBLASLT_ONLY_OPERATORS or (name == "addmm" and _uses_cublaslt(args))
        keeps = self._caches_workspaces
        if not (by_lt and not keeps):
            self._allocate_workspace(False, index, self.size, keep_alive=keeps)
        if by_lt and not self._shares_lt_workspace:
            self._allocate_workspace(True, index, self.cublaslt_size, keep_alive=keeps and self._release >= _LT_KEPT)

    def _allocate_workspace(self, is_cublaslt: bool, index: int, nbytes: int, *, keep_alive: bool) -> None:
        if not nbytes:
            return
        thread = _AUTOGRAD if private.in_autograd() else self._thread_handle(threading.get_ident())
        key = (is_cublaslt, self.process(), thread, index, self._stream_of(index))
        kept = self._kept.get(key)
        if kept is not None and kept.nbytes >= nbytes:
            return
        record = self._memory.device(torch.device("cuda", index))
        with self._memory.with_category("workspace"):
            cell = Cell(record, nbytes, self._memory.category, None)
        if keep_alive:
            self._kept[key] = cell

    def _thread_handle(self, thread: int) -> int:
        handle = self._threads.get(thread)
        if handle is None:
            alive = {one.ident for one in threading.enumerate()}
            ended = next((one for one in self._threads if one not in alive), None)
            handle = len(self._threads) if ended is None else self._threads.pop(ended)
            self._threads[thread] = handle
        return handle

    def free_workspaces(self, stream: int | None = None) -> None:
        """Free the workspaces, or only those of one stream."""
        self._kept = {key: cell for key, cell in self._kept.items() if stream is not None and key[4] != stream}


def _uses_cublaslt(args: Any) -> bool:
    """True if ``addmm`` uses cuBLASLt: the bias of a linear layer, with the checks of
    ``isInputCompliesAddmmCudaLt``."""
    bias, right = args[0], args[2]
    if bias.dim() != 1 or bias.dtype not in _BIAS_DTYPES or not bias.is_contiguous():
        return False
    return bool(bias.shape[0] == right.shape[1] and right.shape[0] > 1 and right.shape[1] > 1)
