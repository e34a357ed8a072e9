"""Versions and machines as hazards see them: what is told of one is never held against another."""

from __future__ import annotations

import importlib
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from gonogo.check.environment import environment_findings
from gonogo.check.findings import check
from gonogo.check.settings import CheckSettings
from gonogo.evidence.environment.compatibility import torch_pinned_releases
from gonogo.evidence.environment.environment import ADDED_HEADING, Environment, Package
from gonogo.evidence.environment.this_machine import interpreter_description
from gonogo.evidence.environment.version_range import parse_version
from gonogo.evidence.field import Field
from gonogo.finding import Certainty, Finding
from gonogo.hazards.environment import numpy_name_removed, pinned_version_never_released

CURRENT = (
    "torch==2.9.1\ntorchvision==0.24.1\ntriton==3.5.1\ntransformers==5.2.0\naccelerate==1.12.0\npeft==0.18.1\n"
    "trl==0.28.0\ndeepspeed==0.18.6\ntokenizers==0.22.2\nhuggingface-hub==1.4.1\nsafetensors==0.7.0\nnumpy==2.4.2\n"
    "pydantic==2.12.5\nbitsandbytes==0.49.2\nliger-kernel==0.6.4\n"
)
LAUNCH = (
    "#!/bin/bash\ndeepspeed --num_gpus 8 train.py --bf16 True --dataloader_num_workers 8 --deepspeed ds_config.json\n"
)
OFFLOADED = {
    "bf16": {"enabled": True},
    "train_micro_batch_size_per_gpu": 1,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GONOGO_DEBUG", "1")
    return tmp_path


def of_this_python(**versions: str) -> Environment:
    packages = {
        name: Package(name, f"=={version}", source=interpreter_description()) for name, version in versions.items()
    }
    return Environment(packages=packages, complete=True)


def found(settings: CheckSettings | None = None, *, use_installed: bool = False) -> dict[str, Finding]:
    findings = check(["."], settings=settings, use_installed=use_installed).report.findings
    return {finding.hazard: finding for finding in findings}


@pytest.mark.parametrize("use_installed", [False, True])
def test_a_plain_current_stack_is_left_alone(use_installed: bool) -> None:
    Path("requirements.txt").write_text(CURRENT)
    assert found(use_installed=use_installed) == {}


def test_what_a_file_pins_is_not_held_against_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = of_this_python(torch="2.9.1", numpy="2.4.2", accelerate="0.21.0", tokenizers="0.12.0", peft="0.3.0")
    monkeypatch.setattr("gonogo.evidence.environment.this_machine.inspect_this_machine", lambda deep=False: newer)
    Path("requirements.txt").write_text("transformers==4.49.0\ndeepspeed==0.13.5\n")
    assert found(use_installed=True) == {}


def test_a_mismatch_in_this_python_is_certain_only_where_it_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    mismatched = of_this_python(transformers="4.46.3", accelerate="0.21.0")
    (asked,) = environment_findings(mismatched)
    assert (asked.hazard, asked.certainty) == ("trainer-accelerate-below-minimum", Certainty.CERTAIN)
    monkeypatch.setattr("gonogo.evidence.environment.this_machine.inspect_this_machine", lambda deep=False: mismatched)
    Path("ds_config.json").write_text(json.dumps({"zero_optimization": {"stage": 2}, "train_batch_size": 8}))
    beside = found(use_installed=True)["trainer-accelerate-below-minimum"]
    assert beside.certainty is Certainty.LIKELY


def test_a_package_that_this_python_lacks_is_only_possibly_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    laptop = of_this_python(torch="2.9.1", transformers="5.2.0")
    monkeypatch.setattr("gonogo.evidence.environment.this_machine.inspect_this_machine", lambda deep=False: laptop)
    Path("run.sh").write_text(LAUNCH)
    Path("ds_config.json").write_text(json.dumps({"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}))
    assert found(use_installed=True) == {}  # a laptop on which files are checked
    monkeypatch.setattr("gonogo.hazards.version_rule.has_accelerator_driver", lambda: True)
    assert found(use_installed=True)["deepspeed-not-installed"].certainty is Certainty.POSSIBLE


def test_gonogos_own_environment_lacks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    own = of_this_python(typer="0.20", rich="14.0", msgspec="0.20")
    monkeypatch.setattr("gonogo.evidence.environment.this_machine.inspect_this_machine", lambda deep=False: own)
    Path("run.sh").write_text(LAUNCH)
    Path("ds_config.json").write_text(json.dumps({"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}))
    assert found(use_installed=True) == {}


def machine(**facts: Any) -> CheckSettings:
    packages = dict(line.split("==") for line in CURRENT.split())
    told = {"packages": packages, "complete": True, "python": "3.12.3", "gpus": [], "variables": {}, **facts}
    told["packages"] |= {"setuptools": "80.0", "ninja": "1.13"}
    Path("node.json").write_text(json.dumps({"environment": told}))
    return CheckSettings(environment=Path("node.json"))


def test_a_laptop_without_gpu_and_toolkit_is_left_alone() -> None:
    Path("run.sh").write_text(LAUNCH)
    Path("ds_config.json").write_text(json.dumps(OFFLOADED))
    assert found(machine(driver=None, toolkit=None, cuda="12.8")) == {}


def test_the_environment_asked_for_is_all_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    old = of_this_python(torch="2.1.2", numpy="2.0.1", transformers="4.46.3", accelerate="0.21.0", deepspeed="0.13.5")
    monkeypatch.setattr("gonogo.evidence.environment.this_machine.inspect_this_machine", lambda deep=False: old)
    Path("run.sh").write_text(LAUNCH)
    Path("ds_config.json").write_text(json.dumps(OFFLOADED))
    assert found(machine(driver="570.86.15", cuda="12.8"), use_installed=True) == {}


def test_a_stale_lock_is_found_on_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    from gonogo.evidence.environment import machine as looked_at

    folder = tmp_path / "extensions" / "py311_cu124" / "cpu_adam"
    folder.mkdir(parents=True)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    assert looked_at._stale_extension_lock().absent
    lock = folder / "lock"
    lock.touch()
    assert looked_at._stale_extension_lock().absent  # somebody may be compiling
    os.utime(lock, (0, 0))
    assert str(looked_at._stale_extension_lock().value).endswith("cpu_adam/lock")
    told = Environment(extension_lock=Field(str(lock)))
    assert [finding.hazard for finding in environment_findings(told)] == ["torch-extension-build-lock"]


def test_every_release_table_is_in_order() -> None:
    for row in pinned_version_never_released._release_series():
        versions = [parse_version(one) for one in row.last]
        assert None not in versions
        assert versions == sorted(versions, key=lambda version: version.release if version else ())
    assert all(map(torch_pinned_releases, ("torchvision", "torchaudio", "xformers", "triton")))


@pytest.mark.parametrize(
    ("package", "version", "answer"),
    [
        ("deepspeed", "0.14.5", None),
        ("deepspeed", "0.14.6", (("0.14.5", "0.15.4"), True)),
        ("deepspeed", "99.0", (("0.19.8",), False)),
        ("transformers", "4.52.0", None),  # taken back, and still installable
        ("transformers", "4.50.0.dev0", None),
        ("transformers", "2.1.0", None),
        ("torch", "9.9", None),
    ],
)
def test_versions_that_there_are_not(package: str, version: str, answer: object) -> None:
    parsed = parse_version(version)
    assert parsed is not None
    assert pinned_version_never_released.find_unreleased(package, parsed) == answer


def test_names_that_numpy_removed_are_those_of_its_own_table() -> None:
    """numpy 2 lists what it expired, with what to use instead."""
    numpy = pytest.importorskip("numpy", minversion="2.0")
    expired = importlib.import_module("numpy._expired_attrs_2_0").__expired_attributes__
    removed = numpy_name_removed._REMOVED
    assert sorted(set(expired) - set(removed)) == []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        assert [name for name in removed if hasattr(numpy, name)] == []


def test_a_release_that_gonogo_added_is_never_certain() -> None:
    """The project's files don't name accelerate: the newest is gonogo's choice, and what the user has may be older."""
    stated = "transformers==4.33.0\n{heading}accelerate==1.2.1\n"
    Path("train.py").write_text("from transformers import Trainer\n\nTrainer(model=None).train()\n")
    Path("launch.sh").write_text("torchrun --nproc_per_node 8 train.py\n")
    for heading, certainty in (("", Certainty.CERTAIN), (f"{ADDED_HEADING}\n", Certainty.LIKELY)):
        Path("requirements.txt").write_text(stated.format(heading=heading))
        assert found()["python-package-version-mismatch"].certainty is certainty
