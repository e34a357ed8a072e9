"""Explain a key that a mapping lacks by the line that looks it up: a config, a batch, a table of a package."""

from __future__ import annotations

import re

from gonogo.evidence.patterns import lazy_compile
from gonogo.finding import Text, translated
from gonogo.finding.failure import Message, RaisedException

_SUBSCRIPT_PATTERN = lazy_compile(r"(?<![\w.])([A-Za-z_][\w.]*(?:\[[^\]]{1,40}\])?)\[[\"'fb]")


def is_sentence(key: str) -> bool:
    """Whether a KeyError was given a message in place of a key."""
    return _SENTENCE_PATTERN.search(key) is not None


def explain_missing_key(message: Message, code: str, exception: RaisedException) -> tuple[Text, Text | None]:
    """The key that is not there, what has no such key, and what to change."""
    key = message.names[0][:120]
    if message.subject == "config":
        return (
            translated("the config has no entry '{key}', which the program reads").format(key=key),
            translated(
                "add the section or key {key} to the config (on the command line: +{key}=…), with the keys that the "
                "entry point expects"
            ).format(key=key),
        )
    holder = next((found.group(1) for found in _SUBSCRIPT_PATTERN.finditer(code) if key in code), "")
    if holder and (chosen := re.search(rf"(?<![\w.])([A-Za-z_][\w.]*)\[[\"']{re.escape(key)}[\"']\]", code)):
        holder = chosen.group(1)  # of several subscripts, the one with this key
    if holder and (package := _package_reading_config(exception, holder)):
        return (
            translated("{holder} has no key '{key}', which {package} reads without asking whether it is there").format(
                holder=holder, key=key, package=package
            ),
            translated(
                "add {key} to the config if you mean to use it; if not, it is a defect of this release of {package}: "
                "use another release of {package} (a later one first)"
            ).format(key=key, package=package),
        )
    if holder:
        return (
            translated("{holder} has no key '{key}'").format(holder=holder, key=key),
            translated(
                "print {holder}.keys() at that line: either whatever fills it (the data set's columns, the "
                "collator, another release of the library) uses a different name, or the name is mistyped"
            ).format(holder=holder),
        )
    if (
        (found := _LOOKED_UP_PATTERN.search(code)) is not None
        and not _is_literal_value(key)
        and _TABLE_PATTERN.search(found.group(1))
    ):
        table, name = found.groups()
        package = exception.frames[-1].package if exception.frames else ""
        return (
            translated(
                "{name} is '{key}' there, and {table} has no entry for it: {where} does not have it for this kind of "
                "model or object"
            ).format(
                name=name, key=key, table=table, where=f"this release of {package}" if package else translated("it")
            ),
            translated(
                "set {setting} to a value that {table} has, or turn off the option that sets it to '{key}'; where a "
                "framework registers such values itself, another release of it, or of {where}, may have this one"
            ).format(
                setting=name.rpartition(".")[2].lstrip("_"),
                table=table,
                key=key,
                where=package or translated("the library"),
            ),
        )
    if found is not None and key.lstrip("-").isdigit():
        table, name = found.groups()
        package = exception.frames[-1].package if exception.frames else ""
        return (
            translated(
                "{name} is {key} there, and {table} has no entry for it: what fills {table} left this one out (a "
                "parameter that is frozen, a layer that another rank or stage has), or filled another copy of it (a "
                "wrapper that copies a dict which layers pass on, as FSDP2 does when it casts their inputs)"
            ).format(name=name, key=key, table=table),
            translated("look at where {table} is filled, and under which condition{later}").format(
                table=table,
                later=translated("; the line is {package}'s: use a later release of it").format(package=package)
                if package
                else "",
            ),
        )
    if found is not None and _is_literal_value(key):
        table, name = found.groups()
        return (
            translated("{name} is {key} there, and {table} has no entry for it").format(
                name=name, key=key, table=table
            ),
            translated(
                "set {setting} to a value that {table} has; {key} usually means that it was left unset, "
                "which another release may still accept"
            ).format(setting=name.rpartition(".")[2], table=table, key=key),
        )
    return (translated("{where} has no entry '{key}'").format(where=_looked_up_text(exception), key=key), None)


_CONFIG_HOLDER_PATTERN = lazy_compile(r"(?i)config$|_args$|^args$|settings$")


def _package_reading_config(exception: RaisedException, holder: str) -> str:
    """The package whose code reads a config's key; empty if it is no config, or the user's code reads it."""
    at = exception.frames[-1] if exception.frames else None
    if at is None or at.owner not in ("package", "clone") or not _CONFIG_HOLDER_PATTERN.search(holder):
        return ""
    return at.package


_TABLE_PATTERN = lazy_compile(r"^[A-Z][A-Z0-9_]{4,}$|(?i:_(?:classes|registry|mapping|map|factories|functions|table)$)")
"""The name of a table of a module, which a release's code fills."""
_LOOKED_UP_PATTERN = lazy_compile(r"(?<![\w.])([A-Za-z_][\w.]*)\[([A-Za-z_][\w.]*)\]")
_SENTENCE_PATTERN = lazy_compile(r"^[A-Z][\w'-]{0,40} [\w'(-][^.]{3,300}\.(?: |$)")
"""A message given to KeyError in place of a key."""
_VALUE_PATTERN = lazy_compile(r"^(?:None|True|False|-?\d{1,9})$")


def _is_literal_value(key: str) -> bool:
    """Whether a key is a literal value, so that it was computed rather than written as a name."""
    return _VALUE_PATTERN.search(key) is not None


def _looked_up_text(exception: RaisedException) -> Text:
    """The object whose key is missing, as the line names it."""
    function = exception.frames[-1].function if exception.frames else ""
    if function and not function.startswith("<"):
        return Text(f"what {function} looks up", f"{function} 所查找的对象")
    return translated("what is looked up")
