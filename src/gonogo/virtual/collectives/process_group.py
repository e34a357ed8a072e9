"""``torch.distributed`` for one rank of many: process groups without other processes.

NCCL, HCCL and Gloo groups are built on torch's own ``fake`` backend, which runs no communication and opens no port;
``get_backend`` still returns what the program requested. Rendezvous keeps its own checks (``RANK``,
``MASTER_ADDR``…), but gets an in-memory store. Collectives reach the dispatch mode as ``c10d`` operators; those of
Python objects are answered here, as if every rank had sent the same as this one.

Replaces private names of torch.distributed: ``distributed_c10d._store_based_barrier``, ``_world.pg_map``,
``_world.pg_backend_config``, ``rendezvous._create_c10d_store``. Tested with torch 2.13.0.
"""

from __future__ import annotations

import functools
import importlib
import pickle
import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from gonogo.finding import translated
from gonogo.virtual.collectives import exchange, python_groups
from gonogo.virtual.collectives.in_process_ranks import InProcessRanks
from gonogo.virtual.collectives.peers import Peers
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.values.assumptions import Assume

rendezvous = importlib.import_module("torch.distributed.rendezvous")  # a function of the same name shadows the module
_FileStore: Any = dist.FileStore  # type: ignore[attr-defined]

_RECEIVED = translated("the objects that another rank sends are those already in the receiving list")
_SAME_OBJECTS_ASSUMPTION = translated("every rank sends the same objects as this rank")
_KNOWN_BACKENDS = frozenset({"nccl", "gloo", "hccl", "ucc", "xccl", "fake", "undefined"})
_NPU_BACKENDS = frozenset({"hccl", "lccl", "gloo", "fake", "undefined"})


def install(
    assume: Assume, peers: Peers | None = None, device_type: str = "cuda", stores: str | None = None
) -> Callable[[], None]:
    """Install the replacements; returns the undo function. ``assume`` is told each assumption about other ranks.

    ``peers`` are the ranks that are rehearsed with this one; ``device_type`` is that of the accelerators: an Ascend
    machine has HCCL and a torch without NCCL. ``stores`` is the folder in which all ranks share the program's stores,
    provided that all ranks are rehearsed.
    """
    import torch.testing._internal.distributed.fake_pg  # noqa: F401  registers the backend "fake"

    patches = Patches()
    if python_groups.NEEDED:
        python_groups.install(patches)
    replaced: list[tuple[Any, Any]] = []

    def replace_dist_function(name: str, value: Any) -> None:
        for module in (c10d, dist):
            original = vars(module).get(name)
            if original is not None and original is not value:
                replaced.append((original, value))
            patches.set(module, name, value)

    on_npu = device_type == "npu"
    for name, function in {**_group_functions(patches, peers, on_npu), **_object_collectives(assume, peers)}.items():
        replace_dist_function(name, function)
    for name in ("_get_pg_default_device", "_get_object_coll_device"):
        if hasattr(c10d, name):
            replace_dist_function(
                name, functools.partial(_backend_device, device_type, as_string=name == "_get_object_coll_device")
            )
    device_types = vars(dist.ProcessGroup).get("_device_types")
    if isinstance(device_types, property):
        patches.set(
            dist.ProcessGroup, "_device_types", property(functools.partial(_device_types, device_types, device_type))
        )
    if hasattr(dist.ProcessGroup, "monitored_barrier"):  # which programs also call as the group's own method
        own = functools.partialmethod(_group_monitored_barrier, dist.monitored_barrier)
        patches.set(dist.ProcessGroup, "monitored_barrier", own)
    replace_dist_function("is_gloo_available", lambda: True)
    replace_dist_function("is_nccl_available", lambda: not on_npu)
    if on_npu:
        replace_dist_function("is_hccl_available", lambda: True)
        patches.set(dist.Backend, "HCCL", "hccl")
        patches.set_item(dist.Backend.default_device_backend_map, "npu", "hccl")
    replace_dist_function("is_backend_available", lambda backend: _is_backend_available(backend, on_npu))
    if not hasattr(c10d, "ProcessGroupNCCL"):
        replace_dist_function("ProcessGroupNCCL", _ProcessGroupNCCL)
    patches.set(c10d, "_store_based_barrier", lambda *args, **kwargs: None)
    stand_in = _MemoryStore if stores is None else _shared_store_class(stores)
    for store in ("TCPStore", "FileStore"):
        replaced.append((getattr(dist, store), stand_in))
        patches.set(dist, store, stand_in)
        patches.set(rendezvous, store, stand_in)
    patches.set(rendezvous, "_create_c10d_store", lambda *args, **kwargs: stand_in())
    patches.replace_everywhere(replaced)
    patches.on_undo(_destroy_process_group)
    return patches.undo


