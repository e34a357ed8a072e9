"""What a report says of an environment: packages, torch's build, the machine. Sizes are bytes."""

from __future__ import annotations

from typing import Any

import msgspec

from gonogo.finding.text import Text


class Card(msgspec.Struct, frozen=True):
    """An accelerator."""

    name: str
    memory_bytes: int | None
    compute_capability: tuple[int, int] | None


class EnvironmentFacts(msgspec.Struct, frozen=True):
    """An environment as ``gonogo env`` tells it. What is None was not asked for or not to be seen."""

    packages: dict[str, str]
    """By name: the version, or the range of versions."""
    complete: bool
    """Whether a package that is not among them is known not to be installed."""
    machine: dict[str, str | int | float | Text | None]
    """By name (``driver``, ``host_memory`` …): the value, None for what is absent, a Text for why it is not known."""
    torch: dict[str, str | bool | None] | None = None
    gpus: tuple[Card, ...] | None = None
    variables: dict[str, str] | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON has it: the machine's values stand beside the packages, reasons under ``unknown``."""
        found: dict[str, Any] = {"packages": self.packages, "complete": self.complete}
        for name, value in self.machine.items():
            if isinstance(value, Text):
                found.setdefault("unknown", {})[name] = msgspec.to_builtins(value)
            else:
                found[name] = value
        rest = {"torch": self.torch, "gpus": self.gpus, "variables": self.variables}
        return found | {name: msgspec.to_builtins(value) for name, value in rest.items() if value is not None}
