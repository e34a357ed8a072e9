"""The folder that ``gonogo prepare`` creates beside a launch, and its table of what stands in for what."""

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
"""A file beside a folder that a rehearsal keeps: it names the folder in which the launch was typed."""
BUILDERS = frozenset({"json", "csv", "parquet", "text", "arrow", "pandas", "imagefolder", "audiofolder", "webdataset"})
"""Names that ``load_dataset`` accepts for file formats, rather than data sets of the Hub."""

GENERATED_STATE = "gonogo-generated"
"""A record of a checkpoint in ``torch.save``'s format that gonogo prepare has generated, which has no weights."""

_PREPARED_PARENT: ContextVar[Path | None] = ContextVar("prepared_parent", default=None)

_ROW_SUFFIXES = (".txt", ".json", ".jsonl", ".csv", ".tsv", ".parquet")


def is_data_file_url(name: str) -> bool:
    """Whether a name is a URL of a data file, judged by its suffix; URLs with a query don't count."""
    parts = urlsplit(name) if name.startswith(("http://", "https://")) else None
    return parts is not None and not parts.query and parts.path.lower().endswith(_ROW_SUFFIXES)


class PreparedStandIns(msgspec.Struct, frozen=True):
    """Maps each model or data set name in the program to the generated files that stand in for it."""

    models: dict[str, str] = {}
    """By the name on the Hub, in lower case."""
    datasets: dict[str, str] = {}
    """By the name on the Hub, in lower case."""
    paths: dict[str, str] = {}
    """By the absolute path of something that doesn't exist on this machine."""
    addresses: dict[str, str] = {}
    """By the URL from which a program downloads a data file."""
    guessed: tuple[str, ...] = ()
    """Data sets, by name or absolute path, whose columns were inferred from how the program uses them."""
    shapes: dict[str, str] = {}
    """By absolute path: the dtype and shape of generated arrays, as ``float32[4, ?37]``, where ``?`` marks a size that
    the program doesn't determine; of tables that pandas reads, the columns."""
    missing: tuple[str, ...] = ()
    """Absolute paths that the launch opens, that don't exist here and couldn't be generated."""
    spelled: dict[str, str] = {}
    """By the name of a model or data set in lower case: the name as the program writes it."""
    chosen: dict[str, str] = {}
    """By the name or path of a model: the published model that the user chose for it."""
    environment: str = ""
    """The environment file whose packages rehearsals use, relative to the table; empty: the installed packages."""
    as_of: str | None = None
    with_packages: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    """Packages that a rehearsal would replace by stand-ins, and that neither the project nor the launch lists."""
    source: str = ""
    """The folder that an editable install of the project's own package adds to the path; empty if there is none."""


@contextlib.contextmanager
def prepared_parent_override(parent: Path) -> Iterator[None]:
    """Within the block, look for prepared folders in ``parent``, unless the user has prepared one."""
    token = _PREPARED_PARENT.set(parent)
    try:
        yield
    finally:
        _PREPARED_PARENT.reset(token)


def parent_of_prepared(folder: Path) -> Path:
    """The folder that contains, or would contain, the prepared folder of launches typed in ``folder``."""
    elsewhere = _PREPARED_PARENT.get()
    return folder if elsewhere is None or (folder / FOLDER / MANIFEST).is_file() else elsewhere


def is_prepared_automatically() -> bool:
    """Whether what can be generated is generated in this call, so that ``gonogo prepare`` would add nothing."""
    return _PREPARED_PARENT.get() is not None


def read_prepared(folder: Path) -> PreparedStandIns | None:
    """The table of a folder; None if there is none, or if it isn't compatible with this version."""
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=PreparedStandIns)
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return None
