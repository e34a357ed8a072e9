"""Step time by a roofline model: each part of the machine reaches a fixed fraction of its stated figure.

An operator takes the maximum of its compute and memory time (Williams, Waterman, Patterson, "Roofline", CACM 52(4),
2009); a step takes the maximum of what overlaps, plus the sum of what doesn't. The model serves to rank strategies,
not to predict seconds.
"""

from __future__ import annotations

import msgspec

from gonogo.evidence.environment.hardware import PeakSpeed
from gonogo.evidence.rehearsal.work import parse_collective_key
from gonogo.virtual.tracing.operator_time import MEMORY_SHARE as MEMORY_SHARE

LINK_SHARE = 0.7
"""Fraction of the stated link bandwidth, as all_reduce_bench reaches on large payloads (ml-engineering, network)."""
HOST_LINK_SHARE = 0.75
"""Fraction of PCIe's stated bandwidth, with pinned memory."""
HOST_MEMORY_BYTES_PER_SECOND = 300e9
"""Host memory bandwidth of a node, as reached by two sockets with eight DDR4-3200 channels each."""
NVME_BYTES_PER_SECOND = 6e9
"""Read and write bandwidth of one NVMe drive, as the ZeRO-Infinity paper assumes for each drive of its nodes."""
ADAM_HOST_BYTES_PER_PARAMETER = 28
"""Bytes that CPU Adam moves per parameter: reads gradient, fp32 master and two moments, writes the last three."""
ADAM_NVME_BYTES_PER_PARAMETER = 24
"""Bytes that a step moves from and to NVMe per parameter: master and two moments, both ways."""
NETWORK_BYTES_PER_SECOND = 25e9
"""Default of --network: bytes/s per accelerator and direction between nodes, 200 Gb/s."""


class StepTime(msgspec.Struct, frozen=True):
    """Seconds of one optimizer step, by bottleneck. ``total`` isn't their sum, because some of them overlap."""

    compute: float
    communication: float
    host_link: float
    host_optimizer: float
    nvme: float
    total: float
    generation: float = 0.0
    """Generating completions, after sending the weights to the engine; nothing overlaps with it."""

    @property
    def limit(self) -> str:
        """The name of the part that takes longest."""
        parts = {
            "compute": self.compute,
            "communication": self.communication,
            "host_link": self.host_link,
            "host_optimizer": self.host_optimizer,
            "nvme": self.nvme,
            "generation": self.generation,
        }
        return max(parts, key=lambda name: parts[name])


_BETWEEN_TWO = ("send", "recv", "recv_any_source")
"""A rank sends while it receives, so each takes half the time."""


def collective_seconds(operator: str, sent_bytes: int, ranks: int, bandwidth: float) -> float:
    """Seconds of collectives that send ``sent_bytes`` in total, over a ring of ``ranks`` ranks.

    ``sent_bytes`` counts each rank's input; ``bandwidth`` is in bytes/s of a rank's slowest link. A ring moves
    (n-1)/n of the full tensor for an all-gather or a reduce-scatter, and twice that for an all-reduce
    (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
    """
    operator, members, _, _ = parse_collective_key(operator)
    ranks = members or ranks
    if ranks <= 1:
        return 0.0
    share = (ranks - 1) / ranks
    name = operator.strip("_")
    if "allgather" in name:
        moved = float(sent_bytes * (ranks - 1))
    elif "allreduce" in name:
        moved = 2 * sent_bytes * share
    elif name in _BETWEEN_TWO:
        moved = sent_bytes / 2
    else:
        moved = sent_bytes * share
    return moved / (bandwidth * LINK_SHARE)


def step_time(
    *,
    compute: float,
    communication: float,
    to_host_bytes: float,
    from_host_bytes: float,
    host_parameters: float,
    nvme_parameters: float,
    ranks_per_node: int,
    nvme_drive_count: int,
    speed: PeakSpeed,
    generation_seconds: float = 0.0,
) -> StepTime:
    """The time of a step.

    ``compute`` and ``communication``: seconds per rank; bytes: per rank and step; ``host_parameters``: parameters
    that a rank's CPU optimizer updates; ``nvme_parameters``: those of them whose states are on NVMe. Communication
    and copies overlap with compute; the CPU optimizer runs after them, on all ranks of a node at once.
    """
    link = speed.host_link_bytes * HOST_LINK_SHARE
    host_link = max(to_host_bytes, from_host_bytes) / link
    optimizer = host_parameters * ADAM_HOST_BYTES_PER_PARAMETER * ranks_per_node / HOST_MEMORY_BYTES_PER_SECOND
    nvme = (
        nvme_parameters
        * ADAM_NVME_BYTES_PER_PARAMETER
        * ranks_per_node
        / (NVME_BYTES_PER_SECOND * max(nvme_drive_count, 1))
    )
    total = max(compute, communication, host_link) + max(optimizer, nvme) + generation_seconds
    return StepTime(compute, communication, host_link, optimizer, nvme, total, generation_seconds)
