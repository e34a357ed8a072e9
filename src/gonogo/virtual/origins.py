"""Origins of the bytes in storages, tracked through every copy; active only while a run's life is rehearsed.

A storage has pieces: byte ranges, each with a label that names a state of the program, or the file and key from which
it was read. Operators that compute new values leave no label.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from gonogo.evidence.rehearsal.lives import TensorSample
    from gonogo.virtual.memory.tracking import Cell
    from gonogo.virtual.tensor import VirtualTensor

Label = tuple[str, ...]
"""(kind, slot, name, part), with (file, key) appended for what was read. ``part`` is the position of a rank's shard
in a sharded tensor; empty for an unsharded one.

For ``base`` (a file that no life wrote), slot and name are the file and key from which it was first read: they stay
when it is saved to another file. ``drawn`` is what a random generator made."""
Piece = tuple[int, int, Label]
"""(first byte, byte after the last, label)."""
_LOCATION_PREFIX = "gonogo-origin:"
_BASE: Label = ("base", "", "", "")
DRAWN: Label = ("drawn", "", "", "")
Described = tuple[str, tuple[int, ...], str, list[Piece]]
"""A tensor in a file: key, shape, dtype, pieces."""


class Origins:
    """Process-wide switch for tracking origins, with the callbacks for what is saved and read."""

    followed: ClassVar[bool] = False
    on_saved: ClassVar[Callable[[str, list[Described]], None]] = staticmethod(lambda file, tensors: None)
    on_read: ClassVar[Callable[[str], None]] = staticmethod(lambda file: None)
    on_unlabelled: ClassVar[Callable[[str], None]] = staticmethod(lambda file: None)
    """Called for a file whose tensors have no information about their origins."""
    wants_sample: ClassVar[Callable[[str, str], bool]] = staticmethod(lambda file, key: False)
    """Asked for a tensor of such a file: whether its contents are to be sampled."""
    on_sampled: ClassVar[Callable[[str, str, TensorSample], None]] = staticmethod(lambda file, key, sample: None)
    original_folders: ClassVar[dict[str, str]] = {}
    """Copies of the model's folders in which weights were generated, and the folders themselves."""
    on_omitted: ClassVar[Callable[[int], None]] = staticmethod(lambda nbytes: None)
    """Called with the bytes that a real run writes in addition: those that were left out of a stream, minus the
    labels."""


def pieces_of(cell: Cell, start: int, end: int) -> list[Piece]:
    """The labelled byte ranges (pieces) in a range of a storage, relative to the range's start."""
    if cell.origins is None:
        return []
    return [
        (max(a, start) - start, min(b, end) - start, label) for a, b, label in cell.origins if a < end and b > start
    ]


def set_pieces(cell: Cell, start: int, end: int, pieces: Sequence[Piece], *, keep_existing: bool = False) -> None:
    """Replace the labelled byte ranges of a range; with ``keep_existing``, add them to the existing ones."""
    kept: list[Piece] = []
    for piece in cell.origins or ():
        a, b, label = piece
        if keep_existing or b <= start or a >= end:
            kept.append(piece)
            continue
        if a < start:
            kept.append((a, start, label))
        if b > end:
            kept.append((end, b, label))
    kept += [(start + a, min(start + b, end), label) for a, b, label in pieces]
    cell.origins = _merge_pieces(kept) if kept else None


def _merge_pieces(pieces: list[Piece]) -> list[Piece]:
    """Merge adjacent pieces with the same label."""
    pieces.sort()
    joined: list[Piece] = []
    for a, b, label in pieces:
        if joined and joined[-1][2] == label and joined[-1][1] >= a:
            joined[-1] = (joined[-1][0], max(b, joined[-1][1]), label)
        else:
            joined.append((a, b, label))
    return joined


def span_of(tensor: VirtualTensor) -> tuple[int, int]:
    """The byte range of its storage that a tensor spans."""
    size = tensor.element_size()
    start = int(tensor.storage_offset()) * size
    if not tensor.numel():
        return start, start
    reach = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + int(reach) * size


def is_dense(tensor: VirtualTensor) -> bool:
    """True if a tensor contains every byte of its span."""
    start, end = span_of(tensor)
    return end - start == tensor.numel() * tensor.element_size()


def pieces_in(tensor: VirtualTensor) -> list[Piece]:
    """The labelled byte ranges (pieces) in a tensor's span."""
    return pieces_of(tensor.cell, *span_of(tensor))


