"""Weight transfer to a server: what vllm.distributed allocates on the trainer's device, without a receiver.

Follows vllm/distributed/weight_transfer/packed_tensor.py (0.18 to 0.31): tensors are packed into two buffers of 1 GiB
each, and broadcast. Before that, trainers broadcast each tensor separately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from gonogo.virtual.rollout.meeting import WEIGHT_SYNC_GROUP

_BUFFER_BYTES = 1 << 30
_BUFFERS = 2


class PyNcclCommunicator:
    """One end of the group for weight transfer: the trainer's (rank 0), or a worker's on Ray."""

    def __init__(self, group: Any = None, device: Any = None, **_: Any) -> None:
        self.group = group if group is not None else StatelessProcessGroup()
        self.device = torch.device("cuda", device) if isinstance(device, int) else device and torch.device(device)
        self.rank, self.world_size = self.group.rank, self.group.world_size
        self.disabled = False
        if self.rank == 0:
            WEIGHT_SYNC_GROUP.on_trainer_joined()

    def broadcast(self, tensor: torch.Tensor, src: int = 0, stream: Any = None) -> None:
        """Record a broadcast. Raises vLLM's AssertionError for a tensor on the CPU."""
        assert tensor.device.type != "cpu", (
            f"this nccl communicator is created to work on {self.device}, but the input tensor is on {tensor.device}"
        )
        if self.rank == src:
            WEIGHT_SYNC_GROUP.on_trainer_broadcast()


class StatelessProcessGroup:
    """A process group that is not registered with torch."""

    def __init__(self) -> None:
        self.store: Any = None
        self.socket: Any = None
        self.rank, self.world_size = 0, 2

    @classmethod
    def create(cls, host: str, port: int, rank: int, world_size: int, **_: Any) -> StatelessProcessGroup:
        """Connect to the workers, which are assumed to be there."""
        made = cls()
        made.rank, made.world_size = rank, world_size
        return made

    def barrier(self) -> None:
        """Return at once: the workers are assumed to be there."""


def trainer_init(init_info: Any) -> PyNcclCommunicator:
    """Join the workers' group as rank 0, the trainer."""
    return PyNcclCommunicator()


def packed_nccl_broadcast_producer(
    iterator: Iterator[tuple[str, torch.Tensor]],
    group: Any,
    src: int,
    post_iter_func: Callable[[tuple[str, torch.Tensor]], torch.Tensor],
    buffer_size_bytes: int = _BUFFER_BYTES,
    num_buffers: int = _BUFFERS,
) -> None:
    """Pack tensors into buffers and broadcast them, filling one buffer while the other is sent."""
    in_flight: list[Any] = [None] * num_buffers
    turn = 0
    while True:
        in_flight[turn] = None
        parts: list[torch.Tensor] = []
        taken = 0
        for item in iterator:
            part = post_iter_func(item).contiguous().view(torch.uint8).view(-1)
            parts.append(part)
            taken += part.numel()
            if taken > buffer_size_bytes:
                break
        if not parts:
            return
        in_flight[turn] = torch.cat(parts, dim=0)
        group.broadcast(in_flight[turn], src=src)
        turn = (turn + 1) % num_buffers


class NCCLWeightTransferEngine:
    """The class that provides this before release 0.28."""

    @staticmethod
    def trainer_init(init_info: Any) -> PyNcclCommunicator:
        """Join the workers' group as rank 0, the trainer."""
        return trainer_init(init_info)

    @staticmethod
    def trainer_send_weights(iterator: Iterator[tuple[str, torch.Tensor]], trainer_args: Any) -> None:
        """Send the weights, packed or one by one."""
        if getattr(trainer_args, "packed", False):
            packed_nccl_broadcast_producer(iterator, trainer_args.group, 0, lambda item: item[1])
            return
        for _, tensor in iterator:
            trainer_args.group.broadcast(tensor, src=0)


class NCCLTrainerSendWeightsArgs(SimpleNamespace):
    """The arguments of ``trainer_send_weights``."""
