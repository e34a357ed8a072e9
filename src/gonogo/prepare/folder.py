"""Writes the folder of generated files: all or nothing, and never over files of the user."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from gonogo.evidence.prepared import FOLDER, MANIFEST, PreparedStandIns, read_prepared
from gonogo.finding import UserError, translated

_KEPT_FOLDERS = ("models", "data", "media")
"""The subfolders to which a table's names point; packages belong to a single launch."""
_INPUT_TABLES = ("models", "datasets", "paths", "addresses")
_TABLE_FIELDS = (*_INPUT_TABLES, "shapes", "spelled", "chosen")
_NOT_OURS = translated(
    "{folder} exists but was not created by gonogo prepare (it has no {manifest}): move it away, or prepare elsewhere"
)
_NOT_UTF_8 = translated("a path that it would contain is not valid UTF-8")
_CANNOT_WRITE = translated("can't write to {folder}: {why}")


def check_prepared_folder(parent: Path) -> Path:
    """The folder to write. Raises UserError if something else has its name or it can't be written."""
    folder = parent / FOLDER
    if os.path.lexists(folder) and (folder.is_symlink() or not (folder / MANIFEST).is_file()):
        raise UserError(_NOT_OURS.format(folder=FOLDER, manifest=MANIFEST))
    if not os.access(parent, os.W_OK):
        why = translated("its parent folder is not writable")
        raise UserError(_CANNOT_WRITE.format(folder=FOLDER, why=why))
    return folder


def write_prepared_folder(parent: Path, files: Mapping[str, bytes], table: PreparedStandIns) -> Path:
    """Write the files (by relative path) and their table into the folder, replacing an earlier one.

    What an earlier launch needed and this one does not name is kept, so that one folder can serve several launches.
    The folder is replaced atomically. Raises UserError if it can't be written.
    """
    earlier = read_prepared(check_prepared_folder(parent)) or PreparedStandIns()
    return _write_folder(parent, files, table, _merge_names(table, earlier, table), _KEPT_FOLDERS)


def add_to_prepared_folder(parent: Path, files: Mapping[str, bytes], table: PreparedStandIns) -> Path:
    """Like :func:`write_prepared_folder`, for files of no launch: keeps an earlier launch's packages."""
    folder = check_prepared_folder(parent)
    earlier = read_prepared(folder) or PreparedStandIns()
    kept = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return _write_folder(parent, files, table, _merge_names(earlier, earlier, table), kept)


def _merge_names(base_table: PreparedStandIns, earlier: PreparedStandIns, table: PreparedStandIns) -> PreparedStandIns:
    """``base_table`` with the names of an earlier and of a new table."""
    return msgspec.structs.replace(
        base_table, **{name: getattr(earlier, name) | getattr(table, name) for name in _TABLE_FIELDS}
    )


def _write_folder(
    parent: Path,
    files: Mapping[str, bytes],
    prepared: PreparedStandIns,
    table: PreparedStandIns,
    kept_kinds: Iterable[str],
) -> Path:
    """Write the folder: these files, and the kept kinds of an earlier one except those that ``prepared`` replaces."""
    folder = parent / FOLDER
    try:
        manifest = msgspec.json.encode(table)
    except UnicodeEncodeError as error:
        raise UserError(_CANNOT_WRITE.format(folder=FOLDER, why=_NOT_UTF_8)) from error
    anew = {place for name in _INPUT_TABLES for place in getattr(prepared, name).values()}
    try:
        partial = Path(tempfile.mkdtemp(prefix=f".{FOLDER}-", dir=parent))
    except OSError as error:
        raise UserError(_CANNOT_WRITE.format(folder=FOLDER, why=error.strerror or str(error))) from error
    try:
        partial.chmod(0o755)
        for kind in kept_kinds:
            if (folder / kind).is_dir():
                shutil.copytree(folder / kind, partial / kind, copy_function=os.link)
            elif (folder / kind).is_file():
                os.link(folder / kind, partial / kind)
        for place in anew:  # a model's folder must not keep files of another model
            shutil.rmtree(partial.joinpath(*Path(place).parts[:2]), ignore_errors=True)
        for name, content in {**files, ".gitignore": b"*\n", MANIFEST: manifest}.items():
            path = partial / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)  # unlink first: it may be a hard link to the earlier folder's file
            path.write_bytes(content)
            if content.startswith(b"#!"):
                path.chmod(0o755)
        _replace_folder(partial, folder)
    except OSError as error:
        raise UserError(_CANNOT_WRITE.format(folder=FOLDER, why=error.strerror or str(error))) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _replace_folder(partial_folder: Path, folder: Path) -> None:
    """Replace the earlier folder; restore it if that fails."""
    old = partial_folder.with_name(f"{partial_folder.name}-old")
    replaces = folder.exists()
    if replaces:
        folder.rename(old)
    try:
        partial_folder.rename(folder)
    except OSError:
        if replaces:
            with contextlib.suppress(OSError):
                old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)
