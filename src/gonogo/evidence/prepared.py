"""What ``gonogo prepare`` has made for a launch: the folder beside it, and its table of what stands for what."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

FOLDER = "gonogo-prepared"
MANIFEST = "prepared.json"
OF = "of"
"""Beside a folder that a rehearsal keeps: the file that names the folder in which the launch was typed."""
BUILDERS = frozenset({"json", "csv", "parquet", "text", "arrow", "pandas", "imagefolder", "audiofolder", "webdataset"})
"""What ``load_dataset`` takes by these names are forms of files, and no data sets of the hub."""

_PREPARED_PARENT: ContextVar[Path | None] = ContextVar("prepared_parent", default=None)

_ROW_SUFFIXES = (".txt", ".json", ".jsonl", ".csv", ".tsv", ".parquet")


def is_data_file_url(name: str) -> bool:
    """Whether a name is an address of the web at which a file of rows lies, by its suffix; a query asks a service."""
    parts = urlsplit(name) if name.startswith(("http://", "https://")) else None
    return parts is not None and not parts.query and parts.path.lower().endswith(_ROW_SUFFIXES)


class Prepared(msgspec.Struct, frozen=True):
    """By the name that the program gives: the folder or file that stands for it, relative to the table's folder."""

    models: dict[str, str] = {}
    """By the hub's name, in small letters."""
    datasets: dict[str, str] = {}
    """By the hub's name, in small letters."""
    paths: dict[str, str] = {}
    """By the whole path of something that is not on this machine."""
    addresses: dict[str, str] = {}
    """By the address of the web that a program fetches a file of rows from."""
    guessed: tuple[str, ...] = ()
    """Data sets, by name or whole path, whose columns are what the program seemed to read."""
    missing: tuple[str, ...] = ()
    """Whole paths of what the launch opens that is not here, and could not be made."""
    chosen: dict[str, str] = {}
    """By the name or path of a model: the published one that the user chose for it."""
    environment: str = ""
    """The file whose packages rehearsals have, from the table's folder; empty: what is installed."""
    as_of: str | None = None
    with_packages: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    """Packages that a rehearsal would stand in for, and that neither the project's lists nor the launch name."""
    source: str = ""
    """The folder of the project's own package, as an editable install puts it on the path; empty: there is none."""


@contextlib.contextmanager
def prepared_parent_override(parent: Path) -> Iterator[None]:
    """Within the block, what is prepared for launches lies in ``parent``, where the user has prepared none himself."""
    token = _PREPARED_PARENT.set(parent)
    try:
        yield
    finally:
        _PREPARED_PARENT.reset(token)


def parent_of_prepared(folder: Path) -> Path:
    """The folder in which the prepared one of launches typed in ``folder`` lies, or would lie."""
    elsewhere = _PREPARED_PARENT.get()
    return folder if elsewhere is None or (folder / FOLDER / MANIFEST).is_file() else elsewhere


def read_prepared(folder: Path) -> Prepared | None:
    """The table of a folder; None where there is none, or it is not one of this version's."""
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Prepared)
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return None
