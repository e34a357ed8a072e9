"""Writes the patch and, if requested, changes the user's files accordingly: all of them or none."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from pathlib import Path

from msgspec.structs import replace

from gonogo.finding import Report, UserError, translated
from gonogo.report.atomic import write_atomically
from gonogo.trials.cure.cure import CureResult

_CANNOT_WRITE = translated("can't write {path}: {why}")
_FILE_CHANGED = translated("{path} changed during the search; nothing was written: run the command again")
_PATCH_APPLIED = translated("applied to {count} file(s); undo with: (cd {folder} && patch -R -p1 < {patch})")
_NOT_APPLIED = translated("--apply: nothing was changed, because the patch was not verified as GO")
_NOTHING_TO_APPLY = translated("--apply: no file needs to be changed")


def check_patch_file(path: Path) -> None:
    """Raise UserError if the patch can't be written to ``path``; an older patch is replaced."""
    folder = path.parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        why = translated("not a file in a writable folder")
        raise UserError(_CANNOT_WRITE.format(path=path, why=why))


def write_patch(cure_result: CureResult, path: Path) -> Report:
    """Write the patch, if the cure has one; returns the report with the patch's path."""
    report = cure_result.report
    cure = report.cure
    assert cure is not None
    if not cure.patch:
        return replace(report, cure=replace(cure, patch_file=None))
    try:
        write_atomically(path, cure.patch.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise UserError(_CANNOT_WRITE.format(path=path, why=error.strerror or error)) from None
    return report


def apply_cure(cure_result: CureResult, report: Report) -> Report:
    """Change the files and say how to revert; a cure that is not proven changes nothing.

    Raises UserError if a file has changed since the cure was computed, or can't be written; every file is restored
    then.
    """
    cure = report.cure
    assert cure is not None
    if not cure.proven:
        return replace(report, notes=(*report.notes, _NOT_APPLIED)) if cure.needed else report
    if not cure_result.changed:
        return replace(report, notes=(*report.notes, _NOTHING_TO_APPLY))
    for path, (before, _) in cure_result.changed.items():
        if _read_bytes_or_none(path) != before:
            raise UserError(_FILE_CHANGED.format(path=path))
    written: list[Path] = []
    for path, (_, after) in cure_result.changed.items():
        target = Path(os.path.realpath(path))
        try:
            write_atomically(target, after, stat.S_IMODE(target.stat().st_mode))
        except OSError as error:
            for one in written:
                with contextlib.suppress(OSError):
                    write_atomically(
                        Path(os.path.realpath(one)), cure_result.changed[one][0], stat.S_IMODE(one.stat().st_mode)
                    )
            raise UserError(_CANNOT_WRITE.format(path=path, why=error.strerror or error)) from None
        written.append(path)
    note = _PATCH_APPLIED.format(
        count=len(written),
        folder=shlex.quote(cure.folder),
        patch=shlex.quote(os.path.abspath(cure.patch_file or "cure.patch")),
    )
    return replace(report, cure=replace(cure, applied=True), notes=(*report.notes, note))


def _read_bytes_or_none(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
