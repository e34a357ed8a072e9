"""``--keep DIR``: the raw records, plans and logs of a rehearsal, and the files that its programs changed."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gonogo.confinement.trees import copy_with_holes, data_segments
from gonogo.confinement.untrusted_files import read_untrusted
from gonogo.evidence.paths import exists, is_folder
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import UserError, translated
from gonogo.finding.redaction import Redactor
from gonogo.rehearse.workers.workers import Assignment

_MAX_TEXT_FILE_BYTES = 16 << 20
"""In larger files only known secrets are masked, not everything that has the format of a secret."""
_CHUNK_BYTES = 4 << 20
_CHUNK_OVERLAP_BYTES = 128 << 10
"""No environment variable can be longer, so that no secret is missed between two blocks."""


def check_keep_folder(folder: Path | None) -> None:
    """Raise UserError for a folder that isn't empty, or for a file."""
    if folder is None or not exists(folder):
        return
    if not is_folder(folder) or any(folder.iterdir()):
        raise UserError(translated("--keep {folder}: give a new or empty folder").format(folder=folder))


def keep_records(folder: Path, record: RehearsalRecord, assignments: Sequence[Assignment], redactor: Redactor) -> None:
    """Write ``rehearsal.json``, the plan, record, progress and output of each rank, and the files that were written.

    ``changed/`` mirrors the root folder; ``deleted.txt`` lists what was deleted or replaced. ``record`` must be free
    of secrets; in everything else they are masked.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rehearsal.json").write_bytes(msgspec.json.format(msgspec.json.encode(record)))
        for assignment in assignments:
            own = folder / f"rank-{assignment.plan.rank}"
            own.mkdir()
            for path, name in ((assignment.plan_file, "plan.json"), (assignment.log, "output.log")):
                _copy_redacted(path, own / name, redactor)
            for name in ("record.json", "progress.jsonl"):
                with contextlib.suppress(OSError):  # the program may have put a link there
                    _copy_redacted(assignment.folder / name, own / name, redactor)
        worlds = {assignment.world.tree: None for assignment in assignments if assignment.world is not None}
        for tree in worlds:
            _copy_changes(tree, folder / "changed", redactor)
    except OSError as error:
        raise UserError(translated("--keep {folder}: {why}").format(folder=folder, why=error.strerror)) from None


def _copy_changes(tree: Path, target: Path, redactor: Redactor) -> None:
    """Copy what a world's programs wrote: sparse files and links as such."""
    gone = []
    for folder, names, files in os.walk(tree):
        for name in [*files, *(name for name in names if os.path.islink(os.path.join(folder, name)))]:
            path = os.path.join(folder, name)
            inside = redactor.text(os.path.relpath(path, tree))
            state = os.lstat(path)
            if stat.S_ISCHR(state.st_mode):  # overlayfs marks a deletion this way
                gone.append(f"/{inside}\n")
            elif stat.S_ISLNK(state.st_mode) or stat.S_ISREG(state.st_mode):
                place = target / inside
                place.parent.mkdir(parents=True, exist_ok=True)
                if stat.S_ISLNK(state.st_mode):
                    place.symlink_to(redactor.text(os.readlink(path)))
                else:
                    copy_with_holes(path, place)
                    _mask(place, redactor)
    if gone:
        target.mkdir(parents=True, exist_ok=True)
        (target.parent / "deleted.txt").write_text("".join(sorted(gone)), encoding="utf-8", errors="surrogateescape")


def _mask(path: Path, redactor: Redactor) -> None:
    """Mask secrets in a file: a program may get them from the launch script or from a project file."""
    with open(path, "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= _MAX_TEXT_FILE_BYTES:
            data = file.read()
            if b"\0" not in data:
                masked = redactor.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
            else:
                masked = redactor.data(data)
            if masked != data:
                file.seek(0)
                file.truncate()
                file.write(masked)
            return
        for start, end in data_segments(file.fileno(), size):
            for at in range(start, end, _CHUNK_BYTES):
                data = os.pread(file.fileno(), min(_CHUNK_BYTES + _CHUNK_OVERLAP_BYTES, end - at), at)
                masked = redactor.data(data, formats=False)
                if masked != data:
                    os.pwrite(file.fileno(), masked, at)


def _copy_redacted(source: Path, target: Path, redactor: Redactor) -> None:
    """Copy a file with secrets masked. It is untrusted, because programs may have written it."""
    data = read_untrusted(source)
    if data is not None:
        text = redactor.text(data.decode("utf-8", "surrogateescape"))
        target.write_bytes(text.encode("utf-8", "surrogateescape"))
