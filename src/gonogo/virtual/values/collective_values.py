"""The results of collectives if all ranks' values are known, and the encoding of values sent between ranks."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import msgspec
import torch

from gonogo.virtual.values import real

MAX_VALUE_BYTES = 8 << 20
"""Larger values are not sent between ranks, and become unknown."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[str, tuple[int, ...], bytes]]).decode

Sent = list[torch.Tensor]
"""The input tensors of one rank, in order."""


def pack_tensors(tensors: Sequence[torch.Tensor]) -> bytes:
    """Real CPU tensors as bytes. Call with dispatch modes off."""
    return _encode([(str(one.dtype).removeprefix("torch."), tuple(one.shape), _tensor_bytes(one)) for one in tensors])


def _tensor_bytes(tensor: torch.Tensor) -> bytes:
    if not tensor.numel():
        return b""
    flat = real.empty(tensor.numel(), dtype=tensor.dtype)  # a tensor with stride 0 has no contiguous bytes
    flat.copy_(tensor.detach().reshape(-1))
    return bytes(flat.view(torch.uint8).numpy().tobytes())


def unpack_tensors(payload: bytes) -> Sent:
    """The inverse of :func:`pack_tensors`."""
    tensors = []
    for dtype, shape, data in _decode(payload):
        kind = getattr(torch, dtype)
        flat = torch.frombuffer(bytearray(data), dtype=kind) if data else real.empty(0, dtype=kind)
        tensors.append(flat.reshape(shape))
    return tensors


def reduce_tensors(reduction: str, tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """The reduction of tensors of equal shape, or None if it isn't supported (a weighted sum)."""
    joined: Any = {
        "SUM": torch.add, "AVG": torch.add, "MIN": torch.minimum, "MAX": torch.maximum, "PRODUCT": torch.mul,
        "BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor,
    }.get(reduction)  # fmt: skip
    if joined is None:
        return None
    out: torch.Tensor = functools.reduce(joined, tensors[1:], tensors[0].clone())
    return out.div(len(tensors)).to(out.dtype) if reduction == "AVG" else out


def collective_results(
    operator: str,
    sent: Sequence[Sent],
    mine: int,
    *,
    root: int | None = None,
    reduction: str = "SUM",
    splits: Sequence[Sequence[int]] = (),
) -> list[torch.Tensor | None] | None:
    """The resulting values of one member's output tensors, in order; an entry is None if it stays unchanged.

    ``sent`` and ``splits`` are indexed by member, ``mine`` and ``root`` are such indices. Returns None for an
    unsupported operator.
    """
    count = len(sent)
    if operator in ("allreduce_", "allreduce_coalesced_", "reduce_"):
        if operator == "reduce_" and mine != root:
            return [None] * len(sent[mine])
        return _all_or_none([reduce_tensors(reduction, column) for column in zip(*sent, strict=True)])
    if operator == "broadcast_":
        return list(sent[root or 0])
    if operator in ("recv_", "recv_any_source_"):
        return list(sent[0])
    if operator in ("allgather_", "gather_"):
        return [tensors[0] for tensors in sent] if operator == "allgather_" or mine == root else []
    if operator in ("_allgather_base_", "allgather_into_tensor_coalesced_"):
        return [torch.cat([tensor.reshape(-1) for tensor in column]) for column in zip(*sent, strict=True)]
    if operator == "scatter_":
        return [sent[root or 0][mine]]
    if operator == "reduce_scatter_":
        return _all_or_none([reduce_tensors(reduction, [tensors[mine] for tensors in sent])])
    if operator in ("_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_"):
        columns = zip(*sent, strict=True)
        whole = [reduce_tensors(reduction, [tensor.reshape(-1) for tensor in column]) for column in columns]
        return _all_or_none([one.chunk(count)[mine] if one is not None else None for one in whole])
    if operator == "alltoall_":
        return [tensors[mine] for tensors in sent]
    if operator == "alltoall_base_":
        return [torch.cat([_member_chunk(tensors[0], splits[i], count, mine) for i, tensors in enumerate(sent)])]
    return None


def _all_or_none(tensors: list[torch.Tensor | None]) -> list[torch.Tensor | None] | None:
    return None if any(tensor is None for tensor in tensors) else tensors


def _member_chunk(tensor: torch.Tensor, splits: Sequence[int], count: int, member_index: int) -> Any:
    """The rows of a tensor that are sent to one member, flattened."""
    parts: Any = torch.split(tensor, list(splits)) if splits else tensor.chunk(count)
    return parts[member_index].reshape(-1)
