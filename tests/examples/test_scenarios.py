"""Each scenario from end to end, as a user would run it: NO-GO with the right cause and place, and GO once cured."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from frameworks_installed import framework

EXAMPLES = Path(__file__).parents[2] / "examples"
CLIPPING = "zero3-offload-clip-grad-device-regression"

# Scenarios at true size take a minute or two each on two cores; versions that are laid over are fetched once.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def contents(folder: Path) -> dict[str, str]:
    """Every file and folder below, with what is in it."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in folder.rglob("*")
    }


def rehearse(folder: Path, *arguments: str, gpus: str = "8xH100-80G") -> tuple[int, dict[str, Any]]:
    """Exit status and JSON report of ``gonogo rehearse`` in that folder. The folder must be left as it was."""
    before = contents(folder)
    chosen = () if {"--environment", "--with"} & set(arguments) else ("--environment", "none")
    done = subprocess.run(
        [sys.executable, "-m", "gonogo", "rehearse", "--yes", "--gpus", gpus, "--format", "json", *chosen, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": ""},
        capture_output=True,
        text=True,
        timeout=1100,
    )
    assert contents(folder) == before
    assert done.stdout, done.stderr[-3000:]
    return done.returncode, json.loads(done.stdout)


def example(name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES / name, tmp_path / name))


def fewer_micro_batches(folder: Path, count: int) -> Path:
    """The same with ``count`` micro-batches a step: each costs as much time as the first, and shows nothing new."""
    launch = folder / "launch.sh"
    before = launch.read_text()
    after = before.replace("--gradient_accumulation_steps 8", f"--gradient_accumulation_steps {count}")
    assert after != before
    launch.write_text(after)
    return folder


def fixed(name: str, tmp_path: Path) -> Path:
    """The example with what ``gonogo check --fix`` makes of it, and without the cured files that it ships."""
    folder = example(name, tmp_path)
    for path in folder.glob("*_fixed.*"):
        path.unlink()
    command = [sys.executable, "-m", "gonogo", "check", "--fix", "--unsafe-fixes", "--", "bash", "launch.sh"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def lines_with(path: Path, text: str) -> set[int]:
    return {number for number, line in enumerate(path.read_text().splitlines(), 1) if text in line}


def first_place(report: dict[str, Any]) -> tuple[str, int]:
    span = report["findings"][0]["spans"][0]
    return span["path"], span["line"]


def explain(report: dict[str, Any]) -> str:
    """What a failing test should show: the verdict, its findings, and how far each rank came."""
    ranks = [
        {key: rank.get(key) for key in ("rank", "outcome")} for rank in (report.get("rehearsal") or {}).get("ranks", [])
    ]
    findings = [(found["hazard"], found["certainty"], found["cause"]) for found in report["findings"]]
    return json.dumps([report["verdict"], findings, report["skipped"], ranks], indent=1, ensure_ascii=False)


@pytest.mark.parametrize(
    ("name", "gpus", "hazard", "source", "text"),
    [
        (
            "qwen_omni_audio_zero3",
            "4xH100-80G",
            "device-mismatch-multimodal-submodule",
            "train.py",
            "= Qwen2_5OmniForConditionalGeneration.from_pretrained(",
        ),
        (
            "qwen_7b_device_map",
            "8xA100-80G",
            "device-map-auto-distributed",
            "finetune.py",
            "= AutoModelForCausalLM.from_pretrained(",
        ),
        pytest.param(
            "slam_omni_dummy_loss",
            "8xH100-80G",
            "zero3-direct-param-use-invalid-gradient",
            "train.py",
            "p.sum()",
            marks=pytest.mark.very_slow,
        ),
    ],
)
def test_a_faulty_script_is_no_go_and_its_line_is_named(
    name: str, gpus: str, hazard: str, source: str, text: str, tmp_path: Path
) -> None:
    folder = example(name, tmp_path)
    status, report = rehearse(folder, "--", "bash", "launch.sh", gpus=gpus)
    assert (status, report["verdict"]) == (1, "NO-GO"), explain(report)
    assert report["findings"][0]["hazard"] == hazard, explain(report)
    assert report["findings"][0]["certainty"] == "certain"
    path, line = first_place(report)
    assert (folder / path).resolve() == (folder / source).resolve()
    assert line in lines_with(folder / source, text)
    assert report["findings"][0]["cure"]


@pytest.mark.very_slow
@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        ("qwen_omni_audio_zero3", "4xH100-80G"),
        ("qwen_7b_device_map", "8xA100-80G"),
        ("slam_omni_dummy_loss", "8xH100-80G"),
    ],
)
def test_a_script_that_check_has_fixed_is_go(name: str, gpus: str, tmp_path: Path) -> None:
    status, report = rehearse(fixed(name, tmp_path), "--steps", "1", "--", "bash", "launch.sh", gpus=gpus)
    assert (status, report["verdict"]) == (0, "GO"), explain(report)
    assert [rank["outcome"] for rank in report["rehearsal"]["ranks"]] == ["completed"]


