"""Programs that really fail, cured for real: the patch is rehearsed GO, and what the user asked for is still done."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from world_programs import WORLDS, needs

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "cure.py"
CURES = {  # by example: the lines that the cure which it ships takes out or puts in
    "minicpmv_zero3_offload": 2,
    "qwen_72b_zero3_offload": 2,
    "qwen_7b_device_map": 1,
    "qwen_omni_audio_zero3": 1,
    "slam_omni_dummy_loss": 2,
}
QUICK = "programs/files_local_rank_refused"
NOT_CURED = {"hang/all_reduce_of_different_sizes", "hang/rewards_of_unequal_generations"}
"""What only its author can cure: which figure was to be averaged, or what a lost prompt counts, is nowhere said."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def benchmark() -> Any:
    spec = importlib.util.spec_from_file_location("cure_benchmark", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


PROGRAMS = {program.name: program for program in benchmark().programs()}


def changed_lines(patch: str) -> int:
    return sum(line[:1] in ("+", "-") and line[:3] not in ("+++", "---") for line in patch.splitlines())


@pytest.mark.parametrize(
    "name",
    [
        QUICK,
        *(
            pytest.param(name, marks=pytest.mark.very_slow)
            for name in PROGRAMS
            if name != QUICK and not name.startswith("examples/")
        ),
    ],
)
def test_a_failing_program_is_cured(name: str) -> None:
    report, kept, _ = benchmark().cure(PROGRAMS[name])
    told = [(one["title"]["en"], one["outcome"]["en"]) for one in report["cure"]["tried"]]
    assert kept, report["cure"]["patch"]
    if name in NOT_CURED:
        assert report["verdict"] == "CANNOT-TELL"
        assert report["findings"]
    else:
        assert report["verdict"] == "GO", told
        assert report["cure"]["proven"]


@pytest.mark.very_slow
@pytest.mark.parametrize("name", CURES)
def test_an_example_is_cured_by_no_more_than_the_cure_that_it_ships(name: str) -> None:
    report, _, _ = benchmark().cure(PROGRAMS[f"examples/{name}"])
    assert report["verdict"] == "GO", report["cure"]["tried"]
    assert report["cure"]["proven"]
    assert 0 < changed_lines(report["cure"]["patch"]) <= CURES[name]


def test_all_worlds_that_hang_are_among_them() -> None:
    trained = (one for one in (WORLDS / "hang").iterdir() if (one / "train.py").exists() and "vllm" not in needs(one))
    hang = {f"hang/{folder.name}" for folder in trained}
    assert hang <= set(PROGRAMS)
    assert len([name for name in PROGRAMS if not name.startswith("examples/")]) >= 20


@pytest.mark.parametrize("document", ["cure.md", "cure.zh-CN.md"])
def test_the_document_counts_them_all(document: str) -> None:
    text = (BENCHMARK.parents[1] / "docs" / document).read_text(encoding="utf-8")
    row = r"^\|[^|]*`(?:tests/cure/programs/|tests/worlds/)?(\w+?)_?\*?`[^|]*\| (\d+) \D+ (\d+)"
    told = {kind: (int(cured), int(all_)) for kind, cured, all_ in re.findall(row, text, re.MULTILINE)}
    kinds = [name.partition("/")[0] if name.startswith("hang/") else name.partition("/")[2].partition("_")[0]
             for name in PROGRAMS if not name.startswith("examples/")]  # fmt: skip
    failing = Counter(name.partition("/")[0] for name in NOT_CURED)
    assert told == {kind: (kinds.count(kind) - failing[kind], kinds.count(kind)) for kind in dict.fromkeys(kinds)}
