"""From a record to a verdict: what makes GO, NO-GO and CANNOT-TELL, and what the report says was not covered."""

from __future__ import annotations

import msgspec
import pytest
import samples
from msgspec.structs import replace

from gonogo.evidence.rehearsal.record import Frame, RehearsalRecord, UnsupportedPart
from gonogo.finding import Certainty, Finding, Report, Severity, Span, Verdict
from gonogo.finding.rehearsal import NodeMemory
from gonogo.judge.rehearsal_summary import fullest_node_memory, rehearsal_summary
from gonogo.rehearse import answer as answer_module
from gonogo.rehearse.answer import rehearsal_report, was_interrupted

GIB = 1024**3


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch):
    """The report of a record in which the hazards find just what is given."""

    def judge(record: RehearsalRecord, *findings: Finding) -> Report:
        monkeypatch.setattr(answer_module, "findings_in_rehearsal", lambda _: findings)
        return rehearsal_report(record, "/work")

    return judge


def test_go_where_every_rank_completed_and_reached_what_it_should(judged) -> None:
    report = judged(samples.rehearsal_record())
    assert report.verdict is Verdict.GO
    assert [text.en for text in report.covered] == [
        "ranks 0-1: load, init, forward, backward, optimizer step, save, exit; 2 optimizer steps, 1,234,567 operators",
        "ranks 0-1 compared with each other at each of 42 collective calls",
    ]
    assert [(skipped.what.en, skipped.why.zh) for skipped in report.skipped] == [
        ("torch 2.4.0", "torch 无法叠加：使用 2.13.0")
    ]
    assert [note.zh for note in report.notes] == ["由 bash 启动"]


def test_the_verdict_is_that_of_the_surest_error(judged) -> None:
    assert judged(samples.rehearsal_record(), samples.finding()).verdict is Verdict.NO_GO
    likely = replace(samples.finding(), certainty=Certainty.LIKELY)
    possible = replace(samples.finding(), certainty=Certainty.POSSIBLE)
    warning = replace(samples.finding(), severity=Severity.WARNING)
    assert judged(samples.rehearsal_record(), likely, warning).verdict is Verdict.CANNOT_TELL
    assert judged(samples.rehearsal_record(), possible, warning).verdict is Verdict.GO


def test_a_certain_error_is_no_go_also_where_the_rest_was_not_reached(judged) -> None:
    record = samples.rehearsal_record(samples.rank_record(outcome="raised", phases=["load"]))
    assert judged(record, samples.finding()).verdict is Verdict.NO_GO


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": "timed-out"},
        {"outcome": "interrupted"},
        {"outcome": "killed"},
        {"outcome": "raised", "failure": samples.failure()},
        {"phases": ["load", "init"]},
        {"unsupported": [UnsupportedPart("triton kernel", "k.py:3", "compiled")]},
    ],
)
def test_one_rank_that_did_not_go_through_is_cannot_tell(judged, changes: dict[str, object]) -> None:
    record = samples.rehearsal_record(samples.rank_record(0), samples.rank_record(1, **changes))
    report = judged(record)
    assert report.verdict is Verdict.CANNOT_TELL
    assert any("rank 1" in skipped.what.en for skipped in report.skipped)
    assert was_interrupted(record) is (changes.get("outcome") == "interrupted")


def test_no_rank_at_all_is_cannot_tell(judged) -> None:
    record = samples.rehearsal_record()
    record.ranks = []
    assert judged(record).verdict is Verdict.CANNOT_TELL


def test_what_was_not_reached_says_why_and_what_was_going_on(judged) -> None:
    rank = samples.rank_record(outcome="timed-out", phases=["load"], last_activity="from_pretrained")
    rank.stack = [Frame("/work/train.py", 7, "main", "", "user"), Frame("/opt/lib/x.py", 9, "load")]
    skipped = judged(samples.rehearsal_record(rank)).skipped[0]
    assert skipped.what.en == "rank 0: init, forward, backward, optimizer step, save, exit"
    assert "--timeout" in skipped.why.en
    assert skipped.why.en.endswith("last activity: from_pretrained, train.py:7")
    assert "from_pretrained" in skipped.why.zh


