"""What stands around the program, put in place in order: files, network, devices, process group, kernels, weights."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from gonogo.evidence.rehearsal.record import Missed
from gonogo.finding import Text
from gonogo.virtual import kernels, private
from gonogo.virtual.collectives import ddp, process_group
from gonogo.virtual.collectives.peers import Peers
from gonogo.virtual.cuda import facade
from gonogo.virtual.cuda.state import VirtualCuda
from gonogo.virtual.hooks import older_deepspeed
from gonogo.virtual.kernels import apex, bitsandbytes, flash_attention, torchvision, triton
from gonogo.virtual.kernels.async_io import NvmeTraffic
from gonogo.virtual.memory.blas_workspaces import BlasWorkspaces
from gonogo.virtual.memory.caching_allocator import CachingAllocator
from gonogo.virtual.mode import NAMESPACE_HANDLERS, VirtualMode
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.protocol.plan import WorkerPlan
from gonogo.virtual.sandbox import (
    addresses,
    hub,
    metrics,
    moving,
    network,
    prepared,
    probe_reporting,
    spawned,
    trackers,
)
from gonogo.virtual.tensor import CPU, VirtualTensor
from gonogo.virtual.unsupported import UnsupportedOperator
from gonogo.virtual.values import contents
from gonogo.virtual.weights import opened_files, readers, saving, sharded_saves
from gonogo.virtual.weights.generated_weights import MadeWeights
from gonogo.virtual.weights.sharded_saves import install_staging

_PACKAGES = str(Path(__file__).parent.parent / "stand_ins")
"""Python of packages that can't be installed without a GPU's compiler, each with its metadata."""
_WRITTEN_IN_PYTHON = ("flash_attn", "deepspeed", "autotp", "autosp")
"""Namespaces of operators whose functions show more than their fake kernels do: memory, and collectives."""
_LOADS = Text("flash-attn's compiled kernels load on the machine", "flash-attn 的编译内核能在机器上加载")


def _written(tensor: torch.Tensor) -> None:
    if isinstance(tensor, VirtualTensor):
        contents.forget(tensor)


def _stores(plan: WorkerPlan) -> str | None:
    """Where the ranks' stores lie, if all of the world is rehearsed and writes to one scratch folder."""
    where = plan.exchange
    together = where is not None and len(where.ranks) == plan.world_size and not where.address
    return os.path.join(plan.scratch, "store") if together else None


class InPlace(NamedTuple):
    """What was put in place: what takes it down, to be called last first; what DeepSpeed offloads to NVMe; devices."""

    undo: list[Callable[[], None]]
    nvme: NvmeTraffic
    accelerators: VirtualCuda


def install(
    plan: WorkerPlan,
    mode: VirtualMode,
    peers: Peers | None,
    note: Callable[[str], None],
    wrote: Callable[[str, int, int], None],
    missed: Callable[[Missed], None],
) -> InPlace:
    """Put everything in place.

    ``note`` hears facts worth telling, ``wrote`` of each save (path, bytes, tensors), ``missed`` of names of the hub.
    """
    assume = mode.ledger.assume
    accelerators = _install_accelerators(plan, mode)
    undo: list[Callable[[], None]] = [accelerators.undo]
    kind = plan.accelerator.device_type
    undo.append(process_group.install(assume, peers, kind, _stores(plan)))
    undo.append(_hide_processor())
    undo.append(ddp.install(assume))
    of_deepspeed = kernels.install(_written, UnsupportedOperator, assume)
    undo.append(of_deepspeed.undo)
    capability = plan.accelerator.compute_capability
    undo.append(_install_stand_ins(NAMESPACE_HANDLERS, _written, assume, capability))
    undo.append(older_deepspeed.install(assume))
    undo.append(network.install(lambda host: note(f"the network was asked for and refused: {host}")).undo)
    undo.append(trackers.install())
    undo.append(hub.install(note))
    made = MadeWeights(plan.scratch, plan.confinement == "namespaces", note)
    undo.append(prepared.install(plan.prepared, assume, missed, functools.partial(opened_files.make, made)))
    undo.append(addresses.install(plan.prepared, assume, missed))
    undo.append(metrics.install(assume))
    undo.append(moving.install())
    undo.append(probe_reporting.install())
    undo.append(spawned.install(plan.scratch))
    undo.append(readers.install(made).undo)
    undo.append(saving.install(wrote).undo)
    undo.append(sharded_saves.install(peers, plan.world_size))
    undo.append(install_staging())
    return InPlace(undo, of_deepspeed.nvme, accelerators)


