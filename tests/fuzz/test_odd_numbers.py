"""Numbers that no machine has, and shapes that no tensor has, are no reason to lose a finding."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gonogo.check.findings import check
from gonogo.diagnose.findings import read_failure
from gonogo.evidence.failure.message import parse_shape_sizes
from gonogo.evidence.number import parse_whole_number
from gonogo.finding import UserError

HUGE = "9" * 5000
TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GONOGO_DEBUG", "1")  # a fault of a rule's own is raised


@pytest.mark.parametrize(
    ("text", "number"),
    [("8", 8), (" 8 ", 8), ("0", 0), ("-1", None), ("8x", None), ("²", None), ("", None), (HUGE, None)],
)
def test_a_whole_number(text: str, number: int | None) -> None:
    assert parse_whole_number(text) == number


@pytest.mark.parametrize(
    ("text", "sizes"),
    [("16, -1, 128", [16, -1, 128]), ("8x128", [8, 128]), ("6-1", [6, -1]), ("1 2, , 3", [1, 2, 3]), ("", [])],
)
def test_sizes(text: str, sizes: list[int]) -> None:
    assert parse_shape_sizes(text) == sizes


@pytest.mark.parametrize(
    "lines",
    [
        f"#SBATCH --gres=gpu:{HUGE}\nsrun python train.py\n",
        f"CUDA_VISIBLE_DEVICES={HUGE} torchrun --nproc_per_node {HUGE} train.py\n",
        f"shift {HUGE}\nOPTIND={HUGE}\ngetopts ab: name\ntorchrun train.py\n",
        f"N=$(({HUGE}#1 + 0x{HUGE} + 0{'7' * 5000}))\ntorchrun --nproc_per_node $N train.py\n",
        f"N=$(echo 1,2 | cut -d, -f{HUGE})\ntorchrun --nproc_per_node $N train.py\n",
        f"N=$(expr {HUGE} + 1)\ntorchrun --nproc_per_node $N train.py\n",
    ],
)
def test_a_launch_script_with_a_huge_number_is_read(lines: str) -> None:
    Path("train.py").write_text("import torch\n")
    Path("launch.sh").write_text(lines)
    assert not check(["launch.sh"], use_installed=False).report.findings


@pytest.mark.slow
def test_a_log_with_huge_numbers_is_diagnosed() -> None:
    logs = sorted((TESTS / "hazards").glob("*/*.log"))
    assert len(logs) > 1000
    for log in logs:
        text = log.read_text(encoding="utf-8", errors="replace")
        Path("train.log").write_text(re.sub(r"\d+", lambda found: found[0] + "0" * 400, text), encoding="utf-8")
        try:
            read_failure(["train.log"]).report()
        except UserError:  # nothing of it is a log any more
            continue
        except Exception as error:
            raise AssertionError(f"{log}: {error!r}") from error


@pytest.mark.parametrize("shape", ["6-1", "0, -1, 128", "1 2, 3, 4, 5", " , , , ", "2, 0, 8, 4"])
@pytest.mark.parametrize("size", ["0", "4096"])
def test_a_view_of_an_impossible_shape_is_answered(shape: str, size: str) -> None:
    Path("train.log").write_text(
        'Traceback (most recent call last):\n  File "modeling.py", line 9, in forward\n    q = q.view(-1, head_dim)\n'
        f"RuntimeError: shape '[{shape}]' is invalid for input of size {size}\n"
    )
    assert read_failure(["train.log"]).report().findings
