"""Access to the memory of a process stopped in a system call, such as the paths that it passes."""

from __future__ import annotations

import ctypes
import itertools
import os
import struct
from collections.abc import Callable

_PAGE_BYTES = 4096
_POINTER_BYTES = 8
_MAX_POINTERS = 1 << 16


class ProcessMemory:
    """Access to the memory of child processes, by process id."""

    def __init__(self) -> None:
        self._readv = ctypes.CDLL(None, use_errno=True).process_vm_readv
        self._buffer = ctypes.create_string_buffer(_PAGE_BYTES)
        self._local = (ctypes.c_size_t * 2)(ctypes.addressof(self._buffer), 0)
        self._remote = (ctypes.c_size_t * 2)()

    def __call__(self, pid: int, address: int, size: int) -> bytes:
        """Read ``size`` bytes (at most a page), or fewer if not all are readable. Raises OSError."""
        self._local[1] = self._remote[1] = min(size, _PAGE_BYTES)
        self._remote[0] = address
        count = self._readv(pid, self._local, 1, self._remote, 1, 0)
        if count < 0:
            raise OSError(ctypes.get_errno(), f"the memory of process {pid} can't be read")
        return self._buffer.raw[:count]

    def write(self, pid: int, address: int, data: bytes, is_still_waiting: Callable[[], bool]) -> None:
        """Write to the memory, even if it is read-only for the process itself. Raises OSError.

        The process id may have been reused: ``is_still_waiting`` is called after the memory has been opened.
        """
        descriptor = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)
        try:
            if not is_still_waiting():
                raise ProcessLookupError(f"process {pid} has ended")
            os.pwrite(descriptor, data, address)
        finally:
            os.close(descriptor)

    def text(self, pid: int, address: int) -> bytes:
        """A zero-terminated string; read page by page, since the next page may not be mapped."""
        found = b""
        while len(found) <= _PAGE_BYTES:
            block = self(pid, address, _PAGE_BYTES - address % _PAGE_BYTES)
            text, zero, _ = block.partition(b"\0")
            found += text
            if zero:
                return found
            address += len(block)
        return b""  # longer than any path, so the call will fail

    def pointers(self, pid: int, address: int) -> list[int]:
        """A zero-terminated list of pointers, such as the arguments of ``execve``; it may cross a page's end."""
        found: list[int] = []
        while len(found) <= _MAX_POINTERS:
            size = _PAGE_BYTES - address % _PAGE_BYTES
            # Less than one pointer to the page's end: it lies on both pages, and both are there if the list is.
            block = self(pid, address, size if size >= _POINTER_BYTES else _POINTER_BYTES)
            count = len(block) // _POINTER_BYTES
            values = struct.unpack(f"={count}Q", block[: count * _POINTER_BYTES])
            before_zero = list(itertools.takewhile(bool, values))
            found += before_zero
            if not count or len(before_zero) < count:
                return found
            address += count * _POINTER_BYTES
        return found