@pytest.mark.parametrize(
    ("name", "micro_batches"),
    [
        pytest.param("minicpmv_zero3_offload", None, marks=pytest.mark.very_slow),
        pytest.param("qwen_72b_zero3_offload", 1, marks=pytest.mark.very_slow),
        pytest.param("qwen_72b_zero3_offload", None, marks=pytest.mark.very_slow),  # 8 micro-batches of 80 layers
    ],
)
def test_the_faulty_environment_is_no_go_and_deepspeeds_line_is_named(
    name: str, micro_batches: int | None, tmp_path: Path
) -> None:
    folder = example(name, tmp_path)
    if micro_batches is not None:
        fewer_micro_batches(folder, micro_batches)
    status, report = rehearse(folder, "--environment", "requirements.txt", "--", "bash", "launch.sh")
    assert (status, report["verdict"]) == (1, "NO-GO"), explain(report)
    assert report["findings"][0]["hazard"] == CLIPPING, explain(report)
    path, line = first_place(report)
    assert path.endswith("deepspeed/runtime/zero/stage3.py")
    # 0.14.2's own line: self.fp32_partitioned_groups_flat[sub_group_id].grad.mul_(1. / combined_scale)
    assert line == 2117
    assert "grad.mul_" in report["findings"][0]["spans"][0]["text"]
    users = [span for span in report["findings"][0]["spans"] if Path(span["path"]).name == "finetune.py"]
    assert users
    assert users[0]["line"] in lines_with(folder / "finetune.py", "trainer.train()")


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        pytest.param("minicpmv_zero3_offload", "1", marks=pytest.mark.very_slow),
        pytest.param("qwen_72b_zero3_offload", "2", marks=pytest.mark.very_slow),  # 16 micro-batches of 80 layers
    ],
)
def test_an_environment_that_check_has_fixed_is_go(name: str, steps: str, tmp_path: Path) -> None:
    folder = fixed(name, tmp_path)
    arguments = ["--environment", "requirements.txt", "--steps", steps, "--timeout", "1000"]
    status, report = rehearse(folder, *arguments, "--", "bash", "launch.sh")
    assert (status, report["verdict"]) == (0, "GO"), explain(report)


