"""Shared memory between a data loader's workers and the training process, computed from the rehearsed batches."""

from __future__ import annotations

import msgspec


class LoaderSharedMemory(msgspec.Struct, frozen=True):
    """The data loader that would use the most shared memory."""

    workers: int
    ahead: int
    """Batches that all workers together prefetch."""
    batch_bytes: int
    """Size of the largest batch that was read: its tensors, rounded up to whole pages."""

    @property
    def held_bytes(self) -> int:
        """Usage of /dev/shm when all prefetched batches are ready."""
        return self.ahead * self.batch_bytes
