"""Sets of packages that can't be had as they are asked for: what is let go of then, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gonogo.finding import Text
from gonogo.prepare.packages import resolving, torch_family
from gonogo.prepare.packages.resolving import LOCK_FILE_NAME, PackageResolver
from gonogo.prepare.packages.torch_family import install_for_torch
from gonogo.prepare.packages.uv import UvFailed

NOTHING = Text("packages", "软件包")
OF_ALL = """\
  × No solution found when resolving dependencies:
  ╰─▶ Because all of:
          matplotlib==3.1.3 depends on numpy>=1.11
          numpy<1.20 depends on a Python of its time
      we can conclude that your requirements are unsatisfiable.
"""


def asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, refuses: Callable[[str, bool], bool]
) -> list[tuple[str, bool]]:
    """What uv was asked in turn: the requirements, and whether of a day; ``refuses`` says which it finds no set for."""
    turns: list[tuple[str, bool]] = []

    def run_uv(words: list[str], **_: object) -> str:
        lines = " ".join((folder / "requirements.in").read_text().split())
        turns.append((lines, "--exclude-newer" in words))
        if refuses(*turns[-1]):
            raise UvFailed(OF_ALL)
        (folder / LOCK_FILE_NAME).write_text("")
        return ""

    monkeypatch.setattr(resolving, "run_uv", run_uv)
    PackageResolver(
        ["matplotlib==3.1.3", "librosa==0.7.2"], ["librosa==0.7.2", "matplotlib==3.1.3"], {}, [], "2020-12-02", folder,
        NOTHING, print, unconfined=True,
    ).resolve()  # fmt: skip
    return turns


def test_where_nothing_of_the_day_goes_with_this_python_later_releases_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = "matplotlib==3.1.3 librosa==0.7.2"
    assert asked(tmp_path, monkeypatch, lambda _, of_day: of_day) == [(pinned, True), (pinned, False)]


def test_that_the_day_was_given_up_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, refused in enumerate((True, False)):
        (folder := tmp_path / str(number)).mkdir()

        def run_uv(words: list[str], folder: Path = folder, refused: bool = refused, **_: object) -> str:
            if refused and "--exclude-newer" in words:
                raise UvFailed(OF_ALL)
            (folder / LOCK_FILE_NAME).write_text("")
            return ""

        monkeypatch.setattr(resolving, "run_uv", run_uv)
        resolver = PackageResolver(["tqdm"], [], {}, [], "2020-12-02", folder, NOTHING, print, unconfined=True)
        resolver.resolve()
        assert resolver.without_date is refused


def test_then_a_pinned_release_is_let_go_that_uv_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = asked(tmp_path, monkeypatch, lambda lines, _: "matplotlib==" in lines)
    assert turns[-1] == ("matplotlib librosa==0.7.2", False)


def test_what_can_not_be_had_at_all_is_said_with_what_uv_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UvFailed) as ended:
        asked(tmp_path, monkeypatch, lambda *_: True)
    assert ended.value.reason.startswith("Because all of: matplotlib==3.1.3 depends on numpy>=1.11 numpy<1.20")


@pytest.mark.parametrize(("there", "taken"), [("80.9", "80.9"), ("84.2", "84.2")])
def test_what_a_torch_of_today_requires_keeps_pkg_resources_where_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str, taken: str
) -> None:
    installed = []

    def run_uv(words: list[str], **_: object) -> str:
        below_81 = "setuptools<81" in words
        if "--exclude-newer" in words or (below_81 and there != "80.9"):  # of that day it has none so new
            raise UvFailed("error: no solution found")
        installed.append("80.9" if below_81 else "84.2" if "setuptools>=77.0.3" in words else "filelock")
        return ""

    monkeypatch.setattr(torch_family, "run_uv", run_uv)
    required = ["setuptools>=77.0.3", "filelock"]
    install_for_torch([], required, ["--exclude-newer", "2023-12-14"], tmp_path, NOTHING, print)
    assert installed == [taken, "filelock"]


NO_WHEEL = """\
  × No solution found when resolving dependencies:
  ╰─▶ Because antlr4-python3-runtime==4.9.3 has no usable wheels and omegaconf==2.3.0 depends on
      antlr4-python3-runtime==4.9.3, we can conclude that omegaconf==2.3.0 cannot be used.
