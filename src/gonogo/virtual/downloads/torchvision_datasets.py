"""Data sets that torchvision downloads itself, offline: their files are generated in the published format.

torchvision checks each file by name and checksum before it downloads the archive. A missing file is generated
then, with the published number and size of images, all black, and all labels, so that the number of steps is the
run's own. Existing files are not changed.
"""

from __future__ import annotations

import functools
import os
import pickle
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from gonogo.finding import translated
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.values.assumptions import Assume

_GENERATED_ASSUMPTION = translated(
    "the files of {name} are generated: torchvision downloads them, and a rehearsal does not use the "
    "network; they have as many images as published, all of them black"
)
_CIFAR = {
    "cifar-10-batches-py": (
        "CIFAR-10",
        {**{f"data_batch_{number}": 10_000 for number in range(1, 6)}, "test_batch": 10_000},
        {"labels": 10},
        ("batches.meta", "label_names"),
    ),
    "cifar-100-python": (
        "CIFAR-100",
        {"train": 50_000, "test": 10_000},
        {"fine_labels": 100, "coarse_labels": 20},
        ("meta", "fine_label_names"),
    ),
}
"""By folder: name, rows per file, classes per kind of label, and the file and key of the class names."""
_CIFAR_BYTES = 3 * 32 * 32
_MNIST = ("MNIST", "FashionMNIST", "KMNIST")
_MNIST_ROWS = {"train": 60_000, "t10k": 10_000}
_MNIST_SIDE = 28
_MNIST_CLASSES = 10
_IMAGES_MAGIC, _LABELS_MAGIC = b"\0\0\x08\x03", b"\0\0\x08\x01"
"""The IDX format's magic numbers for unsigned bytes in three dimensions, and in one."""
_PROBED_BYTES = 4096
"""Bytes after a file's header that are read: five images, which are not all black in the published files."""


def install(assume: Assume) -> Callable[[], None]:
    """Have torchvision find what it would download; ``assume`` is called for each data set."""
    patches = Patches()
    for module in ("torchvision.datasets.cifar", "torchvision.datasets.mnist"):
        patches.on_undo(
            after_import(module, functools.partial(_patch_integrity_check, patches, functools.cache(assume)))
        )
    return patches.undo


class _PublishedFile(NamedTuple):
    """A file of a published data set as it is generated: a header, and zeros up to its size."""

    data_set: str
    head: bytes
    size: int

    def write(self, path: str) -> None:
        """Write it atomically: the ranks of a machine share the file, and any of them may be first."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        unfinished = f"{path}.{os.getpid()}"
        with open(unfinished, "wb") as file:
            file.write(self.head)
            file.truncate(self.size)  # a hole, which takes no space on disk
        os.replace(unfinished, path)

    def was_generated_at(self, path: str) -> bool:
        """Whether the file was generated, by this rank or another; the published one has images in it."""
        try:
            if os.path.getsize(path) != self.size:
                return False
            with open(path, "rb") as file:
                start = file.read(len(self.head) + _PROBED_BYTES)
        except OSError:
            return False
        return start.startswith(self.head) and not any(start[len(self.head) :])


def _patch_integrity_check(patches: Patches, assume: Assume, module: ModuleType) -> None:
    check = vars(module).get("check_integrity")
    if check is None:
        return

    @functools.wraps(check)
    def check_integrity(fpath: Any, *args: Any, **kwargs: Any) -> Any:
        path = os.path.abspath(fpath)
        published = _published_file(path)
        if published is not None:
            if not os.path.exists(path):
                published.write(path)
            if published.was_generated_at(path):
                assume(_GENERATED_ASSUMPTION.format(name=published.data_set), "generated")
                return True
        return check(fpath, *args, **kwargs)

    patches.set(module, "check_integrity", check_integrity)


def _published_file(path: str) -> _PublishedFile | None:
    """The published file with that path, or None."""
    folder, file = os.path.split(path)
    if (described := _CIFAR.get(os.path.basename(folder))) is not None:
        name, rows, labels, (names_file, names_key) = described
        if file == names_file:
            content: dict[str, Any] = {names_key: [f"class {number}" for number in range(next(iter(labels.values())))]}
        elif file in rows:
            content = {key: [row % classes for row in range(rows[file])] for key, classes in labels.items()}
            content["data"] = _BlackImages(rows[file])
        else:
            return None
        head = pickle.dumps(content, protocol=2)
        return _PublishedFile(name, head, len(head))
    name = os.path.basename(os.path.dirname(folder))
    split, _, kind = file.partition("-")
    if os.path.basename(folder) != "raw" or name not in _MNIST or split not in _MNIST_ROWS:
        return None
    count = _MNIST_ROWS[split]
    if kind == "labels-idx1-ubyte":
        head = _LABELS_MAGIC + count.to_bytes(4, "big") + bytes(row % _MNIST_CLASSES for row in range(count))
        return _PublishedFile(name, head, len(head))
    if kind != "images-idx3-ubyte":
        return None
    head = _IMAGES_MAGIC + b"".join(size.to_bytes(4, "big") for size in (count, _MNIST_SIDE, _MNIST_SIDE))
    return _PublishedFile(name, head, len(head) + count * _MNIST_SIDE * _MNIST_SIDE)


class _BlackImages:
    """A CIFAR file's array of images; its pickle only calls ``numpy.zeros``, so it takes a few bytes."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __reduce__(self) -> tuple[Any, ...]:
        zeros = sys.modules["numpy"].zeros  # which torchvision has imported: gonogo does not require it
        return zeros, ((self.count, _CIFAR_BYTES), "uint8")
