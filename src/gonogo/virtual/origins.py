"""Where the bytes of storages come from, followed through everything that copies: only while a run's life is rehearsed.

A storage has pieces: ranges of bytes, each with a label that says which state of the program it was, or which file and
key it was read from. What computes new values leaves no label.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from gonogo.virtual.memory.tracking import Cell
    from gonogo.virtual.tensor import VirtualTensor

Label = tuple[str, ...]
"""(kind, slot, name, part), and of what was read (…, file, key). ``part`` is the place of a rank's own part in a tensor
that is divided; empty of a whole one."""
Piece = tuple[int, int, Label]
"""(first byte, byte after the last, label)."""
_LOCATION_PREFIX = "gonogo-origin:"
_BASE: Label = ("base", "", "", "")
Described = tuple[str, tuple[int, ...], str, list[Piece]]
"""A tensor in a file: key, shape, dtype, pieces."""


class Origins:
    """Whether origins are followed, and who is told of what is saved and read. One a process, as the mode is."""

    followed: ClassVar[bool] = False
    on_saved: ClassVar[Callable[[str, list[Described]], None]] = staticmethod(lambda file, tensors: None)
    on_read: ClassVar[Callable[[str], None]] = staticmethod(lambda file: None)
    on_unlabelled: ClassVar[Callable[[str], None]] = staticmethod(lambda file: None)
    """Told of a file whose tensors say nothing of where they come from."""
    on_omitted: ClassVar[Callable[[int], None]] = staticmethod(lambda nbytes: None)
    """Told of how many bytes more a real run writes: what a stream was not given, without what the labels take."""


def pieces_of(cell: Cell, start: int, end: int) -> list[Piece]:
    """The pieces in a range of a storage, counted from the range's start."""
    if cell.origins is None:
        return []
    return [
        (max(a, start) - start, min(b, end) - start, label) for a, b, label in cell.origins if a < end and b > start
    ]


def put(cell: Cell, start: int, end: int, pieces: Sequence[Piece], *, keep_existing: bool = False) -> None:
    """Say what a range holds now, in place of what it held; ``keep_existing``: as well as that."""
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
    cell.origins = _joined(kept) if kept else None


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Neighbours of one label are one piece."""
    pieces.sort()
    joined: list[Piece] = []
    for a, b, label in pieces:
        if joined and joined[-1][2] == label and joined[-1][1] >= a:
            joined[-1] = (joined[-1][0], max(b, joined[-1][1]), label)
        else:
            joined.append((a, b, label))
    return joined


def span_of(tensor: VirtualTensor) -> tuple[int, int]:
    """The bytes of its storage that a tensor reaches over."""
    size = tensor.element_size()
    start = int(tensor.storage_offset()) * size
    if not tensor.numel():
        return start, start
    reach = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + int(reach) * size


def is_dense(tensor: VirtualTensor) -> bool:
    """Whether a tensor has every byte of its span."""
    start, end = span_of(tensor)
    return end - start == tensor.numel() * tensor.element_size()


def pieces_in(tensor: VirtualTensor) -> list[Piece]:
    """The pieces of a tensor's span."""
    return pieces_of(tensor.cell, *span_of(tensor))


def set_labels(tensors: Iterable[tuple[VirtualTensor, Label]]) -> None:
    """Give tensors new labels, storage by storage."""
    ranges: dict[int, tuple[Cell, list[Piece]]] = {}
    for tensor, label in tensors:
        start, end = span_of(tensor)
        if end > start:
            ranges.setdefault(id(tensor.cell), (tensor.cell, []))[1].append((start, end, label))
    for cell, pieces in ranges.values():
        if len(pieces) == 1:
            put(cell, pieces[0][0], pieces[0][1], [(0, pieces[0][1] - pieces[0][0], pieces[0][2])])
        else:
            cell.origins = _joined(pieces)


def copy_origins(target: VirtualTensor, source: VirtualTensor) -> None:
    """``target`` was given the contents of ``source``."""
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
        put(target.cell, start, end, pieces)
    else:
        put(target.cell, start, end, whole(pieces, end - start), keep_existing=not is_dense(target))


def whole(pieces: Sequence[Piece], nbytes: int) -> list[Piece]:
    """The pieces' labels, each over so many bytes: where which of them lies is not followed."""
    return [(0, nbytes, label) for label in dict.fromkeys(label for _, _, label in pieces)]


def drop_shard_labels(pieces: Sequence[Piece]) -> list[Piece]:
    """The labels after a collective, by which ranks put together what each had a part of."""
    return [(a, b, (*label[:3], "", *label[4:])) for a, b, label in pieces]


def join_origins(target: VirtualTensor, sources: Sequence[VirtualTensor], *, concatenated: bool) -> None:
    """``target`` was made of the contents of several; ``concatenated``: one after the other."""
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
            pieces += whole(own, end - start)
    put(target.cell, start, end, pieces, keep_existing=not is_dense(target))


def clear(tensor: VirtualTensor) -> None:
    """The tensor was given new contents."""
    if tensor.cell.origins is not None and is_dense(tensor):
        put(tensor.cell, *span_of(tensor), [])


# -- in files ------------------------------------------------------------


def as_json(key: str, pieces: Sequence[Piece]) -> str:
    """A tensor's key and pieces, to be kept in a file."""
    return json.dumps([key, [[a, b, *label[:4]] for a, b, label in pieces if label[0] in _KEPT]])


_KEPT = ("parameter", "buffer", "optimizer", "average", "rank", "base")


def embed_in_location(location: str, key: str, pieces: Sequence[Piece]) -> str:
    """The location that torch writes with a storage, with what it holds put before it."""
    return f"{_LOCATION_PREFIX}{as_json(key, pieces)}\n{location}"


def split_location(location: str) -> tuple[str, str | None]:
    """The location without that, and that."""
    if not location.startswith(_LOCATION_PREFIX):
        return location, None
    told, _, location = location.removeprefix(_LOCATION_PREFIX).partition("\n")
    return location, told


def record_read(tensor: Any, metadata: str | None, file: str, key: str = "") -> None:
    """A tensor with a storage of its own was read from a file, with what the file tells of it."""
    cell = getattr(tensor, "cell", None)
    if not Origins.followed or cell is None:
        return
    if metadata is None:
        cell.origins = [(0, cell.nbytes, (*_BASE, file, key))]
        Origins.on_unlabelled(file)
        return
    own, pieces = json.loads(metadata)
    cell.origins = [(a, b, (*label, file, own or key)) for a, b, *label in pieces]
    cell.origins = cell.origins or [(0, cell.nbytes, (*_BASE, file, own or key))]
    Origins.on_read(file)
