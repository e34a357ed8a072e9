"""Versions and ranges against specifiers, with three answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gonogo.evidence.environment.version_range import parse_specifier, parse_version

RELEASES = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)).map(lambda t: ".".join(map(str, t)))
OPERATORS = st.sampled_from(["==", "!=", "<=", ">=", "<", ">", "~="])
CLAUSES = st.tuples(OPERATORS, RELEASES).map("".join) | st.tuples(
    st.sampled_from(["==", "!="]), st.integers(0, 3), st.integers(0, 3)
).map(lambda t: f"{t[0]}{t[1]}.{t[2]}.*")
SPECIFIERS = st.lists(CLAUSES, max_size=3).map(",".join)


@given(RELEASES, st.sampled_from(["", "+cu118", "+cpu"]), SPECIFIERS)
def test_a_release_is_in_a_specifier_as_packaging_says(release: str, local: str, specifier: str) -> None:
    found = parse_specifier(specifier)
    assert found is not None
    assert found.contains(Version(release + local)) is SpecifierSet(specifier).contains(release + local)


@given(SPECIFIERS, SPECIFIERS, RELEASES)
def test_a_range_is_sure_only_where_every_release_agrees(told: str, asked: str, release: str) -> None:
    have, want = parse_specifier(told, released_only=True), parse_specifier(asked)
    assert have is not None
    assert want is not None
    answer = want.covers(have)
    if answer is not None and SpecifierSet(told).contains(release):
        assert SpecifierSet(asked).contains(release) is answer


@pytest.mark.parametrize(
    ("told", "asked", "answer"),
    [
        (">=0.14,<0.15", "<0.16", True),
        (">=0.14,<0.15", ">=0.16", False),
        (">=0.14", "<0.16", None),
        ("~=0.14.2", "==0.14.*", True),
        ("==0.14.*", ">=0.14", True),
        (">=0.14,!=0.14.1", "==0.14.1", False),
        ("", "<0.16", None),
        (">=2.0", ">=1.13", True),
        (">=2,<1", ">=1", None),
    ],
)
def test_ranges(told: str, asked: str, answer: bool | None) -> None:
    have, want = parse_specifier(told, released_only=True), parse_specifier(asked)
    assert have is not None
    assert want is not None
    assert want.covers(have) is answer


@pytest.mark.parametrize(
    ("version", "asked", "answer"),
    [
        ("2.1.0+cu118", "==2.1.0", True),
        ("2.1.0+cu118", "==2.1.0+cu118", True),
        ("2.1.0+cu121", "==2.1.0+cu118", False),
        ("2.1.0+cu118", "<=2.1", True),
        ("0.16.0.dev20250101", ">=0.16", None),
        ("0.16.0rc1", "<0.16", None),
        ("0.16.0rc1", "<0.17", True),
        ("0.16.0rc1", ">=0.17", False),
        ("0.16.1rc1", ">=0.16", True),
        ("0.16.0rc1", "==0.16.0rc1", True),
        ("4.46.0.dev0", ">=4.45", True),
        ("2.1.0.post1", ">=2.1.0", True),
    ],
)
def test_local_versions_and_those_before_a_release(version: str, asked: str, answer: bool | None) -> None:
    want = parse_specifier(asked)
    assert want is not None
    assert want.contains(Version(version)) is answer


@given(st.text(max_size=40))
def test_any_text_is_a_specifier_or_none(text: str) -> None:
    parse_specifier(text)
    parse_version(text)
