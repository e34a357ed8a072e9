"""Sets up the environment of a program, in order: files, network, devices, process group, kernels, weights."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import torch

from gonogo.evidence.environment.hardware import Accelerator
from gonogo.evidence.prepared import read_prepared
from gonogo.evidence.rehearsal.record import MissingInput
from gonogo.virtual import kernels, private
from gonogo.virtual.collectives import ddp, mpi, process_group
from gonogo.virtual.collectives.peers import Peers
from gonogo.virtual.cuda import facade
from gonogo.virtual.cuda.state import VirtualCuda
from gonogo.virtual.downloads import tiktoken_files, torchvision_datasets
from gonogo.virtual.hooks import older_deepspeed
from gonogo.virtual.kernels import libraries
from gonogo.virtual.kernels.async_io import NvmeTraffic
from gonogo.virtual.lookups import probe_reporting
from gonogo.virtual.memory.allocator_settings import AllocatorSettings
from gonogo.virtual.memory.blas_workspaces import BlasWorkspaces
from gonogo.virtual.memory.caching_allocator import CachingAllocator
from gonogo.virtual.memory.tracking import DeviceRecord, MemoryRecord
from gonogo.virtual.mode import NAMESPACE_HANDLERS, VirtualMode
from gonogo.virtual.operators import flex_attention
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.garbage import free_frames_of_imports
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.protocol.plan import WorkerPlan
from gonogo.virtual.sandbox import addresses, file_copies, hub, metrics, network, prepared, started_processes, trackers
from gonogo.virtual.sandbox.started_processes import StartedProcesses
from gonogo.virtual.tensor import CPU, VirtualTensor
from gonogo.virtual.tracing import work
from gonogo.virtual.tracing.components import plain_allocator
from gonogo.virtual.unsupported import UnsupportedOperator
from gonogo.virtual.values import contents
from gonogo.virtual.values.assumptions import Assume, Ledger
from gonogo.virtual.weights import opened_files, readers, saving, sharded_saves
from gonogo.virtual.weights.generated_weights import GeneratedWeights
from gonogo.virtual.weights.sharded_saves import install_staging


def _on_tensor_written(tensor: torch.Tensor) -> None:
    if isinstance(tensor, VirtualTensor):
        contents.forget_values(tensor)


def _shared_store_folder(plan: WorkerPlan) -> str | None:
    """Folder for the ranks' stores, if the whole world is rehearsed on this machine with one scratch folder."""
    where = plan.exchange
    together = where is not None and len(where.ranks) == plan.world_size and not where.address
    return os.path.join(plan.scratch, "store") if together else None


class InstalledEnvironment(NamedTuple):
    """The installed environment: undo functions (to be called last first), DeepSpeed's NVMe traffic, accelerators."""

    undo: list[Callable[[], None]]
    nvme: NvmeTraffic
    accelerators: VirtualCuda


