"""Checks whether a strategy fits: its memory against the capacity of each accelerator and node."""

from __future__ import annotations

import msgspec

from gonogo.evidence.environment.hardware import Machine

_HOST_UNCERTAINTY = 0.1
"""The maximum relative error of host memory, which holds model states that formulas describe well."""
HOST_RESERVE_SHARE = 0.08
"""The fraction of a node's memory left to the system, data loaders and the page cache."""


class Headroom(msgspec.Struct, frozen=True):
    """What is left of each kind of memory, in bytes: negative if it does not fit, None if the capacity is unknown."""

    accelerator: float
    """Calculated at the upper end of the error band."""
    host: float | None
    nvme: float | None
    engine: float | None = None
    """The margin with which a rollout engine beside the trainer is certain to start."""

    @property
    def fits(self) -> bool:
        """Whether all kinds of memory suffice."""
        return self.accelerator >= 0 and self.others_fit

    @property
    def others_fit(self) -> bool:
        """Whether host memory and NVMe suffice, and the engine starts."""
        return all(left is None or left >= 0 for left in (self.host, self.nvme, self.engine))

    @property
    def insufficient_memory(self) -> str | None:
        """What is too small: ``accelerator``, ``engine``, ``host`` or ``nvme``; None if everything fits."""
        for name in ("accelerator", "engine", "host", "nvme"):
            left = getattr(self, name)
            if left is not None and left < 0:
                return name
        return None


def headroom(
    machine: Machine, *, reserved: float, host_of_rank: float, nvme_of_rank: float, nvme_bytes: int | None, band: float,
    unsure: float = 0.0, engine: float | None = None,
) -> Headroom:  # fmt: skip
    """The memory that is left of each kind. ``reserved``: of a rank's caching allocator; ``band``: its relative error.

    ``unsure``: an additional error in bytes, from an engine; ``engine``: the margin with which the engine starts.
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
