"""A ring buffer of a rank's last collectives, and where each was called, at a few microseconds per call."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

from gonogo.evidence.guarded.records import CalledCollective, CollectiveQueue, Phase
from gonogo.finding.frame import Frame
from gonogo.guard.common.faults import disable_part, off
from gonogo.guard.common.frames import GONOGO, frame_of

HISTORY_LENGTH = 20
_MAX_STACK_DEPTH = 20
_MAX_KEPT_FRAMES = 8
_GUARD_PART = "collectives"
_GROUP_CREATION_CALLS = ("init_process_group", "new_group")
_POINT_TO_POINT_CALLS = ("send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list")
_SYMMETRIC_COLLECTIVES = (
    "all_reduce",
    "all_reduce_coalesced",
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "monitored_barrier",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
)
_PEER_PARAMETERS = ("src", "dst", "group_src", "group_dst")
# Positions of the group and the peer as positional arguments; operators not listed only take them by name.
_GROUP_ARGUMENT_INDEX = {
    "all_reduce": 2, "all_reduce_coalesced": 2, "all_gather": 2, "all_gather_coalesced": 2, "all_gather_object": 2,
    "all_gather_into_tensor": 2, "all_gather_single": 2, "all_to_all": 2, "all_to_all_single": 4, "barrier": 0,
    "broadcast": 2, "broadcast_object_list": 2, "gather": 3, "gather_object": 3, "monitored_barrier": 0, "reduce": 3,
    "reduce_scatter": 3, "reduce_scatter_single": 3, "reduce_scatter_tensor": 3, "scatter": 3,
    "scatter_object_list": 3, "send": 2, "recv": 2, "isend": 2, "irecv": 2, "send_object_list": 2,
    "recv_object_list": 2,
}  # fmt: skip
_PEER_ARGUMENT_INDEX = {
    "broadcast": 1, "broadcast_object_list": 1, "gather": 2, "gather_object": 2, "reduce": 1, "scatter": 2,
    "scatter_object_list": 2, "send": 1, "recv": 1, "isend": 1, "irecv": 1, "send_object_list": 1,
    "recv_object_list": 1,
}  # fmt: skip


class _RecordedCall:
    """One call, with as little data as possible: neither tensors nor frames, which would keep memory alive."""

    __slots__ = (
        *("dtype", "group", "index", "operator", "over", "peer"),
        *("phase", "returned", "shapes", "stack", "step", "time"),
    )

    def __init__(self, operator: str, group: str, index: int) -> None:
        self.operator = operator
        self.group = group
        self.index = index
        self.shapes: tuple[tuple[int, ...], ...] = ()
        self.dtype: Any = None
        self.peer: int | None = None
        self.stack: list[tuple[CodeType, int]] = []
        self.time = time.monotonic()
        self.phase: Phase = "load"
        self.step = 0
        self.returned = False
        self.over = False
        """As ``returned``, but also where the call has raised."""


class CollectiveRingBuffer:
    """The last collectives that this process called, and the number of calls in each group."""

    def __init__(self) -> None:
        self.entries: deque[_RecordedCall] = deque(maxlen=HISTORY_LENGTH)
        self.counts: dict[str, int] = {}
        """Calls by group; those between two ranks, and the making of groups, under names of their own."""
        self.total = 0
        self.phase: Phase = "load"
        self.step = 0
        self._within = threading.local()

    @property
    def waiting(self) -> float | None:
        """The start (monotonic clock) of the newest call if it is still pending, else None."""
        if not self.entries or self.entries[-1].over:
            return None
        return self.entries[-1].time

    def enter(self, operator: str, arguments: tuple[Any, ...], kwargs: dict[str, Any]) -> _RecordedCall:
        """Record a call that begins."""
        group = _group_name(operator, arguments, kwargs)
        key = _counter_key(operator, group)
        index = self.counts.get(key, 0)
        self.counts[key] = index + 1
        self.total += 1
        entry = _RecordedCall(operator, group, index)
        entry.phase, entry.step = self.phase, self.step
        entry.shapes, entry.dtype = _shapes_and_dtype(arguments, kwargs)
        entry.peer = _peer_rank(operator, arguments, kwargs)
        frame: Any = sys._getframe(2)
        stack = entry.stack
        for _ in range(_MAX_STACK_DEPTH):
            if frame is None:
                break
            stack.append((frame.f_code, frame.f_lasti))
            frame = frame.f_back
        self.entries.append(entry)
        return entry

    def recording_wrapper(self, operator: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """The function of torch.distributed with its calls recorded, except for calls that it makes itself."""
        within = self._within

        @functools.wraps(original)
        def watched_collective(*arguments: Any, **named: Any) -> Any:
            if _GUARD_PART in off or getattr(within, "a_call", False):
                return original(*arguments, **named)
            within.a_call = True
            entry = None
            try:
                try:
                    entry = self.enter(operator, arguments, named)
                except Exception as error:
                    disable_part(_GUARD_PART, error)
                answer = original(*arguments, **named)
                if entry is not None:
                    entry.returned = True
                return answer
            finally:
                within.a_call = False
                if entry is not None:
                    entry.over = True

        watched_collective.gonogo_watches = original  # type: ignore[attr-defined]
        return watched_collective

    def collectives(self) -> tuple[CalledCollective, ...]:
        """The last calls as records, the latest last."""
        now = time.monotonic()
        groups = _ranks_by_group()
        return tuple(_to_called_collective(entry, now, groups) for entry in list(self.entries))

    def watch(self, module: ModuleType) -> None:
        """Record the calls of the collectives in ``torch.distributed.distributed_c10d``."""
        for operator in (*_GROUP_CREATION_CALLS, *_SYMMETRIC_COLLECTIVES, *_POINT_TO_POINT_CALLS):
            original = getattr(module, operator, None)
            if original is None or hasattr(original, "gonogo_watches"):
                continue
            watched = self.recording_wrapper(operator, original)
            setattr(module, operator, watched)
            public = sys.modules.get("torch.distributed")
            if public is not None and getattr(public, operator, None) is original:
                setattr(public, operator, watched)


def _counter_key(operator: str, group: str) -> str:
    if operator in _GROUP_CREATION_CALLS:
        return "groups"
    return f"{group} between two" if operator in _POINT_TO_POINT_CALLS else group


def _group_name(operator: str, arguments: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    if operator in _GROUP_CREATION_CALLS:
        return ""
    group = kwargs.get("group")
    if group is None:
        at = _GROUP_ARGUMENT_INDEX.get(operator, len(arguments))
        group = arguments[at] if len(arguments) > at else None
    if group is None:
        try:
            group = sys.modules["torch.distributed.distributed_c10d"]._get_default_group()
        except ValueError:  # not initialized: the call itself is about to raise
            return ""
    return str(getattr(group, "group_name", ""))


def _peer_rank(operator: str, arguments: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    at = _PEER_ARGUMENT_INDEX.get(operator)
    if at is None:
        return None
    value = next((kwargs[name] for name in _PEER_PARAMETERS if kwargs.get(name) is not None), None)
    if value is None and len(arguments) > at:
        value = arguments[at]
    return value if isinstance(value, int) else None


def _shapes_and_dtype(arguments: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[tuple[int, ...], ...], Any]:
    tensor = sys.modules["torch"].Tensor
    shapes: list[tuple[int, ...]] = []
    dtype = None
    for value in (*arguments[:2], *kwargs.values()):
        several = value[:4] if isinstance(value, list | tuple) else (value,)
        for one in several:
            if isinstance(one, tensor):
                shapes.append(tuple(one.shape))
                dtype = dtype or one.dtype
    return tuple(shapes[:6]), dtype


def _ranks_by_group() -> dict[str, tuple[int, ...]]:
    module: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if module is None:
        return {}
    world = module._world
    return {str(name): tuple(sorted(world.pg_group_ranks.get(group, ()))) for group, name in world.pg_names.items()}


def _to_called_collective(entry: _RecordedCall, now: float, groups: dict[str, tuple[int, ...]]) -> CalledCollective:
    return CalledCollective(
        operator=entry.operator,
        group=entry.group,
        ranks=groups.get(entry.group, ()),
        index=entry.index,
        shapes=entry.shapes,
        dtype=str(entry.dtype).removeprefix("torch.") if entry.dtype is not None else "",
        peer=entry.peer,
        frames=_frames_outside_torch(entry.stack),
        phase=entry.phase,
        step=entry.step,
        ago=round(now - entry.time, 3),
        returned=entry.returned,
    )


def _frames_outside_torch(stack: list[tuple[CodeType, int]]) -> tuple[Frame, ...]:
    """The innermost frames outside torch, outermost first."""
    found: list[Frame] = []
    for code, instruction in stack:
        if code.co_filename.startswith(GONOGO):
            continue
        frame = frame_of(code.co_filename, _line_of_instruction(code, instruction), code.co_name)
        if frame is not None and frame.owner != "torch":
            found.append(frame)
    kept = found[:_MAX_KEPT_FRAMES]
    if not any(frame.owner == "user" for frame in kept):
        kept += [frame for frame in found[_MAX_KEPT_FRAMES:] if frame.owner == "user"][:1]
    return tuple(reversed(kept))


def _line_of_instruction(code: CodeType, instruction: int) -> int:
    return next((line or 0 for start, end, line in code.co_lines() if start <= instruction < end), 0)


def process_group_queues() -> tuple[CollectiveQueue, ...]:
    """The progress of each process group by its own sequence numbers, including collectives called from C++."""
    module: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if module is None:
        return ()
    try:
        states = _nccl_states()
    except Exception:  # another torch version's flight recorder
        states = {}
    found = []
    for group, name in list(module._world.pg_names.items()):
        try:
            enqueued = int(group._get_sequence_number_for_group())
        except Exception:  # a backend without sequence numbers
            continue
        started, completed = states.get(str(name), (None, None))
        found.append(CollectiveQueue(str(name), enqueued, started, completed))
    return tuple(found)


def _nccl_states() -> dict[str, tuple[int | None, int | None]]:
    """By group: the last collective that NCCL started and the last it completed, from torch's flight recorder."""
    import json

    torch = sys.modules["torch"]
    dump = getattr(torch._C._distributed_c10d, "_dump_nccl_trace_json", None)
    if dump is None or not torch.cuda.is_initialized():
        return {}
    dump_ = json.loads(dump(includeCollectives=False, onlyActive=False))
    config = dump_.get("pg_config", {})
    states: dict[str, tuple[int | None, int | None]] = {}
    for number, state in dump_.get("pg_status", {}).items():
        name = config.get(number, {}).get("name", number)
        states[str(name)] = (
            _read_integer(state, "last_started_collective"),
            _read_integer(state, "last_completed_collective"),
        )
    return states


def _read_integer(state: dict[str, Any], name: str) -> int | None:
    try:
        return int(state[name])
    except (KeyError, TypeError, ValueError):
        return None