def test_a_rank_that_ended_before_its_settings_were_read_says_so(judged) -> None:
    rank = samples.rank_record(outcome="killed", phases=["load"], expected_phases=[])
    report = judged(samples.rehearsal_record(rank, world_size=1))
    assert report.covered[0].en.startswith("rank 0: load (not completed);")
    assert report.skipped[0].what.en == "rank 0: everything after load"
    nowhere = judged(samples.rehearsal_record(samples.rank_record(outcome="killed", phases=[], expected_phases=[])))
    assert nowhere.covered == ()
    assert nowhere.skipped[0].what.en == "rank 0: everything after startup"


def test_a_rank_that_went_on_where_memory_would_have_run_out_covers_its_phases(judged) -> None:
    report = judged(samples.rehearsal_record(samples.rank_record(outcome="out-of-memory"), world_size=1))
    assert "not completed" not in report.covered[0].en
    assert [skipped.what.en for skipped in report.skipped] == ["torch 2.4.0"]


def test_ranks_not_run_and_operators_not_supported_are_named(judged) -> None:
    rank = samples.rank_record(unsupported=[UnsupportedPart("triton kernel f", "k.py:3", "it is compiled")])
    skipped = judged(samples.rehearsal_record(rank, world_size=8)).skipped
    assert (skipped[0].what.en, skipped[0].why.en) == ("rank 0: triton kernel f (k.py:3)", "it is compiled")
    assert skipped[1].what.en == "7 of 8 ranks"


def test_an_exception_that_nothing_explains_is_told(judged) -> None:
    rank = samples.rank_record(outcome="raised", failure=samples.failure())
    explained = judged(samples.rehearsal_record(rank, world_size=1), samples.finding())
    assert not any("no known hazard" in skipped.why.en for skipped in explained.skipped)
    unexplained = judged(samples.rehearsal_record(rank, world_size=1))
    (why,) = [skipped.why.en for skipped in unexplained.skipped if "no known hazard" in skipped.why.en]
    assert "RuntimeError at train.py:12" in why


def test_places_below_the_folder_are_named_as_seen_from_it(judged) -> None:
    spans = (Span("/work/train.py", 41), Span("/workshop/train.py", 1), Span("/opt/venv/lib/x.py", 2))
    rank = samples.rank_record(outcome="raised", failure=samples.failure())
    report = judged(samples.rehearsal_record(rank, world_size=1), replace(samples.finding(), spans=spans))
    assert [span.path for span in report.findings[0].spans] == ["train.py", "/workshop/train.py", "/opt/venv/lib/x.py"]
    assert report.rehearsal is not None
    failure = report.rehearsal.ranks[0].failure
    assert failure is not None
    assert failure.user_frame is not None
    assert failure.user_frame.path == "train.py"
    assert msgspec.to_builtins(failure.frames)[0]["path"] == "/work/train.py"


def test_a_node_of_ranks_not_run_is_estimated() -> None:
    record = samples.rehearsal_record(samples.rank_record(0), world_size=8)
    expected = NodeMemory(8 * 30 * GIB, 8 * 10 * GIB, 1024 * GIB, ranks=8, estimated=True, percent=23.4)
    assert fullest_node_memory(record) == expected
    every = samples.rehearsal_record()
    assert fullest_node_memory(every) == NodeMemory(
        60 * GIB, 20 * GIB, 1024 * GIB, ranks=2, estimated=False, percent=5.9
    )
    every.ranks = [samples.rank_record(host=None)]
    assert fullest_node_memory(every) is None


def test_a_rank_that_uses_another_device_reports_the_fullest() -> None:
    rank = samples.rank_record(
        0, device="cpu", devices=[samples.device_memory("cuda:1", 2 * GIB), samples.device_memory("cuda:3", 5 * GIB)]
    )
    told = rehearsal_summary(samples.rehearsal_record(rank), "").ranks[0]
    assert told.peak_allocated_bytes == 5 * GIB
    assert [device.device for device in told.devices] == ["cuda:1", "cuda:3"]


def test_two_rehearsals_differ_only_in_their_seconds() -> None:
    first, second = samples.rehearsal_record(), samples.rehearsal_record()
    second.seconds = 99.0
    for rank in second.ranks:
        rank.seconds, rank.rss_bytes = 7.0, 123456
    told, told_again = rehearsal_summary(first, ""), rehearsal_summary(second, "")
    assert told.seconds != told_again.seconds
    assert replace(told, seconds=0.0) == replace(told_again, seconds=0.0)
