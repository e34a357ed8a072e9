"""Every hazard against its fixtures of guarded runs: ``tests/hazards/<name>/{bad,good}*.guard.json``, found by glob.

A bad fixture's first finding is the hazard's, a certain error unless its name says otherwise (``bad_likely…``,
``bad_warning…``, ``bad_note…``; ``bad_fallback…``: of a fallback). A good one looks alike, and the hazard is silent.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from test_hazards import assert_readable

from gonogo.evidence.guarded.guarded_run import GuardedRun
from gonogo.evidence.guarded.records import GuardFaultRecord, PlacedTensors, PlacementSnapshot, ZeroState
from gonogo.finding import Certainty, Finding, Severity
from gonogo.guard.findings import findings_in_guarded_run
from gonogo.guard.report import guarded_run_report
from gonogo.hazards.index import all_hazards
from gonogo.report import FORMATS, render

FIXTURES = Path(__file__).parent / "hazards"
BAD = sorted(FIXTURES.glob("*/bad*.guard.json"))
GOOD = sorted(FIXTURES.glob("*/good*.guard.json"))
HAZARDS = {hazard.name: hazard for hazard in all_hazards()}


def case(path: Path) -> str:
    return f"{path.parent.name}/{path.name.removesuffix('.guard.json')}"


def run_of(path: Path) -> GuardedRun:
    return msgspec.json.decode(path.read_bytes(), type=GuardedRun)


def found(name: str, case: str) -> tuple[Finding, ...]:
    return findings_in_guarded_run(run_of(FIXTURES / name / f"{case}.guard.json"))


def test_there_are_fixtures() -> None:
    assert len(BAD) > 20


@pytest.mark.parametrize("path", BAD, ids=case)
def test_a_bad_case_is_found_first(path: Path) -> None:
    name, kind = path.parent.name, path.name
    findings = findings_in_guarded_run(run_of(path))
    assert findings[0].hazard == name, [f.hazard for f in findings]
    severity, certainty = findings[0].severity, findings[0].certainty
    if kind.startswith("bad_warning"):
        assert severity is Severity.WARNING
    elif kind.startswith("bad_note"):
        assert severity is Severity.NOTE
    else:
        wanted = Certainty.LIKELY if kind.startswith("bad_likely") else Certainty.CERTAIN
        if name == "step-stands-still":
            wanted = Certainty.LIKELY
        assert (severity, certainty) == (Severity.ERROR, wanted)
    assert findings[0].ranks
    assert findings[0].sources == HAZARDS[name].sources
    for finding in findings:
        assert_readable(finding)


@pytest.mark.parametrize("path", GOOD, ids=case)
def test_a_good_case_is_left_alone(path: Path) -> None:
    assert path.parent.name not in [f.hazard for f in findings_in_guarded_run(run_of(path))]


@pytest.mark.parametrize("path", [*BAD, *GOOD], ids=case)
def test_every_format_tells_of_it(path: Path) -> None:
    report = guarded_run_report(run_of(path), "/home/user/finetune")
    for format_name in FORMATS:
        for language in ("en", "zh"):
            assert render(report, format_name, language).strip()


def test_what_a_program_says_cannot_steer_the_terminal() -> None:
    run = run_of(FIXTURES / "device-mismatch-buffer-on-cpu" / "bad_likely_tensor_left_behind.guard.json")
    evil = "\x1b]0;owned\x07[red]\u202e"
    raised = run.ranks[1].exceptions[0]
    operands = tuple(replace(one, name=evil, device=evil, dtype=evil, parameter=evil) for one in raised.operands)
    zero = (ZeroState(evil, evil, (1,), evil),)
    changed = replace(raised, message=raised.message + evil, module=evil, operands=operands, zero=zero)
    run.ranks[1].exceptions[:] = [changed]
    assert run.ranks[1].start is not None
    run.ranks[1].start = replace(run.ranks[1].start, host=evil)
    run.ranks[1].placements[:] = [
        PlacementSnapshot(1.0, places=(PlacedTensors("buffer", evil, evil, 1, 1, (evil,), evil),))
    ]
    run.ranks[0].faults[:] = [GuardFaultRecord(1.0, part=evil, type=evil, message=evil)]
    for format_name in ("text", "markdown", "github"):
        for language in ("en", "zh"):
            written = render(guarded_run_report(run), format_name, language)
            assert not {"\x1b", "\x07", "\u202e"} & set(written)


class TestTheRootRank:
    """Which rank a report blames, and what it says of it."""

    @pytest.mark.parametrize(
        ("name", "case", "ranks"),
        [
            ("rank-late-at-collective", "bad_data_loader", (3,)),
            ("rank-late-at-collective", "bad_stopped", (3,)),
            ("rank-killed", "bad_sigkill", (2,)),
            ("rank-killed", "bad_left_by_sys_exit", (2,)),
            ("cpu-ram-oom-killed", "bad_counted_by_the_kernel", (2,)),
            ("ranks-set-up-differently", "bad_config", (3,)),
            ("device-mismatch-buffer-on-cpu", "bad_likely_tensor_left_behind", (1,)),
            ("rank-never-joined", "bad_likely_no_process", (3,)),
        ],
    )
    def test_it_is_the_first(self, name: str, case: str, ranks: tuple[int, ...]) -> None:
        assert found(name, case)[0].ranks == ranks

    def test_a_lost_connection_is_no_cause(self) -> None:
        assert [f.hazard for f in found("rank-killed", "bad_sigkill")] == ["rank-killed"]

    def test_what_the_late_rank_does_is_said(self) -> None:
        finding = found("rank-late-at-collective", "bad_data_loader")[0]
        assert "data loading" in finding.cause.en
        assert "Ranks 0-2 wait in all_reduce" in finding.cause.en
        assert "rank 3 has not reached it" in finding.cause.en
        assert finding.spans[0].path.endswith("transformers/trainer.py") or "train.py" in finding.spans[0].path

    def test_a_stopped_process_is_told_from_a_busy_one(self) -> None:
        assert "does not respond" in found("rank-late-at-collective", "bad_stopped")[0].cause.en

    def test_the_setting_that_differs_is_named(self) -> None:
        assert "train_micro_batch_size_per_gpu" in found("ranks-set-up-differently", "bad_config")[0].cause.en

    def test_the_launchers_own_killing_is_no_cause(self) -> None:
        findings = found("rank-killed", "good_ended_by_the_launcher")
        assert findings[0].hazard == "program-raises"
        assert findings[0].ranks == (0,)
