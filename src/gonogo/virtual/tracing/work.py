"""What a rank computes and moves in one step: the input of the roofline.

FLOPs by PyTorch's own formulas (``torch.utils.flop_counter``), bytes by the operands of each operator.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gonogo.evidence.environment.hardware import Speed
from gonogo.evidence.rehearsal.work import PhaseWork, collective_key
from gonogo.virtual import private
from gonogo.virtual.collectives.exchange import Operation
from gonogo.virtual.kernels.flops import CAUSAL_SHARE
from gonogo.virtual.tracing.operator_time import LAUNCH_SECONDS, operator_seconds


class _PhaseCounters:
    """Work of one rank in one phase; see :class:`gonogo.virtual.measuring.jobs.PhaseWork`."""

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
"""Operators that launch nothing: they ask the allocator, or only change what a tensor is."""
LIBRARY = "library"
"""What the kinds of kernels begin with that a library of its own launches."""
_watched: list[_WorkMode] = []


def watch(session: Any) -> None:
    """Let the program of that :class:`gonogo.virtual.ranks.session.Session` be counted; once a process."""
    speed = session.plan.accelerator.speed
    if speed is not None:
        _watched.append(_WorkMode(session.life, speed, session.plan.local_world_size))
        session.work_tallies = _watched


def counting() -> contextlib.AbstractContextManager[object]:
    """For the program: what runs within it is counted, where someone watches."""
    return _watched[0] if _watched else contextlib.nullcontext()


def computed(flops: int, *operands: torch.Tensor, kind: str = "", done: float = 1.0) -> None:
    """Count a kernel that has a stand-in: no operator of PyTorch's goes by for it. See ``kernels.flops.Computed``."""
    for mode in _watched:
        mode.count(flops, operands, f"{LIBRARY} {kind}".rstrip(), done)
        mode.count_library_call()


def phases() -> tuple[PhaseWork, ...]:
    """What was counted, in order of steps."""
    return _watched[0].phases() if _watched else ()


class _WorkMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what goes by on its way to the virtual accelerator, by step and phase; ``life`` tells those."""

    def __init__(self, lifecycle: Any, speed: Speed, ranks_per_node: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ranks_of_node = ranks_per_node
        self._life = lifecycle
        self._speed = speed
        self._by_phase: dict[tuple[int, str], _PhaseCounters] = defaultdict(_PhaseCounters)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def phases(self) -> tuple[PhaseWork, ...]:
        """What was counted, in order of steps."""
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
        """Every number that was counted: by step, phase, and its name (a collective's has two)."""
        found: dict[tuple[int, str, str, int], float] = {}
        for (step, phase), work in self._by_phase.items():
            for name, value in vars(work).items():
                if name not in ("collectives", "kernels"):
                    found[step, phase, name, 0] = value
            for name, pair in work.collectives.items():
                found |= {(step, phase, f"c10d::{name}", index): value for index, value in enumerate(pair)}
        return found

    def add(self, key: tuple[int, str, str, int], amount: float) -> None:
        """Count more of one of :meth:`numbers`, in the step that runs now."""
        _, phase, name, index = key
        work = self._by_phase[self._life.step, phase]
        if name.startswith("c10d::"):
            work.collectives[name.removeprefix("c10d::")][index] += int(amount)
        else:
            setattr(work, name, getattr(work, name) + amount)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Serve the operator by whoever serves it, and count it."""
        out = func(*args, **(kwargs or {}))
        if func.is_view or func.namespace == "prim":
            return out
        work = self._by_phase[self._life.step, self._life.phase]
        if func.namespace == "c10d":
            _count_collective(work, func, args, self._ranks_of_node)
            return out
        operands = _tensors(args) + _tensors(out)
        on_host = [tensor.device.type == "cpu" for tensor in operands]
        if all(on_host):
            return out
        if any(on_host):
            _count_copy(work, out)
            return out
        name = func._opname
        if name in _WITHOUT_KERNEL:
            return out
        flops = private.flops(func, args, kwargs or {}, out)
        kind = ("attention" if "attention" in name else "product") if flops else name
        self.count(
            flops, operands, kind, CAUSAL_SHARE if kind == "attention" and _is_causal(func, args, kwargs) else 1.0
        )
        return out

    def count_library_call(self) -> None:
        """A library's own function launches a kernel."""
        self._by_phase[self._life.step, self._life.phase].library_calls += 1

    def count(self, flops: int, operands: Sequence[torch.Tensor], kind: str = "", done: float = 1.0) -> None:
        """Count a kernel on the accelerator, by what it computes and what it reads and writes."""
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
    """Whether an operator for attention was told that each token sees those before it alone."""
    if "is_causal" in (kwargs or {}):
        return bool(kwargs["is_causal"])
    names = [argument.name for argument in func._schema.arguments]
    place = names.index("is_causal") if "is_causal" in names else len(args)
    return place < len(args) and bool(args[place])


def _count_collective(work: _PhaseCounters, func: Any, args: Any, ranks_per_node: int) -> None:
    operator = func._schema.name.removeprefix("c10d::")
    try:
        call = Operation(func, args, None)
        nodes = {rank // max(ranks_per_node, 1) for rank in call.members}
        spans, goes_on = len(nodes) > 1, call.blocks is False
        operator = collective_key(operator, len(call.members), spans_nodes=spans, is_async=goes_on)
    except KeyError:  # an operator without a group
        pass
    counted = work.collectives[operator]
    counted[0] += 1
    counted[1] += sum(tensor.numel() * tensor.element_size() for tensor in _sent(args))


def _sent(args: Any) -> list[torch.Tensor]:
    """The tensors that a rank puts in: the inputs, which follow the outputs where there are both."""
    second = _tensors(args[1]) if len(args) > 1 else []
    return second or _tensors(args[0])


def _count_copy(work: _PhaseCounters, out: Any) -> None:
    """A copy between host and accelerator, in the direction of its destination."""
    if not isinstance(out, torch.Tensor):
        return
    nbytes = out.numel() * out.element_size()
    if out.device.type == "cpu":
        work.to_host_bytes += nbytes
    else:
        work.from_host_bytes += nbytes


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    return []
