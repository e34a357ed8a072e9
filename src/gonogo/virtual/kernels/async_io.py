"""DeepNVMe (csrc/aio, csrc/gds): offloading to NVMe. Nothing is written; the bytes are only counted."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from gonogo.virtual.kernels.host import PinHandle

Written = Callable[[torch.Tensor], object]


@dataclass
class NvmeTraffic:
    """Bytes read from and written to NVMe, and the resulting file sizes."""

    read_bytes: int = 0
    written_bytes: int = 0
    files: dict[str, int] = field(default_factory=dict)
    """File → its size in bytes."""

    def size_of(self, path: str) -> int:
        """The size that the file would have; 0 if it doesn't exist."""
        size = self.files.get(path)
        if size is None:
            size = os.path.getsize(path) if os.path.isfile(path) else 0
        return size

    @property
    def stored_bytes(self) -> int:
        """Total bytes of all files."""
        return sum(self.files.values())


class AsyncIo:
    """Replaces the modules ``async_io`` and ``gds``."""

    def __init__(self, written: Written, traffic: NvmeTraffic) -> None:
        self._written = written
        self._traffic = traffic

    def aio_handle(self, *args: Any, **kwargs: Any) -> Handle:
        """``aio_handle(block_size, queue_depth, single_submit, overlap_events, intra_op_parallelism)``."""
        return Handle(self._written, self._traffic, *args, **kwargs)

    gds_handle = aio_handle

    def aio_read(self, buffer: torch.Tensor, filename: str, *args: Any) -> int:
        """Read an entire file."""
        return self.aio_handle().sync_pread(buffer, filename)

    def aio_write(self, buffer: torch.Tensor, filename: str, *args: Any) -> int:
        """Write an entire file."""
        return self.aio_handle().sync_pwrite(buffer, filename)

    def deepspeed_memcpy(self, dest: torch.Tensor, src: torch.Tensor) -> int:
        """Replaces ``deepspeed_py_memcpy``."""
        self._written(dest)
        return 0


class Handle(PinHandle):
    """Replaces ``aio_handle`` and ``gds_handle``."""

    def __init__(
        self,
        written: Written,
        traffic: NvmeTraffic,
        block_size: int = 1 << 20,
        queue_depth: int = 128,
        single_submit: bool = False,
        overlap_events: bool = False,
        intra_op_parallelism: int = 1,
    ) -> None:
        self._written = written
        self._traffic = traffic
        self._settings = (block_size, queue_depth, single_submit, overlap_events, intra_op_parallelism)
        self._pending = 0

    def get_block_size(self) -> int:
        """Bytes of one request."""
        return self._settings[0]

    def get_queue_depth(self) -> int:
        """Maximum number of requests in flight."""
        return self._settings[1]

    def get_single_submit(self) -> bool:
        """Whether requests are submitted one by one."""
        return self._settings[2]

    def get_overlap_events(self) -> bool:
        """Whether submission and completion overlap."""
        return self._settings[3]

    def get_intra_op_parallelism(self) -> int:
        """Threads that share one operation."""
        return self._settings[4]

    get_thread_count = get_intra_op_parallelism

    def get_alignment(self) -> int:
        """The alignment of transfers in bytes: one sector (512) per thread."""
        return 512 * self._settings[4]

    def pread(
        self, buffer: torch.Tensor, filename: Any, validate: bool = False, async_: bool = False, file_offset: int = 0
    ) -> int:
        """Returns 0 if asynchronous, else the number of completed operations; -1 if C++ would reject it."""
        path = str(filename)
        nbytes = buffer.nbytes
        if file_offset + nbytes > self._traffic.size_of(path) or nbytes % self._settings[4]:
            return -1
        self._traffic.read_bytes += nbytes
        self._written(buffer)
        return self._wait_unless_async(async_)

    def pwrite(
        self, buffer: torch.Tensor, filename: Any, validate: bool = False, async_: bool = False, file_offset: int = 0
    ) -> int:
        """Returns 0 if asynchronous, else the number of completed operations; -1 if C++ would reject it."""
        path, nbytes = str(filename), buffer.nbytes
        if nbytes % self._settings[4]:
            return -1
        self._traffic.written_bytes += nbytes
        self._traffic.files[path] = max(self._traffic.files.get(path, 0), file_offset + nbytes)
        return self._wait_unless_async(async_)

    def read(self, buffer: torch.Tensor, filename: Any, validate: bool = False, file_offset: int = 0) -> int:
        """Read without parallelism; returns 0, or -1 on an error."""
        return min(self.pread(buffer, filename, validate, False, file_offset), 0)

    def write(self, buffer: torch.Tensor, filename: Any, validate: bool = False, file_offset: int = 0) -> int:
        """Write without parallelism; returns 0, or -1 on an error."""
        return min(self.pwrite(buffer, filename, validate, False, file_offset), 0)

    def sync_pread(self, buffer: torch.Tensor, filename: Any, file_offset: int = 0) -> int:
        """Read; returns the number of completed operations."""
        return self.pread(buffer, filename, False, False, file_offset)

    def sync_pwrite(self, buffer: torch.Tensor, filename: Any, file_offset: int = 0) -> int:
        """Write; returns the number of completed operations."""
        return self.pwrite(buffer, filename, False, False, file_offset)

    def async_pread(self, buffer: torch.Tensor, filename: Any, file_offset: int = 0) -> int:
        """Start to read; returns 0."""
        return self.pread(buffer, filename, False, True, file_offset)

    def async_pwrite(self, buffer: torch.Tensor, filename: Any, file_offset: int = 0) -> int:
        """Start to write; returns 0."""
        return self.pwrite(buffer, filename, False, True, file_offset)

    def wait(self) -> int:
        """Returns the number of operations that were pending."""
        pending, self._pending = self._pending, 0
        return pending

    def new_pinned_device_tensor(self, num_elem: int, example_tensor: torch.Tensor) -> torch.Tensor:
        """GDS: allocate a registered tensor on the device."""
        return torch.empty(num_elem, dtype=example_tensor.dtype, device=example_tensor.device)

    def free_pinned_device_tensor(self, tensor: torch.Tensor) -> bool:
        """GDS: does nothing, since the memory is freed with the tensor."""
        return True

    def pin_device_tensor(self, tensor: torch.Tensor) -> bool:
        """GDS: register a tensor."""
        return True

    def unpin_device_tensor(self, tensor: torch.Tensor) -> bool:
        """GDS: unregister a tensor."""
        return True

    def _wait_unless_async(self, is_async: bool) -> int:
        self._pending += 1
        return 0 if is_async else self.wait()
