"""How well causes are found in logs as people hand them on (``log_cuts.py``), over the logs of all hazards.

What is shortened loses what decides, and no way of cutting may make an answer surer; what is only dressed up loses
nothing. The figures are floors: `python tests/test_cut_logs.py` prints what they are now. A log that nothing explains
is held against the hazards' cases (``judge/similar/``): here against all but itself.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from log_cases import LogCase, log_cases
from log_cuts import DRESSED, SHORTENED, Cut

from gonogo.diagnose.findings import read_failure
from gonogo.finding import Certainty, Finding, Severity
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.index import all_hazards
from gonogo.judge.similar.cases import load_case_index
from gonogo.judge.similar.features import Features
from gonogo.judge.similar.index import ThreadIndex

CASES = tuple(
    case
    for folder in sorted((Path(__file__).parent / "hazards").iterdir())
    if folder.is_dir()
    for case in log_cases(folder)
    if case.is_bad
)
EVERY = 4
"""The tests look at one case of so many, chosen by its name: a new case moves no other. The program looks at all."""
FIRST = {
    "only_the_last_line": 0.62,
    "without_the_last_line": 0.68,
    "the_first_half": 0.31,
    "the_last_20_lines": 0.85,
    "wrapped_at_80_columns": 0.93,
    "in_a_box_of_rich": 0.9,
}
"""The part of logs whose first finding stays the right one, at least; 0.97 for what isn't named here."""


@cache
def whole(case: LogCase) -> tuple[Finding, ...]:
    return case.findings()


def cut_cases(cut: Cut, cases: tuple[LogCase, ...]) -> Iterator[tuple[LogCase, tuple[Finding, ...]]]:
    """The cases that the cut changes and leaves something of, each with what is found in the rest."""
    for case in cases:
        text = case.text.decode("utf-8", "replace")
        rest = cut(text)
        if rest.strip() and rest.strip() != text.strip():
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(ThreadIndex, "containing", without(case))
                findings = case.findings(rest.encode())
            yield case, findings


@cache
def numbers_of_cases() -> dict[str, int]:
    return {thread.address: number for number, thread in enumerate(load_case_index().threads)}


def without(case: LogCase) -> Callable[[ThreadIndex, Features], list[tuple[float, int]]]:
    """``ThreadIndex.containing`` as if there were no such case."""
    own = {number for name, number in numbers_of_cases().items() if name == str(case)}
    return lambda index, features: containing(index, features, own)


containing = ThreadIndex.containing


def surer(case: LogCase, findings: tuple[Finding, ...]) -> list[str]:
    """Hazards that are certain in the cut log, and of which the whole one shows nothing.

    One that yields to the case's own hazard is there in the whole log as well, behind that.
    """
    known = {one.hazard for one in whole(case)}
    errors = (one for one in findings if one.certainty is Certainty.CERTAIN and one.severity is not Severity.NOTE)
    yield_to_it = {one.name for one in all_hazards() if case.folder.name in one.yields_to}
    return [one.hazard for one in errors if one.hazard not in {*known, *yield_to_it, case.folder.name}]


def first_cause(findings: Sequence[Finding]) -> str:
    """The first hazard that names a cause; above one that nothing links to the exception stands what was raised."""
    return next(
        (one.hazard for one in findings if one.hazard != "program-raises"), "program-raises" if findings else ""
    )


@pytest.mark.parametrize("cut", [*SHORTENED, *DRESSED], ids=lambda cut: cut.__name__)
def test_the_cause_is_found_in_what_is_left_and_nothing_gets_surer(cut: Cut) -> None:
    found = list(cut_cases(cut, tuple(case for case in CASES if zlib.crc32(str(case).encode()) % EVERY == 0)))
    right = sum(first_cause(findings) == case.folder.name for case, findings in found)
    assert found
    assert right / len(found) >= FIRST.get(cut.__name__, 0.97)
    assert {str(case): names for case, findings in found if (names := surer(case, findings))} == {}


@pytest.mark.parametrize(
    ("hazard", "path", "what"),
    [pytest.param(one, *place, id=one.name) for one in all_hazards() for place in one.ends_at],
)
def test_where_a_traceback_ends_is_a_hint_at_most(hazard: Hazard, path: str, what: str, tmp_path: Path) -> None:
    file = "/opt/venv/lib/python3.11/site-packages/trl/trainer/../../" + (path or "swift/train.py")
    file = file if file.endswith(".py") else file.rstrip("/") + "/models.py"
    log = tmp_path / "run.log"
    begun_by = "deepspeed --num_gpus 8 train.py\n" if hazard.theme == "zero3" else ""
    log.write_text(
        begun_by
        + 'Traceback (most recent call last):\n  File "/data/run/train.py", line 3, in main\n    trainer.train()\n'
        f'  File "{file.replace("/_vl.py", "/modeling_vl.py")}", line 71, in f\n    {what} x\n'
    )
    findings = {one.hazard: one for one in read_failure([str(log)]).report().findings}
    assert hazard.name in findings
    assert Certainty.CERTAIN not in {one.certainty for one in findings.values()}


def main() -> None:
    for cut in (*SHORTENED, *DRESSED):
        found = list(cut_cases(cut, CASES))
        names = [(case.folder.name, [one.hazard for one in findings]) for case, findings in found]
        first = sum(named[:1] == [right] for right, named in names) / len(found)
        three = sum(right in named[:3] for right, named in names) / len(found)
        more = {str(case): extra for case, findings in found if (extra := surer(case, findings))}
        print(f"{cut.__name__:26} {len(found):4} logs, first {first:.1%}, among three {three:.1%}, surer {more or 0}")


if __name__ == "__main__":
    sys.exit(main())
