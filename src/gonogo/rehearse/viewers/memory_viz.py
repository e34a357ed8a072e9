"""A snapshot of the virtual allocators, in the format of ``torch.cuda.memory._snapshot()``.

It is opened by https://pytorch.org/memory_viz and by ``torch.cuda._memory_viz``. torch/utils/viz/MemoryViz.js shows
what the page reads from the pickle and each event. It supports protocols 2 to 4, and no categories: a tensor's stack
says more anyway.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import IO, Any

from gonogo.evidence.rehearsal.trace import ACTIONS, DeviceEvents, RankTrace

_PICKLE_PROTOCOL = 4
Frames = list[dict[str, Any]]


def write(file: IO[bytes], traces: Mapping[int, RankTrace], world_size: int) -> None:
    """Write the snapshot; its devices are the ranks' accelerators, numbered by rank."""
    pickle.dump(snapshot(traces, world_size), file, protocol=_PICKLE_PROTOCOL)


def snapshot(traces: Mapping[int, RankTrace], world_size: int) -> dict[str, Any]:
    """The snapshot. If a single process has several accelerators, they keep their own numbers."""
    by_number: dict[int, tuple[DeviceEvents, list[Frames]]] = {}
    for rank, trace in sorted(traces.items()):
        stacks = [[{"filename": f.filename, "line": f.line, "name": f.name} for f in s] for s in trace.stacks]
        for position, device in enumerate(device for device in trace.devices if device.table):
            own = int(device.device.rpartition(":")[2])
            number = own if world_size == 1 else rank if not position else world_size + len(by_number)
            by_number[number] = (device, stacks)
    result: dict[str, Any] = {"segments": [], "device_traces": [[] for _ in range(max(by_number, default=-1) + 1)]}
    for number, (device, stacks) in by_number.items():
        held = _append_events(device, stacks, result["device_traces"][number])
        result["segments"] += [_segment_dict(number, segment, held) for segment in device.segments]
    return result


def _append_events(device: DeviceEvents, stacks: list[Frames], events: list[dict[str, Any]]) -> dict[int, Frames]:
    """Append the events; returns the stacks of the blocks that are live at the end, by address."""
    nothing: Frames = []
    held: dict[int, tuple[Frames, int]] = {}
    for action, address, nbytes, stack, clock, stream in device.event_rows():
        name = ACTIONS[action]
        frames = stacks[stack] if stack >= 0 else nothing
        event = {"action": name, "addr": address, "size": nbytes, "stream": stream, "frames": frames, "time_us": clock}
        if name == "alloc":
            held[address] = (frames, stream)
        elif name == "free":
            event["stream"] = held.pop(address, (nothing, 0))[1]
            events.append({**event, "action": "free_requested"})
            event["action"] = "free_completed"
        elif name == "oom":
            event["device_free"] = event.pop("addr")
        events.append(event)
    return {address: frames for address, (frames, _) in held.items()}


def _segment_dict(number: int, segment: Any, allocation_frames: Mapping[int, Frames]) -> dict[str, Any]:
    blocks = [
        {
            "address": block.address,
            "size": block.size,
            "requested_size": block.requested,
            "state": "active_allocated" if block.live else "inactive",
            "frames": allocation_frames.get(block.address, []) if block.live else [],
        }
        for block in segment.blocks
    ]
    live = [block for block in segment.blocks if block.live]
    return {
        "device": number,
        "address": segment.blocks[0].address,
        "total_size": sum(block.size for block in segment.blocks),
        "allocated_size": sum(block.size for block in live),
        "active_size": sum(block.size for block in live),
        "requested_size": sum(block.requested for block in live),
        "stream": segment.stream,
        "segment_type": "small" if segment.is_small else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": segment.is_expandable,
        "frames": [],
        "blocks": blocks,
    }
