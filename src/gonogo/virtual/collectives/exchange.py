"""A ``c10d`` operator of several rehearsed ranks: described, sent to the others, and answered with what they sent."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from gonogo.virtual import private
from gonogo.virtual.collectives import python_groups
from gonogo.virtual.collectives.in_process_ranks import InProcessRanks
from gonogo.virtual.collectives.peers import Peers
from gonogo.virtual.mode import VirtualMode
from gonogo.virtual.protocol.messages import WaitMode
from gonogo.virtual.tensor import VirtualTensor
from gonogo.virtual.values import collective_values, contents

_ROOTED_COLLECTIVES = frozenset({"broadcast_", "scatter_"})
_REDUCES = frozenset({"allreduce_", "allreduce_coalesced_", "reduce_", "reduce_scatter_", "_reduce_scatter_base_",
                      "reduce_scatter_tensor_coalesced_"})  # fmt: skip
_SIZED_BY_OUTPUT = frozenset({"allgather_", "_allgather_base_", "allgather_coalesced_", "scatter_",
                              "allgather_into_tensor_coalesced_"})  # fmt: skip
_UNEVEN_COLLECTIVES = frozenset({"alltoall_", "alltoall_base_"})
_IN_PLACE = frozenset({"allreduce_", "allreduce_coalesced_", "reduce_", "broadcast_", "send", "recv_",
                       "recv_any_source_"})  # fmt: skip


class C10dCall:
    """One call of a ``c10d`` operator, with its arguments by name."""

    def __init__(self, func: Any, args: Any, reduction: Any) -> None:
        self.name: str = func._schema.name.removeprefix("c10d::")
        arguments = _argument_names(func)
        named = dict(zip(arguments, args, strict=False))
        self.group: Any = python_groups.unbox_group(named["process_group"])
        self.members = group_ranks(self.group)
        self.mine = self.group.rank()
        self.blocks = self._is_blocking(named, arguments)
        first = flatten_tensors(args[0])
        second = flatten_tensors(args[1]) if len(args) > 1 else []
        in_place = self.name in _IN_PLACE or self.name in ("barrier", "monitored_barrier_")
        self.outputs = first
        self.inputs = first if in_place else second
        self.reduction = _reduction_name(reduction) if self.name in _REDUCES else None
        self.root: int | None = named.get("root_rank")
        self.peer: int | None = named.get("dst", named.get("src"))
        self.tag: int = named.get("tag", 0)
        self.splits: tuple[int, ...] = tuple(named.get("input_split_sizes", ()))

    @property
    def assumes_identical_sender(self) -> bool:
        """Whether a sender that is not rehearsed is assumed to send the same as this rank has.

        Programs usually broadcast from a group's first rank what all ranks have, and from another what only that rank
        has.
        """
        if self.name in ("recv_", "recv_any_source_"):
            return False
        return self.root in (None, 0, self.mine)

    @staticmethod
    def _is_blocking(kwargs: dict[str, Any], names: tuple[str, ...]) -> bool | None:
        """Whether the call is blocking; None if this torch version does not tell."""
        for name in ("async_op", "asyncOp"):
            if name in names:
                return not kwargs.get(name, True)
        return None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of elements of the tensors whose sizes have to match on all ranks."""
        if self.name in ("barrier", "monitored_barrier_"):
            return ()
        tensors = self.outputs if self.name in _SIZED_BY_OUTPUT else self.inputs
        return tuple(tensor.numel() for tensor in tensors)

    @property
    def dtype(self) -> str | None:
        """The dtype of the tensors."""
        tensors = self.inputs or self.outputs
        if self.name in ("barrier", "monitored_barrier_") or not tensors:
            return None
        return str(tensors[0].dtype).removeprefix("torch.")


def flatten_tensors(value: Any) -> list[torch.Tensor]:
    """Flatten nested lists of tensors."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for item in value for t in flatten_tensors(item)] if isinstance(value, list | tuple) else []


def _reduction_name(reduction: Any) -> str:
    kind = getattr(reduction, "op", reduction)
    return str(getattr(kind, "name", kind)).rpartition(".")[2]


_ARGUMENTS: dict[int, tuple[str, ...]] = {}
_GROUP_MEMBERS: dict[int, tuple[Any, tuple[int, ...]]] = {}


def _argument_names(func: Any) -> tuple[str, ...]:
    """The argument names of an operator, cached by identity, since operators are never freed."""
    known = _ARGUMENTS.get(id(func))
    if known is None:
        known = _ARGUMENTS[id(func)] = tuple(argument.name for argument in func._schema.arguments)
    return known


def group_ranks(group: Any) -> tuple[int, ...]:
    """The global ranks of a process group, in the group's order."""
    places = c10d._world.pg_group_ranks.get(group)
    if places is None:
        return tuple(range(dist.get_world_size()))
    known = _GROUP_MEMBERS.get(id(places))
    if known is None or known[0] is not places:
        known = _GROUP_MEMBERS[id(places)] = (places, tuple(sorted(places, key=lambda rank: places[rank])))
    return known[1]


