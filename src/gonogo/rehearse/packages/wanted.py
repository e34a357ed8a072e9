"""The versions that a run will have: from ``--environment FILE`` and ``--with NAME==VERSION``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from gonogo.errors import UserError
from gonogo.finding import Text

_DEEPEST = 10


@dataclass(frozen=True)
class Wanted:
    """Specifiers by canonical name. ``without_version`` are packages whose version the file doesn't tell."""

    specifiers: dict[str, SpecifierSet]
    without_version: tuple[str, ...] = ()
    python: str | None = None


def wanted_by_options(options: tuple[str, ...]) -> dict[str, SpecifierSet]:
    """The versions of ``--with``. Raises UserError for one that is not ``NAME==VERSION``."""
    found: dict[str, SpecifierSet] = {}
    for option in options:
        try:
            requirement = Requirement(option)
            specifiers = list(requirement.specifier)
            if len(specifiers) != 1 or specifiers[0].operator != "==" or "*" in specifiers[0].version:
                raise InvalidRequirement(option)
        except InvalidRequirement:
            raise UserError(
                Text(
                    en="--with {option}: write NAME==VERSION, as in deepspeed==0.14.2",
                    zh="--with {option}：请写成 NAME==VERSION，例如 deepspeed==0.14.2",
                ).format(option=option)
            ) from None
        found[canonicalize_name(requirement.name)] = requirement.specifier
    return found


def wanted_by_file(path: Path) -> Wanted:
    """The versions in a requirements file, a ``pip freeze``, or JSON.

    JSON is an object of package to version, the same under ``packages`` (beside ``python``), or the list that
    ``pip list --format json`` prints. Raises UserError for a file that is none of these, with the line.
    """
    text = _read(path)
    if text.lstrip()[:1] in ("{", "["):
        return _from_json(path, text)
    specifiers: dict[str, SpecifierSet] = {}
    without: list[str] = []
    for requirement, name in _requirements(path, text, 0):
        if requirement is None or requirement.url is not None:
            without.append(name)
        elif requirement.marker is None or requirement.marker.evaluate():
            key = canonicalize_name(requirement.name)
            specifiers[key] = specifiers.get(key, SpecifierSet()) & requirement.specifier
    return Wanted(specifiers, tuple(without))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(
            Text(en="can't read --environment {path}: {why}", zh="无法读取 --environment {path}：{why}").format(
                path=path, why=why
            )
        ) from None


def _requirements(path: Path, text: str, depth: int) -> Iterator[tuple[Requirement | None, str]]:
    """(requirement, name or line); None for one whose version can't be known (``-e``, a URL without a name)."""
    joined = re.sub(r"\\\r?\n", lambda match: " " + "\0", text)  # \0 keeps count of the lines
    number = 1
    for raw in joined.splitlines():
        here = number
        number += 1 + raw.count("\0")
        line = re.sub(r"(^|\s)#.*$", "", raw.replace("\0", "")).strip()
        option, _, value = line.partition(" ")
        if not line or (line.startswith("-") and option not in ("-r", "--requirement", "-e", "--editable")):
            continue
        if option in ("-r", "--requirement"):
            included = path.parent / value.strip()
            if depth >= _DEEPEST:
                raise _bad_line(path, here, f"{line} ({_DEEPEST} files deep)")
            yield from _requirements(included, _read(included), depth + 1)
        elif option in ("-e", "--editable") or re.match(r"^(git|hg|svn|bzr)\+|^(https?|file)://|^\.{0,2}/", line):
            named = re.search(r"egg=([A-Za-z0-9_.-]+)", line)
            yield None, named[1] if named else line
        else:
            try:
                requirement = Requirement(re.sub(r"\s--[a-z-]+[= ].*$", "", line))
            except InvalidRequirement:
                raise _bad_line(path, here, line) from None
            yield requirement, requirement.name


def _bad_line(path: Path, number: int, line: str) -> UserError:
    return UserError(
        Text(
            en="{path}:{number}: {line!r} is no requirement: give a requirements file, a pip freeze, or JSON",
            zh="{path}:{number}：{line!r} 不是有效的依赖：请给出 requirements 文件、pip freeze 的输出或 JSON",
        ).format(path=path, number=number, line=line[:120])
    )


def _from_json(path: Path, text: str) -> Wanted:
    try:
        content: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(
            Text(en="{path}:{line}: not valid JSON: {why}", zh="{path}:{line}：不是有效的 JSON：{why}").format(
                path=path, line=error.lineno, why=error.msg
            )
        ) from None
    python = None
    if isinstance(content, dict) and isinstance(content.get("packages"), (dict, list)):
        python = content["python"] if isinstance(content.get("python"), str) else None
        content = content["packages"]
    if isinstance(content, list):
        pairs = [(entry.get("name"), entry.get("version")) for entry in content if isinstance(entry, dict)]
        if len(pairs) != len(content):
            pairs = [(None, None)]
    else:
        pairs = list(content.items())
    specifiers: dict[str, SpecifierSet] = {}
    without: list[str] = []
    for name, version in pairs:
        if isinstance(name, str) and version is None:
            without.append(name)
            continue
        try:
            specifiers[canonicalize_name(str(name))] = SpecifierSet(f"=={Version(str(version))}")
        except (InvalidVersion, TypeError):
            raise UserError(
                Text(
                    en='{path}: {name!r}: {version!r} is no version: write {{"deepspeed": "0.14.2", …}}',
                    zh='{path}：{name!r}：{version!r} 不是有效的版本：请写成 {{"deepspeed": "0.14.2", …}}',
                ).format(path=path, name=name, version=version)
            ) from None
    return Wanted(specifiers, tuple(without), python)