def install(
    plan: WorkerPlan,
    mode: VirtualMode,
    peers: Peers | None,
    note: Callable[[str], None],
    wrote: Callable[[str, int, int], None],
    missed: Callable[[MissingInput], None],
) -> InstalledEnvironment:
    """Install a worker's virtual accelerators, sandbox and stand-ins for compiled packages.

    ``note`` is called with noteworthy facts, ``wrote`` for each save (path, bytes, tensors), ``missed`` for Hub names
    that were not found.
    """
    assume = mode.ledger.assume
    accelerators = _install_accelerators(plan, mode)
    undo: list[Callable[[], None]] = [accelerators.undo]
    kind = plan.accelerator.device_type
    undo.append(process_group.install(assume, peers, kind, _shared_store_folder(plan)))
    undo.append(_hide_cpu_info())
    undo.append(ddp.install(assume))
    undo.append(mpi.install(assume, UnsupportedOperator, _absent_packages(plan), peers))
    of_deepspeed = kernels.install(_on_tensor_written, UnsupportedOperator, assume)
    undo.append(of_deepspeed.undo)
    undo.append(_install_libraries(plan, assume))
    undo.append(flex_attention.install(assume, work.count_kernel))
    undo.append(older_deepspeed.install(assume))
    undo.append(network.install(lambda host: note(f"the network was asked for and is not here: {host}")).undo)
    undo.append(trackers.install())
    undo.append(hub.install(note))
    made = GeneratedWeights(plan.scratch, plan.confinement == "namespaces", note, frozenset(plan.written_folders))
    undo.append(
        prepared.install(plan.prepared, assume, missed, functools.partial(opened_files.generate_if_weights_file, made))
    )
    undo.append(addresses.install(plan.prepared, assume, missed))
    undo.append(metrics.install(assume))
    undo.append(torchvision_datasets.install(assume))
    undo.append(tiktoken_files.install(assume))
    undo.append(file_copies.install())
    undo.append(probe_reporting.install())
    started = StartedProcesses.of_rank(plan)
    started.write(plan)
    undo.append(started_processes.install(started.folder))
    undo.append(readers.install(made, assume).undo)
    undo.append(saving.install(wrote).undo)
    undo.append(sharded_saves.install(peers, plan.world_size))
    undo.append(install_staging())
    undo.append(free_frames_of_imports())
    return InstalledEnvironment(undo, of_deepspeed.nvme, accelerators)


def show_accelerators(plan: WorkerPlan, assume: Assume) -> None:
    """Show a process that the program starts the accelerators and compiled packages of the program's own process.

    It has no dispatch mode: its tensors are real, and none can be on an accelerator.
    """
    private.register_device_type(plan.accelerator.device_type)
    memory = MemoryRecord(functools.partial(device_record, plan.accelerator, plan.host_bytes))
    _install_accelerators(plan, VirtualMode(memory, Ledger(os.path.dirname(torch.__file__))))
    kernels.install(_on_tensor_written, UnsupportedOperator, assume)
    _install_libraries(plan, assume)


def device_record(
    accelerator: Accelerator,
    host_bytes: int | None,
    name: str,
    make_allocator: Callable[[str, int, AllocatorSettings], CachingAllocator] = plain_allocator,
) -> DeviceRecord:
    """The empty record of a device: ``cpu``, or an accelerator with its allocator."""
    if name == "cpu":
        return DeviceRecord(name, host_bytes or 0, 0, None)
    settings = AllocatorSettings.from_environment(os.environ, accelerator.device_type)
    allocator = make_allocator(name, accelerator.total_bytes - accelerator.allowance_bytes, settings)
    return DeviceRecord(name, accelerator.total_bytes, accelerator.allowance_bytes, allocator)


def _install_libraries(plan: WorkerPlan, assume: Assume) -> Callable[[], None]:
    return libraries.install(
        NAMESPACE_HANDLERS,
        _on_tensor_written,
        assume,
        plan.accelerator.compute_capability,
        work.count_kernel,
        work.counting_in_place,
        _absent_packages(plan),
    )


def _absent_packages(plan: WorkerPlan) -> Collection[str]:
    """The packages that the run certainly lacks."""
    table = read_prepared(Path(plan.prepared)) if plan.prepared else None
    return table.absent if table is not None else ()


def _install_accelerators(plan: WorkerPlan, mode: VirtualMode) -> VirtualCuda:
    """Install the facade of ``torch.cuda`` or ``torch.npu``."""

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
            unsupported_error=UnsupportedOperator,
            make_pinned_copy=pin,
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


def _hide_cpu_info() -> Callable[[], None]:
    """Hide the host's processor: DeepSpeed's CPU optimizers query its vendor in a subprocess, which takes over a
    second.

    The answer would describe this machine, not the one that the run will use.

    Makes ``cpuinfo.get_cpu_info`` return an unknown vendor at once; returns the undo.
    """
    patches = Patches()

    def replace_cpu_info(module: ModuleType) -> None:
        patches.set(module, "get_cpu_info", lambda: {"vendor_id_raw": "unknown", "vendor_id": "unknown"})

    patches.on_undo(after_import("cpuinfo", replace_cpu_info))
    return patches.undo
