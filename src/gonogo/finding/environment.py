"""An environment in a report: packages, torch's build, the machine. Sizes are in bytes."""

from __future__ import annotations

from typing import Any

import msgspec

from gonogo.finding.text import Text


class Card(msgspec.Struct, frozen=True):
    """A GPU or NPU of the machine."""

    name: str
    memory_bytes: int | None
    compute_capability: tuple[int, int] | None


class EnvironmentFacts(msgspec.Struct, frozen=True):
    """An environment as reported by ``gonogo env``. Fields are None if not requested or not detectable."""

    packages: dict[str, str]
    """Version, or version range, by package name."""
    complete: bool
    """Whether packages that aren't listed are known not to be installed."""
    machine: dict[str, str | int | float | Text | None]
    """Value by name (``driver``, ``host_memory`` …): None if absent, a Text with the reason if unknown."""
    torch: dict[str, str | bool | None] | None = None
    gpus: tuple[Card, ...] | None = None
    variables: dict[str, str] | None = None

    def to_json(self) -> dict[str, Any]:
        """The JSON object of ``gonogo env --format json``; the reasons for unknown values are under ``unknown``."""
        found: dict[str, Any] = {"packages": self.packages, "complete": self.complete}
        for name, value in self.machine.items():
            if isinstance(value, Text):
                found.setdefault("unknown", {})[name] = msgspec.to_builtins(value)
            else:
                found[name] = value
        rest = {"torch": self.torch, "gpus": self.gpus, "variables": self.variables}
        return found | {name: msgspec.to_builtins(value) for name, value in rest.items() if value is not None}
