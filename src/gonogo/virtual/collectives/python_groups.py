"""Process groups for torch up to 2.1, whose ``fake`` backend is written in Python and bypasses the operators.

Each method of a group passes the ``c10d`` operator that C++ would have called to the dispatch mode, with the group
itself in place of the script object in which C++ boxes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as _distributed
import torch.distributed.distributed_c10d as _c10d

from gonogo.virtual import private
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor

dist: Any = _distributed
c10d: Any = _c10d

NEEDED = not hasattr(dist.ProcessGroup, "unbox")
"""Whether this torch needs it."""

_OPERATOR_BY_METHOD = {
    "_allgather_base": "_allgather_base_",
    "_reduce_scatter_base": "_reduce_scatter_base_",
    "allgather": "allgather_",
    "allgather_coalesced": "allgather_coalesced_",
    "allgather_into_tensor_coalesced": "allgather_into_tensor_coalesced_",
    "allreduce": "allreduce_",
    "allreduce_coalesced": "allreduce_coalesced_",
    "alltoall": "alltoall_",
    "alltoall_base": "alltoall_base_",
    "barrier": "barrier",
    "broadcast": "broadcast_",
    "gather": "gather_",
    "recv": "recv_",
    "recv_anysource": "recv_any_source_",
    "reduce": "reduce_",
    "reduce_scatter": "reduce_scatter_",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor_coalesced_",
    "scatter": "scatter_",
    "send": "send",
}
"""Method → operator."""
_OPTION_ATTRIBUTE = {"reduce_op": "reduceOp", "root_rank": "rootRank", "root_tensor": "rootTensor"}
"""Operator argument → attribute of a method's options."""
_DEFAULTED_ARGUMENTS = frozenset({"timeout", "sparse_indices", "device_ids", "async_op"})


def install(patches: Patches) -> None:
    """Make the backend ``fake`` create process groups whose collectives run in Python."""

    def create_rehearsed_group(store: Any, rank: int, size: int, timeout: Any) -> Any:
        return _RehearsedProcessGroup(rank, size)

    patches.set_item(dist.Backend._plugins, "FAKE", dist.Backend._BackendPlugin(create_rehearsed_group, False))


def unbox_group(group: Any) -> Any:
    """The Python process group behind an operator's argument."""
    return group if NEEDED else dist.ProcessGroup.unbox(group)


def find_process_group(args: Any) -> Any:
    """The process group among an operator's arguments; None if there is none."""
    others = (arg for arg in args if not isinstance(arg, torch.Tensor | list | tuple | bool | int))
    found = next((arg for arg in others if "ProcessGroup" in str(arg)), None)
    return None if found is None else unbox_group(found)


def completed_work(result: Any) -> Any:
    """The work of a completed collective."""
    future: Any = torch.futures.Future()
    future.set_result(result)
    create: Any = vars(torch._C._distributed_c10d)["_create_work_from_future"]
    return create(future)


class _RehearsedProcessGroup(dist.ProcessGroup):  # type: ignore[misc]
    """A process group of which this process has only one rank."""

    @property
    def group_name(self) -> str:
        """The group's name in torch's own tables."""
        return str(c10d._world.pg_names[self])

    def getBackendName(self) -> str:
        """The name that C++ puts into its error if a method is missing."""
        return "fake"

    def __repr__(self) -> str:
        return f"ProcessGroup(rank {self.rank()} of {self.size()})"

    def _start_coalescing(self, device: Any) -> None:
        pass

    def _end_coalescing(self, device: Any) -> Any:
        return completed_work(None)


def _make_method(operator: Any) -> Callable[..., Any]:
    arguments = [argument.name for argument in operator._schema.arguments]

    def dispatch_collective(self: Any, *given: Any, opts: Any = None, **named: Any) -> Any:
        if given and type(given[-1]).__name__.endswith("Options"):
            *given, opts = given  # type: ignore[assignment]
        values = iter((*given, *named.values()))
        args = []
        for name in arguments:
            if name == "process_group":
                args.append(self)
            elif name in _OPTION_ATTRIBUTE:
                args.append(getattr(opts, _OPTION_ATTRIBUTE[name], None))
            else:
                args.append(None if name in _DEFAULTED_ARGUMENTS else next(values, []))
        with private.without_dispatch_modes():  # as on entry to a dispatch mode
            return VirtualTensor.virtual_mode.__torch_dispatch__(operator, (), tuple(args))

    return dispatch_collective


for _name, _operator in _OPERATOR_BY_METHOD.items():
    setattr(_RehearsedProcessGroup, _name, _make_method(getattr(torch.ops.c10d, _operator).default))
