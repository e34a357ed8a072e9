"""docs/plan.md says what the command has, and the numbers that the code takes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gonogo.evidence.environment.hardware import MATMUL_EFFICIENCY
from gonogo.trials.plan import roofline
from gonogo.trials.plan.choice import UNCERTAINTY_BY_SOURCE
from gonogo.virtual.tracing import operator_time

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("docs/plan.md", "docs/plan.zh-CN.md")


@pytest.fixture(scope="module")
def help_text() -> str:
    return subprocess.run(
        [sys.executable, "-m", "gonogo", "plan", "--help"], capture_output=True, text=True, timeout=300, check=True
    ).stdout


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_option_is_documented(document: str, help_text: str) -> None:
    options = set(re.findall(r"^ +(?:-\w, )?(--[\w-]+)", help_text, re.MULTILINE)) - {"--help"}
    assert {"--gpus", "--solve", "--picture"} <= options
    text = (ROOT / document).read_text(encoding="utf-8")
    assert {option for option in options if f"`{option}" not in text} == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_numbers_are_those_of_the_code(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    for share in (*UNCERTAINTY_BY_SOURCE.values(), MATMUL_EFFICIENCY, roofline.MEMORY_SHARE, roofline.LINK_SHARE,
                  roofline.HOST_LINK_SHARE):  # fmt: skip
        assert f"{share * 100:.0f} %" in text
    assert f"{operator_time.LAUNCH_SECONDS * 1e6:.0f} µs" in text
    assert f"{roofline.HOST_MEMORY_BYTES_PER_SECOND / 1e9:.0f} GB/s" in text
    assert f"{roofline.NVME_BYTES_PER_SECOND / 1e9:.0f} GB/s" in text
    assert re.search(rf"\b{roofline.ADAM_HOST_BYTES_PER_PARAMETER} (bytes|字节)", text)
    assert re.search(rf"\b{roofline.ADAM_NVME_BYTES_PER_PARAMETER} (bytes|字节)", text)
