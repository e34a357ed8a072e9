"""The index of hazards: those that a log's letters leave out find nothing in it, and what is asked first is enough."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from log_cases import LogCase, log_cases
from log_cuts import DRESSED, SHORTENED, only_the_last_line

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.evidence.patterns import Pattern
from gonogo.evidence.setup import Setup
from gonogo.hazards import index
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.index import all_hazards
from gonogo.hazards.letters import literals_of_pattern
from gonogo.hazards.pack import stages_of

ROOT = Path(__file__).parent.parent
EVERY = 40
CASES = tuple(
    case
    for folder in sorted((ROOT / "tests" / "hazards").iterdir())
    if folder.is_dir()
    for case in log_cases(folder)
    if zlib.crc32(str(case).encode()) % EVERY == 0
)
AS_GIVEN_AND_CUT = (None, *SHORTENED, *DRESSED)


def log_of(text: str) -> FailureLog:
    return FailureLog([LogLine("run.log", number, line) for number, line in enumerate(text.splitlines(), 1)], Setup())


def test_the_index_has_every_hazard_and_where_it_is_met() -> None:
    known = {hazard.name: stages_of(hazard) for hazard in all_hazards()}
    assert {name: list(row.stages) for name, row in index.index_rows().items()} == known
    assert all(index.hazard_of(name) is hazard for hazard in all_hazards() for name in [hazard.name])
    assert index.hazard_of("no-such-hazard") is None


@pytest.mark.parametrize("case", CASES, ids=str)
def test_hazards_that_are_left_out_find_nothing(case: LogCase, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_of: list[FailureLog] = []

    def asked(log: FailureLog) -> tuple[Hazard, ...]:
        asked_of.append(log)
        return index.hazards_possible_in_log(log)

    monkeypatch.setattr("gonogo.judge.log_findings.hazards_possible_in_log", asked)
    text = case.text.decode("utf-8", "replace")
    for cut in AS_GIVEN_AND_CUT[:: 1 if case.name.startswith("bad") else len(AS_GIVEN_AND_CUT)]:
        case.findings((text if cut is None else cut(text)).encode())
    for log in asked_of:
        met = index.hazards_possible_in_log(log)
        assert [one.name for one in index.hazards_at_stages("log") if one not in met and any(one.in_log(log))] == []
        left = index.hazards_possible_in_cut_log(log)
        others = [one for one in all_hazards() if one not in left]
        assert [
            one.name for one in others if one.ends_at and find_truncated_error(log, *one.ends_at, max_frames=4)
        ] == []
        assert [one.name for one in others if any(log.has(trace) for trace in one.traces)] == []


def test_a_long_log_is_asked_of_all() -> None:
    few = index.hazards_possible_in_log(log_of("loss: 0.1"))
    assert 0 < len(few) < 60
    assert index.hazards_possible_in_log(
        log_of("loss: 0.1\n" * (index.MAX_SHORT_LOG_CHARS // 9 + 1))
    ) == index.hazards_at_stages("log")


def test_a_start_imports_the_hazards_that_may_be_met(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(only_the_last_line("ModuleNotFoundError: No module named 'mpi4py'\n"))
    counted = (
        "import sys; from gonogo.cli.app import main\n"
        "try: main()\n"
        "finally: print(sum(name.startswith('gonogo.hazards.') for name in sys.modules), file=sys.stderr)\n"
    )
    for arguments, most in ((["diagnose", "run.log"], 160), (["explain", "zero3-moe-hang"], 40)):
        run = subprocess.run(
            [sys.executable, "-c", counted, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert int(run.stderr.splitlines()[-1]) < most, run.stderr


@pytest.mark.parametrize(
    ("pattern", "letters"),
    [
        (r"cannot import name 'fully_shard'", {"cannot import name 'fully_shard'"}),
        (r"(?i)Out of Memory|NoSpace", {"out of memory", "nospace"}),
        (r"(?:CUDA|NPU) error: \d+", {" error: "}),
        (r"(?:broken|illegal) (?P<what>\w+)", {"broken", "illegal"}),
        (r"[Ee]xpected scalar|unscale\w*", {"expected scalar", "unscale"}),
        (r"(?:optional)?at least", {"at least"}),
        (r"\bhung\b|卡住", {"hung", "卡住"}),
        (r"a dash \x{2014} here", {"a dash — here"}),
        (r"\d+ of \d", {" of "}),
        (r"T4|TITAN", {""}),
        (r"\w+|word", {""}),
        (r"\pL and what re does not parse", {""}),
    ],
)
def test_letters_of_a_pattern(pattern: str, letters: set[str]) -> None:
    assert literals_of_pattern(Pattern(pattern)) == letters
