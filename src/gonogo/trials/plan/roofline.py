"""Step time by a roofline: every part of the machine at a stated share of what its maker states.

An operator takes the longer of its FLOPs and its bytes (Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009);
a step takes the longer of what runs at the same time, and the sum of what runs after one another. It ranks
strategies; it is no promise of seconds.
"""

from __future__ import annotations

import msgspec

from gonogo.evidence.environment.hardware import Speed
from gonogo.evidence.rehearsal.work import parse_collective_key
from gonogo.virtual.tracing.operator_time import MEMORY_SHARE as MEMORY_SHARE

LINK_SHARE = 0.7
"""Of the stated link bandwidth, as all_reduce_bench reaches it on large payloads (ml-engineering, network)."""
HOST_LINK_SHARE = 0.75
"""Of PCIe's stated bandwidth, with pinned memory."""
HOST_MEMORY_BYTES_PER_SECOND = 300e9
"""Host memory bandwidth of a node, bytes/s: two sockets of eight DDR4-3200 channels reach this."""
NVME_BYTES_PER_SECOND = 6e9
"""Of one NVMe drive, read and write, bytes/s, as ZeRO-Infinity's paper assumes for its nodes' drives each."""
ADAM_HOST_BYTES_PER_PARAMETER = 28
"""That CPU Adam reads and writes for a parameter: gradient, fp32 master, two moments in, the last three out."""
ADAM_NVME_BYTES_PER_PARAMETER = 24
"""That a step moves from and to NVMe for a parameter: master and two moments, both ways."""
ALIKE = 0.05
"""Speeds that differ by a smaller share can't be told apart by a roofline."""
NETWORK_BYTES_PER_SECOND = 25e9
"""Between nodes, bytes/s of each accelerator in one direction, where --network says nothing: 200 Gb/s."""


class StepTime(msgspec.Struct, frozen=True):
    """Seconds of one optimizer step, by what takes them. ``total`` isn't their sum: some run at the same time."""

    compute: float
    communication: float
    host_link: float
    host_optimizer: float
    nvme: float
    total: float
    generation: float = 0.0
    """Of generating completions, and of bringing the weights to the engine before: nothing else runs meanwhile."""

    @property
    def limit(self) -> str:
        """What takes longest: a key of :data:`BOTTLENECKS`."""
        parts = {
            "compute": self.compute,
            "communication": self.communication,
            "host_link": self.host_link,
            "host_optimizer": self.host_optimizer,
            "nvme": self.nvme,
            "generation": self.generation,
        }
        return max(parts, key=lambda name: parts[name])


BOTTLENECKS = ("compute", "communication", "host_link", "host_optimizer", "nvme", "generation")


_BETWEEN_TWO = ("send", "recv", "recv_any_source")
"""A rank sends while it receives: half the time of each."""


def collective_seconds(operator: str, sent_bytes: int, ranks: int, bandwidth: float) -> float:
    """Seconds of collectives that sent so many bytes in all, over a ring of ``ranks`` ranks.

    ``sent_bytes`` are those of each rank's input; ``bandwidth`` bytes/s of one rank's slowest link. A ring moves
    (n-1)/n of the full tensor for a gather or a reduce-scatter, and twice that for an all-reduce
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
    speed: Speed,
    generation_seconds: float = 0.0,
) -> StepTime:
    """The time of a step.

    ``compute`` and ``communication``: a rank's seconds; bytes: a rank's, in the step; ``host_parameters``: parameters
    that a rank's CPU optimizer updates; ``nvme_parameters``: those of them whose states lie on NVMe. Communication and
    copies run beside computing; the optimizer on the host runs after them, all ranks of a node at once.
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
