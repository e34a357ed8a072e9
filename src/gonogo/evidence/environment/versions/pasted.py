"""Reports that people paste: torch's ``collect_env``, ``ds_report``, ``transformers env``, ``pip list`` and similar.

Their lines are recognized by their wording, so one file may contain several of them and other text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gonogo.evidence.environment.environment import Gpu
from gonogo.evidence.environment.versions.conda import read_conda_list
from gonogo.evidence.environment.versions.listing import (
    NAME,
    PackageListing,
    decode_latin1_as_utf8,
    exact_specifier,
    latin1_text,
)
from gonogo.evidence.field import Field
from gonogo.evidence.patterns import lazy_compile
from gonogo.evidence.source_file import Place

MARKS = (
    b"PyTorch version:",
    b"CUDA used to build PyTorch",
    b"Collecting environment information",
    b"DeepSpeed general environment info",
    b"DeepSpeed C++/CUDA extension op report",
    b"deepspeed info ....",
    b"- `transformers` version:",
    b"- `Accelerate` version:",
    b"- `llamafactory` version:",
    b"# packages in environment at",
    b"-- ---------",
    b"-------- ----",
)
"""Text that identifies a file as such a report."""

_VERSION = r"(\d[\w.!+-]{0,80})"
_BULLET_VERSION_PATTERN = lazy_compile(
    rf"^[ \t>]*[-*][ \t]+`?({NAME})`?[ \t]+version(?:[ \t]*\([^)\n]*\))?[ \t]*:[ \t]*{_VERSION}", re.MULTILINE
)
_DOTTED_VERSION_PATTERN = lazy_compile(
    rf"^[ \t>]*(torch|deepspeed)[ \t]+(?:version|info)[ \t]*\.{{3,}}[ \t]*{_VERSION}", re.MULTILINE
)
_PIP_VERSION_PATTERN = lazy_compile(rf"^[ \t>]*\[(?:pip3?|conda)\][ \t]+({NAME})(?:==|[ \t]+){_VERSION}", re.MULTILINE)
_TABLE_ROW_PATTERN = lazy_compile(rf"^({NAME})[ \t]{{1,120}}{_VERSION}[ \t]*(?:/\S+|[a-z]\w*)?[ \t]*\r?$", re.MULTILINE)
_PIP_NAMES = {
    "pytorch": "torch",
    "huggingface-hub": "huggingface-hub",
    "bitsandbytes": "bitsandbytes",
    "python": "python",
}
_NON_PACKAGE_NAMES = frozenset({"cuda", "cmake", "clang", "gcc", "glibc", "libc", "cudnn", "os", "platform", "hip"})

_FACT_PATTERNS: tuple[tuple[str, str], ...] = (
    ("python", r"Python version[ \t]*:[ \t]*(\d+\.\d+\.\d+)"),
    ("cuda", r"CUDA used to build PyTorch[ \t]*:[ \t]*(\d+\.\d+|None|Could not collect|N/A)"),
    ("cuda", r"torch cuda version[ \t]*\.{3,}[ \t]*(\d+\.\d+|None)"),
    ("toolkit", r"CUDA runtime version[ \t]*:[ \t]*(\d+\.\d+(?:\.\d+)?|No CUDA)"),
    ("toolkit", r"nvcc version[ \t]*\.{3,}[ \t]*(\d+\.\d+)"),
    ("toolkit", r"Cuda compilation tools, release (\d+\.\d+)"),
    ("driver", r"Nvidia driver version[ \t]*:[ \t]*(\d+\.\d+(?:\.\d+)?)"),
    ("driver", r"Driver Version:[ \t]*(\d+\.\d+(?:\.\d+)?)"),
    ("gcc", r"GCC version[ \t]*:[ \t]*(?:\([^\n]{0,120}\)[ \t]*)?(\d+\.\d+(?:\.\d+)?|Could not collect)"),
    ("nccl", r"NCCL version[ \t]*:?[ \t]*(\d+\.\d+(?:\.\d+)?)"),
    ("dev_shm", r"shared memory \(/dev/shm\) size[ \t]*\.{3,}[ \t]*([\d.]+[ \t]*[KMGT]B)"),
    ("platform", r"^[ \t>]*[-*]?[ \t]*(?:OS|Platform)[ \t]*:[ \t]*([^\n]{1,100}?)[ \t]*\r?$"),
)
_ABSENT_VALUES = frozenset({"None", "No CUDA"})
_UNKNOWN_VALUES = frozenset({"Could not collect", "N/A"})


def read_pasted_report(listing: PackageListing) -> None:
    """Read the packages and facts in pasted output of ``ds_report``, ``accelerate env`` and the like."""
    text = latin1_text(listing.source)
    for match in _BULLET_VERSION_PATTERN.finditer(text):
        _add_package_version(listing, match[1], match[2], _match_place(listing, match, 1, 2))
    for pattern in (_DOTTED_VERSION_PATTERN, _PIP_VERSION_PATTERN):
        for match in pattern.finditer(text):
            _add_package_version(listing, match[1], match[2], _match_place(listing, match, 1, 2))
    _add_torch(listing, text)
    for name, pattern_text in _FACT_PATTERNS:
        found = re.search(pattern_text, text, re.MULTILINE)
        if found is None or found[1] in _UNKNOWN_VALUES or name in listing.facts:
            continue
        if found[1] in _ABSENT_VALUES:
            listing.facts[name] = Field.missing()
        else:
            value: str | int = decode_latin1_as_utf8(found[1])
            listing.add_fact(
                name, _parse_bytes(found[1]) if name == "dev_shm" else value, _match_place(listing, found, 1, 1)
            )
    _add_gpus(listing, text)
    if "# packages in environment at" in text:
        read_conda_list(listing, text)
    elif columns := re.search(r"^Package[ \t]+Version[^\n]*\r?\n-+[ \t]+-+[^\n]*\r?\n", text, re.MULTILINE):
        for match in _TABLE_ROW_PATTERN.finditer(text, columns.end()):
            _add_package_version(listing, match[1], match[2], _match_place(listing, match, 1, 2))
        listing.complete = True


def _match_place(listing: PackageListing, match: re.Match[str], first_group: int, last_group: int) -> Place:
    return listing.source.place(match.start(first_group), match.end(last_group))


def _add_package_version(listing: PackageListing, name: str, version: str, place: Place) -> None:
    name = name.lower()
    if name == "python":
        listing.add_fact("python", version, place)
    elif name not in _NON_PACKAGE_NAMES and _PIP_NAMES.get(name, name) not in listing.packages:
        listing.add_package(_PIP_NAMES.get(name, name), exact_specifier(version.rstrip(".,")), place)


def _add_torch(listing: PackageListing, text: str) -> None:
    match = re.search(rf"^[ \t>]*PyTorch version[ \t]*:[ \t]*{_VERSION}", text, re.MULTILINE)
    if match is not None:
        listing.packages.pop("torch", None)  # the imported torch counts, not pip's list
        listing.add_package("torch", exact_specifier(match[1]), listing.source.place(match.start(), match.end(1)))


def _add_gpus(listing: PackageListing, text: str) -> None:
    for match in re.finditer(
        r"^[ \t>]*(?:GPU models and configuration:[ \t]*)?GPU[ \t]+\d+:[ \t]*([^\n\r(]{2,80})", text, re.M
    ):
        listing.gpus.append(Gpu(decode_latin1_as_utf8(match[1]).strip()))
    if listing.gpus:
        return
    kind = re.search(r"^[ \t>]*[-*][ \t]+GPU type[ \t]*:[ \t]*([^\n\r]{2,80}?)[ \t]*\r?$", text, re.MULTILINE)
    count = re.search(r"^[ \t>]*[-*][ \t]+GPU number[ \t]*:[ \t]*(\d{1,3})\b", text, re.MULTILINE)
    memory = re.search(r"^[ \t>]*[-*][ \t]+GPU memory[ \t]*:[ \t]*([\d.]+)[ \t]*GB", text, re.MULTILINE)
    if kind is not None:
        size = _parse_number(memory[1], lambda number: int(number * 1024**3)) if memory else None
        listing.gpus += [Gpu(decode_latin1_as_utf8(kind[1]), size)] * (int(count[1]) if count else 1)


def _parse_bytes(text: str) -> int:
    power = "KMGT".index(text.strip()[-2]) + 1
    return _parse_number(text.strip()[:-2], lambda number: int(number * 1024**power)) or 0


def _parse_number(text: str, convert: Callable[[float], int]) -> int | None:
    try:
        return convert(float(text))
    except (ValueError, OverflowError):
        return None