def set_labels(tensors: Iterable[tuple[VirtualTensor, Label]]) -> None:
    """Set new labels for tensors, storage by storage."""
    ranges: dict[int, tuple[Cell, list[Piece]]] = {}
    for tensor, label in tensors:
        start, end = span_of(tensor)
        if end > start:
            ranges.setdefault(id(tensor.cell), (tensor.cell, []))[1].append((start, end, label))
    for cell, pieces in ranges.values():
        if len(pieces) == 1:
            set_pieces(cell, pieces[0][0], pieces[0][1], [(0, pieces[0][1] - pieces[0][0], pieces[0][2])])
        else:
            cell.origins = _merge_pieces(pieces)


def copy_origins(target: VirtualTensor, source: VirtualTensor) -> None:
    """Copy the pieces of ``source`` to ``target``, whose contents were copied from it."""
    if source.cell.origins is None and target.cell.origins is None:
        return
    pieces = pieces_in(source)
    start, end = span_of(target)
    alike = source.numel() == target.numel() and (
        (source.is_contiguous() and target.is_contiguous())
        or (source.shape == target.shape and source.stride() == target.stride() and is_dense(source))
    )
    if alike:
        a, b = source.element_size(), target.element_size()
        pieces = [(first * b // a, last * b // a, label) for first, last, label in pieces] if a != b else pieces
        set_pieces(target.cell, start, end, pieces)
    else:
        set_pieces(target.cell, start, end, spread_labels(pieces, end - start), keep_existing=not is_dense(target))


def spread_labels(pieces: Sequence[Piece], nbytes: int) -> list[Piece]:
    """The pieces' labels, each spread over all ``nbytes``, for when their positions are not tracked."""
    return [(0, nbytes, label) for label in dict.fromkeys(label for _, _, label in pieces)]


def drop_shard_labels(pieces: Sequence[Piece]) -> list[Piece]:
    """The labels after a collective that combines the ranks' shards."""
    return [(a, b, (*label[:3], "", *label[4:])) for a, b, label in pieces]


def join_origins(target: VirtualTensor, sources: Sequence[VirtualTensor], *, concatenated: bool) -> None:
    """Combine the pieces of several sources into ``target``; ``concatenated``: one after the other."""
    if target.cell.origins is None and all(source.cell.origins is None for source in sources):
        return
    start, end = span_of(target)
    pieces: list[Piece] = []
    at = 0
    size = target.element_size()
    for source in sources:
        own = pieces_in(source)
        if concatenated and source.is_contiguous():
            old = source.element_size()
            pieces += [(at + a * size // old, at + b * size // old, label) for a, b, label in own]
            at += source.numel() * size
        else:
            pieces += spread_labels(own, end - start)
    set_pieces(target.cell, start, end, pieces, keep_existing=not is_dense(target))


def clear_labels(tensor: VirtualTensor) -> None:
    """Remove the labels of a tensor with new contents."""
    if tensor.cell.origins is not None and is_dense(tensor):
        set_pieces(tensor.cell, *span_of(tensor), [])


# -- in files ------------------------------------------------------------


def pieces_to_json(key: str, pieces: Sequence[Piece]) -> str:
    """A tensor's key and its labelled byte ranges as JSON, for storing in a file."""
    return json.dumps([key, [[a, b, *label[:4]] for a, b, label in pieces if label[0] in _SAVED_ORIGIN_KINDS]])


_SAVED_ORIGIN_KINDS = ("parameter", "buffer", "optimizer", "average", "rank", "base")


def embed_in_location(location: str, key: str, pieces: Sequence[Piece]) -> str:
    """The location that torch saves with a storage, prefixed with the storage's pieces."""
    return f"{_LOCATION_PREFIX}{pieces_to_json(key, pieces)}\n{location}"


def split_location(location: str) -> tuple[str, str | None]:
    """Split such a location into torch's location and the prefix."""
    if not location.startswith(_LOCATION_PREFIX):
        return location, None
    text, _, location = location.removeprefix(_LOCATION_PREFIX).partition("\n")
    return location, text


@functools.cache
def real_path(file: str) -> str:
    """The file in the folder that the program named, wherever gonogo's generated copy of it is."""
    folder, name = os.path.split(os.path.abspath(file))
    return os.path.join(os.path.realpath(Origins.original_folders.get(folder, folder)), name)


def record_read(tensor: Any, metadata: str | None, file: str, key: str = "") -> None:
    """Label a tensor that was read from a file, using the metadata stored with it."""
    cell = getattr(tensor, "cell", None)
    if not Origins.followed or cell is None:
        return
    if metadata is None:
        cell.origins = [(0, cell.nbytes, ("base", real_path(file), key, "", file, key))]
        Origins.on_unlabelled(file)
        return
    own, pieces = json.loads(metadata)
    cell.origins = [(a, b, (*label, file, own or key)) for a, b, *label in pieces]
    cell.origins = cell.origins or [(0, cell.nbytes, (*_BASE, file, own or key))]
    Origins.on_read(file)