class _MemoryStore(dist.HashStore):  # type: ignore[name-defined, misc]
    """Replaces ``TCPStore`` and ``FileStore``; holds only what this rank has set."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()


def _shared_store_class(path: str) -> Any:
    """A class of stores that all ranks share, one per address or file that the program names."""

    class SharedStore(_FileStore):  # type: ignore[misc]
        """Replaces ``TCPStore`` and ``FileStore`` if all ranks are rehearsed."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            named = zlib.crc32(repr([*args[:2], kwargs.get("port"), kwargs.get("file_name")]).encode())
            super().__init__(f"{path}-{named}", -1)

    return SharedStore


class _ProcessGroupNCCL:
    """Replaces ``ProcessGroupNCCL`` in a torch without NCCL: its options are accepted and ignored."""

    NCCL_CTA_POLICY_ZERO = 0

    class Options:
        """``ProcessGroupNCCL.Options``."""

        def __init__(self, is_high_priority_stream: bool = False) -> None:
            self.is_high_priority_stream = is_high_priority_stream
            self.config = SimpleNamespace()


def _backend_device(device_type: str, group: Any = None, as_string: bool = False) -> torch.device | str:
    """The device type of the requested backend; torch itself would return the fake backend's."""
    config = c10d._world.pg_backend_config[group or c10d._get_default_group()]
    device = "cpu" if "cpu" in str(config) else device_type
    return device if as_string else torch.device(device)


def _device_types(default_property: property, device_type: str, group: Any) -> list[torch.device]:
    """The device types of the requested backends; the fake backend accepts tensors of all devices."""
    config = str(c10d._world.pg_backend_config.get(group, ""))
    own = [name for name in (device_type, "cpu") if f"{name}:" in config]
    if not own:
        found: list[torch.device] = default_property.__get__(group)
        return found
    return [torch.device(name) for name in own]


def _group_monitored_barrier(
    group: Any, barrier: Callable[..., None], timeout: Any = None, wait_all_ranks: bool = False
) -> None:
    """``ProcessGroup.monitored_barrier`` by the function of that name; torch's own asks the group's backend for it."""
    if c10d.get_backend(group) != dist.Backend.GLOO:
        name = str(c10d.get_backend(group))
        message = f"Backend {name} does not support monitoredBarrier, only GLOO supports monitored barrier."
        raise RuntimeError(message)
    barrier(group, timeout, wait_all_ranks)


def _destroy_process_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _is_backend_available(backend: str, on_npu: bool = False) -> bool:
    known = _NPU_BACKENDS if on_npu else _KNOWN_BACKENDS
    return backend.lower() in known or backend.upper() in dist.Backend._plugins


def _validate_backend(backend: Any, on_npu: bool) -> str:
    """The backend in lower case. Raises torch's error for a backend that is unknown, or not built in."""
    name = "undefined" if backend is None else str(backend).lower()
    for part in name.split(","):
        single = part.rpartition(":")[2]
        if single == "mpi":
            raise RuntimeError(
                "Distributed package doesn't have MPI built in. MPI is only included if you build PyTorch from source "
                "on a host that has MPI installed."
            )
        if single == "nccl" and on_npu:
            raise RuntimeError("Distributed package doesn't have NCCL built in")
        if not _is_backend_available(single, on_npu):
            raise AssertionError(f"Unknown c10d backend type {single.upper()}")
    return name


