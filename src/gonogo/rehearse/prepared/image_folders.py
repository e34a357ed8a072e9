"""A folder of pictures, one folder a class, as torchvision's and timm's ``ImageFolder`` read it."""

from __future__ import annotations

import os

from gonogo.evidence.rehearsal.record import Failure
from gonogo.evidence.run import Run
from gonogo.finding import Text
from gonogo.rehearse.prepared.columns import rows_of_two_batches
from gonogo.rehearse.prepared.data_files import picture
from gonogo.rehearse.prepared.wanted import Wanted

FORMAT = "image-folder"
_READS = b"ImageFolder"
_SPLITS = ("train", "val", "validation", "test")
_CLASSES = ("class_a", "class_b")
_MADE = Text("a folder of made pictures, a folder a class", "按类别分目录的生成图片")


def image_folder(run: Run, path: str, place: str = "") -> Wanted | None:
    """A folder that is not here, if the run reads folders of pictures and has no other reader of whole data sets."""
    if os.path.splitext(path)[1] or not run.says(_READS):
        return None
    wanted = Wanted("data", path, place, path, "can-be-made", why=_MADE, format=FORMAT)
    wanted.rows = rows_of_two_batches(run)
    return wanted


def is_alone(run: Run) -> bool:
    """Whether pictures in folders are all that the run's scripts read, so far as they tell."""
    return run.says(_READS) and not run.says(b"load_dataset", b"webdataset")


def is_asked_for(failure: Failure) -> bool:
    """Whether a reader of folders of pictures did not find the folder."""
    return any(frame.path.endswith("torchvision/datasets/folder.py") for frame in failure.frames)


def files_of(place: str, path: str, rows: int) -> dict[str, bytes]:
    """The pictures, by path: with splits above the classes, unless the folder is one of a split itself."""
    content = picture(320, 240)
    itself = os.path.basename(path.rstrip("/")) in _SPLITS
    found = {}
    for split in ("",) if itself else _SPLITS:
        count = rows if split in ("", "train") else min(rows, 64)
        for number in range(count):
            name = _CLASSES[number % len(_CLASSES)]
            found[os.path.join(place, split, name, f"{number:05}.png")] = content
    return found
