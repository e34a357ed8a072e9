"""Records collectives and computes their results from the rehearsed ranks; others are assumed to send the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from gonogo.evidence.rehearsal.record import CollectiveTotal
from gonogo.finding import translated
from gonogo.virtual.collectives import exchange, python_groups
from gonogo.virtual.collectives.peers import Peers
from gonogo.virtual.mode import NAMESPACE_HANDLERS, VirtualMode
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor
from gonogo.virtual.values import contents, real

_SAME_ON_EVERY_RANK_ASSUMPTION = translated("every rank sends the same data as this rank")
_POINT_TO_POINT = ("::send", "::recv_", "::recv_any_source_")
_REDUCE_OPERATORS = {"allreduce_", "allreduce_coalesced_", "reduce_", "reduce_scatter_", "_reduce_scatter_base_",
             "reduce_scatter_tensor_coalesced_"}  # fmt: skip


class CollectiveRecord:
    """What this rank has sent in collectives; ``peers`` are the ranks that are rehearsed with it."""

    def __init__(self, peers: Peers | None = None) -> None:
        self.peers = peers
        self.count: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.of_all_ranks = 0
        """How many collectives of all ranks it has completed."""
        self.since_all_ranks = 0
        """How many others since then, of some ranks or between two: each may put two ranks in order as well."""
        self.reduction: Any = None
        """The reduction of the collective that is being called."""

    def totals_by_operator(self) -> list[CollectiveTotal]:
        """Totals per operator, sorted by name."""
        return [CollectiveTotal(name, self.count[name], self.bytes[name]) for name in sorted(self.count)]


def install(record: CollectiveRecord) -> Callable[[], None]:
    """Route ``c10d`` operators of the dispatch mode to this module; returns the undo function."""

    def handle_c10d_operator(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
        return _run_and_count_collective(mode, func, args, kwargs, record)

    NAMESPACE_HANDLERS["c10d"] = handle_c10d_operator
    patches = Patches()
    for name in ("AllreduceOptions", "AllreduceCoalescedOptions", "ReduceOptions", "ReduceScatterOptions"):
        patches.set(c10d, name, _recording_options(getattr(c10d, name), record))
    return patches.undo


def _recording_options(options: Any, record: CollectiveRecord) -> Any:
    """A subclass of the options that records the reduction, because the operator's argument can't be read."""

    class RecordingOptions(options):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            record.reduction = dist.ReduceOp.SUM

        @property
        def reduceOp(self) -> Any:
            return options.reduceOp.__get__(self)

        @reduceOp.setter
        def reduceOp(self, value: Any) -> None:
            record.reduction = value
            options.reduceOp.__set__(self, value)

    RecordingOptions.__name__ = options.__name__
    return RecordingOptions


def _run_and_count_collective(mode: VirtualMode, func: Any, args: Any, kwargs: Any, record: CollectiveRecord) -> Any:
    out = _run_collective(mode, func, args, kwargs, record)
    group = None if func._schema.name.endswith(_POINT_TO_POINT) else python_groups.find_process_group(args)
    is_of_all = group is None or group.size() == dist.get_world_size()
    if is_of_all and not func._schema.name.endswith(_POINT_TO_POINT):
        record.of_all_ranks += 1
        record.since_all_ranks = 0
    else:
        record.since_all_ranks += 1
    return out


def _run_collective(mode: VirtualMode, func: Any, args: Any, kwargs: Any, record: CollectiveRecord) -> Any:
    name = func._schema.name.removeprefix("c10d::")
    sent = _sent_tensors(name, args)
    if "barrier" not in name:  # its tensor is a dummy
        _check_backend_device(sent, args)
    _check_sizes(name, args)
    record.count[name] += 1
    record.bytes[name] += sum(t.numel() * t.element_size() for t in sent)
    stand_ins: dict[int, tuple[torch.Tensor, Any]] = {}
    if python_groups.NEEDED:
        out = python_groups.completed_work(args[0])
    else:
        rows_of = _zero_row_count if name == "allgather_" and _is_uneven(args) else _divisible_size_function(name)
        given = _replace_by_stand_ins((*args, *kwargs.values()), stand_ins, rows_of)
        out = func(*given[: len(args)], **dict(zip(kwargs, given[len(args) :], strict=True)))
        out = _with_completed_work(out, exchange.flatten_tensors(args[0]) if args else [])
    back = {id(stand_in): original for stand_in, original in stand_ins.values()}
    operation = exchange.C10dCall(func, args, record.reduction)
    if record.peers is None and exchange.exchange_in_process(operation, mode):
        return _restore_tensors(out, back)
    if record.peers is None or not exchange.exchange_with_peers(record.peers, operation, mode):
        _assume_identical_ranks(mode, operation, args, record)
    return _restore_tensors(out, back)


def _with_completed_work(out: Any, results: list[torch.Tensor]) -> Any:
    """The operator's result with finished work whose future holds the outputs, as with ProcessGroupNCCL.

    The work of the fake backend provides neither, but hooks of DistributedDataParallel read the future.
    """
    many = isinstance(out, tuple)
    work = out[-1] if many else out
    if not isinstance(work, torch.ScriptObject):
        return out
    done = python_groups.completed_work(results).boxed()
    return (*out[:-1], done) if many else done


def _check_backend_device(sent_tensors: list[torch.Tensor], args: Any) -> None:
    """Raise torch's error for a CPU tensor in a group that has only an accelerator backend."""
    if not any(tensor.device.type == "cpu" for tensor in sent_tensors):
        return
    config = c10d._world.pg_backend_config.get(python_groups.find_process_group(args), "")
    if config in ("cuda:nccl", "npu:hccl"):
        raise RuntimeError("No backend type associated with device type cpu")