def _group_functions(patches: Patches, peers: Peers | None, on_npu: bool) -> dict[str, Any]:
    """Functions that create groups, and those that need more than the fake backend provides."""
    real_init, real_new_group = c10d.init_process_group, c10d.new_group
    whole = "cpu:gloo,npu:hccl" if on_npu else "cpu:gloo,cuda:nccl"

    def register_backend(group: Any, backend: str) -> Any:
        """Register the requested backend in torch's own tables."""
        if isinstance(group, dist.ProcessGroup):
            store = c10d._world.pg_map[group][1]
            c10d._world.pg_map[group] = (dist.Backend(backend), store)
            config = {"undefined": whole, "hccl": "npu:hccl"}.get(backend, backend)
            c10d._world.pg_backend_config[group] = str(c10d.BackendConfig(dist.Backend(config)))
        return group

    def init_process_group(
        backend: Any = None,
        init_method: str | None = None,
        timeout: Any = None,
        world_size: int = -1,
        rank: int = -1,
        store: Any = None,
        group_name: str = "",
        pg_options: Any = None,
        device_id: Any = None,
        **kwargs: Any,
    ) -> None:
        if backend is None and device_id is not None:
            backend = "hccl" if on_npu else "nccl"
        requested = _validate_backend(backend, on_npu)
        timeout = c10d.default_pg_timeout if timeout is None else timeout  # required by torch 2.1
        if store is None:
            method = init_method or "env://"
            store, rank, world_size = next(rendezvous.rendezvous(method, rank, world_size, timeout=timeout))
            init_method = None
        real_init("fake", init_method, timeout, world_size, rank, store, group_name)
        register_backend(c10d._get_default_group(), requested)

    def new_group(
        ranks: Any = None, timeout: Any = None, backend: Any = None, pg_options: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        requested = _validate_backend(backend, on_npu) if backend is not None else str(c10d.get_backend())
        kwargs.pop("device_id", None)
        timeout = c10d.default_pg_timeout if timeout is None else timeout
        local = args[0] if args else kwargs.get("use_local_synchronization", False)
        if peers is not None and not local:
            everyone = tuple(range(dist.get_world_size()))
            if peers.has_rehearsed_peer(everyone):
                peers.report_collective(
                    "world", everyone, "new_group", sizes=everyone if ranks is None else tuple(sorted(ranks))
                )
        return register_backend(real_new_group(ranks, timeout, "fake", None, *args, **kwargs), requested)

    def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        if c10d._rank_not_in_group(group):
            return
        if c10d.get_backend(group) != dist.Backend.GLOO:
            raise ValueError("monitored_barrier is only implemented for GLOO backend.")
        if peers is not None:
            exchange.exchange_objects(peers, group, "monitored_barrier")

    def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None, timeout: Any = None) -> Any:
        group = group or c10d._get_default_group()
        if c10d._rank_not_in_group(group):
            return None
        options = c10d.BarrierOptions()
        if hasattr(options, "device"):
            options.device = torch.device("cpu")
        if hasattr(options, "asyncOp"):
            options.asyncOp = async_op
        work = group.barrier(opts=options)
        return work if async_op else None

    return {
        "init_process_group": init_process_group,
        "new_group": new_group,
        "monitored_barrier": monitored_barrier,
        "barrier": barrier,
    }


def _pickled_copy(value: Any) -> Any:
    """Copy by pickling, as in a real transfer: objects that can't be pickled can't be sent."""
    return pickle.loads(pickle.dumps(value))


def _source_rank(src: Any, group: Any, group_src: Any) -> int:
    """The global rank of the source or destination."""
    if group_src is not None:
        return int(dist.get_global_rank(group or c10d._get_default_group(), group_src))
    return 0 if src is None else int(src)


