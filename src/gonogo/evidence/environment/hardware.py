"""Hardware: accelerators, their number, host memory."""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from functools import cache

import msgspec

from gonogo.evidence.environment.instances import parse_instance_type, similar_instance_names
from gonogo.evidence.tables import TABLES
from gonogo.finding import UserError, translated

MATMUL_EFFICIENCY = 0.6
"""Fraction of the stated matrix FLOP/s: large 16-bit products reach 60 to 75 % on A100 and H100.

Source: https://github.com/stas00/ml-engineering, compute/accelerator, "Maximum Achievable Matmul FLOPS".
"""


class PeakSpeed(msgspec.Struct, frozen=True):
    """The peak FLOP/s and bandwidths of an accelerator, as stated by its maker; see ``accelerators.json``."""

    matmul_flops: float
    """Dense 16-bit matrix products, in FLOP/s."""
    memory_bytes: float
    """Device memory bandwidth, in bytes/s."""
    link_bytes: float
    """Bandwidth to the other accelerators of the node, in bytes/s per direction."""
    host_link_bytes: float
    """Bandwidth to host memory, in bytes/s per direction."""
    source: str = ""
    matmul_share: float = MATMUL_EFFICIENCY
    """Fraction of :attr:`matmul_flops` that large matrix products reach."""
    attention_share: float = 0.5
    """Fraction of :attr:`matmul_flops` that fused attention reaches."""


class Accelerator(msgspec.Struct, frozen=True):
    """One type of accelerator, as its own software reports it."""

    name: str
    device_type: str
    """``cuda`` or ``npu``: the prefix of its device names."""
    product: str
    """The value of ``torch.cuda.get_device_name``, e.g. ``NVIDIA H100 80GB HBM3``."""
    total_bytes: int
    """The value of ``get_device_properties().total_memory``."""
    compute_capability: tuple[int, int]
    multiprocessors: int
    allowance_bytes: int
    """Memory used by the context, cuBLAS/cuDNN workspaces and communicators, outside the caching allocator."""
    aliases: tuple[str, ...] = ()
    source: str = ""
    speed: PeakSpeed | None = None


class Machine(msgspec.Struct, frozen=True):
    """The machine that a program is to run on: ``count`` accelerators of one type on each of ``nodes`` nodes."""

    accelerator: Accelerator
    count: int
    nodes: int = 1
    host_bytes: int | None = None


DEFAULT_ACCELERATOR = "H100-80G"
"""The accelerator that is rehearsed if the user names none; the report always states it."""

_PEAK_SHARES_BY_CAPABILITY = {
    10: {"matmul_share": 0.45, "attention_share": 0.4},
    12: {"matmul_share": 0.45, "attention_share": 0.4},
}
"""Fractions by major compute capability, if lower than on A100 and H100.

Blackwell: 45 to 65 % of 2250 TFLOP/s over the shapes of Llama 70B and 405B
(https://github.com/MooreThreads/SimuMax/blob/main/configs/system/b200_bf16_ceperm.json).
"""

