"""Environments made by the real uv: out of wheels that the tests make, and once out of a project's real ones."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

import pytest
import samples
from packaging.requirements import Requirement
from wheels import wheel

from gonogo.evidence.rehearsal.record import Failure, Frame, RankRecord, RehearsalRecord
from gonogo.finding import UserError
from gonogo.prepare.packages.building import BUILD_PACKAGES
from gonogo.prepare.packages.environment_build import GONOGO_DEPENDENCIES
from gonogo.prepare.packages.full_environment import build_full_environment
from gonogo.prepare.packages.overlay import PackageOverlay
from gonogo.prepare.packages.torch_family import companion_releases
from gonogo.rehearse.limits.version_mismatch import explain_version_mismatch

TORCH = metadata.version("torch").partition("+")[0]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only packages that uv sees, and an empty cache."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    needed = [Requirement(text) for text in metadata.requires("torch") or []]
    for requirement in (*map(Requirement, (*BUILD_PACKAGES, *GONOGO_DEPENDENCIES)), *needed):
        wheel(folder, requirement.name, "80.9")
    for version in ("0.9.1", "0.9.3", "0.9.4", "0.10.0"):
        wheel(folder, "trl", version, ("evaluate>=0.4", "torch>=1", "tyro; extra == 'cli'"))
    wheel(folder, "evaluate", "0.4.2")
    wheel(folder, "tyro", "0.5")
    wheel(folder, "attrs", "22.1")
    wheel(folder, "old-one", "1.0", ("trl<0.9.2",))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def versions(made: PackageOverlay) -> dict[str, str]:
    """What the environment's own Python says is installed."""
    assert made.python is not None
    code = "import json, importlib.metadata as m; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run([made.python, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return {name: str(version) for name, version in json.loads(done.stdout).items()}


def requirements(folder: Path, text: str) -> Path:
    path = folder / "requirements.txt"
    path.write_text(text)
    return path


def test_all_that_a_file_lists_is_installed_and_nothing_of_this_python_is_seen(index: Path, tmp_path: Path) -> None:
    path = requirements(tmp_path, f"trl[cli]<0.10\nattrs==22.1\ntorch=={TORCH}\n")
    made = build_full_environment(path, (), None)
    installed = versions(made)
    assert {name: installed[name] for name in ("trl", "attrs", "evaluate", "tyro")} == {
        "trl": "0.9.4", "attrs": "22.1", "evaluate": "0.4.2", "tyro": "0.5",
    }  # fmt: skip
    assert installed["torch"] == metadata.version("torch")  # lent, not copied
    assert "transformers" not in installed
    assert (made.differing, made.skipped) == ((), ())
    assert path.name in made.notes[0].en


def test_the_second_time_it_is_there_already(index: Path, tmp_path: Path) -> None:
    path = requirements(tmp_path, "trl==0.9.1\nattrs==22.1\n")
    first = build_full_environment(path, (), None)
    for file in index.iterdir():
        file.unlink()
    assert build_full_environment(path, (), None) == first
    with pytest.raises(UserError, match=r"can't create the environment of .*requirements\.txt"):
        build_full_environment(path, ("trl==0.9.3",), None)
    assert [
        one.name for one in (tmp_path / "cache/gonogo/environments").iterdir() if one.name.startswith(".fill")
    ] == []


