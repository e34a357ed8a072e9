"""Selects one of the two output languages."""

from __future__ import annotations

from collections.abc import Mapping

from gonogo.finding import UserError, translated

LANGUAGES = ("en", "zh")


def language_of_locale(environment: Mapping[str, str]) -> str:
    """``"zh"`` if the locale for messages is Chinese, else ``"en"``.

    The variables are checked in POSIX's order of precedence (``LC_ALL``, ``LC_MESSAGES``, ``LANG``); an empty one
    counts as not set.
    """
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if value := environment.get(name):
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"


def choose_language(option: str | None, environment: Mapping[str, str]) -> str:
    """The language of ``--lang``, else that of the locale. Raises UserError for an unsupported language."""
    if option is None:
        return language_of_locale(environment)
    if option not in LANGUAGES:
        raise UserError(
            translated("--lang {option}: must be one of {known}").format(option=option, known=" / ".join(LANGUAGES))
        )
    return option