def group_key(group: Any, members: Sequence[int]) -> str:
    """A name for the group that is the same on all of its ranks."""
    return f"{group.group_name}:{len(members)}:{members[0]}:{members[-1]}"


def exchange_with_peers(peers: Peers, operation: C10dCall, mode: VirtualMode) -> bool:
    """Send the operation to the other ranks and set its outputs accordingly; False if no other rank is rehearsed."""
    if operation.name in ("send", "recv_"):
        return _exchange_point_to_point(peers, operation, mode)
    if not peers.has_rehearsed_peer(operation.members) or operation.name == "recv_any_source_":
        if operation.name != "recv_any_source_" and any(one in peers.ranks for one in operation.members):
            place = operation.members[operation.root] if operation.root is not None else None
            key = group_key(operation.group, operation.members)
            peers.record_thread_collective(key, operation.members, operation.name.strip("_"), place)
        return False
    from_root = operation.name in _ROOTED_COLLECTIVES
    root = operation.members[operation.root] if operation.root is not None else None
    is_root = root == peers.rank
    lowest = next(rank for rank in operation.members if rank in peers.ranks)
    stands_for_it = root not in peers.ranks and lowest == peers.rank and operation.assumes_identical_sender
    sends = is_root or stands_for_it if from_root else True
    payload = _serialize_sent_tensors(operation) if sends else None
    received = peers.report_collective(
        group_key(operation.group, operation.members),
        operation.members,
        operation.name.strip("_"),
        sizes=operation.sizes,
        dtype=operation.dtype,
        reduction=operation.reduction,
        root=root,
        wait_mode=_wait_mode(operation, payload, from_root),
        payload=payload,
        is_root_payload=from_root,
        has_uneven_sizes=operation.name in _UNEVEN_COLLECTIVES,
    )
    if operation.name not in ("barrier", "monitored_barrier_"):
        _set_outputs(operation, received, mode)
    return True


_SYMMETRIC_COLLECTIVES = frozenset({"allreduce_", "allgather_", "_allgather_base_"})
_COUNT_DTYPES = (torch.int64, torch.int32, torch.bool)


def exchange_in_process(operation: C10dCall, mode: VirtualMode) -> bool:
    """Exchange counts among ranks that are rehearsed in the same process, so that each gets the others' values.

    Only for integers and booleans, which control the program (positions, lengths, numbers of batches): there is no
    need to wait for values of weights. Barriers do wait, because what a rank lets another one read may be gone
    afterwards.
    """
    waits = operation.blocks is not False
    if operation.name in ("barrier", "monitored_barrier_") and waits:
        InProcessRanks.wait_for_members(operation.members)
    if any(tensor.dtype not in _COUNT_DTYPES for tensor in operation.inputs):
        return False
    if operation.name in _SYMMETRIC_COLLECTIVES and operation.inputs and waits:
        what = (operation.name, operation.sizes, operation.dtype)
        all_sent = InProcessRanks.all_send(operation.members, what, _serialize_sent_tensors(operation))
        if not all_sent or not all(all_sent):
            return False
        _set_outputs(operation, all_sent, mode)
        return True
    if operation.name != "broadcast_":
        return False
    is_root = operation.mine == operation.root
    payload = _serialize_sent_tensors(operation) if is_root else None
    sent = InProcessRanks.root_sends((operation.members, operation.root, operation.sizes), is_root, payload, waits)
    if not is_root and sent:
        _set_outputs(operation, [sent] * len(operation.members), mode)
    return bool(sent)


def _exchange_point_to_point(peers: Peers, operation: C10dCall, mode: VirtualMode) -> bool:
    assert operation.peer is not None
    other = operation.members[operation.peer]
    sending = operation.name == "send"
    pair = (peers.rank, other) if sending else (other, peers.rank)
    if not peers.has_rehearsed_peer(pair):
        return False
    received = peers.report_collective(
        f"{group_key(operation.group, operation.members)}:{pair[0]}>{pair[1]}:{operation.tag}",
        pair,
        "send/recv",
        sizes=operation.sizes,
        dtype=operation.dtype,
        root=pair[0],
        wait_mode=WaitMode.NO if sending else WaitMode.YES if _is_on_stack("recv") else WaitMode.IF_NEED_BE,
        payload=_serialize_sent_tensors(operation) if sending else None,
        is_root_payload=True,
    )
    if not sending:
        _set_outputs(operation, received, mode)
    return True


