"""Machines: which accelerators, how many, how much host memory."""

from __future__ import annotations

import msgspec


class Accelerator(msgspec.Struct, frozen=True):
    """One type of accelerator, as its own software reports it."""

    name: str
    device_type: str
    """``cuda`` or ``npu``: the prefix of its devices' names."""
    product: str
    """What ``torch.cuda.get_device_name`` says, e.g. ``NVIDIA H100 80GB HBM3``."""
    total_bytes: int
    """What ``get_device_properties().total_memory`` says."""
    compute_capability: tuple[int, int]
    multiprocessors: int
    allowance_bytes: int
    """What the context, cuBLAS/cuDNN workspaces and communicators take beside the caching allocator."""
    aliases: tuple[str, ...] = ()
    source: str = ""


class Machine(msgspec.Struct, frozen=True):
    """The machine a program is to run on: ``count`` accelerators of one type on each node."""

    accelerator: Accelerator
    count: int
    nodes: int = 1
    host_bytes: int | None = None
