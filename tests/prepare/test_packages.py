"""Packages laid over from a cache, installed by the real pip from wheels that the tests make."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path

import pytest
from wheels import wheel

from gonogo.finding import UserError
from gonogo.prepare.packages import build_overlay, installed_version
from gonogo.prepare.packages.requested import versions_from_file
from gonogo.rehearse.launch.worker_environment import with_packages
from gonogo.rehearse.request import RehearsalRequest
from gonogo.rehearse.run import rehearse


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index of a few small wheels, the only one that pip sees, and an empty cache."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for version in ("0.9.1", "0.9.3", "0.9.4", "0.10.0", "0.11.0rc1"):
        wheel(folder, "trl", version, ("evaluate>=0.4", "rich", "torch>=1", "tyro; extra == 'cli'"))
    wheel(folder, "evaluate", "0.4.2", ("multiprocess", "datasets<1.0.0"))
    wheel(folder, "evaluate", "0.5.0", ("datasets<1.0.0",))
    wheel(folder, "datasets", "0.8.0")
    wheel(folder, "broken", "1.0", ("nowhere>=3",))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def imported(folders: tuple[Path, ...], name: str) -> str:
    code = f"import {name}; print({name}.__version__)"
    environment = with_packages({"PYTHONPATH": "/nowhere"}, folders)
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_version_is_laid_over_with_what_it_requires(index: Path, tmp_path: Path) -> None:
    overlay = build_overlay(("trl==0.9.3",))
    assert {name: str(version) for name, version in overlay.versions.items()} == {
        "trl": "0.9.3",
        "evaluate": "0.5.0",
        "datasets": "0.8.0",
    }
    assert imported(overlay.folders, "trl") == "0.9.3"
    assert imported(overlay.folders, "datasets") == "0.8.0"
    assert metadata.version("datasets") != "0.8.0"  # what is installed is as before
    cache = tmp_path / "cache/gonogo/packages"
    tag = f"py{sys.version_info.major}.{sys.version_info.minor}"
    assert {path.name for path in cache.iterdir()} == {
        f"trl-0.9.3-{tag}",
        f"evaluate-0.5.0-{tag}",
        f"datasets-0.8.0-{tag}",
    }


def test_a_bare_name_is_any_version_where_none_is_installed(index: Path) -> None:
    wheel(index, "json-repair-of-ours", "0.2")
    assert {name: str(one) for name, one in build_overlay(("json_repair_of_ours",)).versions.items()} == {
        "json-repair-of-ours": "0.2"
    }
    assert build_overlay(("datasets",)).versions == {}  # installed: as it is
    with pytest.raises(UserError, match="could not be installed"):
        build_overlay(("nowhere-of-ours",))


def test_the_cache_is_used_without_pip(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build_overlay(("trl==0.9.3",))
    monkeypatch.setattr("gonogo.prepare.packages.cache._run_pip", lambda *_: pytest.fail("pip was run"))
    assert build_overlay(("trl==0.9.3",)) == first


@pytest.mark.slow
def test_two_rehearsals_may_fill_the_cache_at_once(index: Path, tmp_path: Path) -> None:
    with ProcessPoolExecutor(3, mp_context=get_context("fork")) as pool:
        overlays = list(pool.map(build_overlay, [("trl==0.9.1",)] * 3))
    assert all(overlay == overlays[0] for overlay in overlays)
    assert not list((tmp_path / "cache/gonogo/packages").glob(".filling-*"))


def test_a_version_that_does_not_exist(index: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        build_overlay(("trl==0.9.2",))
    assert "no trl==0.9.2 for Python" in error.value.text.en
    assert "the nearest are 0.9.1, 0.9.3, 0.9.4, the newest is 0.10.0" in error.value.text.en
    assert not list((tmp_path / "cache/gonogo/packages").iterdir())


def test_a_package_that_does_not_exist(index: Path) -> None:
    with pytest.raises(UserError, match=r"no-such-package==1\.0 could not be installed"):
        build_overlay(("No_Such.Package==1.0",))


def test_a_dependency_that_can_not_be_installed_is_told(index: Path) -> None:
    overlay = build_overlay(("broken==1.0",))
    assert list(overlay.versions) == ["broken"]
    assert "nowhere>=3" in overlay.skipped[0][0].en


def test_what_is_installed_already_is_not_laid_over(index: Path) -> None:
    assert build_overlay((f"transformers=={metadata.version('transformers')}",)).folders == ()
    torch = str(installed_version("torch")).partition("+")[0]
    assert build_overlay((f"torch=={torch}+cu121",)).skipped == ()


def test_torch_can_not_be_laid_over(index: Path) -> None:
    overlay = build_overlay(("torch==1.13.1", "flash-attn==2.5.0"))
    assert overlay.folders == ()
    (torch, why), (flash, absent) = overlay.skipped
    assert (torch.en, flash.en) == ("torch==1.13.1", "flash-attn==2.5.0")
    assert str(installed_version("torch")) in why.en
    assert "is not installed here" in absent.en


def test_the_python_of_a_compiled_package_comes_with_what_it_imports(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "gonogo.prepare.packages.overlay.PURE_PYTHON_REQUIREMENTS",
        {"transformer-engine": ("datasets", "onnxscript", "triton")},
    )
    for name in ("transformer-engine", "onnxscript", "triton"):
        wheel(index, name, "2.17.1")
    versions = build_overlay(("transformer-engine[pytorch]",)).versions
    assert set(versions) == {"transformer-engine", "onnxscript", "triton"}  # datasets is installed already


def test_a_compiled_package_that_is_not_installed_can_be_added(index: Path) -> None:
    if installed_version("triton") is not None:
        pytest.skip("Triton is installed")
    wheel(index, "triton", "3.9.0")
    assert [str(version) for version in build_overlay(("triton==3.9.0",)).versions.values()] == ["3.9.0"]


@pytest.mark.slow
def test_an_installed_package_that_asks_for_another_version_is_told(index: Path) -> None:
    wheel(index, "huggingface-hub", "0.1.0")
    overlay = build_overlay(("huggingface-hub==0.1.0",))
    assert any(what.en.startswith(f"transformers {metadata.version('transformers')}") for what, _ in overlay.skipped)


@pytest.mark.slow
def test_an_installed_package_gives_way_to_a_release_that_goes_with_what_is_laid_over(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gonogo.prepare.packages.overlay.STACK", ("datasets",))
    wheel(index, "huggingface-hub", "0.1.0")
    for version, wanted in {"2.1": "<0.2", "4.0": ">=0.1", "4.1": "<0.2,>=0.1", "4.2": ">=0.2", "5.1": ">=1"}.items():
        wheel(index, "datasets", version, (f"huggingface-hub{wanted}",))
    first = build_overlay(("huggingface-hub==0.1.0",))
    assert str(first.versions["datasets"]) == "4.1"
    assert not any(what.en.startswith("datasets") for what, _ in first.skipped)
    monkeypatch.setattr("gonogo.prepare.packages.cache._run_pip", lambda *_: pytest.fail("pip was run"))
    assert build_overlay(("huggingface-hub==0.1.0",)).versions == first.versions


@pytest.mark.parametrize(
    "content",
    [
        {"trl": "0.9.1"},
        {"packages": {"trl": "0.9.1"}, "python": "3.10.4"},
        [{"name": "trl", "version": "0.9.1"}],
        {"packages": [{"name": "trl", "version": "0.9.1"}]},
    ],
)
def test_a_file_may_be_json(index: Path, tmp_path: Path, content: object) -> None:
    path = tmp_path / "environment.json"
    path.write_text(json.dumps(content))
    wanted = versions_from_file(path)
    assert {name: str(specifier) for name, specifier in wanted.specifiers.items()} == {"trl": "==0.9.1"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("trl==0.9.1\n!!!\n", "requirements.txt:2: '!!!' is not a requirement"),
        ("trl==0.9.1 \\\n  ; python_version > '3'\nname: env\n", "requirements.txt:3: 'name: env'"),
        ('{"trl": \n', "requirements.txt:2 is not valid JSON"),
        ('{"trl": "newest"}', "'trl': 'newest' is not a version"),
        ('{"trl": {"version": 1}}', "is not a version"),
        ("-r other.txt\n", "can't read --environment"),
    ],
)
def test_a_file_that_can_not_be_read_says_where(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        versions_from_file(path)
    assert said in error.value.text.en
    assert "\n" not in error.value.text.en


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(UserError, match="can't read --environment"):
            versions_from_file(path)


@pytest.mark.parametrize("option", ["deepspeed>=0.14", "deepspeed==0.14.*", "==1", "deepspeed=0.14.2", ""])
def test_with_takes_an_exact_version(option: str) -> None:
    with pytest.raises(UserError, match="write NAME==VERSION"):
        build_overlay((option,))


def test_a_cache_that_can_not_be_written(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match="XDG_CACHE_HOME"):
        build_overlay(("trl==0.9.1",))


_LOOP = """
import deepspeed, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters())
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config="ds.json")  # a path, as in its documents
engine.backward(engine(torch.randn(2, 8, device=engine.device)).mean())
engine.step()
"""


@pytest.mark.very_slow
@pytest.mark.parametrize("version", ["0.14.0", "0.14.2"])
def test_an_old_deepspeed_is_laid_over(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the package index; its launcher works as it is, though its package no longer imports with this torch."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: list[str] = []
    overlay = build_overlay((f"deepspeed=={version}",), report_progress=lambda text: said.append(text.en))
    assert str(overlay.versions["deepspeed"]) == version
    assert any(line.startswith(("installing deepspeed", "building deepspeed")) for line in said)
    code = "from importlib.metadata import version; print(version('deepspeed'))"
    found = subprocess.run(
        [sys.executable, "-c", code], env=with_packages({}, overlay.folders), capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == version
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}')
    (tmp_path / "loop.py").write_text(_LOOP)
    monkeypatch.chdir(tmp_path)
    command = ["torchrun", "--nproc_per_node", "2", "loop.py"]
    record = rehearse(RehearsalRequest(command, gpus="2xH100-80G", with_packages=(f"deepspeed=={version}",)))
    (rank,) = record.ranks
    assert (rank.outcome, rank.steps, rank.versions["deepspeed"]) == ("completed", 1, version)
    assert rank.deepspeed_config is not None
    assert rank.deepspeed_config["zero_optimization"] == {"stage": 2}