def _is_on_stack(function: str) -> bool:
    """Whether this function of torch.distributed is on the stack: ``recv`` blocks, ``irecv`` does not."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == function and frame.f_code.co_filename == c10d.__file__:
            return True
        frame = frame.f_back
    return False


def _wait_mode(operation: C10dCall, payload: bytes | None, from_root: bool) -> WaitMode:
    if operation.blocks:
        return WaitMode.YES
    known_maybe = payload is not None or (from_root and sum(operation.sizes) <= contents.EMPTY_LIMIT_BYTES)
    return WaitMode.IF_NEED_BE if known_maybe or operation.blocks is None else WaitMode.NO


def _serialize_sent_tensors(operation: C10dCall) -> bytes | None:
    """The serialized tensors that this rank sends; None if not all values are known, or they are too large."""
    if not operation.inputs or operation.name in ("barrier", "monitored_barrier_", "allgather_coalesced_"):
        return None
    if any(isinstance(tensor, VirtualTensor) and not contents.is_known(tensor) for tensor in operation.inputs):
        return None
    if sum(tensor.numel() * tensor.element_size() for tensor in operation.inputs) > collective_values.MAX_VALUE_BYTES:
        return None
    with private.without_dispatch_modes():
        known = [contents.read_values(t) if isinstance(t, VirtualTensor) else t for t in operation.inputs]
        if any(tensor is None for tensor in known):
            return None
        head = torch.tensor(operation.splits, dtype=torch.int64, device="cpu")
        return collective_values.pack_tensors([head, *(tensor for tensor in known if tensor is not None)])


def _set_outputs(operation: C10dCall, received_payloads: list[bytes] | None, mode: VirtualMode) -> None:
    """Set the outputs to the result of the received values; unknown if those are unknown."""
    given = None
    if received_payloads is not None:
        with private.without_dispatch_modes():
            opened = {payload: collective_values.unpack_tensors(payload) for payload in set(received_payloads)}
            sent = [opened[payload] for payload in received_payloads]
            given = collective_values.collective_results(
                operation.name,
                [one[1:] for one in sent],
                operation.mine,
                root=operation.root,
                reduction=operation.reduction or "SUM",
                splits=[one[0].tolist() for one in sent],
            )
    if given is None:
        if operation.name == "reduce_" and operation.mine != operation.root:
            return
        if operation.name == "broadcast_" and operation.mine == operation.root:
            return
        for out in operation.outputs:
            contents.forget_values(mode.virtualise(out))
        return
    for out, value in zip(operation.outputs, given, strict=False):
        if value is None:
            continue
        if isinstance(out, VirtualTensor):
            with mode:
                out.copy_(value.reshape(out.shape))
        else:
            with private.without_dispatch_modes():
                out.copy_(value.reshape(out.shape))


# -- collectives of Python objects ---------------------------------------------------------------------------------


def exchange_objects(
    peers: Peers,
    group: Any,
    operator: str,
    *,
    objects: list[Any] | None = None,
    root: int | None = None,
    from_root: bool = False,
    sizes: tuple[int, ...] = (),
) -> list[Any] | None:
    """Exchange lists of Python objects among the group's ranks; returns each member's list, or None if unknown."""
    group = group or c10d._get_default_group()
    members = group_ranks(group)
    if not peers.has_rehearsed_peer(members):
        return None
    lowest = next(rank for rank in members if rank in peers.ranks)
    sends = not from_root or root == peers.rank or (root not in peers.ranks and lowest == peers.rank)
    received = peers.report_collective(
        group_key(group, members),
        members,
        operator,
        sizes=sizes,
        root=root,
        payload=pickle.dumps(objects) if sends and objects is not None else None,
        is_root_payload=from_root,
    )
    return None if received is None else [pickle.loads(payload) for payload in received]


def pass_object(peers: Peers, group: Any, source: int, target: int, objects: list[Any] | None) -> list[Any] | None:
    """Pass objects from ``source`` to ``target``; returns what the target receives, else None."""
    group = group or c10d._get_default_group()
    members = group_ranks(group)
    if not peers.has_rehearsed_peer((source, target)):
        return None
    sending = peers.rank == source
    received = peers.report_collective(
        f"{group_key(group, members)}:{source}>{target}:objects",
        (source, target),
        "send/recv of objects",
        root=source,
        wait_mode=WaitMode.NO if sending else WaitMode.YES,
        payload=pickle.dumps(objects) if sending else None,
        is_root_payload=True,
    )
    return pickle.loads(received[0]) if received is not None and not sending else None
