"""A hazard's page and the list of hazards, for ``gonogo explain`` and ``gonogo hazards``."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from typing import Any, TextIO

from gonogo.finding import UserError, translated
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.index import all_hazards, hazard_of, index_rows
from gonogo.hazards.pack import HANDLERS, stages_of


def find_hazard(name: str) -> Hazard:
    """The hazard with that current or former name. Raises UserError, with similar names, if there is none."""
    if (hazard := hazard_of(name)) is not None:
        return hazard
    for hazard in all_hazards():
        if name in hazard.formerly:
            return hazard
    hazards = list(index_rows())
    wanted = name.lower().replace("_", "-")
    near = [one for one in hazards if wanted and wanted in one] or difflib.get_close_matches(wanted, hazards, 4, 0.5)
    if near:
        hint = translated("did you mean {near}?").format(near=", ".join(near[:6]))
    else:
        hint = translated("gonogo hazards lists them")
    raise UserError(translated("{name}: no hazard with this name; {hint}").format(name=repr(name), hint=hint))


def filter_hazards(theme: str | None, stage: str | None) -> list[Hazard]:
    """The hazards of a theme and a stage, each optional. Raises UserError if either is unknown."""
    hazards = list(all_hazards())
    themes = sorted({hazard.theme for hazard in hazards})
    for option, value, known in (("--theme", theme, themes), ("--stage", stage, list(HANDLERS))):
        if value is not None and value not in known:
            raise UserError(
                translated("{option} {value}: must be one of {known}").format(
                    option=option, value=repr(value), known=", ".join(known)
                )
            )
    return [
        hazard for hazard in hazards if theme in (None, hazard.theme) and (stage is None or stage in stages_of(hazard))
    ]


def hazard_markdown(hazard: Hazard, language: str) -> str:
    """The hazard's page as Markdown: its title, its name, then the sections."""
    text = hazard.page.text(language)
    title, _, body = text.partition("\n")
    return f"# {title}\n\n`{hazard.name}`\n{body}\n"


def hazard_to_json(hazard: Hazard, language: str) -> dict[str, Any]:
    """The page as a JSON object: name, theme, title, stages, sections by their heading, sources."""
    page = hazard_markdown(hazard, language)
    sections = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    return {
        "schema": "gonogo.hazard/1",
        "name": hazard.name,
        "theme": hazard.theme,
        "title": hazard.title.in_language(language),
        "stages": stages_of(hazard),
        "page": page,
        "sections": {heading: body.strip() for heading, body in zip(sections[1::2], sections[2::2], strict=True)},
        "sources": list(hazard.sources),
    }


def write_page(stream: TextIO, hazard: Hazard, format_name: str, language: str) -> None:
    """Write a hazard's page: formatted if the stream is a terminal, otherwise as Markdown or JSON."""
    if format_name == "json":
        stream.write(json.dumps(hazard_to_json(hazard, language), ensure_ascii=False, indent=2) + "\n")
    elif format_name == "text" and stream.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console(file=stream).print(Markdown(hazard_markdown(hazard, language)))
    else:
        stream.write(hazard_markdown(hazard, language))


def write_list(stream: TextIO, hazards: Sequence[Hazard], format_name: str, language: str) -> None:
    """Write the list of hazards: a table sorted by theme, Markdown, or JSON."""
    if format_name == "json":
        listed = [
            {key: value for key, value in hazard_to_json(hazard, language).items() if key not in ("page", "sections")}
            for hazard in hazards
        ]
        document = {"schema": "gonogo.hazards/1", "hazards": listed}
        stream.write(json.dumps(document, ensure_ascii=False, indent=2) + "\n")
        return
    by_theme = sorted(hazards, key=lambda hazard: (hazard.theme, hazard.name))
    if format_name == "markdown":
        for hazard in by_theme:
            stream.write(f"- `{hazard.name}` ({hazard.theme}): {hazard.title.in_language(language)}\n")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text as Styled

    terminal = stream.isatty()
    console = Console(file=stream, width=None if terminal else 160, force_terminal=terminal, highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    longest = max((len(hazard.name) for hazard in hazards), default=0)
    for heading, at_least in (
        (translated("theme"), None),
        (translated("hazard"), longest),  # not wrapped, so that the name can be copied
        (translated("shows up in"), None),
        (translated("description"), None),
    ):
        table.add_column(heading.in_language(language), overflow="fold", min_width=at_least)
    for hazard in by_theme:
        stages = ", ".join(stages_of(hazard))
        table.add_row(hazard.theme, hazard.name, stages, Styled(hazard.title.in_language(language)))
    console.print(table)
    stream.flush()