"""


def test_no_older_release_is_taken_for_want_of_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built_here: list[str] = []

    def run_uv(words: list[str], **_: object) -> str:
        lines = (tmp_path / "requirements.in").read_text()
        newest = "--no-deps" in words or built_here
        if "==2.3.0" in lines and not newest:
            raise UvFailed(NO_WHEEL)
        version = "2.3.0" if newest else "2.0.6"
        (tmp_path / LOCK_FILE_NAME).write_text(f'[[packages]]\nname = "omegaconf"\nversion = "{version}"\n')
        return ""

    def build(self: PackageResolver, error: UvFailed) -> bool:
        built_here.extend(error.packages_without_wheels)
        return bool(error.packages_without_wheels)

    monkeypatch.setattr(resolving, "run_uv", run_uv)
    monkeypatch.setattr(PackageResolver, "_build_missing_wheel", build)
    found = PackageResolver(["omegaconf"], [], {}, [], None, tmp_path, NOTHING, print, unconfined=True).resolve()
    assert [one.version for one in found] == ["2.3.0"]
    assert built_here == ["antlr4-python3-runtime"]


AFTER = """\
error: No solution found when resolving dependencies
  cause: Because there are no versions of webdataset and you require webdataset, we can conclude that your requirements are unsatisfiable.

hint: `webdataset` was filtered by `exclude-newer` to only include packages uploaded before 2018-01-02T00:00:00Z.
"""  # noqa: E501


def test_what_had_no_release_on_the_day_is_taken_in_its_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[list[str]] = []

    def run_uv(words: list[str], **_: object) -> str:
        if "lowest-direct" in words:
            assert (tmp_path / "oldest.in").read_text() == "webdataset>=0.1\n"
            return "webdataset==0.1.2\n"
        turns.append((tmp_path / "requirements.in").read_text().split())
        if "webdataset=9999-01-01" not in words:
            assert "--exclude-newer" in words
            raise UvFailed(AFTER)
        assert words[words.index("--exclude-newer") + 1] == "2018-01-01"
        (tmp_path / LOCK_FILE_NAME).write_text("")
        return ""

    monkeypatch.setattr(resolving, "run_uv", run_uv)
    PackageResolver(
        ["webdataset>=0.1", "tqdm"], [], {}, [], "2018-01-01", tmp_path, NOTHING, print, unconfined=True
    ).resolve()  # fmt: skip
    assert turns[0] == ["webdataset>=0.1", "tqdm"]
    assert turns[1] == ["webdataset==0.1.2", "tqdm"]


WHEELS_REQUIRED = """\
error: No solution found when resolving dependencies
  cause: Because all of:
             numpy<=1.9.3
             numpy>=1.10.4
          have no usable wheels and you require numpy, we can conclude that your requirements are unsatisfiable.

hint: Wheels are required for `numpy` because building from source is disabled for all packages (i.e., with `--no-build`)
"""  # noqa: E501


@pytest.mark.parametrize(("line", "later"), [("numpy", "numpy==1.23.2"), ("numpy==1.21.0", None)])
def test_a_package_without_a_wheel_of_the_day_is_taken_in_the_next_release_that_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, later: str | None
) -> None:
    turns: list[tuple[list[str], bool]] = []

    def run_uv(words: list[str], **_: object) -> str:
        if "lowest-direct" in words:
            assert (tmp_path / "oldest.in").read_text() == "numpy>=1.22.1\n"
            return "numpy==1.23.2\n"
        turns.append(((tmp_path / "requirements.in").read_text().split(), "numpy=9999-01-01" in words))
        if line in turns[-1][0] and "--exclude-newer" in words:
            raise UvFailed(WHEELS_REQUIRED)
        (tmp_path / LOCK_FILE_NAME).write_text("")
        return ""

    monkeypatch.setattr(resolving, "run_uv", run_uv)
    monkeypatch.setattr(resolving, "newest_release", lambda *_: "1.22.1")
    monkeypatch.setattr(PackageResolver, "_take_next_release", lambda *_: False)
    resolver = PackageResolver([line, "timm"], [], {}, [], "2022-01-19", tmp_path, NOTHING, print, unconfined=True)
    resolver.resolve()
    if later is None:  # a pin is no matter of the day
        assert not any(undated for _, undated in turns)
    else:
        assert turns[1] == ([later, "timm"], True)
        assert not resolver.without_date