def _check_sizes(name: str, args: Any) -> None:
    """Raise ProcessGroupNCCL's error if the size of the tensor for all ranks doesn't match that of a single rank's.

    ``_allgather_base`` and ``_reduce_scatter_base`` of torch's ProcessGroupNCCL.cpp.
    """
    if name not in ("_allgather_base_", "_reduce_scatter_base_"):
        return
    output, sent = args[0], args[1]
    if sent.device.type == "cpu":  # another backend, with other messages
        return
    group = python_groups.find_process_group(args)
    size = dist.get_world_size() if group is None else group.size()
    gathers = name == "_allgather_base_"
    whole, part = (output, sent) if gathers else (sent, output)
    if whole.dtype != part.dtype:
        raise TypeError(
            "output tensor must have the same type as input tensor"
            if gathers
            else "input tensor must be the same type as the output tensor."
        )
    if part.numel() * size != whole.numel():
        raise ValueError(
            "output tensor size must be equal to world_size times input tensor size"
            if gathers
            else "input tensor must be the same size as output size times world size"
        )


def _sent_tensors(name: str, args: Any) -> list[torch.Tensor]:
    """The tensors that a rank sends: the inputs, which come after the outputs if there are both."""
    first = exchange.flatten_tensors(args[0]) if args else []
    second = exchange.flatten_tensors(args[1]) if len(args) > 1 else []
    return second or first


def _assume_identical_ranks(
    mode: VirtualMode, operation: exchange.C10dCall, args: Any, record: CollectiveRecord
) -> None:
    """Set the outputs as if all ranks had sent the same: values if the inputs are known, else unknown."""
    outputs = exchange.flatten_tensors(args[0]) if args else []
    inputs = exchange.flatten_tensors(args[1]) if len(args) > 1 else []
    if not operation.assumes_identical_sender:
        for out in outputs:
            contents.forget_values(mode.virtualise(out))
        return
    if not inputs:
        known = any(isinstance(t, VirtualTensor) and contents.is_known(t) for t in outputs)
        if known and operation.name in _REDUCE_OPERATORS:
            mode.ledger.assume(_SAME_ON_EVERY_RANK_ASSUMPTION, "peer_tensors")
            _scale_by_world_size(outputs, args, record)
        elif known and operation.root not in (None, operation.mine):
            mode.ledger.assume(
                _SAME_ON_EVERY_RANK_ASSUMPTION, "peer_tensors"
            )  # this rank's own value may be a placeholder
        return
    mine = [contents.read_values(t) if isinstance(t, VirtualTensor) else t for t in inputs]
    if any(value is None for value in mine):
        for out in outputs:
            if isinstance(out, VirtualTensor):
                contents.forget_values(out)
        return
    mode.ledger.assume(_SAME_ON_EVERY_RANK_ASSUMPTION, "peer_tensors")
    sent = torch.cat([value.reshape(-1) for value in mine if value is not None])
    for out in outputs:
        repeated = sent.repeat(-(-out.numel() // max(sent.numel(), 1)))[: out.numel()].reshape(out.shape)
        with mode:
            out.copy_(repeated)


def _scale_by_world_size(outputs: list[torch.Tensor], args: Any, record: CollectiveRecord) -> None:
    """Multiply by the number of ranks: the sum of identical values."""
    if record.reduction != dist.ReduceOp.SUM:
        return
    group = python_groups.find_process_group(args)
    size = dist.get_world_size() if group is None else group.size()
    for out in outputs:
        known = contents.read_values(out) if isinstance(out, VirtualTensor) and contents.expand_for_write(out) else None
        if known is not None:
            known.mul_(size)


def _is_uneven(args: Any) -> bool:
    """Whether ranks send parts of different sizes, which NCCL supports (it broadcasts each part).

    The fake backend would copy this rank's tensor into every part.
    """
    parts, sent = exchange.flatten_tensors(args[0]), exchange.flatten_tensors(args[1])
    mine = parts[python_groups.find_process_group(args).rank()] if sent else None
    return mine is not None and mine.numel() == sent[0].numel() and any(one.numel() != mine.numel() for one in parts)


def _zero_row_count(tensor: torch.Tensor) -> int:
    return 0


def _divisible_size_function(name: str) -> Callable[[torch.Tensor], int]:
    """Returns how many items of a tensor the ranks share: rows in an all-to-all, elements in other collectives."""
    if name.startswith("alltoall"):
        return lambda tensor: tensor.shape[0] if tensor.dim() else 1
    return lambda tensor: tensor.numel()


def _replace_by_stand_ins(
    arguments: Any, stand_ins: dict[int, tuple[torch.Tensor, Any]], count_rows: Callable[[torch.Tensor], int]
) -> Any:
    """Replace tensors by ones without memory for the fake backend, which only looks at the number of rows to split."""
    out = []
    for value in arguments:
        if isinstance(value, torch.Tensor):
            known = stand_ins.get(id(value))
            if known is None:
                known = stand_ins[id(value)] = (real.empty((count_rows(value), 0), dtype=value.dtype), value)
            value = known[0]
        elif isinstance(value, list | tuple):
            value = _replace_by_stand_ins(value, stand_ins, count_rows)
        out.append(value)
    return tuple(out) if isinstance(arguments, tuple) else out


def _restore_tensors(out: Any, originals: dict[int, Any]) -> Any:
    """Put the original tensors back in place of their stand-ins."""
    if isinstance(out, torch.Tensor):
        return originals.get(id(out), out)
    if isinstance(out, list | tuple):
        return type(out)(_restore_tensors(item, originals) for item in out)
    return out
