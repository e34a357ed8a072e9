"""Reads from the kernel the memory limit of this machine or container, and its count of OOM kills."""

from __future__ import annotations

from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def oom_kills() -> int | None:
    """How many processes of this container (else: machine) the OOM killer has killed; None if unknown.

    The count only grows, so the difference between two calls is the number of kills in between.
    """
    for place in _own_cgroups():
        for name in ("memory.events", "memory.oom_control"):
            count = _read_counter(place / name, "oom_kill")
            if count is not None:
                return count
    return _read_counter(Path("/proc/vmstat"), "oom_kill")


def memory_limit() -> int:
    """The machine's memory or the container's limit, in bytes; 0 if that can't be read."""
    total = (_read_counter(Path("/proc/meminfo"), "MemTotal:") or 0) * 1024
    limits = [limit for place in _own_cgroups() for limit in _memory_limits(place)]
    return min([total, *limits]) if total else min(limits, default=0)


def _own_cgroups() -> list[Path]:
    found = []
    for line in _read_lines(Path("/proc/self/cgroup")):
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not controllers:
            found.append(_CGROUPS / path.lstrip("/"))
        elif "memory" in controllers.split(","):
            found.append(_CGROUPS / "memory" / path.lstrip("/"))
    # In a container the path is the machine's, while the container's own cgroup is mounted at the top.
    return [*found, _CGROUPS, _CGROUPS / "memory"]


def _memory_limits(place: Path) -> list[int]:
    found = []
    for name in ("memory.max", "memory.limit_in_bytes"):
        text = next(iter(_read_lines(place / name)), "")
        if text.isdecimal():
            found.append(int(text))
    return found


def _read_counter(path: Path, name: str) -> int | None:
    for line in _read_lines(path):
        words = line.split()
        if len(words) > 1 and words[0] == name and words[1].isdecimal():
            return int(words[1])
    return None


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
