"""The examples' scripts with a small model, trained for real by DeepSpeed on the CPU: they are sound programs.

A CPU has one device, so of the five failures only the dummy loss can show itself here; it does, word for word.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from shrunken import shrunken, trained

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
# DeepSpeed compiles its CPU operators when they are first used on a machine, which takes some minutes.
compiles = [
    pytest.mark.very_slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="DeepSpeed compiles its CPU optimizer with g++"),
]

TRAINER = (
    *("--model_name_or_path", "model", "--output_dir", "output", "--deepspeed", "ds_config.json"),
    *("--use_cpu", "True", "--bf16", "True", "--gradient_checkpointing", "True", "--report_to", "none"),
    *(
        "--per_device_train_batch_size",
        "1",
        "--max_steps",
        "1",
        "--logging_steps",
        "1",
        "--data_path",
        "data/few.jsonl",
    ),
)
SLAM = ("--deepspeed", "--deepspeed_config", "ds_config.json", "--llm_path", "model", "--max_length", "128")


def run(
    example: str, folder: Path, *command: str, processes: int = 1, compiled: bool = False
) -> subprocess.CompletedProcess[str]:
    copy = shrunken(example, folder)
    rows = (copy / "data" / "train.jsonl").read_text().splitlines(keepends=True)
    (copy / "data" / "few.jsonl").write_text("".join(rows[:4]))
    return trained(copy, *command, processes=processes, compiled=compiled, timeout=1100)


@pytest.mark.slow
def test_the_dummy_loss_fails_as_in_the_thread(tmp_path: Path) -> None:
    done = run("slam_omni_dummy_loss", tmp_path, "train.py", *SLAM, "--data_path", "data/few.jsonl")
    assert done.returncode == 1
    assert (
        "RuntimeError: Function SumBackward0 returned an invalid gradient at index 0 - got [0] but expected shape "
        "compatible with [12480]"
    ) in done.stderr


@pytest.mark.parametrize(
    ("processes", "compiled"),
    [pytest.param(1, True, marks=compiles), pytest.param(2, False, marks=pytest.mark.very_slow)],
    ids=["one process, compiled operators", "two processes"],
)
def test_without_the_dummy_loss_it_trains_and_saves(processes: int, compiled: bool, tmp_path: Path) -> None:
    done = run(
        "slam_omni_dummy_loss",
        tmp_path,
        *("train_fixed.py", *SLAM, "--data_path", "data/few.jsonl", "--output_dir", "out"),
        processes=processes,
        compiled=compiled,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    losses = [float(loss) for loss in re.findall(r"step \d+ loss ([\d.]+)", done.stdout)]
    assert len(losses) == 4 // processes
    assert all(0 < loss < 30 for loss in losses)
    assert (tmp_path / "slam_omni_dummy_loss" / "out" / "pytorch_model.bin").exists()


@pytest.mark.parametrize("compiled", [pytest.param(True, marks=compiles, id="compiled operators"), False])
@pytest.mark.very_slow
@pytest.mark.parametrize(
    ("example", "command"),
    [
        pytest.param(
            *("qwen_72b_zero3_offload", ("finetune.py", *TRAINER, "--model_max_length", "128")),
            marks=pytest.mark.very_slow,
        ),
        (
            "qwen_7b_device_map",
            (
                *("finetune_fixed.py", *TRAINER, "--model_max_length", "128", "--eval_data_path", "data/few.jsonl"),
                *("--eval_strategy", "steps", "--eval_steps", "1", "--prediction_loss_only", "True"),
            ),
        ),
        pytest.param(
            *("minicpmv_zero3_offload", ("finetune.py", *TRAINER, "--remove_unused_columns", "False")),
            marks=pytest.mark.very_slow,
        ),
        pytest.param(
            *(
                "qwen_omni_audio_zero3",
                ("train.py", *TRAINER, "--remove_unused_columns", "False", "--save_strategy", "no"),
            ),
            marks=pytest.mark.very_slow,
        ),
    ],
)
def test_a_trainer_script_trains_and_saves(
    example: str, command: tuple[str, ...], compiled: bool, tmp_path: Path
) -> None:
    done = run(example, tmp_path, *command, compiled=compiled)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"'loss': '?\d+(\.\d+)?[',]", done.stdout), done.stdout[-2000:]
    assert (tmp_path / example / "output" / "model.safetensors").exists()
