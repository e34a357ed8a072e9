"""All hazards' pages as one file that is read in milliseconds, with where each is met and the letters that show it.

A wheel has the file (``pages.msgpack``) in the place of the pages. In a checkout it is built of the pages, and of the
code that decides which logs a hazard is asked of, whenever one of them has changed (``build_cache.py``).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from gonogo.finding import translated
from gonogo.finding.errors import UserError
from gonogo.hazards.build_cache import fingerprint, kept
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.loader import load_hazard
from gonogo.hazards.page import HazardPage, read_page, read_shared

FOLDER = Path(__file__).parent
SHIPPED = FOLDER / "pages.msgpack"
SHARED = "_shared.toml"
"""The file of a theme's folder with what its pages share."""
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
"""What a hazard's name is like."""
HANDLERS = {
    "config": "in_config",
    "launch": "in_launch",
    "script": "in_script",
    "environment": "in_environment",
    "rehearsal": "in_rehearsal",
    "log": "in_log",
    "run": "in_guarded_run",
}
"""Where a hazard can be met, and what looks at it there."""
_SOURCE_FOLDERS = (FOLDER, FOLDER.parent / "evidence" / "log")
"""Folders whose files decide what the file says: pages, hazards' code, and what that searches logs with."""


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a hazard before its page is read. Letters are in lower case (``str.casefold``)."""

    stages: tuple[str, ...] = ()
    letters: tuple[str, ...] | None = ()
    """A log in which it is found has one of them; None where that can't be told, and any log is asked."""
    left: tuple[str, ...] = ()
    """A log that was cut, and of which it is possible (``ends_at``, ``traces``), has one of them."""


class Pack(msgspec.Struct, frozen=True):
    """The file: rows and pages by the hazards' names, which are in order."""

    rows: dict[str, Row]
    pages: dict[str, msgspec.Raw]


@cache
def pack() -> Pack:
    """The pages: of the wheel, of the cache, or made now. Raises UserError for a page that is not as it should be."""
    try:
        data = SHIPPED.read_bytes()
    except FileNotFoundError:
        data = kept("pages", fingerprint(*_SOURCE_FOLDERS), lambda: msgspec.msgpack.encode(make()))
    return msgspec.msgpack.decode(data, type=Pack)


def make() -> Pack:
    """The pack of the pages as they are in their folders now. Raises UserError for one that is not as it should be."""
    from gonogo.hazards.letters import fewest, literals_of_places, of_hazard

    hazards = [load_hazard(page) for page in read_pages()]
    rows: dict[str, Row] = {}
    for hazard in hazards:
        hazard.page.check(hazard.declares)
        stages = tuple(stages_of(hazard))
        letters = of_hazard(hazard) if "log" in stages else frozenset[str]()
        left = literals_of_places(hazard.ends_at) | {trace.casefold() for trace in hazard.traces}
        rows[hazard.name] = Row(stages, None if "" in letters else fewest(letters), fewest(left))
    encode = msgspec.msgpack.encode
    return Pack(rows, {hazard.name: msgspec.Raw(encode(hazard.page)) for hazard in hazards})


def stages_of(hazard: Hazard) -> list[str]:
    """The stages whose evidence the hazard looks at, in the order of :data:`HANDLERS`."""
    return [
        stage
        for stage, handler in HANDLERS.items()
        if getattr(type(hazard), handler) is not getattr(Hazard, handler) or (stage == "log" and hazard.refusal)
    ]


def read_pages(folder: Path = FOLDER) -> list[HazardPage]:
    """The pages of all themes' folders, by name. Raises UserError for one that is not as it should be."""
    found: dict[str, HazardPage] = {}
    shared: dict[Path, dict[str, Any]] = {}
    for path in sorted(folder.glob("*/[!_]*.md")):
        name, theme = path.stem.replace("_", "-"), path.parent.name
        if path.parent not in shared:
            file = path.parent / SHARED
            shared[path.parent] = read_shared(file.read_text(encoding="utf-8"), theme) if file.exists() else {}
        if not NAME.fullmatch(name):
            HazardPage(name, theme, {}, "", "").refuse("", translated("call it like zero3_moe_hang.md"))
        has_code = path.with_suffix(".py").exists()
        page = read_page(path.read_text(encoding="utf-8"), name, theme, has_code=has_code, shared=shared[path.parent])
        if name in found:
            page.refuse("", translated("{other} has the same name: rename one").format(other=found[name].file))
        found[name] = page
    for path in sorted(folder.glob("*/[!_]*.py")):
        if path.parent.name != "facts" and path.stem.replace("_", "-") not in found:
            raise UserError(
                translated(
                    "hazards/{theme}/{code}: there is no page {page} next to it: `gonogo hazards --new NAME "
                    "--code` creates both"
                ).format(theme=path.parent.name, code=path.name, page=f"{path.stem}.md")
            )
    return [found[name] for name in sorted(found)]
