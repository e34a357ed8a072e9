"""Folders that a program goes through itself, for what lies in them.

Pictures, one folder a class, as torchvision's and timm's ``ImageFolder`` read them; files by how their names end.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gonogo.evidence.rehearsal.record import Failure, RankRecord
from gonogo.evidence.run import Run
from gonogo.finding import translated
from gonogo.prepare.columns import rows_for_two_steps
from gonogo.prepare.generated.data_files import encode_rows, picture, sound
from gonogo.prepare.required_inputs import RequiredInput
from gonogo.prepare.tested_paths import found_no_files

IMAGE_FOLDER_FORMAT = "image-folder"
_IMAGE_FOLDER_CLASS = b"ImageFolder"
_SPLITS = ("train", "val", "validation", "test")
_CLASSES = ("class_a", "class_b")
_MADE = translated("a folder of generated images, one subfolder per class")
_ENDS = "txt|jsonl|json|parquet|csv|tsv"
_SUFFIX = re.compile(rf"(?<![\w.])\*?(\.(?:{_ENDS}))\b|\b({_ENDS}) files?\b")
_FILES = 4
"""Some programs keep the first file for evaluation."""
_IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp"})
_AUDIO_SUFFIXES = frozenset({".wav", ".flac"})
_TRAINING = frozenset({"forward", "backward", "step"})


def image_folder(run: Run, path: str, place: str = "") -> RequiredInput | None:
    """A folder that is not here, if the run reads folders of pictures and has no other reader of whole data sets."""
    if os.path.splitext(path)[1] or not run.says(_IMAGE_FOLDER_CLASS):
        return None
    wanted = RequiredInput("data", path, place, path, "can-be-made", why=_MADE, format=IMAGE_FOLDER_FORMAT)
    wanted.rows = rows_for_two_steps(run)
    return wanted


def is_alone(run: Run) -> bool:
    """Whether pictures in folders are all that the run's scripts read, so far as they tell."""
    return run.says(_IMAGE_FOLDER_CLASS) and not run.says(b"load_dataset", b"webdataset")


def is_image_folder_missing(failure: Failure) -> bool:
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


def needs_other_suffix(failure: Failure | None, required_inputs: Sequence[RequiredInput]) -> bool:
    """Whether a made folder lacked the files that the program looked for by their names' end; now it is to have them.

    ``No .txt files found in …`` says so.
    """
    if failure is None or not found_no_files(failure) or (match := _SUFFIX.search(failure.message)) is None:
        return False
    suffix = match[1] or f".{match[2]}"
    folders = [one for one in required_inputs if one.kind == "data" and one.path and one.state == "made"]
    folders = [one for one in folders if not os.path.splitext(one.path or "")[1] and one.suffix != suffix]
    for one in folders:
        one.suffix = suffix
    return bool(folders)


def files_by_suffix(suffix: str, rows: Sequence[dict[str, Any]]) -> dict[str, bytes]:
    """The rows as some files of a kind, by name."""
    return files_by_pattern(f"*{suffix}", rows)


def unmatched_patterns(record: RankRecord, folder: Path) -> Iterator[str]:
    """The patterns by which the program looked for files before it failed, and found none: ``data/tok4096/*.bin``.

    Whole paths, with ``*`` in the last part alone. What the program itself would have written there is none of it.
    """
    for one in record.absent:
        if one.kind != "file" or one.asked.owner != "user" or one.written or one.phase in _TRAINING or one.step:
            continue
        head, tail = os.path.split(os.path.normpath(folder / one.name))
        head = head.removesuffix(f"{os.sep}**")
        if "*" in tail and not glob.has_magic(head) and not glob.has_magic(tail.replace("*", "")):
            yield os.path.join(head, tail)


def files_by_pattern(pattern: str, rows: Sequence[dict[str, Any]]) -> dict[str, bytes]:
    """The rows as some files whose names a pattern matches, by name; pictures and sounds by how it ends."""
    suffix = os.path.splitext(pattern)[1].lower()
    found = {}
    for number in range(_FILES):
        name = os.path.basename(pattern).replace("*", f"{number:05}")
        if part := rows[number::_FILES]:
            media = picture(320, 240) if suffix in _IMAGE_SUFFIXES else sound() if suffix in _AUDIO_SUFFIXES else None
            found[name] = media or encode_rows(name, part)
    return found
