"""Versions in the tags of known base images."""

from __future__ import annotations

import re

from gonogo.evidence.environment.versions.listing import PackageListing, exact_specifier
from gonogo.evidence.field import Field
from gonogo.evidence.source_file import Place

_PACKAGE_BY_TAG_WORD = {
    "torch": "torch",
    "tf": "tensorflow",
    "vllm": "vllm",
    "modelscope": "modelscope",
    "swift": "ms-swift",
    "deepspeed": "deepspeed",
    "transformers": "transformers",
    "flash": "flash-attn",
}


def add_base_image(listing: PackageListing, image: str, place: Place) -> None:
    """Add the versions that an image (``pytorch/pytorch:2.1.0-cuda12.1-cudnn8-devel``) is known to contain.

    Apptainer's (``docker://NAME``) and enroot's (``REGISTRY#NAME``) notations are supported.
    """
    image = re.sub(r"^\w+://", "", image).replace("#", "/")
    name, _, tag = image.partition("@")[0].rpartition(":")
    if not name or not tag or len(tag) > 200:
        return
    listing.pypi = False
    if re.search(r"(?:^|/)pytorch/pytorch$", name) and (match := re.match(r"(\d+\.\d+(?:\.\d+)?)-cuda(\d+\.\d+)", tag)):
        listing.add_package("torch", exact_specifier(match[1]), place)
        listing.add_fact("cuda", match[2], place)
        _add_cuda_toolkit(listing, match[2], tag, place)
    elif re.search(r"(?:^|/)nvidia/cuda$", name) and (match := re.match(r"(\d+\.\d+)(?:\.\d+)?-", tag)):
        listing.pypi = True  # it contains no torch, which comes from elsewhere
        _add_cuda_toolkit(listing, match[1], tag, place)
    elif re.search(r"(?:^|/)nvidia/pytorch$", name):
        listing.add_package("torch", "", place)  # a build by NVIDIA, whose version is not in the tag
    elif "modelscope" in name or "axolotl" in name:
        _add_versions_in_tag(listing, tag, place)


def _add_cuda_toolkit(listing: PackageListing, cuda: str, tag: str, place: Place) -> None:
    if "devel" in tag:
        listing.add_fact("toolkit", cuda, place)
    elif "runtime" in tag or "base" in tag:
        listing.facts.setdefault("toolkit", Field.missing())


def _add_versions_in_tag(listing: PackageListing, tag: str, place: Place) -> None:
    """Add the versions in an image's tag, such as ``main-py3.11-cu124-2.5.1``."""
    words = tag.split("-")
    for word in words:
        if match := re.fullmatch(r"cuda(\d+\.\d+)(?:\.\d+)?", word) or re.fullmatch(r"cu(\d\d)(\d)", word):
            cuda = ".".join(match.groups())
            listing.add_fact("cuda", cuda, place)
        elif match := re.fullmatch(r"py(\d)\.?(\d+)", word):
            listing.add_fact("python", f"{match[1]}.{match[2]}", place)
        elif (match := re.fullmatch(r"([a-z]+)(\d+\.\d[\w.]*)", word)) and match[1] in _PACKAGE_BY_TAG_WORD:
            listing.add_package(_PACKAGE_BY_TAG_WORD[match[1]], exact_specifier(match[2]), place)
    if re.search(r"(?:^|-)py3\.\d+-cu\d{3}-\d+\.\d+\.\d+$", tag):
        listing.add_package("torch", exact_specifier(words[-1]), place)
    elif re.fullmatch(r"\d+\.\d+\.\d+", words[-1]) and "torch" in tag:
        listing.add_package("modelscope", exact_specifier(words[-1]), place)