def test_its_packages_are_compiled_once_for_programs_that_can_not_write_bytecode(index: Path, tmp_path: Path) -> None:
    wheel(index, "broken", "1.0", code="def f(:\n")
    path = requirements(tmp_path, "trl==0.9.1\nattrs==22.1\nbroken\n")
    made = build_full_environment(path, (), None)
    assert made.python is not None
    folder = next((made.python.parent.parent / "lib").glob("python3.*/site-packages"))

    def compiled() -> dict[str, int]:
        return {one.name.partition(".")[0]: one.stat().st_mtime_ns for one in folder.glob("__pycache__/*.pyc")}

    first = compiled()
    assert {"trl", "attrs"} <= first.keys()
    assert "broken" not in first
    told = subprocess.run(
        [made.python, "-v", "-c", "import trl"], capture_output=True, text=True, check=True,
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert f"code object from '{folder}/__pycache__/trl" in told.stderr
    (folder / "__pycache__").joinpath(f"trl.{sys.implementation.cache_tag}.pyc").unlink()
    build_full_environment(path, (), None)
    assert "trl" not in compiled()  # not looked for again


def test_an_environment_made_before_that_is_compiled_too(index: Path, tmp_path: Path) -> None:
    path = requirements(tmp_path, "trl==0.9.1\nattrs==22.1\n")
    made = build_full_environment(path, (), None)
    assert made.python is not None
    root = made.python.parent.parent
    caches = list(root.glob("lib/python3.*/site-packages/__pycache__"))
    for one in caches:
        shutil.rmtree(one)
    (root / "bytecode.txt").unlink()
    build_full_environment(path, (), None)
    assert [one for one in caches if list(one.glob("trl.*.pyc"))]


def test_a_bare_name_of_with_adds_a_package_and_leaves_the_files_versions(index: Path, tmp_path: Path) -> None:
    path = requirements(tmp_path, "trl==0.9.1\n")
    installed = versions(build_full_environment(path, ("trl", "attrs"), None))
    assert installed["trl"] == "0.9.1"
    assert "attrs" in installed


def test_with_wins_over_the_file(index: Path, tmp_path: Path) -> None:
    path = requirements(tmp_path, "trl==0.9.1\nattrs==22.1\n")
    assert versions(build_full_environment(path, ("trl==0.9.3",), None))["trl"] == "0.9.3"


def test_with_adds_what_the_file_leaves_out(index: Path, tmp_path: Path) -> None:
    path = requirements(tmp_path, "attrs==22.1\n")
    assert versions(build_full_environment(path, ("trl==0.9.3",), None))["trl"] == "0.9.3"


def test_what_takes_long_to_compile_is_taken_as_a_wheel(index: Path, tmp_path: Path) -> None:
    wheel(index, "numpy", "1.26.4")
    with tarfile.open(index / "numpy-1.21.4.tar.gz", "w:gz"):
        pass
    made = build_full_environment(requirements(tmp_path, "numpy==1.21.4\n"), (), None)
    assert versions(made)["numpy"] == "1.26.4"
    assert made.differing == ("numpy",)


@pytest.mark.slow
def test_pkg_resources_stays_whoever_asks_for_setuptools(index: Path, tmp_path: Path) -> None:
    wheel(index, "setuptools", "82.0")
    wheel(index, "numba", "0.60", ("setuptools",))
    assert versions(build_full_environment(requirements(tmp_path, "numba\n"), (), None))["setuptools"] == "80.9"
    path = requirements(tmp_path, "numba\nsetuptools==82.0\n")
    assert versions(build_full_environment(path, (), None))["setuptools"] == "82.0"


@pytest.mark.slow
def test_torchvision_is_the_one_asked_for_or_goes_with_the_torch_that_is_there(index: Path, tmp_path: Path) -> None:
    release = f"0.{int(TORCH.split('.')[1]) + 15}.1"
    for version in ("0.16.2", release):
        wheel(index, "torchvision", version, ("no-such-cuda-library",))
    for name in ("pillow", "numpy"):
        wheel(index, name, "99.0")
    assert "torchvision" not in versions(build_full_environment(requirements(tmp_path, "attrs==22.1\n"), (), None))
    for asked, had in (("0.16.2", "0.16.2"), ("0.17.0", release)):
        made = build_full_environment(requirements(tmp_path, f"attrs==22.1\ntorchvision=={asked}\n"), (), None)
        assert versions(made)["torchvision"] == had
        assert "torchvision" in made.differing  # also the one asked for has no compiled operators here


def test_pins_that_contradict_each_other_are_installed_all_the_same(index: Path, tmp_path: Path) -> None:
    installed = versions(build_full_environment(requirements(tmp_path, "trl==0.10.0\nold-one==1.0\n"), (), None))
    assert (installed["trl"], installed["old-one"]) == ("0.10.0", "1.0")


def test_what_can_not_be_had_is_named_and_another_version_taken(index: Path, tmp_path: Path) -> None:
    path = requirements(tmp_path, "trl==0.9.1\nattrs==1.0\nno-such-package==3\nflash-attn==2.5.0\ntorch==1.13.1\n")
    made = build_full_environment(path, (), None)
    assert versions(made)["attrs"] == "22.1"
    assert set(made.differing) == {"attrs", "no-such-package", "flash-attn", "torch"}
    told = {what.en: why.en for what, why in made.skipped}
    assert told["attrs==1.0"].startswith("rehearsed with attrs 22.1; it could not be installed")
    assert told["no-such-package==3"].startswith("could not be installed")
    assert told["torch==1.13.1"] == f"rehearsed with torch {metadata.version('torch')}"


@pytest.mark.parametrize(
    ("line", "version"), [("fast", None), ("fast==0.3.1.dev5", "0.3.1.dev5"), ("nightly", "2026.1.dev5")]
)
def test_a_development_release_is_taken_where_it_is_named_or_there_is_nothing_else(
    index: Path, tmp_path: Path, line: str, version: str | None
) -> None:
    wheel(index, "fast", "0.3.1.dev5")
    with tarfile.open(index / "fast-0.12.6.tar.gz", "w:gz"):  # the releases since then are sources, as deepspeed's are
        pass
    wheel(index, "nightly", "2026.1.dev5")
    made = build_full_environment(requirements(tmp_path, f"{line}\n"), (), None)
    assert versions(made).get(line.partition("=")[0]) == version


@pytest.mark.parametrize("pinned", ["2.1.0", "2.0.1"])
def test_a_torch_that_can_not_be_had_is_replaced_by_the_nearest(index: Path, tmp_path: Path, pinned: str) -> None:
    wheel(index, "torch", "2.1.2+cpu")
    made = build_full_environment(requirements(tmp_path, f"torch=={pinned}\n"), (), None)
    assert versions(made)["torch"] == "2.1.2+cpu"
    assert "torch" in made.differing


def test_where_this_python_has_it_all_it_is_used(index: Path, tmp_path: Path) -> None:
    path = requirements(tmp_path, f"torch=={TORCH}\ntransformers=={metadata.version('transformers')}\n")
    assert build_full_environment(path, (), None) == PackageOverlay()


def test_another_python_is_told(index: Path, tmp_path: Path) -> None:
    path = tmp_path / "environment.json"
    path.write_text('{"python": "2.7.18", "packages": {"attrs": "22.1"}}')
    ((what, why),) = build_full_environment(path, (), None).skipped
    assert what.en == "Python 2.7.18"
    assert ".".join(platform.python_version_tuple()[:2]) in why.en


def test_a_day_is_written_as_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--as-of yesterday: write a date"):
        build_full_environment(requirements(tmp_path, "attrs==22.1\n"), (), "yesterday")


def failed(type_: str, message: str, *frames: Frame) -> RankRecord:
    record = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="raised")
    record.failure = Failure(type_, message, frames, "load", 0)
    return record


