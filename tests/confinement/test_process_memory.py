"""What is read of a process's memory, by the edges of its pages."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct

import pytest

from gonogo.confinement.process_memory import ProcessMemory


@pytest.mark.parametrize("before_page_end", [8, 16, 20, 4000, 4096])
def test_pointers_are_read_beyond_the_end_of_their_page(before_page_end: int) -> None:
    wanted = list(range(1, 1500))
    with mmap.mmap(-1, 8 * mmap.PAGESIZE) as pages:
        start = mmap.PAGESIZE - before_page_end
        pages[start : start + 8 * 1500] = struct.pack("=1500Q", *wanted, 0)
        pages[start + 8 * 1500 : start + 8 * 1501] = struct.pack("=Q", 7)
        held = ctypes.c_char.from_buffer(pages)
        found = ProcessMemory().pointers(os.getpid(), ctypes.addressof(held) + start)
        del held
    assert found == wanted


def test_pointers_at_an_address_that_is_not_mapped_are_an_error() -> None:
    with pytest.raises(OSError, match="can't be read"):
        ProcessMemory().pointers(os.getpid(), 8)
