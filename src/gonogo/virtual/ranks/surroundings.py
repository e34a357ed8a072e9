"""What stands around the program, put in place in order: files, network, devices, process group, kernels, weights."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from gonogo.virtual import kernels, weights
from gonogo.virtual.collectives import ddp, process_group
from gonogo.virtual.cuda import facade as cuda
from gonogo.virtual.hooks import older_deepspeed
from gonogo.virtual.kernels import libraries
from gonogo.virtual.mode import NAMESPACE_HANDLERS, UnsupportedOperator
from gonogo.virtual.ranks.plan import WorkerPlan
from gonogo.virtual.sandbox import filesystem, network, processor, spawned
from gonogo.virtual.sandbox.overlay import Overlay
from gonogo.virtual.sandbox.overlay_view import shared_with_others
from gonogo.virtual.tensor import CPU, VirtualTensor
from gonogo.virtual.values import values
from gonogo.virtual.weights import saving

if TYPE_CHECKING:
    from gonogo.virtual.ranks.session import Session


def _written(tensor: torch.Tensor) -> None:
    if isinstance(tensor, VirtualTensor):
        values.forget(tensor)


def _stores(plan: WorkerPlan) -> str | None:
    """Where the ranks' stores lie, if all of the world is rehearsed and writes to one scratch folder."""
    where = plan.exchange
    together = where is not None and len(where.ranks) == plan.world_size and os.path.isabs(where.address)
    return os.path.join(plan.scratch, "store") if together else None


def install(session: Session) -> list[Callable[[], None]]:
    """Put everything in place; returns what takes it down, to be called last first."""
    plan = session.plan
    undo: list[Callable[[], None]] = []

    def allocator_of(index: int):  # type: ignore[no-untyped-def]
        allocator = session.memory.device(torch.device(plan.accelerator.device_type, index)).allocator
        assert allocator is not None
        return allocator

    count = plan.devices or plan.local_world_size

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        return session.mode.pinned_copy(session.mode.virtualise(tensor))

    if plan.accelerator.device_type == "npu":
        from gonogo.virtual.npu import facade as ascend

        facade: cuda.VirtualCuda = ascend.install(
            plan.accelerator,
            count,
            allocator_of,
            visible_devices=os.environ.get(ascend.VISIBLE),
            unsupported=UnsupportedOperator,
            pin=pin,
            assume=session.ledger.assume,
        )
    else:
        facade = cuda.install(
            plan.accelerator,
            count,
            allocator_of,
            visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
            unsupported=UnsupportedOperator,
            pin=pin,
        )
    undo.append(facade.undo)
    VirtualTensor.accelerator_index = staticmethod(lambda: facade.current_device)
    VirtualTensor.check_ordinal = staticmethod(facade.check_ordinal)
    for device, record in session.memory.devices.items():
        if device != CPU:
            record.stream = functools.partial(facade.current_stream_id, device.index)
    kind = plan.accelerator.device_type
    undo.append(process_group.install(session.ledger.assume, session.peers, kind, _stores(plan)))
    undo.append(processor.install())
    undo.append(ddp.install(session.ledger.assume))
    of_deepspeed = kernels.install(_written, UnsupportedOperator, session.ledger.assume)
    session.nvme = of_deepspeed.nvme
    undo.append(of_deepspeed.undo)
    capability = plan.accelerator.compute_capability
    undo.append(libraries.install(NAMESPACE_HANDLERS, _written, session.ledger.assume, capability))
    undo.append(older_deepspeed.install(session.ledger.assume))
    undo.append(network.install(lambda host: session.note(f"the network was asked for and refused: {host}")).undo)
    ours = tuple({os.path.dirname(plan.record), os.path.dirname(plan.progress)})
    if plan.exchange is not None:
        shared_with_others()
    overlay = Overlay(plan.scratch, passed=ours)
    undo.append(filesystem.install(overlay).undo)
    undo.append(spawned.install(overlay).undo)
    undo.append(weights.install(overlay, session.note).undo)
    undo.append(saving.install(session.wrote).undo)
    return undo
