"""A rank's memory, sampled without synchronizing with the GPU, and its trend."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal

from gonogo.evidence.guarded.records import RankMemoryRecord, WarningRecord
from gonogo.guard.common import nvml

_MemoryKind = Literal["host-memory", "gpu-memory"]
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def sample_memory(local_rank: int) -> RankMemoryRecord:
    """This process's current memory; takes some ten microseconds, more if there is a GPU."""
    available, _ = host_memory()
    allocated = reserved = 0
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        state = torch.cuda.memory_stats_as_nested_dict()
        allocated = state["allocated_bytes"]["all"]["current"]
        reserved = state["reserved_bytes"]["all"]["current"]
    gpu = nvml.gpu_memory(local_rank)
    return RankMemoryRecord(
        time.time(), resident_bytes(), available, allocated, reserved, gpu.used if gpu else 0, gpu.total if gpu else 0
    )


def resident_bytes() -> int:
    """Resident memory of this process, in bytes."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES


def host_memory() -> tuple[int, int]:
    """(available bytes, total bytes) of host memory: the machine's, or the container's if that has a lower limit."""
    available = total = 0
    with open("/proc/meminfo", "rb") as file:
        for line in file:
            if line.startswith(b"MemTotal:"):
                total = int(line.split()[1]) << 10
            elif line.startswith(b"MemAvailable:"):
                available = int(line.split()[1]) << 10
                break
    for folder, limit_name, used_name in _cgroup_limits():
        limit, used = _read_integer(f"{folder}/{limit_name}"), _read_integer(f"{folder}/{used_name}")
        if limit is not None and used is not None and limit < total:
            # The page cache counts as used, but is reclaimed when memory is short.
            cached = _cgroup_cache_bytes(f"{folder}/memory.stat")
            available, total = min(available, max(limit - used + cached, 0)), limit
    return available, total


@cache
def _cgroup_limits() -> tuple[tuple[str, str, str], ...]:
    """(folder, name of the limit file, name of the usage file) for each cgroup of this process."""
    found = []
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, names = "/sys/fs/cgroup", ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            root, names = "/sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        parts = [part for part in path.split("/") if part]
        for count in range(len(parts), -1, -1):
            folder = "/".join([root, *parts[:count]])
            if os.path.isfile(f"{folder}/{names[0]}"):
                found.append((folder, *names))
    return tuple(found)


def _read_integer(path: str) -> int | None:
    try:
        with open(path, "rb") as file:
            return int(file.read())
    except (OSError, ValueError):  # "max": no limit
        return None


def _cgroup_cache_bytes(path: str) -> int:
    try:
        with open(path, "rb") as file:
            return next((int(line.split()[1]) for line in file if line.startswith(b"inactive_file ")), 0)
    except (OSError, ValueError):
        return 0


class MemoryWatch:
    """Warns, once for each, if host memory or GPU memory is about to run out."""

    _STEPS, _SECONDS = 200, 600.0

    def __init__(self) -> None:
        self._trends: dict[_MemoryKind, Trend] = {"host-memory": Trend(), "gpu-memory": Trend()}
        self._warned: set[_MemoryKind] = set()

    def check_after_step(self, step: int, memory_sample: RankMemoryRecord, median: float) -> Iterator[WarningRecord]:
        """The warnings after a step. ``median`` is the duration of a step in seconds."""
        if memory_sample.host_bytes:
            # The ranks on a machine share its memory, and are assumed to grow alike.
            sharing = int(os.environ.get("LOCAL_WORLD_SIZE", "1") or 1)
            yield from self._add_held_bytes(
                "host-memory", step, memory_sample.host_bytes, memory_sample.host_available, sharing, median
            )
        if memory_sample.gpu_total:
            cached = memory_sample.gpu_reserved - memory_sample.gpu_allocated
            left = memory_sample.gpu_total - memory_sample.gpu_used + cached
            yield from self._add_held_bytes("gpu-memory", step, memory_sample.gpu_allocated, left, 1, median)

    def _add_held_bytes(
        self, memory_kind: _MemoryKind, step: int, held_bytes: int, left: int, sharing_ranks: int, median: float
    ) -> Iterator[WarningRecord]:
        self._trends[memory_kind].add(step, held_bytes)
        grows = self._trends[memory_kind].growth_per_step()
        if not grows or memory_kind in self._warned:
            return
        steps = left / (grows * sharing_ranks)
        if steps <= self._STEPS or steps * median <= self._SECONDS:
            self._warned.add(memory_kind)
            yield WarningRecord(time.time(), memory_kind, step, grows, left, round(steps, 1))


class Trend:
    """Detects steady growth from step to step, and its rate."""

    NEEDED = 12
    """Minimum number of samples."""
    _LINEAR = 0.95  # R² of the regression line must be at least this

    def __init__(self) -> None:
        self._points: deque[tuple[int, int]] = deque(maxlen=60)

    def add(self, step: int, size: int) -> None:
        """Record the memory held after a step."""
        if not self._points or step > self._points[-1][0]:
            self._points.append((step, size))

    def growth_per_step(self) -> float:
        """Growth in bytes per step; 0 if it isn't steady, or there are too few samples."""
        points = list(self._points)
        if len(points) < self.NEEDED:
            return 0.0
        slope, explained = _fit_line(points)
        recent, _ = _fit_line(points[len(points) // 2 :])
        # Growth that slows down is a cache being filled rather than a leak.
        return slope if slope > 0 and explained >= self._LINEAR and recent >= slope / 2 else 0.0


def _fit_line(points: list[tuple[int, int]]) -> tuple[float, float]:
    """The slope of the least-squares line, and the share of the variance that it explains (R²)."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    across = sum((x - mean_x) ** 2 for x, _ in points)
    along = sum((y - mean_y) ** 2 for _, y in points)
    both = sum((x - mean_x) * (y - mean_y) for x, y in points)
    if not across or not along:
        return 0.0, 0.0
    return both / across, both * both / (across * along)
