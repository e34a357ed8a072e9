"""A trace in Chrome's Trace Event Format, for Perfetto: one process per rank, one thread per track.

One microsecond stands for one operator: a virtual accelerator has no clock, and the duration of a rehearsal says
nothing about a GPU. Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from typing import IO

import msgspec

from gonogo.evidence.rehearsal.trace import ACTIONS, TRACKS, DeviceEvents, RankTrace

_COMPRESSION_LEVEL = 3
_EVENTS_PER_CHUNK = 4096
_COUNTER_INTERVAL = 32
"""The memory counter has one point for this many operators: the highest value among them."""
_FIRST_THREAD = 1
"""Perfetto treats thread 0 as the idle thread, which belongs to no process."""
_encode = msgspec.json.encode


def write(file: IO[bytes], traces: Mapping[int, RankTrace], compress: bool) -> None:
    """Write the trace of all ranks in chunks, gzipped if ``compress``."""
    if compress:
        with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=_COMPRESSION_LEVEL, mtime=0) as packed:
            _write_traces(packed, traces)
    else:
        _write_traces(file, traces)


def _write_traces(file: IO[bytes] | gzip.GzipFile, traces: Mapping[int, RankTrace]) -> None:
    file.write(b'{"displayTimeUnit":"ns","otherData":{"clock":"1 us = 1 operator","made by":"gonogo rehearse"},')
    file.write(b'"traceEvents":[')
    pieces: list[str] = []
    first = True
    for trace in traces.values():
        for event in _json_events(trace):
            pieces.append(event)
            if len(pieces) >= _EVENTS_PER_CHUNK:
                file.write((("" if first else ",\n") + ",\n".join(pieces)).encode())
                pieces, first = [], False
    file.write((("" if first or not pieces else ",\n") + ",\n".join(pieces)).encode())
    file.write(b"]}\n")


def _json_events(trace: RankTrace) -> Iterator[str]:
    """Each event as JSON."""
    process = trace.rank
    yield _metadata_event(process, _FIRST_THREAD, "process_name", {"name": f"rank {process}"})
    yield _metadata_event(process, _FIRST_THREAD, "process_sort_index", {"sort_index": process})
    for thread, name in enumerate(TRACKS, _FIRST_THREAD):
        yield _metadata_event(process, thread, "thread_name", {"name": name})
        yield _metadata_event(process, thread, "thread_sort_index", {"sort_index": thread})
    names = [_encode(name).decode() for name in trace.names]
    details = [f',"args":{_encode(detail).decode()}' for detail in trace.details]
    for track, begin, end, number, detail in trace.spans():
        # A span without operators is written as an instant: some readers let spans of zero length close others.
        kind = f'"X","dur":{end - begin}' if end > begin else '"i","s":"t"'
        yield (
            f'{{"ph":{kind},"pid":{process},"tid":{track + _FIRST_THREAD},"cat":"{TRACKS[track]}","ts":{begin},'
            f'"name":{names[number]}{details[detail] if detail >= 0 else ""}}}'
        )
    for device in trace.devices:
        yield from _memory_counters(process, device)


def _metadata_event(process: int, thread: int, name: str, args: dict[str, object]) -> str:
    return _encode({"ph": "M", "pid": process, "tid": thread, "name": name, "args": args}).decode()


def _memory_counters(process: int, device: DeviceEvents) -> Iterator[str]:
    """Allocated and reserved bytes: the highest moment in each interval."""
    name = _encode(f"memory of {device.device}").decode()
    reserved = allocated = 0
    until, highest = _COUNTER_INTERVAL, (0, 0, 0)
    for action, _, nbytes, _, clock, _ in device.event_rows():
        if clock >= until:
            yield _memory_counter_event(process, name, highest)
            until, highest = clock - clock % _COUNTER_INTERVAL + _COUNTER_INTERVAL, (clock, allocated, reserved)
        kind = ACTIONS[action]
        if kind in ("alloc", "free"):
            allocated += nbytes if kind == "alloc" else -nbytes
        elif kind in ("segment_alloc", "segment_map"):
            reserved += nbytes
        elif kind in ("segment_free", "segment_unmap"):
            reserved -= nbytes
        if allocated >= highest[1]:
            highest = (clock, allocated, reserved)
    yield _memory_counter_event(process, name, highest)


def _memory_counter_event(process: int, name: str, moment: tuple[int, int, int]) -> str:
    clock, allocated, reserved = moment
    return (
        f'{{"ph":"C","pid":{process},"ts":{clock},"name":{name},'
        f'"args":{{"allocated":{allocated},"reserved":{reserved}}}}}'
    )
