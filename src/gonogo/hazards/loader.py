"""Creates the hazard of a page: from the class beside it if it has code, else from the declared kind."""

from __future__ import annotations

import importlib

from gonogo.finding import UserError, translated
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.page import HazardPage


def load_hazard(page: HazardPage) -> Hazard:
    """Load a hazard. Raises UserError if the head doesn't match, or if nothing is declared and there is no code."""
    if page.has_code:
        return _load_hazard_class(page)(page)
    if "arguments" in page.head:
        from gonogo.hazards.argument_rule import ArgumentHazard

        return ArgumentHazard(page)
    if "signs" in page.head:
        from gonogo.hazards.log_rule import LoggedHazard

        return LoggedHazard(page)
    if "keys" in page.head:
        from gonogo.hazards.config_rule import ConfigHazard

        return ConfigHazard(page)
    if not {"versions", "package", "packages"}.isdisjoint(page.head):
        from gonogo.hazards.version_rule import version_hazard_class

        return version_hazard_class(page)(page)
    if "refusal" in page.head:
        return Hazard(page)
    page.refuse(
        "",
        translated(
            "it declares nothing to look for: write signs, a refusal, keys, arguments or versions, or put code "
            "into {code} next to it"
        ).format(code=f"{page.module.rpartition('.')[2]}.py"),
    )


def class_name(name: str) -> str:
    """The name of the class in a hazard's code: ``Zero3MoeHang`` for ``zero3-moe-hang``."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("-"))


def _load_hazard_class(page: HazardPage) -> type[Hazard]:
    """The class in the code beside a page. Raises UserError if it doesn't exist under the page's name."""
    wanted = class_name(page.name)
    found = vars(importlib.import_module(page.module)).get(wanted)
    if isinstance(found, type) and issubclass(found, Hazard):
        return found
    raise UserError(
        translated("{file}: it has no class {name}(Hazard): give the class that name").format(
            file=page.file.removesuffix(".md") + ".py", name=wanted
        )
    )
