"""RE2 patterns: compiled when first used, so a test compiles every one that the package has."""

from __future__ import annotations

import gc
import importlib
import pkgutil
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import re2

import gonogo.evidence
import gonogo.hazards
from gonogo.evidence.patterns import Pattern, lazy_compile, required_literals
from gonogo.hazards.index import all_hazards

HAZARD_CASES = Path(__file__).parents[1] / "hazards"


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


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"CUDA out of memory\. Tried", ("CUDA out of memory. Tried",)),
        (r"a tensor of shapes? \[0\]", ("a tensor of shape",)),
        (r"lost|found \d+ of them", ("lost", " of them")),
        (r"(?:one|two) things+ here", (" things",)),
        (r"(?:one|two)", ("",)),
        (r"x*|abc", ("",)),
        (r"(?i)nccl", ("",)),
        (r"[^\]]two[a-z]{2,3}s", ("two",)),
        (r"ab{2,3}c\(d", ("c(d",)),
        (r"ends\nnext", ("ends",)),
    ],
)
def test_needed_words(pattern: str, words: tuple[str, ...]) -> None:
    assert required_literals(pattern) == words


@pytest.mark.slow
def test_every_match_has_a_needed_word() -> None:
    """No pattern of a hazard misses for its letters what it matches: over all logs of the hazards' cases."""
    all_hazards()
    patterns = [held for held in gc.get_objects() if isinstance(held, Pattern)]
    assert len(patterns) > 500
    logs = "\n".join(path.read_text(errors="replace") for path in sorted(HAZARD_CASES.glob("**/*.log")))
    matched = 0
    for pattern in patterns:
        words = required_literals(pattern.text)
        if words == ("",):
            continue
        for match in islice(re2.compile(f"(?m){pattern.text}").finditer(logs), 50):
            matched += 1
            assert any(word in match.group(0) for word in words), (pattern, words, match.group(0))
    assert matched > 500


def test_a_lazy_pattern_is_not_compiled_for_a_text_without_its_literals() -> None:
    pattern = lazy_compile(r"(?m)^out of (?P<what>memory)(?! yet)")
    assert pattern.search("all is well") is None
    assert "_compiled" not in vars(pattern)
    assert "search" not in vars(pattern)
    found = pattern.search("then\nout of memory")
    assert found is not None
    assert found["what"] == "memory"
    assert "search" in vars(pattern)


def test_a_lazy_pattern_without_certain_literals_is_always_tried() -> None:
    assert lazy_compile("(?i)MEMORY").search("out of memory")
    assert lazy_compile("MEMORY", re.IGNORECASE).search("out of memory")
    assert lazy_compile("a|[bc]").search("b")
    assert lazy_compile("x?y*").search("z")
    assert lazy_compile(r"(?s)first.*last").search("first\nlast")
