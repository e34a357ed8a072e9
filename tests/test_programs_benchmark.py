"""The programs whose truth is known by running them: what each says of itself, and what came of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmark_modules import benchmark

programs = benchmark("programs")


@pytest.mark.parametrize("program", programs.programs([]), ids=lambda program: program.stem)
def test_a_program_says_its_truth_and_was_really_run(program: Path) -> None:
    said = programs.header(program)
    assert said["truth"] in ("GO", "NO-GO")
    assert said["why"]
    assert bool(said["says"]) is (said["truth"] == "NO-GO"), "of a failure, the words with which it ends"
    row = programs.kept()[program.stem]
    assert row["as_said"], row
    here = said["here"] or ("runs" if said["truth"] == "GO" else "fails")  # on a CPU some end otherwise
    assert (row["real"] == "runs") is (here == "runs")


def test_no_verdict_that_is_kept_is_certain_and_wrong() -> None:
    kept = programs.kept()
    rehearsed = [one for one in programs.programs([]) if "verdict" in kept[one.stem]]
    told = {one.stem: programs.score(one, kept[one.stem]["verdict"]) for one in rehearsed}
    assert len(told) >= 40
    assert "certain and wrong" not in told.values(), told


@pytest.mark.very_slow
@pytest.mark.parametrize(
    "name", ["ddp_uneven_slices", "early_stop_told_to_all", "last_save_cannot_be_pickled", "sampler_without_a_length"]
)
def test_a_program_is_rehearsed_as_it_runs(name: str) -> None:
    (program,) = programs.programs([name])
    assert programs.score(program, programs.rehearse(program)["verdict"]) == "right"