def _install_accelerators(plan: WorkerPlan, mode: VirtualMode) -> VirtualCuda:
    """The facade of ``torch.cuda`` or ``torch.npu``."""

    def allocator_of(index: int) -> CachingAllocator:
        allocator = mode.memory.device(torch.device(plan.accelerator.device_type, index)).allocator
        assert allocator is not None
        return allocator

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        return mode.pinned_copy(mode.virtualise(tensor))

    count = plan.devices or plan.local_world_size
    if plan.accelerator.device_type == "npu":
        from gonogo.virtual.npu.ascend_names import VISIBLE
        from gonogo.virtual.npu.facade import install_npu

        devices: VirtualCuda = install_npu(
            plan.accelerator,
            count,
            allocator_of,
            visible_devices=os.environ.get(VISIBLE),
            unsupported=UnsupportedOperator,
            pin=pin,
            assume=mode.ledger.assume,
        )
    else:
        devices = facade.install(
            plan.accelerator,
            count,
            allocator_of,
            visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
            unsupported=UnsupportedOperator,
            pin=pin,
        )
        capability = plan.accelerator.compute_capability
        mode.workspaces = devices.blas = BlasWorkspaces(mode.memory, capability, devices.current_stream_id)
    VirtualTensor.accelerator_index = staticmethod(lambda: devices.current_device)
    VirtualTensor.check_ordinal = staticmethod(devices.check_ordinal)
    for device, record in mode.memory.devices.items():
        if device != CPU:
            record.stream = functools.partial(devices.current_stream_id, device.index)
    return devices


def _install_stand_ins(
    namespaces: dict[str, Any],
    written: Callable[[torch.Tensor], object],
    assume: Callable[[Text], object],
    compute_capability: tuple[int, int],
) -> Callable[[], None]:
    """Put all of them in place; returns the undo. ``namespaces``: where the mode looks up operators' handlers."""
    patches = Patches()
    bitsandbytes.install(patches, namespaces, written, assume)
    triton.install(patches, written, assume, compute_capability)
    torchvision.install(patches)
    apex.install(patches, written, assume)
    installed = find_spec("flash_attn") is not None
    assumed = _LOADS if installed else flash_attention.ASSUMED
    kernels = flash_attention.FlashAttention(written, assume, compute_capability, assumed)
    patches.item(sys.modules, "flash_attn_2_cuda", kernels)
    for namespace in _WRITTEN_IN_PYTHON:
        patches.item(namespaces, namespace, _run_in_python)
    if not installed:
        sys.path.append(_PACKAGES)
        patches.on_undo(lambda: sys.path.remove(_PACKAGES))
    return patches.undo


def _run_in_python(mode: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """A library's operator done by the library's function, whose compiled part is stood in for."""
    function = private.custom_operator(func._schema.name)
    if function is None:
        return mode.run(mode.operator(func), args, kwargs)
    with mode:
        return function(*args, **kwargs)


def _hide_processor() -> Callable[[], None]:
    """The host's processor: DeepSpeed's CPU optimizers ask for its maker, through a process that takes over a second.

    The answer would be of this machine, not of the one that the run will have: none is given.

    Have ``cpuinfo.get_cpu_info`` answer at once that the maker is not known; returns the undo.
    """
    patches = Patches()

    def replace(module: ModuleType) -> None:
        patches.set(module, "get_cpu_info", lambda: {"vendor_id_raw": "unknown", "vendor_id": "unknown"})

    patches.on_undo(after_import("cpuinfo", replace))
    return patches.undo
