"""Folders whose files a program finds itself.

Images with one folder per class, as torchvision's and timm's ``ImageFolder`` read them; files selected by suffix.
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
from gonogo.prepare.generated.data_files import encode_rows, png_image, wav_audio
from gonogo.prepare.required_inputs import RequiredInput
from gonogo.prepare.tested_paths import is_empty_folder_failure

IMAGE_FOLDER_FORMAT = "image-folder"
_IMAGE_FOLDER_CLASS = b"ImageFolder"
_SPLITS = ("train", "val", "validation", "test")
_CLASS_FOLDERS = ("class_a", "class_b")
_IMAGE_FOLDER_GENERATED = translated("a folder of generated images, one subfolder per class")
_ENDS = "txt|jsonl|json|parquet|csv|tsv"
_SUFFIX_PATTERN = re.compile(rf"(?<![\w.])\*?(\.(?:{_ENDS}))\b|\b({_ENDS}) files?\b")
_FILE_COUNT = 4
"""More than one, because some programs keep the first file for evaluation."""
_IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp"})
_AUDIO_SUFFIXES = frozenset({".wav", ".flac"})
_INSTALLED_SUFFIXES = frozenset({".dist-info", ".egg-info", ".egg-link", ".py", ".pyc", ".so"})
_TRAINING_PHASES = frozenset({"forward", "backward", "step"})


def infer_image_folder(run: Run, path: str, place: str = "") -> RequiredInput | None:
    """A missing folder as a folder of images, if the run's scripts read such folders; else None."""
    if os.path.splitext(path)[1] or not run.any_script_contains(_IMAGE_FOLDER_CLASS):
        return None
    wanted = RequiredInput(
        "data", path, place, path, "can-be-made", why=_IMAGE_FOLDER_GENERATED, format=IMAGE_FOLDER_FORMAT
    )
    wanted.rows = rows_for_two_steps(run)
    return wanted


def reads_only_image_folders(run: Run) -> bool:
    """Whether the run's scripts read folders of images and, as far as they show, no other datasets."""
    return run.any_script_contains(_IMAGE_FOLDER_CLASS) and not run.any_script_contains(b"load_dataset", b"webdataset")


def is_image_folder_missing(failure: Failure) -> bool:
    """Whether an ImageFolder dataset did not find its folder."""
    return any(frame.path.endswith("torchvision/datasets/folder.py") for frame in failure.frames)


def image_folder_files(place: str, path: str, rows: int) -> dict[str, bytes]:
    """The images by path, in splits with classes, unless the folder is itself a split."""
    content = png_image(320, 240)
    itself = os.path.basename(path.rstrip("/")) in _SPLITS
    found = {}
    for split in ("",) if itself else _SPLITS:
        count = rows if split in ("", "train") else min(rows, 64)
        for number in range(count):
            name = _CLASS_FOLDERS[number % len(_CLASS_FOLDERS)]
            found[os.path.join(place, split, name, f"{number:05}.png")] = content
    return found


def needs_other_suffix(failure: Failure | None, required_inputs: Sequence[RequiredInput]) -> bool:
    """Whether a generated folder lacked files with the suffix that the program looked for; they are generated next.

    The message ``No .txt files found in …`` shows it.
    """
    if (
        failure is None
        or not is_empty_folder_failure(failure)
        or (match := _SUFFIX_PATTERN.search(failure.message)) is None
    ):
        return False
    suffix = match[1] or f".{match[2]}"
    folders = [one for one in required_inputs if one.kind == "data" and one.path and one.state == "made"]
    folders = [one for one in folders if not os.path.splitext(one.path or "")[1] and one.suffix != suffix]
    for one in folders:
        one.suffix = suffix
    return bool(folders)


def rows_as_files_with_suffix(suffix: str, rows: Sequence[dict[str, Any]]) -> dict[str, bytes]:
    """The rows as several files with this suffix, by name."""
    return rows_as_files_for_pattern(f"*{suffix}", rows)


def unmatched_patterns(record: RankRecord, folder: Path) -> Iterator[str]:
    """The patterns with which the program looked for files before it failed and found none: ``data/tok4096/*.bin``.

    They are absolute paths with ``*`` only in the last part. Patterns of files that the program itself would have
    written are left out, and those of what an installer or a compiler writes (``*.dist-info``, ``*.so``).
    """
    for one in record.absent:
        if one.kind != "file" or one.asked.owner != "user" or one.written or one.phase in _TRAINING_PHASES or one.step:
            continue
        head, tail = os.path.split(os.path.normpath(folder / one.name))
        head = head.removesuffix(f"{os.sep}**")
        if os.path.splitext(tail)[1] in _INSTALLED_SUFFIXES:
            continue
        if "*" in tail and not glob.has_magic(head) and not glob.has_magic(tail.replace("*", "")):
            yield os.path.join(head, tail)


def missing_prefixes(record: RankRecord, folder: Path) -> Iterator[str]:
    """The absolute prefixes of pairs of files, ``PREFIX.bin`` and ``PREFIX.idx``, that the program looked for in vain.

    Megatron's data; files that the program itself would have written are left out.
    """
    for one in record.absent:
        if one.kind == "file" and one.name.endswith(".idx") and not one.written and not one.step:
            yield os.path.normpath(folder / one.name.removesuffix(".idx"))


def rows_as_files_for_pattern(pattern: str, rows: Sequence[dict[str, Any]]) -> dict[str, bytes]:
    """The rows as several files whose names match a pattern, by name; images or sounds if the suffix says so."""
    suffix = os.path.splitext(pattern)[1].lower()
    found = {}
    for number in range(_FILE_COUNT):
        name = os.path.basename(pattern).replace("*", f"{number:05}")
        if part := rows[number::_FILE_COUNT]:
            media = (
                png_image(320, 240) if suffix in _IMAGE_SUFFIXES else wav_audio() if suffix in _AUDIO_SUFFIXES else None
            )
            found[name] = media or encode_rows(name, part)
    return found
