"""FLOPs and memory traffic of a rank per step: the input of the roofline.

FLOPs are computed with PyTorch's own formulas (``torch.utils.flop_counter``), bytes from each operator's operands.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gonogo.evidence.environment.hardware import PeakSpeed
from gonogo.evidence.rehearsal.work import PhaseWork, collective_key
from gonogo.virtual import private
from gonogo.virtual.collectives.exchange import C10dCall
from gonogo.virtual.kernels.flops import CAUSAL_SHARE
from gonogo.virtual.tensor import VirtualTensor
from gonogo.virtual.tracing.operator_time import LAUNCH_SECONDS, operator_seconds


class _PhaseCounters:
    """Counters of one rank in one phase; see :class:`gonogo.evidence.rehearsal.work.PhaseWork`."""

    def __init__(self) -> None:
        self.flops = 0
        self.memory_bytes = 0
        self.long_seconds = 0.0
        self.short_seconds = 0.0
        self.short_operators = 0
        self.to_host_bytes = 0
        self.from_host_bytes = 0
        self.collectives: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.operators = 0
        self.library_calls = 0
        self.kernels: Counter[tuple[str, int, int]] = Counter()


_WITHOUT_KERNEL = frozenset(
    {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "set_", "resize_"}
)
"""Operators that launch no kernel: they only allocate, or change a tensor's metadata."""
LIBRARY = "library"
"""Prefix of the kinds of kernels that a library launches itself."""
_watched: list[_WorkMode] = []


def count_session_work(session: Any) -> None:
    """Count FLOPs, memory traffic and collectives of a session. Call once per process."""
    speed = session.plan.accelerator.speed
    if speed is not None:
        _watched.append(_WorkMode(session.life, speed, session.plan.local_world_size))
        session.work_tallies = _watched


def counting_work() -> contextlib.AbstractContextManager[object]:
    """Context in which the program's work is counted, if :func:`count_session_work` was called."""
    return _watched[0] if _watched else contextlib.nullcontext()


def counting_in_place() -> contextlib.AbstractContextManager[object]:
    """Context for what a custom operator's Python function runs: it is counted instead of the operator."""
    mode = _watched[0] if _watched else None
    if mode is None or not mode.replaced:
        return contextlib.nullcontext()
    mode.replaced[-1] = True
    return mode


def count_kernel(flops: int, *operands: torch.Tensor, kind: str = "", done: float = 1.0) -> None:
    """Count a kernel of a stand-in, which runs no PyTorch operator. See ``kernels.flops.Computed``."""
    for mode in _watched:
        mode.count(flops, operands, f"{LIBRARY} {kind}".rstrip(), done)
        mode.count_library_call()


def phase_work() -> tuple[PhaseWork, ...]:
    """The counters in order of steps."""
    return _watched[0].phases() if _watched else ()


class _WorkMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operators that reach the virtual accelerator, by step and phase as tracked by ``lifecycle``."""

    def __init__(self, lifecycle: Any, speed: PeakSpeed, ranks_per_node: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ranks_of_node = ranks_per_node
        self._life = lifecycle
        self._speed = speed
        self._by_phase: dict[tuple[int, str], _PhaseCounters] = defaultdict(_PhaseCounters)
        self.replaced: list[bool] = []
        """For each operator that runs now, from the outermost, whether others are counted in its place."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def phases(self) -> tuple[PhaseWork, ...]:
        """The counters in order of steps."""
        return tuple(
            PhaseWork(
                step, phase, work.flops, work.memory_bytes, work.long_seconds, work.short_seconds, work.short_operators,
                work.to_host_bytes, work.from_host_bytes,
                {name: (count, nbytes) for name, (count, nbytes) in work.collectives.items()},
                work.operators, work.library_calls, [(*kernel, count) for kernel, count in work.kernels.items()],
            )
            for (step, phase), work in sorted(self._by_phase.items(), key=lambda item: item[0][0])
        )  # fmt: skip

    def numbers(self) -> dict[tuple[int, str, str, int], float]:
        """All counters by (step, phase, name, index); a collective has two."""
        found: dict[tuple[int, str, str, int], float] = {}
        for (step, phase), work in self._by_phase.items():
            for name, value in vars(work).items():
                if name not in ("collectives", "kernels"):
                    found[step, phase, name, 0] = value
            for name, pair in work.collectives.items():
                found |= {(step, phase, f"c10d::{name}", index): value for index, value in enumerate(pair)}
        return found

    def add(self, key: tuple[int, str, str, int], amount: float) -> None:
        """Increase one of :meth:`numbers`, in the current step."""
        _, phase, name, index = key
        work = self._by_phase[self._life.step, phase]
        if name.startswith("c10d::"):
            work.collectives[name.removeprefix("c10d::")][index] += int(amount)
        else:
            setattr(work, name, getattr(work, name) + amount)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, and count it."""
        if types and private.has_foreign_dispatch(tuple(types)):
            return NotImplemented  # a DTensor's: its operators arrive here again, on local tensors
        self.replaced.append(False)
        try:
            out = func(*args, **(kwargs or {}))
        finally:
            replaced = self.replaced.pop()
        if replaced or func.is_view or func.namespace == "prim":
            return out
        work = self._by_phase[self._life.step, self._life.phase]
        if func.namespace == "c10d":
            _count_collective(work, func, args, self._ranks_of_node)
            return out
        if func.namespace == "_c10d_functional":
            _count_functional_collective(work, func, args, kwargs or {}, self._ranks_of_node)
            return out
        operands = _nested_tensors(args) + _nested_tensors(out)
        on_host = [tensor.device.type == "cpu" for tensor in operands]
        if all(on_host):
            return out
        if any(on_host):
            _count_copy(work, out)
            return out
        name = func._opname
        if name in _WITHOUT_KERNEL:
            return out
        flops = private.operator_flops(func, args, kwargs or {}, out)
        kind = ("attention" if "attention" in name else "product") if flops else name
        self.count(
            flops, operands, kind, CAUSAL_SHARE if kind == "attention" and _is_causal(func, args, kwargs) else 1.0
        )
        return out

    def count_library_call(self) -> None:
        """Count a kernel launch by a library's own function."""
        self._by_phase[self._life.step, self._life.phase].library_calls += 1

    def count(self, flops: int, operands: Sequence[torch.Tensor], kind: str = "", done: float = 1.0) -> None:
        """Count a kernel on the accelerator by its FLOPs and memory traffic."""
        work = self._by_phase[self._life.step, self._life.phase]
        moved = sum(tensor.numel() * tensor.element_size() for tensor in operands)
        work.flops += flops
        work.memory_bytes += moved
        work.kernels[kind, int(flops * done), moved] += 1
        work.operators += 1
        seconds = operator_seconds(int(flops * done), moved, self._speed, kind)
        if seconds > LAUNCH_SECONDS:
            work.long_seconds += seconds
        else:
            work.short_seconds += seconds
            work.short_operators += 1


