"""RE2 patterns: compiled when first used, so a test compiles every one that the package has."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import gonogo.evidence
import gonogo.hazards
from gonogo.evidence.patterns import Pattern


def patterns_in(value: object) -> Iterator[Pattern]:
    if isinstance(value, Pattern):
        yield value
    elif isinstance(value, (tuple, list, set, frozenset)):
        for item in value:
            yield from patterns_in(item)
    elif isinstance(value, dict):
        yield from patterns_in([*value, *value.values()])


MODULES = [
    info.name
    for package in (gonogo.evidence, gonogo.hazards)
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_every_pattern_compiles(name: str) -> None:
    module = importlib.import_module(name)
    for value in (
        *vars(module).values(),
        *(v for c in vars(module).values() if isinstance(c, type) for v in vars(c).values()),
    ):
        for pattern in patterns_in(value):
            pattern.search("")
            pattern.search_bytes(b"")


def test_lines_have_their_own_start_and_end() -> None:
    assert Pattern(r"^b$").search("a\nb\nc")
    assert Pattern(r"(?i)^B$").search("a\nb\nc")
    assert not Pattern(r"a.b").search("a\nb")


def test_a_hostile_text_takes_linear_time() -> None:
    assert Pattern(r"(a+)+b").search("a" * 100_000) is None