_UNIT_BYTES = {"M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@cache
def all_accelerators() -> tuple[Accelerator, ...]:
    """All rows of the table ``accelerators.json``, in its order."""
    path = TABLES / "accelerators.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["accelerators"]
    return tuple(
        Accelerator(
            name=row["name"],
            device_type=row["device_type"],
            product=row["product"],
            total_bytes=row["total_mib"] << 20,
            compute_capability=(row["compute_capability"][0], row["compute_capability"][1]),
            multiprocessors=row["multiprocessors"],
            allowance_bytes=(row["context_mib"] + row["communicators_mib"]) << 20,
            aliases=tuple(row["aliases"]),
            source=row["source"],
            speed=PeakSpeed(
                matmul_flops=row["matmul_tflops"] * 1e12,
                memory_bytes=row["memory_gbs"] * 1e9,
                link_bytes=row["link_gbs"] * 1e9,
                host_link_bytes=row["host_link_gbs"] * 1e9,
                source=row["speed_source"],
                **_PEAK_SHARES_BY_CAPABILITY.get(
                    row["compute_capability"][0] if row["device_type"] == "cuda" else 0, {}
                ),
            ),
        )
        for row in rows
    )


def find_accelerator(name: str) -> Accelerator:
    """The accelerator with that name, alias or product name, regardless of case and punctuation.

    Raises UserError for an unknown or ambiguous name (``A100``), naming the nearest ones.
    """
    wanted = _normalize_name(name)
    found = _accelerators_by_name().get(wanted)
    if found is not None:
        return found
    names = [accelerator.name for accelerator in all_accelerators()]
    versions = [n for n in names if wanted and wanted in _normalize_name(n)]
    if versions:
        raise UserError(
            translated("GPU {name!r} is ambiguous: use one of {nearest}").format(name=name, nearest=", ".join(versions))
        )
    near = get_close_matches(wanted, _accelerators_by_name(), n=6, cutoff=0.4)
    accelerators = list(dict.fromkeys(_accelerators_by_name()[key].name for key in near))[:3]
    nearest = similar_instance_names(name) or accelerators or names
    raise UserError(
        translated("unknown GPU {name!r}: the closest known are {nearest}").format(
            name=name, nearest=", ".join(nearest)
        )
    )


def parse_machine(gpus: str | None, nodes: int | None, host_memory: str | None, default_count: int) -> Machine:
    """The machine described by ``--gpus``, ``--nodes`` and ``--host-memory``.

    ``gpus``: ``8xH100-80G`` (number per node and type), ``H100-80G`` or ``8``; or a cloud instance, ``p5.48xlarge``
    or ``2xp5.48xlarge`` (two nodes), which also determines the host memory. ``host_memory``: per node, ``1T``,
    ``512G`` or ``1.5TiB`` (units are binary, as memory is sold). ``default_count``: accelerators per node if ``gpus``
    doesn't say. Raises UserError if an option can't be parsed.
    """
    if nodes is not None and nodes < 1:
        raise UserError(translated("--nodes must be at least 1, not {nodes}").format(nodes=nodes))
    nodes = requested_nodes(gpus, nodes)
    found = parse_instance_type(gpus) if gpus is not None else None
    host_bytes = None if host_memory is None else parse_memory_size(host_memory, "--host-memory")
    if found is not None:
        instance, _ = found
        accelerator, count = find_accelerator(instance.accelerator), instance.count
        host_bytes = instance.host_bytes if host_bytes is None else host_bytes
    else:
        text, name = _split_gpu_count(gpus)
        accelerator, count = find_accelerator(name or DEFAULT_ACCELERATOR), default_count if text is None else text
    return Machine(accelerator, count, 1 if nodes is None else nodes, host_bytes)


def requested_nodes(gpus: str | None, nodes: int | None) -> int | None:
    """The nodes by ``--nodes``, or by an instance's count (``2xp5.48xlarge``). Raises UserError if both differ."""
    found = parse_instance_type(gpus) if gpus is not None else None
    instances = found[1] if found is not None else None
    if nodes is not None and instances is not None and nodes != instances:
        raise UserError(
            translated("--gpus {gpus} means {instances} nodes, but --nodes is {nodes}: remove one of them").format(
                gpus=gpus, instances=instances, nodes=nodes
            )
        )
    return instances if nodes is None else nodes


def _split_gpu_count(gpus: str | None) -> tuple[int | None, str]:
    """The count and the name in ``8xH100-80G``."""
    if gpus is None:
        return None, ""
    text = gpus.strip()
    if _normalize_name(text) in _accelerators_by_name():
        return None, text
    match = re.fullmatch(r"(\d{1,9})(?:\s*[xX×*]\s*(\S.*))?", text)
    if match is None:
        return None, text
    count = int(match[1])
    if count < 1:
        raise UserError(
            translated("--gpus {gpus}: a node needs at least one GPU, for example 8xH100-80G").format(gpus=gpus)
        )
    return count, match[2] or ""


def parse_memory_size(text: str, option: str) -> int:
    """The bytes of ``1T``, ``512G`` or ``1.5TiB``. Raises UserError, which names the option, for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([MGT])(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None or float(match[1]) == 0:
        raise UserError(
            translated("{option} {text!r} is not a size: write a number and a unit, for example 512G or 1.5T").format(
                option=option, text=text
            )
        )
    return int(float(match[1]) * _UNIT_BYTES[match[2].upper()])


@cache
def _accelerators_by_name() -> dict[str, Accelerator]:
    return {_normalize_name(name): a for a in all_accelerators() for name in (a.name, a.product, *a.aliases)}


def _normalize_name(name: str) -> str:
    """A normalized name: ``NVIDIA A100-SXM4-80GB`` and ``a100_sxm4_80g`` give the same."""
    letters = re.sub(r"[^a-z0-9]", "", name.lower())
    return re.sub(r"(\d)gi?b", r"\1g", letters.removeprefix("nvidia").removeprefix("geforce").removeprefix("tesla"))
