"""Samples of tensors in a model's own files: a few bytes of each, by which files are told apart without reading them.

Two files with the same samples are taken to be copies of each other; with different ones they certainly differ.
"""

from __future__ import annotations

import hashlib
import json
import os

import torch

from gonogo.evidence.rehearsal.lives import TensorSample
from gonogo.evidence.rehearsal.tensor_samples import may_be_same_weights
from gonogo.virtual.weights.safetensors_names import UNREAD_KEY, torch_dtype

_CHUNKS, _CHUNK_BYTES = 4, 256
_VALUES = 8


def tensor_sample(
    path: str | os.PathLike[str], begin: int, end: int, shape: tuple[int, ...], dtype: torch.dtype
) -> TensorSample:
    """The sample of a contiguous tensor at bytes ``begin`` to ``end`` of a file."""
    digest = hashlib.sha256()
    values: list[float] = []
    count = (end - begin) // dtype.itemsize
    with open(path, "rb", buffering=0) as file:
        for number in range(_CHUNKS):
            at = begin + _spread_position(number, _CHUNKS, max(end - begin - _CHUNK_BYTES, 0))
            digest.update(os.pread(file.fileno(), min(_CHUNK_BYTES, end - at), at))
        if dtype.is_floating_point and dtype.itemsize > 1 and count:
            for number in range(_VALUES):
                at = begin + _spread_position(number, _VALUES, count - 1) * dtype.itemsize
                data = bytearray(os.pread(file.fileno(), dtype.itemsize, at))
                values.append(float(torch.frombuffer(data, dtype=dtype)[0]))
    return TensorSample(str(dtype).removeprefix("torch."), shape, digest.hexdigest()[:16], tuple(values))


def have_same_weights(folder: str, other: str) -> bool | None:
    """Whether two folders have the same weights, by samples of the tensors in both; None if contents are missing."""
    ours, theirs = _tensor_locations(folder), _tensor_locations(other)
    common = [key for key in ours if key in theirs]
    if not common:
        return None
    samples = ((tensor_sample(*ours[key]), tensor_sample(*theirs[key])) for key in common)
    return all(may_be_same_weights(one, another) for one, another in samples)


def _tensor_locations(folder: str) -> dict[str, tuple[str, int, int, tuple[int, ...], torch.dtype]]:
    """Where each tensor of a folder's safetensors files is; none of files without contents."""
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                length = int.from_bytes(file.read(8), "little")
                described = json.loads(file.read(length))
            if UNREAD_KEY in (described.pop("__metadata__", None) or {}):
                return {}
            for key, entry in described.items():
                begin, end = (8 + length + offset for offset in entry["data_offsets"])
                if (dtype := torch_dtype(entry["dtype"])) is not None:
                    found[key] = path, begin, end, tuple(entry["shape"]), dtype
    return found


def _spread_position(number: int, count: int, last: int) -> int:
    """The place of one of ``count`` places that are spread evenly from 0 to ``last``."""
    return number * last // max(count - 1, 1)
