"""What works with what: the tables of ``data/compatibility``, each row with its source, read when first asked for."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from gonogo.evidence.version_range import parse_version


@cache
def _table(name: str) -> dict[str, Any]:
    data = (files("gonogo.data") / "compatibility" / f"{name}.json").read_bytes()
    table: dict[str, Any] = msgspec.json.decode(data)
    return table


def cuda_of_torch_on_pypi(version: str) -> str | None:
    """The CUDA that PyPI's Linux wheel of a torch release is built for: ``12.1`` of 2.1.0; None where not known."""
    told = parse_version(version)
    if told is None or told.is_prerelease:
        return None
    by_minor: dict[str, str] = _table("torch")["cuda_on_pypi"]
    return by_minor.get(".".join(map(str, told.release[:3]))) or by_minor.get(".".join(map(str, told.release[:2])))


class NvidiaImage(msgspec.Struct, frozen=True):
    """What one release of NVIDIA's PyTorch container holds."""

    release: str
    torch: str
    cuda: str
    python: str
    source: str


def nvidia_image(release: str) -> NvidiaImage | None:
    """What ``nvcr.io/nvidia/pytorch:<release>-py3`` holds (release: ``24.03``); None where the table has it not."""
    rows = msgspec.convert(_table("torch").get("nvidia_images", []), tuple[NvidiaImage, ...])
    return next((row for row in rows if row.release == release), None)
