"""Samples of tensors in a model's own files: a few bytes of each, by which files are told apart without reading them.

Two files with the same samples are taken to be copies of each other; with different ones they certainly differ.
"""

from __future__ import annotations

import hashlib
import os

import torch

from gonogo.evidence.rehearsal.lives import TensorSample

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
            at = begin + _spread(number, _CHUNKS, max(end - begin - _CHUNK_BYTES, 0))
            digest.update(os.pread(file.fileno(), min(_CHUNK_BYTES, end - at), at))
        if dtype.is_floating_point and dtype.itemsize > 1 and count:
            for number in range(_VALUES):
                at = begin + _spread(number, _VALUES, count - 1) * dtype.itemsize
                data = bytearray(os.pread(file.fileno(), dtype.itemsize, at))
                values.append(float(torch.frombuffer(data, dtype=dtype)[0]))
    return TensorSample(str(dtype).removeprefix("torch."), shape, digest.hexdigest()[:16], tuple(values))


def _spread(number: int, count: int, last: int) -> int:
    """The place of one of ``count`` places that are spread evenly from 0 to ``last``."""
    return number * last // max(count - 1, 1)
