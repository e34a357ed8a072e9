"""A training asks nvidia-smi for its GPUs, and gets those of the machine that is rehearsed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gonogo.evidence.environment.hardware import parse_machine
from gonogo.rehearse.launch.launch import LaunchMachine
from gonogo.rehearse.shell.devices import install_smi_program


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ("-L", "GPU 0: NVIDIA H100 80GB HBM3"),
        ("--query-gpu=count,index --format=csv,noheader", "2, 0\n2, 1\n"),
        ("--query-gpu=driver_version --format=csv,noheader -i 0", "580."),
        ("", "NVIDIA-SMI"),
    ],
)
def test_a_program_that_asks_is_answered(tmp_path: Path, arguments: str, answer: str) -> None:
    folder = install_smi_program(
        tmp_path / "programs", LaunchMachine.from_machine(parse_machine("2xH100-80G", None, None, 1), None)
    )
    asked = [str(folder / "nvidia-smi"), *arguments.split()]
    assert answer in subprocess.run(asked, capture_output=True, text=True, check=True).stdout
