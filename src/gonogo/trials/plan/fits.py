"""Whether it fits: what a strategy takes, held against what each accelerator and each node has."""

from __future__ import annotations

import msgspec

from gonogo.evidence.environment.hardware import Machine

_HOST_UNCERTAINTY = 0.1
"""How far host memory may be off at most, as a share: it holds model states, which a formula tells well enough."""
HOST_RESERVE_SHARE = 0.08
"""Of a node's memory that the system, data loaders and the page cache are left."""


class Headroom(msgspec.Struct, frozen=True):
    """What is left of each kind of memory, in bytes: negative where it does not fit. None where it isn't stated."""

    accelerator: float
    """If the figure is too low by all of its band."""
    host: float | None
    nvme: float | None
    engine: float | None = None
    """By how much a rollout engine beside the trainer surely starts."""

    @property
    def fits(self) -> bool:
        """Whether all of it fits."""
        return self.accelerator >= 0 and self.others_fit

    @property
    def others_fit(self) -> bool:
        """Whether host memory and NVMe hold what lies there, and an engine starts."""
        return all(left is None or left >= 0 for left in (self.host, self.nvme, self.engine))

    @property
    def insufficient_memory(self) -> str | None:
        """What is too small: ``accelerator``, ``engine``, ``host`` or ``nvme``; None where all fits."""
        for name in ("accelerator", "engine", "host", "nvme"):
            left = getattr(self, name)
            if left is not None and left < 0:
                return name
        return None


def headroom(
    machine: Machine, *, reserved: float, host_of_rank: float, nvme_of_rank: float, nvme_bytes: int | None, band: float,
    unsure: float = 0.0, engine: float | None = None,
) -> Headroom:  # fmt: skip
    """What is left. ``reserved``: of a rank's caching allocator; ``band``: how far it may be off, as a share.

    ``unsure``: by how many bytes an engine's part of it may be off besides; ``engine``: by how much it starts.
    """
    accelerator = machine.accelerator
    capacity = accelerator.total_bytes - accelerator.allowance_bytes
    host = None
    if machine.host_bytes is not None:
        host = (
            machine.host_bytes * (1 - HOST_RESERVE_SHARE)
            - host_of_rank * (1 + min(band, _HOST_UNCERTAINTY)) * machine.count
        )
    nvme = None if nvme_bytes is None else nvme_bytes - nvme_of_rank * machine.count
    return Headroom(capacity - reserved * (1 + band) - unsure, host, nvme, engine)
