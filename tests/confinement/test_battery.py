"""The battery of attempts, under each means and as each user: nothing outside changes, is reached, read or outlived."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from attempts import ATTEMPTS
from users import HERE, USERS, user_called


def run(means: str, name: str) -> dict[str, Any]:
    """What one run found; one that hangs is no finding about attempts: where it hung is shown, and it is run again."""
    try:
        return run_once(means, name)
    except AssertionError as error:
        if "the battery hangs" not in str(error):
            raise
        warnings.warn(str(error), stacklevel=2)
    return run_once(means, name)


def run_once(means: str, name: str) -> dict[str, Any]:
    with user_called(name) as user:
        return json.loads(user.run(str(HERE / "battery.py"), means, str(user.folder), means=means))


def test_battery_is_large_enough() -> None:
    names = [attempt.name for attempt in ATTEMPTS]
    assert len(names) == len(set(names)) >= 120
    for kind in ("change", "delete", "reach", "outlive", "signal", "read", "gain"):
        assert sum(attempt.kind == kind for attempt in ATTEMPTS) >= 15, kind
    for how in ("shell", "python", "native"):
        assert sum(attempt.how == how for attempt in ATTEMPTS) >= 15, how


@pytest.mark.parametrize("name", USERS)
@pytest.mark.parametrize("means", ["namespaces", pytest.param("landlock", marks=pytest.mark.slow)])
def test_no_attempt_succeeds(means: str, name: str, needs: Callable[[str, str], None]) -> None:
    needs(means, name)
    result = run(means, name)
    assert result["means"] == means
    assert len(result["ran"]) > 300
    assert result["violations"] == {}


BY_BWRAP = """
import runpy
from gonogo.confinement import confinement
confinement.Confinement._means_candidates = lambda self: iter([("namespaces", confinement._bubblewrap())])
runpy.run_path(BATTERY, run_name="__main__")
"""


@pytest.mark.very_slow
def test_no_attempt_succeeds_where_bubblewrap_makes_the_user_namespace(needs: Callable[[str, str], None]) -> None:
    needs("namespaces", "ordinary")
    with user_called("ordinary") as user:
        code = BY_BWRAP.replace("BATTERY", repr(str(HERE / "battery.py")))
        if not user.run("-c", "from gonogo.confinement.confinement import _bubblewrap; print(*_bubblewrap())").strip():
            pytest.skip("bubblewrap is not here")
        result = json.loads(user.run("-c", code, "namespaces", str(user.folder), means="namespaces"))
    assert len(result["ran"]) > 300
    assert result["violations"] == {}


def test_attempts_succeed_without_a_confinement() -> None:
    """Or the battery would prove nothing. What they started ends all the same."""
    result = run("none", "self")
    assert result["means"] == "none"
    expected = {attempt.name for attempt in ATTEMPTS if attempt.real} - set(result["skipped"])
    assert expected - set(result["violations"]) == set()
    assert [name for name in result["violations"] if "after the end" in name or name == "(processes)"] == []
