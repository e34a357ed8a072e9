"""Every hazard against its logs (see ``log_cases.py``).

A bad log's first finding is the hazard's; ``bad_possible…`` says by its name that it isn't sure. In a good log, which
looks alike, the hazard claims nothing with confidence.
"""

from __future__ import annotations

import pytest
from log_cases import LogCase, log_cases
from test_hazards import FIXTURES, HAZARDS, assert_readable

from gonogo.judge.log_findings import CONFIDENT_CERTAINTIES

CASES = [case for folder in sorted(FIXTURES.iterdir()) if folder.is_dir() for case in log_cases(folder)]
BAD = [case for case in CASES if case.is_bad]
GOOD = [case for case in CASES if not case.is_bad]
# More than is read at once (``gonogo.evidence.log.sieve.WHOLE``), so that the log is sieved, block by block.
FILLER = b"".join(
    b"{'loss': 1.%04d, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1}\n" % n for n in range(16000)
)


@pytest.mark.parametrize("case", BAD, ids=str)
def test_a_bad_log_is_explained(case: LogCase) -> None:
    name = case.folder.name
    findings = case.findings()
    assert [finding.hazard for finding in findings][:1] == [name]
    assert (findings[0].certainty in CONFIDENT_CERTAINTIES) != case.name.startswith("bad_possible")
    assert [finding.hazard for finding in findings].count(name) == 1
    assert findings[0].spans
    assert findings[0].spans[0].path.endswith(f"/{case.name}.log")
    assert findings[0].cure
    assert findings[0].sources == HAZARDS[name].sources
    for finding in findings:
        assert_readable(finding)


@pytest.mark.parametrize("case", BAD, ids=str)
def test_a_bad_log_is_explained_in_the_midst_of_a_long_one(case: LogCase) -> None:
    long = FILLER + case.text.rstrip(b"\n") + b"\n" + FILLER[: len(FILLER) // 2]
    assert [finding.hazard for finding in case.findings(long)][:1] == [case.folder.name]


@pytest.mark.parametrize("case", GOOD, ids=str)
def test_a_good_log_is_left_alone(case: LogCase) -> None:
    findings = case.findings()
    assert case.folder.name not in [
        finding.hazard for finding in findings if finding.certainty in CONFIDENT_CERTAINTIES
    ]
    assert case.folder.name not in [finding.hazard for finding in findings[:1]]
