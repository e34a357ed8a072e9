"""Conda environment files (YAML, with an optional pip section), and the output of ``conda list``."""

from __future__ import annotations

import re
from typing import Any

from gonogo.evidence.environment.versions.listing import PackageListing, exact_specifier, validated_specifier
from gonogo.evidence.environment.versions.requirements import INDEX_OPTION_PATTERN, read_index_option, read_requirement
from gonogo.evidence.field import Field
from gonogo.evidence.source_file import Place, SourceFile

_PIP_NAMES = {
    "pytorch": "torch",
    "pytorch-gpu": "torch",
    "pytorch-cpu": "torch",
    "pytorch-lightning": "pytorch-lightning",
    "opencv": "opencv-python",
    "py-opencv": "opencv-python",
    "matplotlib-base": "matplotlib",
    "msgpack-python": "msgpack",
}
"""Packages that have other names in conda than on PyPI."""
_SPEC_PATTERN = r"(?:[\w./-]{1,100}::)?([A-Za-z0-9_][\w.-]{0,100})\s*(?:\[[^\]]{0,200}\])?\s*(.{0,200})$"

_BUILD_STRING_PATTERN = re.compile(r"h[0-9a-f]{7}_\w+|main|\d+(?:_\w+)?")
"""Build strings of packages that are not for Python: `h5eee18b_0`, but not `py310h6a678d5_0` or `pyhd8ed1ab_0`."""


def read_conda(listing: PackageListing) -> None:
    """Add all dependencies of the listing's conda environment file."""
    import yaml

    try:
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        root = yaml.compose(listing.source.text, Loader=loader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return
    listing.pypi = False
    builds = 0
    for entry in _mapping_items(root, "dependencies"):
        if isinstance(entry, yaml.MappingNode):
            for line in _mapping_items(entry, "pip"):
                if isinstance(line, yaml.ScalarNode):
                    _add_pip_requirement(listing, line)
        elif isinstance(entry, yaml.ScalarNode):
            builds += add_conda_dependency(listing, entry.value, _scalar_place(listing.source, entry))
    listing.complete = builds >= 20  # `conda env export` states the builds of all installed packages


def _mapping_items(node: Any, key: str) -> list[Any]:
    import yaml

    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if getattr(name, "value", None) == key and isinstance(value, yaml.SequenceNode):
                return list(value.value)
    return []


def _scalar_place(source: SourceFile, node: Any) -> Place | None:
    mark = node.start_mark
    start = source.offset_of_character(mark.line + 1, mark.column) + (node.style in ('"', "'"))
    written = node.value.encode()
    place = source.place(start, start + len(written))
    return place if source.data[place.start : place.end] == written else None


def _add_pip_requirement(listing: PackageListing, node: Any) -> None:
    place = _scalar_place(listing.source, node)
    text = node.value.encode().decode("latin-1")
    if INDEX_OPTION_PATTERN.match(text):
        if place is not None:
            listing.index_lines.append(place)
        read_index_option(listing, text)
    elif place is not None:
        listing.pypi = True
        read_requirement(listing, listing.source, text, place.start)


def add_conda_dependency(listing: PackageListing, text: str, place: Place | None) -> bool:
    """Add one dependency; returns whether its build is stated."""
    match = re.match(_SPEC_PATTERN, text.strip())
    if match is None:
        return False
    name, constraint = match[1].lower(), match[2].strip()
    specifier, built = conda_specifier(constraint)
    version = specifier.removeprefix("==").removesuffix(".*") if re.fullmatch(r"==[\w.]+(?:\.\*)?", specifier) else None
    if fact := {"python": "python", "pytorch-cuda": "cuda", "cudatoolkit": "cuda", "cuda-version": "cuda"}.get(name):
        if version is not None:
            told_version = ".".join(version.split(".")[:2]) if fact == "cuda" else version
            listing.facts[fact] = Field(told_version, place=place)  # overrides the image's value
        return built
    if name in ("cuda-nvcc", "cuda-toolkit", "cuda", "cudatoolkit-dev") and version is not None:
        listing.add_fact("toolkit", version, place)
    if re.fullmatch(r"(?:gcc|gxx)(?:_linux-64)?", name) and version is not None:
        listing.add_fact("gcc" if name.startswith("gcc") else "gxx", version, place)
    if built and _BUILD_STRING_PATTERN.fullmatch(re.split(r"[=\s]", constraint)[-1]):
        return built
    at = None
    if place is not None:
        start = place.end - len(constraint.encode()) if constraint else place.end
        at = place.source.place(start, place.end)
    listing.add_package(_PIP_NAMES.get(name, name), specifier, place, notation="requirement", specifier_place=at)
    if name in ("pytorch-cpu", "cpuonly"):
        listing.facts["cuda"] = Field.missing()
    return built


def conda_specifier(text: str) -> tuple[str, bool]:
    """Conda's ``=2.1``, ``=2.1.0=py311_cuda``, ``>=2,<3`` or ``2.1.*`` as a specifier, and whether it has a build."""
    text = text.strip()
    match = re.fullmatch(r"(={0,2})\s*(\d[\w.]*?)(\.?\*)?(?:[=\s]+([\w.*]+))?", text)
    if match is None:
        return validated_specifier(text), False
    operator, version, wild, build = match.groups()
    # `=2.1.0` means 2.1.0.*, which is 2.1.0 itself if a release has three numbers.
    fuzzy = wild or (operator == "=" and build is None and version.count(".") < 2)
    return (validated_specifier(f"=={version}.*") if fuzzy else exact_specifier(version)), build is not None


def read_conda_list(listing: PackageListing, text: str) -> None:
    """Read the output of ``conda list``: ``name version build channel``."""
    for match in re.finditer(
        r"^([A-Za-z0-9_][\w.-]*)[ \t]+(\d[\w.!+-]*)(?:[ \t]+([\w.]+))?(?:[ \t]+\S+)?[ \t]*\r?$", text, re.M
    ):
        place = listing.source.place(match.start(1), match.end(2))
        name = match[1].lower()
        _add_conda_list_row(listing, name, match[2], match[3] or "", place)
    listing.complete = bool(listing.packages)


def _add_conda_list_row(listing: PackageListing, name: str, version: str, build: str, place: Place) -> None:
    if name in ("python", "pytorch-cuda", "cudatoolkit", "cuda-version", "cuda-nvcc", "cuda-toolkit"):
        add_conda_dependency(listing, f"{name}=={version}", place)
        return
    listing.add_package(_PIP_NAMES.get(name, name), exact_specifier(version), place)
    cuda = re.search(r"cuda(\d+\.\d+|\d{3})", build)
    if name == "pytorch" and cuda is not None:
        constraint = cuda[1] if "." in cuda[1] else f"{cuda[1][:2]}.{cuda[1][2]}"
        listing.add_fact("cuda", constraint, place)
