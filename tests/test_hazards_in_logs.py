"""Every hazard against its logs: ``tests/hazards/<name>/{bad,good}*.log``, found by glob.

What was given beside a log stands beside it: ``bad.config.json``, ``bad.launch.sh``, ``bad.script.py``,
``bad.versions.json``. A bad log's first finding is the hazard's; ``bad_possible…`` says by its name that it isn't sure.
In a good log, which looks alike, the hazard claims nothing with confidence.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from test_hazards import FIXTURES, HAZARDS, assert_readable

from gonogo.diagnose.findings import CONFIDENT, diagnose
from gonogo.finding import Finding

BAD = sorted(FIXTURES.glob("*/bad*.log"))
GOOD = sorted(FIXTURES.glob("*/good*.log"))
BESIDE = {
    "deepspeed_config": ".config.json",
    "launch": ".launch.sh",
    "script": ".script.py",
    "environment": ".versions.json",
}
FILLER = b"".join(
    b"{'loss': 1.%04d, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1}\n" % n for n in range(30000)
)


def case(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def findings_of(path: Path, log: Path | None = None) -> tuple[Finding, ...]:
    given = {option: path.with_name(path.stem + suffix) for option, suffix in BESIDE.items()}
    present = {option: beside for option, beside in given.items() if beside.exists()}
    return diagnose([str(log or path)], **present).findings


@pytest.mark.parametrize("path", BAD, ids=case)
def test_a_bad_log_is_explained(path: Path) -> None:
    name = path.parent.name
    findings = findings_of(path)
    assert [finding.hazard for finding in findings][:1] == [name]
    assert (findings[0].certainty in CONFIDENT) != path.name.startswith("bad_possible")
    assert [finding.hazard for finding in findings].count(name) == 1
    assert findings[0].spans
    assert findings[0].spans[0].path == str(path)
    assert findings[0].cure
    assert findings[0].sources == HAZARDS[name].sources
    for finding in findings:
        assert_readable(finding)


# What a reporter wrote, not a program: nobody finds it in a gigabyte of training lines.
WRITTEN = ("title", "prose")


@pytest.mark.parametrize("path", [path for path in BAD if not any(word in path.stem for word in WRITTEN)], ids=case)
def test_a_bad_log_is_explained_in_the_midst_of_a_long_one(path: Path, tmp_path: Path) -> None:
    long = tmp_path / "long.log"
    long.write_bytes(FILLER + path.read_bytes().rstrip(b"\n") + b"\n" + FILLER[: len(FILLER) // 2])
    assert [finding.hazard for finding in findings_of(path, long)][:1] == [path.parent.name]


@pytest.mark.parametrize("path", GOOD, ids=case)
def test_a_good_log_is_left_alone(path: Path) -> None:
    findings = findings_of(path)
    assert path.parent.name not in [finding.hazard for finding in findings if finding.certainty in CONFIDENT]
    assert path.parent.name not in [finding.hazard for finding in findings[:1]]