def _is_causal(func: Any, args: Any, kwargs: Any) -> bool:
    """True if an attention operator was called with ``is_causal``."""
    if "is_causal" in (kwargs or {}):
        return bool(kwargs["is_causal"])
    names = [argument.name for argument in func._schema.arguments]
    place = names.index("is_causal") if "is_causal" in names else len(args)
    return place < len(args) and bool(args[place])


def _count_collective(work: _PhaseCounters, func: Any, args: Any, ranks_per_node: int) -> None:
    operator = func._schema.name.removeprefix("c10d::")
    try:
        call = C10dCall(func, args, None)
        goes_on = call.blocks is False or _is_on_side_stream(_sent_tensors(args))
        operator = _group_key(operator, call.members, ranks_per_node, is_async=goes_on)
    except KeyError:  # an operator without a group
        pass
    _add_collective(work, operator, _sent_tensors(args))


def _is_on_side_stream(operands: Sequence[torch.Tensor]) -> bool:
    """True if a stream of its own runs the collective, as FSDP has one: computing on the default stream goes on."""
    for tensor in operands:
        record = VirtualTensor.virtual_mode.memory.devices.get(tensor.device)
        if record is not None and record.allocator is not None:
            return bool(record.stream())
    return False


_C10D_NAMES = {
    "all_reduce": "allreduce_",
    "all_gather_into_tensor": "_allgather_base_",
    "reduce_scatter_tensor": "_reduce_scatter_base_",
    "all_to_all_single": "alltoall_base_",
    "broadcast": "broadcast_",
}
"""Functional collectives, as DTensor calls them, with the names of the collectives that they run."""


def _count_functional_collective(work: _PhaseCounters, func: Any, args: Any, kwargs: Any, ranks_per_node: int) -> None:
    """Their results are waited for at once where DTensor redistributes, so they are counted as blocking."""
    name = func._schema.name.rpartition("::")[2]
    for ending in ("_", "_coalesced"):
        name = name.removesuffix(ending)
    operator = _C10D_NAMES.get(name)
    if operator is None:  # waits, and marks for autograd
        return
    given = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)} | kwargs
    group = private.resolve_process_group(given["group_name"])
    members = torch.distributed.get_process_group_ranks(group)
    _add_collective(work, _group_key(operator, members, ranks_per_node, is_async=False), _nested_tensors(args[0]))


def _group_key(operator: str, members: Sequence[int], ranks_per_node: int, *, is_async: bool) -> str:
    nodes = {rank // max(ranks_per_node, 1) for rank in members}
    return collective_key(operator, len(members), spans_nodes=len(nodes) > 1, is_async=is_async)


def _add_collective(work: _PhaseCounters, operator: str, sent: list[torch.Tensor]) -> None:
    counted = work.collectives[operator]
    counted[0] += 1
    counted[1] += sum(tensor.numel() * tensor.element_size() for tensor in sent)


def _sent_tensors(args: Any) -> list[torch.Tensor]:
    """The tensors that a rank sends: the inputs, which follow the outputs in operators that have both."""
    second = _nested_tensors(args[1]) if len(args) > 1 else []
    return second or _nested_tensors(args[0])


def _count_copy(work: _PhaseCounters, out: Any) -> None:
    """Count a copy between host and accelerator, by its direction."""
    if not isinstance(out, torch.Tensor):
        return
    nbytes = out.numel() * out.element_size()
    if out.device.type == "cpu":
        work.to_host_bytes += nbytes
    else:
        work.from_host_bytes += nbytes


def _nested_tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _nested_tensors(item)]
    return []