def differing(rank: RankRecord, *names: str) -> RehearsalRecord:
    record = samples.rehearsal_record(rank)
    record.differing = list(names)
    return record


@pytest.mark.parametrize(
    ("record", "spared"),
    [
        (failed("ImportError", "cannot import name 'rearrange' from 'flash_attn.bert_padding'"), True),
        (failed("AttributeError", "module 'pyarrow' has no attribute 'PyExtensionType'"), False),
        (
            failed(
                "RuntimeError",
                "Failed to import: cannot import name 'split_torch' from 'hub' (/v/hub/__init__.py)",
                Frame("/v/lib/python3.11/site-packages/lib/a.py", 1, "f", "", "library"),
            ),
            False,
        ),
        (failed("AttributeError", "x", Frame("/v/lib/python3.11/site-packages/lib/a.py", 1, "f", "", "library")), True),
        (failed("AttributeError", "x", Frame("/home/me/train.py", 1, "f", "", "user")), False),
        (failed("OSError", "torch: no such file"), False),
        (failed("RuntimeError", "x", Frame("/v/lib/python3.11/site-packages/torch/a.py", 1, "f", "", "library")), True),
        (failed("ValueError", "x", Frame("/v/lib/python3.11/site-packages/lib/a.py", 1, "f", "", "library")), False),
    ],
)
def test_a_failure_that_another_torch_may_have_caused_is_no_verdict(record: RankRecord, spared: bool) -> None:
    assert (explain_version_mismatch(record, differing(record, "torch", "flash-attn")) is not None) is spared


