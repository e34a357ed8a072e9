"""What the programs of this folder really do on several ranks: real processes, real DeepSpeed, gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from operators_in_python import without_compiling
from world_programs import HANG, HEALTHY, WORLDS, Expected, needs, world_size

SOON = ["hang/barrier_on_one_side", "hang/zero2_head_unused_on_a_rank", "healthy/flag_synchronised_before_branch"]
"""What `make test` runs: the others are as they are until a version of the stack changes."""


def argument(program: str) -> str:
    return f"{WORLDS / program}:{world_size(WORLDS / program)}"


def truth(*programs: str) -> dict[str, dict[str, str]]:
    """How each rank of each program ended."""
    done = subprocess.run(
        [sys.executable, str(WORLDS / "truth.py"), *map(argument, programs)],
        env=without_compiling({**os.environ, "DS_ACCELERATOR": "cpu"}),
        capture_output=True,
        text=True,
        timeout=240 * max(len(programs), 5),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for one in told:
        print(one["program"], one["ended"], one["seconds"])
        for rank, output in one["output"].items():
            print(f"--- {one['program']}, rank {rank}\n{output}")
    return {one["program"]: one["ended"] for one in told}


def wrong(ended: dict[str, dict[str, str]]) -> list[str]:
    """Programs that did not do what their folder says: hang or fail on some rank, or end well on each."""
    return [
        program
        for program, ranks in ended.items()
        if program.startswith("healthy/") != (set(ranks.values()) == {"0"}) or not ranks
    ]


@pytest.mark.very_slow
def test_some_programs_do_what_they_are_kept_for() -> None:
    ended = truth(*SOON)
    assert set(ended) == set(SOON)
    assert not wrong(ended)


@pytest.mark.very_slow
@pytest.mark.timeout(3600)
def test_every_program_does_what_it_is_kept_for() -> None:
    programs = [f"hang/{name}" for name in HANG] + [f"healthy/{name}" for name in HEALTHY]
    programs = [name for name in programs if "vllm" not in needs(WORLDS / name)]
    ended = truth(*(program for program in programs if program not in SOON))
    assert set(ended) == set(programs) - set(SOON)
    failed = wrong(ended)
    assert not [program for program in failed if program.startswith("healthy/")]
    for _ in range(2):  # ranks that make groups apart race for the places in the store, and meet now and then
        failed = wrong(truth(*failed)) if failed else []
    assert not failed


def test_there_are_enough() -> None:
    assert len(HANG) >= 10
    assert len(HEALTHY) >= 20


@pytest.mark.parametrize("name", HANG)
def test_what_is_expected_is_in_the_program(name: str) -> None:
    expected = Expected.of(name)
    lines = (WORLDS / "hang" / name / expected.file).read_text().splitlines()
    assert lines[expected.line - 1].strip() == expected.text
    ranks = sorted(rank for side in expected.ranks_apart for rank in side)
    assert ranks == list(range(expected.world_size))
