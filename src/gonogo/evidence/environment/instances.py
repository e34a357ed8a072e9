"""Cloud instances: the accelerators and the host memory of a name such as ``p5.48xlarge``."""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from functools import cache

import msgspec

from gonogo.evidence.tables import TABLES


class CloudInstanceType(msgspec.Struct, frozen=True):
    """A type of cloud instance, as its provider describes it."""

    name: str
    provider: str
    accelerator: str
    """Its name in ``accelerators.json``."""
    count: int
    host_gib: int
    source: str

    @property
    def host_bytes(self) -> int:
        """Host memory of one instance, in bytes."""
        return self.host_gib << 30


@cache
def all_instance_types() -> tuple[CloudInstanceType, ...]:
    """All rows of the table ``instances.json``, in its order."""
    families = json.loads((TABLES / "instances.json").read_text(encoding="utf-8"))["families"]
    return tuple(
        CloudInstanceType(name, family["provider"], family["accelerator"], count, host_gib, family["source"])
        for family in families
        for name, (count, host_gib) in family["instances"].items()
    )


def parse_instance_type(gpus: str) -> tuple[CloudInstanceType, int | None] | None:
    """Parse ``p5.48xlarge`` or ``2xp5.48xlarge`` to an instance type and a count; None if it is neither.

    Case, punctuation and Azure's ``Standard_`` are ignored.
    """
    instance = _instances_by_plain_name().get(_normalize_name(gpus))
    if instance is not None:
        return instance, None
    counted = re.fullmatch(r"\s*([1-9]\d{0,5})\s*[xX×*]\s*(\S+)\s*", gpus)
    instance = _instances_by_plain_name().get(_normalize_name(counted[2])) if counted else None
    return None if counted is None or instance is None else (instance, int(counted[1]))


def similar_instance_names(name: str) -> list[str]:
    """Names of instance types similar to this one."""
    near = get_close_matches(_normalize_name(name), _instances_by_plain_name(), n=3, cutoff=0.8)
    return list(dict.fromkeys(_instances_by_plain_name()[key].name for key in near))


@cache
def _instances_by_plain_name() -> dict[str, CloudInstanceType]:
    return {_normalize_name(instance.name): instance for instance in all_instance_types()}


def _normalize_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower()).removeprefix("standard")
