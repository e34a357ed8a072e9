"""Dockerfiles: the base image and the install commands of ``pip``, ``uv`` and ``conda``, in order."""

from __future__ import annotations

import re
from itertools import islice

from gonogo.evidence.environment.versions.base_images import add_base_image
from gonogo.evidence.environment.versions.conda import add_conda_dependency
from gonogo.evidence.environment.versions.listing import (
    PackageListing,
    decode_latin1_as_utf8,
    latin1_text,
    resolve_included_path,
)
from gonogo.evidence.environment.versions.requirements import read_index_option, read_requirement, read_requirements
from gonogo.evidence.field import Field
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import UserError

_INSTALL_COMMAND_PATTERN = (
    r"\b(?:pip[\d.]*|uv[ \t]+pip|python[\d.]*[ \t]+-m[ \t]+pip|(?:conda|mamba|micromamba))[ \t]+"
    r"(?:-[\w-]+[ \t]+)*install\b([^&;|\n]*)"
)
_SHELL_WORD_PATTERN = r"\"[^\"\n]*\"|'[^'\n]*'|[^\s\"']+"
_OPTIONS_WITH_VALUE = frozenset(
    (
        *("-t", "--target", "--prefix", "--root", "--progress-bar", "--timeout", "--trusted-host", "--platform"),
        *(
            "--python-version",
            "--python",
            "--retries",
            "--config-settings",
            "--cache-dir",
            "--src",
            "-n",
            "--name",
            "-p",
        ),
        "--torch-backend",
    )
)
_MAX_WORDS = 2000
_INDEX_OPTIONS = frozenset(("-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-c", "--channel"))


def read_dockerfile(listing: PackageListing) -> None:
    """Add the packages of a Dockerfile's last stage, and of the stages that it is built from."""
    text = re.sub(r"(?m)^[ \t]*#.*$", lambda match: " " * len(match[0]), latin1_text(listing.source))
    text = re.sub(r"[\\`][ \t]*(\r?\n)(?:[ \t]*\r?\n)*", lambda match: " " * len(match[0]), text)
    values: dict[str, str] = {}
    stages: dict[str, PackageListing] = {}
    for instruction in re.finditer(r"(?im)^[ \t]*(FROM|RUN|ENV|ARG)[ \t]+(.*)$", text):
        kind, start = instruction[1].upper(), instruction.start(2)
        if kind == "FROM":
            _begin_stage(listing, instruction[2], start, values, stages)
        elif kind == "ENV":
            for name, value in re.findall(r"(?<!\w)([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|\S*)", instruction[2]):
                values[name] = value.strip("\"'")
                listing.variables[name] = Field(decode_latin1_as_utf8(values[name]))
        elif kind == "RUN":
            read_install_command(listing, instruction[2], start, values)


def read_install_command(listing: PackageListing, text: str, start: int, values: dict[str, str]) -> None:
    """Add what a shell command installs, in order; ``text`` starts at the byte ``start`` of the file."""
    for command in re.finditer(_INSTALL_COMMAND_PATTERN, text):
        is_conda = "conda" in command[0][: command.start(1) - command.start()] or "mamba" in command[0][:11]
        _add_installed(listing, command[1], start + command.start(1), values, conda=is_conda)


def _begin_stage(
    listing: PackageListing, text: str, start: int, values: dict[str, str], stages: dict[str, PackageListing]
) -> None:
    match = re.match(r"(?:--platform=\S+[ \t]+)?(\S+)(?:[ \t]+[Aa][Ss][ \t]+(\S+))?", text)
    if match is None:
        return
    image, name = match[1], (match[2] or "").lower()
    parent = stages.get(image.lower())
    fresh = PackageListing(listing.source)
    if parent is not None:
        fresh.packages, fresh.facts = dict(parent.packages), dict(parent.facts)
    # The listing is the current stage; earlier ones are kept for stages that build on them.
    listing.packages, listing.facts = fresh.packages, fresh.facts
    listing.pypi = True
    if name:
        stages[name] = snapshot_listing(listing)
    if parent is None:
        place = listing.source.place(start + match.start(1), start + match.end(1))
        add_base_image(listing, substitute_variables(image, values) or "", place)


