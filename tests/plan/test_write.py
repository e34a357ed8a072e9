"""What ``--write`` writes: ``gonogo check`` finds nothing in it, and a rehearsal of it is GO."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from frameworks_installed import framework
from launchers.small_project import make_project
from msgspec.structs import replace
from plan_facts import SEVEN_BILLION, model_in, request

from gonogo.check.findings import check
from gonogo.finding import UserError, Verdict
from gonogo.trials.plan.choice import estimate_by_formula
from gonogo.trials.plan.closed_form import NO_CALIBRATION
from gonogo.trials.plan.strategy import TUNING_METHODS, Family, Strategy, TuningMethod
from gonogo.trials.plan.write import check_folder, required_changes, write_strategy

LAUNCHERS = ("deepspeed", "torchrun", "accelerate", "swift", "llamafactory")
FSDP = Family(3, fsdp=True)
SPLIT = replace(FSDP, context=4)
ULYSSES = Family(3, context=2)
HYBRID = replace(FSDP, replicas=2)
TENSOR, EXPERTS = replace(FSDP, tensor=2), replace(FSDP, experts=2)


def written(folder: Path, family: Family, *, nodes: int = 1, tune: TuningMethod = "full") -> Path:
    asked = request(model_in(folder / "model"), nodes=nodes, tune=tune)
    strategy = Strategy(family, family.zero == 3, 2, 4)
    write_strategy(
        folder / "written", estimate_by_formula(asked, SEVEN_BILLION, strategy, NO_CALIBRATION), asked, SEVEN_BILLION
    )
    return folder / "written"


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("tune", TUNING_METHODS)
@pytest.mark.parametrize(
    "family",
    [Family(2), Family(3, "cpu", "cpu"), Family(3, "nvme", "cpu"), FSDP, replace(FSDP, reshard=False), SPLIT, ULYSSES],
    ids=lambda family: family.label.en,
)
def test_check_finds_nothing_in_it(
    family: Family, tune: TuningMethod, nodes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path, family, nodes=nodes, tune=tune)
    monkeypatch.chdir(folder)
    names = LAUNCHERS[1 if family.fsdp else 0 : 3 if family.context > 1 else None]
    assert {path.name for path in folder.glob("launch_*")} == {f"launch_{name}.sh" for name in names}
    for launcher in names:
        report = check([], ["bash", f"launch_{launcher}.sh"]).report
        assert (report.verdict, report.findings, report.skipped) == (Verdict.GO, (), ()), launcher


def test_the_sizes_of_the_batch_agree_with_each_other(tmp_path: Path) -> None:
    folder = written(tmp_path, Family(3), nodes=2)
    config = json.loads((folder / "ds_config.json").read_text())
    arguments = json.loads((folder / "training_arguments.json").read_text())
    assert config["train_batch_size"] == 2 * 4 * 16
    assert config["train_micro_batch_size_per_gpu"] == arguments["per_device_train_batch_size"] == 2
    assert config["optimizer"]["params"]["lr"] == arguments["learning_rate"]
    assert "auto" not in json.dumps(config)


def test_what_accelerate_and_the_arguments_say_of_fsdp_is_the_same(tmp_path: Path) -> None:
    folder = written(tmp_path, Family(3, "cpu", "cpu", fsdp=True))
    config = json.loads((folder / "fsdp_config.json").read_text())
    of_accelerate = yaml.safe_load((folder / "accelerate.yaml").read_text())["fsdp_config"]
    assert of_accelerate.pop("fsdp_offload_params") is config.pop("cpu_offload") is True
    assert {name.removeprefix("fsdp_"): value for name, value in of_accelerate.items()} == config
    assert config["activation_checkpointing"]
    assert not json.loads((folder / "training_arguments.json").read_text())["gradient_checkpointing"]
    assert "FSDP_OFFLOAD_PARAMS=true" in (folder / "launch_torchrun.sh").read_text()
    assert not (folder / "launch_deepspeed.sh").exists()


@pytest.mark.parametrize(
    ("family", "sizes"),
    [(SPLIT, {"cp_size": 4, "dp_shard_size": 4}), (HYBRID, {"dp_replicate_size": 2, "dp_shard_size": 8}), (FSDP, {})],
)
def test_accelerate_and_the_other_launchers_are_given_the_same_mesh(
    family: Family, sizes: dict[str, int], tmp_path: Path
) -> None:
    folder = written(tmp_path, family, nodes=2)
    of_accelerate = yaml.safe_load((folder / "accelerate.yaml").read_text())
    assert of_accelerate.get("parallelism_config", {}) == {
        f"parallelism_config_{name}": size for name, size in sizes.items()
    }
    script = (folder / "launch_torchrun.sh").read_text()
    assert script.count("PARALLELISM_CONFIG_") == len(sizes)
    for name, size in sizes.items():
        assert f"PARALLELISM_CONFIG_{name.upper()}={size}" in script
    assert ("ACCELERATE_USE_PARALLELISM_CONFIG=true" in script) == bool(sizes)


def test_what_only_the_user_knows_is_said(tmp_path: Path) -> None:
    asked = request(model_in(tmp_path), nodes=2)
    said = required_changes(
        estimate_by_formula(asked, SEVEN_BILLION, Strategy(Family(3, "nvme"), True, 1, 4), NO_CALIBRATION),
        asked,
        SEVEN_BILLION,
    )
    assert [word for word in ("data.jsonl", "hostfile", "nvme_path") if any(word in text.zh for text in said)] == [
        "data.jsonl", "hostfile", "nvme_path",
    ]  # fmt: skip


def test_files_that_are_there_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match=r"--write .*: not empty"):
        check_folder(tmp_path)
    with pytest.raises(UserError, match=r"mine.txt: not a folder"):
        check_folder(tmp_path / "mine.txt")
    with pytest.raises(UserError, match="can't be written"):
        check_folder(tmp_path / "not" / "there")
    check_folder(tmp_path / "new")


@pytest.mark.parametrize("family", [TENSOR, EXPERTS], ids=lambda family: family.label.en)
def test_what_transformers_shards_itself_is_launched_by_torchrun(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path, family)
    monkeypatch.chdir(folder)
    assert {path.name for path in folder.iterdir()} == {
        "distributed_config.json", "launch_torchrun.sh", "train.py", "training_arguments.json",
    }  # fmt: skip
    launch = (folder / "launch_torchrun.sh").read_text(encoding="utf-8")
    assert "--distributed distributed_config.json" in launch
    assert "--save_only_model true" in launch
    assert "fsdp" not in json.loads((folder / "training_arguments.json").read_text(encoding="utf-8"))
    report = check([], ["bash", "launch_torchrun.sh"]).report
    assert (report.verdict, report.findings, report.skipped) == (Verdict.GO, (), ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "tune", "launcher"),
    [
        pytest.param(Family(2), "full", "torchrun", marks=pytest.mark.very_slow),
        pytest.param(Family(3, "cpu", "cpu"), "lora", "deepspeed", marks=pytest.mark.very_slow),
        pytest.param(Family(3), "full", "accelerate", marks=pytest.mark.very_slow),
        pytest.param(Family(3, "cpu", "cpu"), "lora", "swift", marks=pytest.mark.very_slow),
        pytest.param(FSDP, "full", "torchrun"),
        pytest.param(Family(3, "cpu", "cpu", fsdp=True), "lora", "accelerate", marks=pytest.mark.very_slow),
        pytest.param(FSDP, "lora", "swift", marks=pytest.mark.very_slow),
        pytest.param(FSDP, "full", "llamafactory", marks=pytest.mark.very_slow),
        pytest.param(replace(FSDP, context=2), "full", "accelerate"),
        pytest.param(TENSOR, "full", "torchrun"),
        pytest.param(ULYSSES, "full", "deepspeed"),
        pytest.param(ULYSSES, "full", "accelerate", marks=pytest.mark.very_slow),
    ],
    ids=[
        *("zero2", "offload", "zero3", "swift", "fsdp2", "fsdp2 offload", "swift fsdp2", "llamafactory fsdp2"),
        *("context parallel", "tensor parallel", "ulysses", "ulysses accelerate"),
    ],
)
def test_it_rehearses_go(family: Family, tune: TuningMethod, launcher: str, tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    make_project(tmp_path)
    gpus = f"{2 * family.tensor}xA100-80G"
    asked = request(tmp_path / "model", gpus, tune=tune)
    choice = estimate_by_formula(asked, SEVEN_BILLION, Strategy(family, family.zero == 3, 2, 4), NO_CALIBRATION)
    folder = tmp_path / "written"
    write_strategy(folder, choice, asked, replace(SEVEN_BILLION, hidden_size=64))
    shutil.copy(tmp_path / "data" / "train.jsonl", folder / "data.jsonl")
    of_framework = {"PYTHONPATH": str(framework(launcher))} if launcher in ("swift", "llamafactory") else {}
    environment = {**os.environ, **of_framework}
    done = subprocess.run(
        [sys.executable, "-m", "gonogo", "rehearse", "--gpus", gpus, "--host-memory", "1T", "--format", "json",
         "--", "bash", f"launch_{launcher}.sh"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert report["verdict"] == "GO", (report["findings"], report["skipped"], done.stderr)