@pytest.mark.parametrize(
    ("caller", "defined_in", "spared"),
    [("lib", "lib", False), ("lib", "other", True), ("import torch", "lib", True)],
    ids=["its own function", "another's function", "a file that asks torch"],
)
def test_a_package_that_calls_its_own_function_wrongly_does_so_with_any_torch(
    tmp_path: Path, caller: str, defined_in: str, spared: bool
) -> None:
    packages = tmp_path / "site-packages"
    for name in ("lib", "other"):
        (packages / name).mkdir(parents=True)
    (packages / defined_in / "csv.py").write_text("@dataclass\nclass CsvConfig:\n    sep: str = ','\n")
    (builder := packages / "lib" / "builder.py").write_text(f"{caller}\n")
    refused = "CsvConfig.__init__() got an unexpected keyword argument 'use_auth_token'"
    record = failed("TypeError", refused, Frame(str(builder), 1, "f", "", "library"))
    assert (explain_version_mismatch(record, differing(record, "torch")) is not None) is spared


def test_releases_beside_a_torch_are_those_that_pytorch_publishes_for_it() -> None:
    assert companion_releases("torchvision", "==0.22.1", "==2.7.1", "2.13.0") == ["==0.22.1", "==0.22.*", "==0.28.*"]
    assert companion_releases("torchvision", "", None, "2.13.0+cpu") == ["==0.28.*"]
    assert companion_releases("torchaudio", "", "==2.4.*", "2.13.0") == ["==2.4.*", "==2.11.*"]
    assert companion_releases("torchvision", "", ">=2.4", "2.6.0") == ["==0.21.*"]


def test_a_pin_without_wheels_is_replaced_by_the_next_later_release(index: Path, tmp_path: Path) -> None:
    for version in ("1.23.2", "1.26.4", "2.1.0"):
        wheel(index, "numpy", version)
    with tarfile.open(index / "numpy-1.21.4.tar.gz", "w:gz"):
        pass
    made = build_full_environment(requirements(tmp_path, "numpy==1.21.4\n"), (), None)
    assert versions(made)["numpy"] == "1.23.2"
    ((_, why),) = made.skipped
    assert why.en.startswith("rehearsed with numpy 1.23.2; it could not be installed: ")


def test_a_next_release_that_does_not_go_with_the_rest_is_not_kept(index: Path, tmp_path: Path) -> None:
    for version in ("1.23.2", "1.26.4", "2.1.0"):
        wheel(index, "numpy", version)
    wheel(index, "user-of-numpy", "1.0", ("numpy>=1.26",))
    made = build_full_environment(requirements(tmp_path, "numpy==1.21.4\nuser-of-numpy\n"), (), None)
    assert versions(made)["numpy"] in ("1.26.4", "2.1.0")


@pytest.mark.parametrize(("pinned", "kept"), [("2.1.0", False), ("3.7.1", True)])
def test_a_triton_of_another_torch_is_left_out(index: Path, tmp_path: Path, pinned: str, kept: bool) -> None:
    wheel(index, "triton", pinned)
    wheel(index, "uses-triton", "1.0", ("triton",))
    made = build_full_environment(requirements(tmp_path, f"triton=={pinned}\nuses-triton\n"), (), None)
    assert (versions(made).get("triton") == pinned) is kept
    assert [(what.en, why.en) for what, why in made.skipped] == (
        []
        if kept
        else [(f"triton=={pinned}", f"could not be installed: it goes with torch==2.1.*, and torch {TORCH} is here")]
    )