def snapshot_listing(listing: PackageListing) -> PackageListing:
    """A listing that refers to the current packages and facts of another one."""
    view = PackageListing(listing.source)
    view.packages, view.facts = listing.packages, listing.facts
    return view


def substitute_variables(word: str, values: dict[str, str]) -> str | None:
    """The word with its variables replaced; None if the value of one is unknown."""
    missing = False

    def variable_value(match: re.Match[str]) -> str:
        nonlocal missing
        name = match[1] or match[2]
        missing = missing or name not in values
        return values.get(name, "")

    found = re.sub(r"\$(?:\{(\w+)(?:[:?+-][^}]*)?\}|(\w+))", variable_value, word)
    return None if missing or "$" in found or "`" in found else found


def _add_installed(listing: PackageListing, text: str, start: int, values: dict[str, str], *, conda: bool) -> None:
    """Add the packages that a ``pip install`` or ``conda install`` names."""
    words = list(islice(re.finditer(_SHELL_WORD_PATTERN, text), _MAX_WORDS))
    torch, cuda = listing.packages.get("torch"), listing.facts.get("cuda")
    indexes: list[str] = []
    index = 0
    while index < len(words):
        match = words[index]
        index += 1
        word = match[0].strip("\"'")
        at = start + match.start() + (match[0][0] in "\"'")
        option, equals, value = word.partition("=") if word.startswith("-") else ("", "", "")
        if word in _INDEX_OPTIONS or option in _INDEX_OPTIONS:
            if not equals and index < len(words):
                value = words[index][0].strip("\"'")
                index += 1
            if option == "-c" and not conda:
                _include_requirements(listing, value, constraint=True)
            else:
                indexes.append(f"{option or word} {value}")
                listing.index_lines.append(listing.source.place(at, start + words[index - 1].end()))
        elif option in ("-r", "--requirement", "--constraint"):
            if not equals and index < len(words):
                value = words[index][0].strip("\"'")
                index += 1
            _include_requirements(listing, value, constraint=option == "--constraint")
        elif word in _OPTIONS_WITH_VALUE:
            index += 1
        elif not word.startswith("-"):
            _add_install_argument(listing, word, at, values, conda=conda)

    if listing.packages.get("torch") is not torch:
        if listing.facts.get("cuda") is cuda:
            listing.facts.pop("cuda", None)  # belonged to the replaced torch
        listing.pypi = not conda
    for one in indexes:
        read_index_option(listing, one)


def _add_install_argument(
    listing: PackageListing, word: str, offset: int, values: dict[str, str], *, conda: bool
) -> None:
    if conda:
        add_conda_dependency(listing, word, listing.source.place(offset, offset + len(word)))
        return
    if "$" not in word:
        read_requirement(listing, listing.source, word, offset, notation="shell", replace=True)
        return
    filled = substitute_variables(word, values)
    name = re.match(r"[A-Za-z0-9][\w.-]*", word)
    if filled is not None:
        listed = PackageListing(listing.source)
        read_requirement(listed, listing.source, filled, offset)
        for package in listed.packages.values():
            place = listing.source.place(offset, offset + len(word))
            listing.add_package(package.name, package.specifier, place, replace=True, address=package.address)
    elif name is not None:
        listing.packages.pop(name[0].lower(), None)
        listing.add_package(name[0], "", listing.source.place(offset, offset + len(word)))


def _include_requirements(listing: PackageListing, name: str, *, constraint: bool) -> None:
    path = resolve_included_path(
        listing.source, listing.source, decode_latin1_as_utf8(name).removeprefix("/workspace/").lstrip("/")
    )
    if path is None:
        return
    try:
        included = PackageListing(SourceFile.read(path))
    except UserError:
        return
    read_requirements(included)
    if constraint:
        listing.constraints += included.packages.values()
    else:
        listing.packages.update(included.packages)
        listing.index_lines += included.index_lines
        listing.facts.update(included.facts)
