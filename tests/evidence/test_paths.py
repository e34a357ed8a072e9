"""Which folders above one may say something of a project in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.evidence.paths import iter_parent_folders


def names(start: Path, *, outside: bool = False) -> str:
    return " ".join(place.name for place in iter_parent_folders(start, outside=outside))


def test_folders_upward_end_at_the_repository(tmp_path: Path) -> None:
    deep = tmp_path.joinpath("repository", *"abcdefgh")
    deep.mkdir(parents=True)
    (tmp_path / "repository" / ".git").mkdir()
    for outside in (False, True):
        assert names(deep, outside=outside) == "h g f e d c b a repository"


def test_of_a_folder_in_no_repository_a_few_are_asked_for_and_none_above_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path.joinpath(*"abcdefgh")
    deep.mkdir(parents=True)
    assert names(deep) == "h"
    assert names(deep, outside=True) == "h g f e d c"
    monkeypatch.setenv("HOME", str(tmp_path.joinpath(*"abcdef")))
    assert names(deep, outside=True) == "h g f"


def test_gonogos_own_checkout_is_not_the_project_of_its_examples() -> None:
    root = Path(__file__).parents[2]
    assert names(root / "examples" / "slam_omni_dummy_loss") == "slam_omni_dummy_loss examples"
    assert names(root) == root.name
