"""Packs all hazards' pages into one file that loads in milliseconds, with their stages and log literals.

A wheel has the file (``pages.msgpack``) instead of the pages. In a checkout it is built from the pages, and from the
code that decides which logs a hazard is checked for, whenever one of them changes (``build_cache.py``).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from gonogo.finding import UserError, translated
from gonogo.hazards.build_cache import fingerprint, load_or_build
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.loader import load_hazard
from gonogo.hazards.page import HazardPage, read_page, read_shared

FOLDER = Path(__file__).parent
SHIPPED = FOLDER / "pages.msgpack"
SHARED = "_shared.toml"
"""The file with values shared by the pages of a theme's folder."""
NAME_PATTERN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
"""The syntax of a hazard's name."""
HANDLERS = {
    "config": "in_config",
    "launch": "in_launch",
    "script": "in_script",
    "environment": "in_environment",
    "rehearsal": "in_rehearsal",
    "log": "in_log",
    "run": "in_guarded_run",
}
"""The stages at which a hazard may be found, with the handlers for each."""
_SOURCE_FOLDERS = (FOLDER, FOLDER.parent / "evidence" / "log")
"""Folders whose files determine the contents: pages, hazards' code, and the code that searches logs."""


class HazardRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a hazard without loading its page. ``letters`` are in lower case (``str.casefold``)."""

    stages: tuple[str, ...] = ()
    letters: tuple[str, ...] | None = ()
    """Any log that shows the hazard contains one of them; None if there are none, and every log is checked."""
    left: tuple[str, ...] = ()
    """Any truncated log in which it is possible (``ends_at``, ``traces``) contains one of them."""


class HazardPack(msgspec.Struct, frozen=True):
    """The contents of the pack file: index rows and pages, sorted by the hazards' names."""

    rows: dict[str, HazardRow]
    pages: dict[str, msgspec.Raw]


@cache
def load_pack() -> HazardPack:
    """The pack of all pages: from the wheel, from the cache, or built now. Raises UserError for an invalid page."""
    try:
        data = SHIPPED.read_bytes()
    except FileNotFoundError:
        data = load_or_build("pages", fingerprint(*_SOURCE_FOLDERS), lambda: msgspec.msgpack.encode(build_pack()))
    return msgspec.msgpack.decode(data, type=HazardPack)


def build_pack() -> HazardPack:
    """Build the pack from the current pages. Raises UserError for an invalid one."""
    from gonogo.hazards.letters import literals_of_hazard, longer_fragments, without_redundant_literals

    hazards = [load_hazard(page) for page in read_pages()]
    rows: dict[str, HazardRow] = {}
    for hazard in hazards:
        hazard.page.check_head(hazard.declares)
        stages = tuple(stages_of(hazard))
        letters = literals_of_hazard(hazard) if "log" in stages else frozenset[str]()
        left = longer_fragments(hazard.ends_at) | {trace.casefold() for trace in hazard.traces}
        rows[hazard.name] = HazardRow(
            stages, None if "" in letters else without_redundant_literals(letters), without_redundant_literals(left)
        )
    encode = msgspec.msgpack.encode
    return HazardPack(rows, {hazard.name: msgspec.Raw(encode(hazard.page)) for hazard in hazards})


def stages_of(hazard: Hazard) -> list[str]:
    """The stages whose evidence the hazard checks, in the order of :data:`HANDLERS`."""
    return [
        stage
        for stage, handler in HANDLERS.items()
        if getattr(type(hazard), handler) is not getattr(Hazard, handler) or (stage == "log" and hazard.refusal)
    ]


def read_pages(folder: Path = FOLDER) -> list[HazardPage]:
    """The pages of all themes' folders, sorted by name. Raises UserError for an invalid one."""
    found: dict[str, HazardPage] = {}
    shared: dict[Path, dict[str, Any]] = {}
    for path in sorted(folder.glob("*/[!_]*.md")):
        name, theme = path.stem.replace("_", "-"), path.parent.name
        if path.parent not in shared:
            file = path.parent / SHARED
            shared[path.parent] = read_shared(file.read_text(encoding="utf-8"), theme) if file.exists() else {}
        if not NAME_PATTERN.fullmatch(name):
            HazardPage(name, theme, {}, "", "").refuse("", translated("name the page like zero3_moe_hang.md"))
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
