"""A project's settings for ``gonogo check``: ``gonogo.toml``, or ``[tool.gonogo]`` in ``pyproject.toml``."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from gonogo.evidence.paths import is_file, is_read_allowed, read_bytes, resolve_path
from gonogo.finding import Certainty, Text, UserError, translated

KEYS = ("select", "ignore", "per-file-ignores", "exclude", "fail-on", "environment")


class CheckSettings(msgspec.Struct, frozen=True):
    """Which hazards and files are checked and reported. Hazard names and files are given as globs."""

    select: tuple[str, ...] = ()
    """Only these hazards; empty means all."""
    ignore: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, tuple[str, ...]] = {}
    exclude: tuple[str, ...] = ()
    """Files and folders that are skipped when a folder is searched."""
    fail_on: Certainty = Certainty.CERTAIN
    """An error of at least this certainty gives exit status 1."""
    environment: Path | None = None

    def selects_hazard(self, names: Sequence[str]) -> bool:
        """Whether the hazard with these names, current or former, is selected."""
        return not (self.select and not matches_any(names, self.select)) and not matches_any(names, self.ignore)

    def ignores_in_file(self, path: str, names: Sequence[str]) -> bool:
        """Whether findings of the hazard with these names, current or former, are ignored in a file."""
        return any(
            matches_path(path, pattern) and matches_any(names, ignored)
            for pattern, ignored in self.per_file_ignores.items()
        )


def matches_any(names: Sequence[str], globs: Sequence[str]) -> bool:
    """Whether one of a hazard's names matches one of the globs."""
    return any(fnmatchcase(name, glob) for name in names for glob in globs)


def matches_path(path: str, pattern: str) -> bool:
    """Whether a glob matches a path, its last part, or a folder above it."""
    parts = Path(path).parts
    whole = "/".join(parts)
    return fnmatchcase(whole, pattern) or any(
        fnmatchcase(part, pattern) or fnmatchcase("/".join(parts[: index + 1]), pattern)
        for index, part in enumerate(parts)
    )


def read_settings(start: Path) -> CheckSettings:
    """The settings of the nearest folder that has any, from ``start`` upwards, or the defaults if none has.

    Raises UserError for invalid TOML, an unknown key, or a value of the wrong type.
    """
    folder = resolve_path(start)
    for parent in (folder, *folder.parents):
        for name in ("gonogo.toml", "pyproject.toml"):
            path = parent / name
            if is_file(path) and is_read_allowed(path):  # an MCP client may not read folders above its own
                table = _settings_table(path)
                if table is not None:
                    return _parse_settings(path, table)
    return CheckSettings()


def _settings_table(path: Path) -> Mapping[str, Any] | None:
    try:
        data = read_bytes(path)
    except OSError as error:
        raise UserError(translated("can't read {path}: {why}").format(path=path, why=error.strerror or error)) from None
    if path.name == "pyproject.toml" and b"tool.gonogo" not in data:
        return None
    try:
        document = load_toml(data)
    except ValueError as error:
        raise UserError(translated("{path}: not valid TOML: {why}").format(path=path, why=error)) from None
    if path.name == "gonogo.toml":
        return document
    tool = document.get("tool")
    found = tool.get("gonogo") if isinstance(tool, dict) else None
    return found if isinstance(found, dict) else None


def load_toml(data: bytes) -> dict[str, Any]:
    """A parsed TOML document. Raises ValueError if it is invalid."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document: dict[str, Any] = tomllib.loads(data.decode("utf-8-sig"))
    except RecursionError:
        raise ValueError("too deeply nested") from None
    return document


def _parse_settings(path: Path, table: Mapping[str, Any]) -> CheckSettings:
    for key in table:
        if key not in KEYS:
            near = difflib.get_close_matches(key.replace("_", "-"), KEYS, 1)
            meant = Text(f" (did you mean {near[0]}?)", f"（是否想写 {near[0]}？）") if near else Text("", "")
            raise UserError(
                translated("{path}: unknown setting {key!r}{meant}. Known settings: {keys}").format(
                    path=path, key=key, meant=meant, keys=", ".join(KEYS)
                )
            )
    per_file = table.get("per-file-ignores", {})
    if not isinstance(per_file, dict):
        raise _invalid_setting(
            path, "per-file-ignores", per_file, translated("a table that maps globs to lists of names")
        )
    fail_on = table.get("fail-on", Certainty.CERTAIN.value)
    if fail_on not in [one.value for one in Certainty]:
        raise _invalid_setting(path, "fail-on", fail_on, translated("certain, likely or possible"))
    environment = table.get("environment")
    if environment is not None and not isinstance(environment, str):
        raise _invalid_setting(path, "environment", environment, translated("a path"))
    return CheckSettings(
        select=_string_tuple(path, "select", table.get("select", [])),
        ignore=_string_tuple(path, "ignore", table.get("ignore", [])),
        per_file_ignores={
            glob: _string_tuple(path, f"per-file-ignores.{glob}", names) for glob, names in per_file.items()
        },
        exclude=_string_tuple(path, "exclude", table.get("exclude", [])),
        fail_on=Certainty(fail_on),
        environment=path.parent / environment if environment is not None else None,
    )


def _string_tuple(path: Path, key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _invalid_setting(path, key, value, translated("a list of strings"))
    return tuple(value)


def _invalid_setting(path: Path, key: str, value: object, requirement: Text) -> UserError:
    return UserError(
        translated("{path}: {key} = {value!r}: must be {wanted}").format(
            path=path, key=key, value=value, wanted=requirement
        )
    )
