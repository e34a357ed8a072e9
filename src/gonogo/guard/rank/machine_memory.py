"""What the kernel tells of this machine's or container's memory: how much, and how often it killed for want of it."""

from __future__ import annotations

from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def oom_kills() -> int | None:
    """How many processes of this container (else: machine) the kernel has killed for want of memory; None if unknown.

    The count only grows: a difference between two moments is what happened between them.
    """
    for place in _own_cgroups():
        for name in ("memory.events", "memory.oom_control"):
            count = _field(place / name, "oom_kill")
            if count is not None:
                return count
    return _field(Path("/proc/vmstat"), "oom_kill")


def memory_limit() -> int:
    """Bytes of memory that the machine has, or the container may use; 0 where that can't be read."""
    total = (_field(Path("/proc/meminfo"), "MemTotal:") or 0) * 1024
    limits = [limit for place in _own_cgroups() for limit in _limits(place)]
    return min([total, *limits]) if total else min(limits, default=0)


def _own_cgroups() -> list[Path]:
    found = []
    for line in _lines(Path("/proc/self/cgroup")):
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not controllers:
            found.append(_CGROUPS / path.lstrip("/"))
        elif "memory" in controllers.split(","):
            found.append(_CGROUPS / "memory" / path.lstrip("/"))
    # Within a container the path is that of the machine, and the container's own stands at the top.
    return [*found, _CGROUPS, _CGROUPS / "memory"]


def _limits(place: Path) -> list[int]:
    found = []
    for name in ("memory.max", "memory.limit_in_bytes"):
        text = next(iter(_lines(place / name)), "")
        if text.isdigit():
            found.append(int(text))
    return found


def _field(path: Path, name: str) -> int | None:
    for line in _lines(path):
        words = line.split()
        if len(words) > 1 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
