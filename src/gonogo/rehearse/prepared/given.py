"""What was prepared, given to a rehearsal: found beside the launch, and shown where the program looks for it."""

from __future__ import annotations

import os
from pathlib import Path

from gonogo.evidence.prepared import FOLDER, MANIFEST, read_prepared
from gonogo.finding import Text

_MOST = 6
_MADE = Text(
    "made by gonogo prepare ({folder}/), and taken for the real ones: {names}",
    "以下由 gonogo prepare 生成（{folder}/），排练时当作真实的：{names}",
)


def prepared_beside(folder: Path) -> Path | None:
    """The folder that ``gonogo prepare`` has made for launches typed here; None where there is none."""
    place = folder / FOLDER
    return place if read_prepared(place) is not None else None


def note_on(folder: Path) -> list[Text]:
    """What a rehearsal has to say of what was prepared: which names are not the real ones."""
    table = read_prepared(folder / FOLDER)
    if table is None:
        return []
    names = [*table.models, *table.datasets, *table.paths]
    shown = ", ".join(names[:_MOST]) + (f" (+{len(names) - _MOST})" if len(names) > _MOST else "")
    return [_MADE.format(folder=FOLDER, names=shown)] if names else []


def told_by(folder: Path) -> bytes:
    """What the table of the prepared folder says, for telling one preparation from another; empty without one."""
    place = prepared_beside(folder)
    return (place / MANIFEST).read_bytes() if place is not None else b""


def show(prepared: Path, files: Path) -> None:
    """Have what stands for paths that are not on this machine be seen there: links in the view's upper part, ``files``.

    What has come to lie there since then is left to be seen itself.
    """
    table = read_prepared(prepared)
    for path, place in (table.paths if table is not None else {}).items():
        if os.path.lexists(path):
            continue
        real = f"{os.path.realpath(os.path.dirname(path))}/{os.path.basename(path)}"
        link = Path(f"{files}{real}")
        if not link.is_symlink():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(prepared / place)