def _object_collectives(assume: Assume, peers: Peers | None) -> dict[str, Any]:
    is_outside = c10d._rank_not_in_group

    def gather_objects(group: Any, operator: str, **what: Any) -> list[Any] | None:
        """The objects sent by the group's ranks, by member; None if only this rank is rehearsed."""
        if peers is not None:
            return exchange.exchange_objects(peers, group, operator, **what)
        found: list[Any] | None = InProcessRanks.exchange_objects(group, operator, **what)
        return found

    def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
        if is_outside(group):
            return
        sent = gather_objects(group, "all_gather_object", objects=[obj])
        if sent is None:
            assume(_SAME_OBJECTS_ASSUMPTION, "peer_objects")
        for index in range(dist.get_world_size(group)):
            object_list[index] = _pickled_copy(obj) if sent is None else _pickled_copy(sent[index][0])

    def gather_object(
        obj: Any, object_gather_list: Any = None, dst: Any = None, group: Any = None, group_dst: Any = None
    ) -> None:
        if is_outside(group):
            return
        mine, target = dist.get_rank(), _source_rank(dst, group, group_dst)
        c10d._validate_output_list_for_rank(mine, target, object_gather_list)
        sent = gather_objects(group, "gather_object", objects=[obj], root=target)
        if mine == target:
            if sent is None:
                assume(_SAME_OBJECTS_ASSUMPTION, "peer_objects")
            for index in range(dist.get_world_size(group)):
                object_gather_list[index] = _pickled_copy(obj) if sent is None else _pickled_copy(sent[index][0])
        else:
            _pickled_copy(obj)

    def broadcast_object_list(
        object_list: list[Any], src: Any = None, group: Any = None, device: Any = None, group_src: Any = None
    ) -> None:
        if is_outside(group):
            return
        root = _source_rank(src, group, group_src)
        count = len(object_list)
        sent = gather_objects(
            group, "broadcast_object_list", objects=object_list, root=root, from_root=True, sizes=(count,)
        )
        if dist.get_rank() == root:
            _pickled_copy(object_list)
        elif sent is not None:
            object_list[:] = _pickled_copy(sent[0])
        else:
            assume(
                translated("rank {root} broadcasts the objects that are already in this rank's list").format(root=root),
                "peer_objects",
            )

    def scatter_object_list(
        scatter_object_output_list: list[Any],
        scatter_object_input_list: Any = None,
        src: Any = None,
        group: Any = None,
        group_src: Any = None,
    ) -> None:
        if is_outside(group):
            return
        if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
            raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
        root = _source_rank(src, group, group_src)
        given = scatter_object_input_list
        sent = gather_objects(group, "scatter_object_list", objects=given or [], root=root, from_root=True)
        if sent is not None and sent[0]:
            scatter_object_output_list[0] = _pickled_copy(sent[0][dist.get_rank(group)])
        elif dist.get_rank() == root:
            scatter_object_output_list[0] = _pickled_copy(given[dist.get_rank(group)])
        elif given:
            assume(
                translated("rank {root} scatters the objects that this rank passed to scatter_object_list").format(
                    root=root
                ),
                "peer_objects",
            )
            scatter_object_output_list[0] = _pickled_copy(given[dist.get_rank(group)])
        else:
            assume(
                translated("rank {root} scatters the object that is already in the output list").format(root=root),
                "peer_objects",
            )

    def send_object_list(
        object_list: list[Any], dst: Any = None, group: Any = None, device: Any = None, group_dst: Any = None, **_: Any
    ) -> None:
        _pickled_copy(object_list)
        if peers is not None:
            exchange.pass_object(peers, group, dist.get_rank(), _source_rank(dst, group, group_dst), object_list)

    def recv_object_list(
        object_list: list[Any], src: Any = None, group: Any = None, device: Any = None, group_src: Any = None, **_: Any
    ) -> int:
        if src is None and group_src is None:
            assume(_RECEIVED, "peer_objects")
            return -1
        origin = _source_rank(src, group, group_src)
        sent = exchange.pass_object(peers, group, origin, dist.get_rank(), None) if peers is not None else None
        if sent is not None:
            object_list[:] = _pickled_copy(sent)
        else:
            assume(_RECEIVED, "peer_objects")
        return origin

    return {
        "all_gather_object": all_gather_object,
        "gather_object": gather_object,
        "broadcast_object_list": broadcast_object_list,
        "scatter_object_list": scatter_object_list,
        "send_object_list": send_object_list,
        "recv_object_list": recv_object_list,
    }
