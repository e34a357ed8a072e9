"""What a data loader's worker processes pass to the training process, as a rehearsal reads the same batches itself."""

from __future__ import annotations

import msgspec


class LoaderSharedMemory(msgspec.Struct, frozen=True):
    """The loader that would keep the most in shared memory."""

    workers: int
    ahead: int
    """Batches that they keep ready, together."""
    batch_bytes: int
    """Of the largest batch that was read: its tensors, in whole pages."""

    @property
    def held_bytes(self) -> int:
        """What stands in /dev/shm when all that is read ahead is ready."""
        return self.ahead * self.batch_bytes