@pytest.mark.parametrize(
    ("version", "status"),
    [
        pytest.param("0.14.0", 0, marks=pytest.mark.very_slow),
        pytest.param("0.14.1", 1, marks=pytest.mark.very_slow),
        pytest.param("0.14.2", 1, marks=pytest.mark.very_slow),  # the requirements files' versions are tried above
        pytest.param("0.14.3", 0, marks=pytest.mark.very_slow),
        pytest.param("0.14.4", 0, marks=pytest.mark.very_slow),
        pytest.param(None, 0, marks=pytest.mark.very_slow),  # as the 72B run, and the environment that check has fixed
    ],
    ids=lambda value: str(value) if not isinstance(value, int) else "",
)
def test_only_the_two_faulty_releases_of_deepspeed_are_no_go(version: str | None, status: int, tmp_path: Path) -> None:
    chosen = ["--with", f"deepspeed=={version}"] if version else []
    folder = example("minicpmv_zero3_offload", tmp_path)
    got, report = rehearse(folder, *chosen, "--steps", "1", "--", "bash", "launch.sh")
    assert got == status, explain(report)
    named = [found["hazard"] for found in report["findings"] if found["severity"] == "error"]
    assert named[:1] == ([CLIPPING] if status else [])


@pytest.mark.very_slow
@pytest.mark.parametrize("micro_batches", [2, 8])
def test_the_72b_run_fits_because_it_is_offloaded(micro_batches: int, tmp_path: Path) -> None:
    """The memory table: what a rank keeps on the host can be counted by hand, and a node's ranks need over 1.4 TB."""
    folder = example("qwen_72b_zero3_offload", tmp_path)
    if micro_batches != 8:
        fewer_micro_batches(folder, micro_batches)
    arguments = ["--steps", "1", "--timeout", "1000", "--", "bash", "launch.sh"]
    status, report = rehearse(folder, "--host-memory", "2T", *arguments)
    assert (status, report["verdict"]) == (0, "GO"), explain(report)
    (rank,) = report["rehearsal"]["ranks"]
    assert 10e9 < rank["peak_reserved_bytes"] < 60e9
    share = 72.706e9 / 8
    on_host = rank["host_peak_by_category"]
    assert on_host["optimizer"] == pytest.approx(12 * share, rel=0.01)  # fp32 weights and two moments
    assert on_host["parameters"] == pytest.approx(2 * share, rel=0.01)
    assert on_host["gradients"] == pytest.approx(6 * share, rel=0.01)  # fp32, and the bf16 ones that are reduced
    assert report["rehearsal"]["host_per_node"]["peak_bytes"] > 8 * 20 * share * 0.99


@pytest.mark.very_slow
def test_the_72b_run_does_not_fit_on_half_the_host_memory(tmp_path: Path) -> None:
    folder = example("qwen_72b_zero3_offload", tmp_path)
    arguments = ["--steps", "1", "--timeout", "1000", "--", "bash", "launch.sh"]
    status, report = rehearse(folder, "--host-memory", "1T", *arguments)
    assert (status, report["findings"][0]["hazard"]) == (1, "cpu-ram-oom-killed"), explain(report)


@pytest.mark.very_slow  # tests/rehearse/test_run.py says the same of a small model
def test_the_report_is_the_same_twice(tmp_path: Path) -> None:
    folder = example("slam_omni_dummy_loss", tmp_path)
    reports = [rehearse(folder, "--", "bash", "launch.sh")[1] for _ in range(2)]
    for report in reports:
        assert report["rehearsal"].pop("seconds") > 0  # the one thing that may differ
    assert reports[0] == reports[1]


@pytest.mark.very_slow
def test_a_7b_grpo_is_out_of_memory_in_the_weight_sync_and_go_once_the_engine_sleeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(framework("trl")))
    folder = example("grpo_7b_colocated_weight_sync", tmp_path)
    status, report = rehearse(folder, "--", "bash", "launch.sh")
    assert (status, report["verdict"]) == (1, "NO-GO"), explain(report)
    (found,) = (one for one in report["findings"] if one["severity"] == "error")
    assert found["hazard"] == "rollout-memory-fraction-too-large"
    assert found["certainty"] == "certain"
    assert "In the weight synchronization (step 1)" in json.dumps(found["cause"])
    status, report = rehearse(folder, "--", "bash", "launch_fixed.sh")
    assert (status, report["verdict"]) == (0, "GO"), explain(report)
