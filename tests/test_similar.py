"""Public threads that look like a log: found where the failure is the same, silent where nothing is known or wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gonogo.diagnose.findings import read_failure
from gonogo.evidence.log.failure_log import read_logs
from gonogo.evidence.log.source import find_log_sources
from gonogo.evidence.setup import Setup
from gonogo.finding import Certainty, Verdict
from gonogo.hazards.index import all_hazards
from gonogo.judge.similar import find
from gonogo.judge.similar.cases import build_case_index, load_case_index
from gonogo.judge.similar.features import Features, features_of
from gonogo.judge.similar.index import PATH, IssueThread, ThreadIndex, pack_index
from gonogo.report import FORMATS, render
from gonogo.report.untrusted import clean_line

ADDRESS = "https://github.com/someone/flows/issues/7"
LOG = """\
Traceback (most recent call last):
  File "/home/{user}/flows/train.py", line {line}, in main
    solve(batch)
  File "/opt/{user}/lib/python3.11/site-packages/oddflow/solver.py", line 77, in integrate
    raise StiffnessError(f"step {line} of the integrator underflows")
oddflow.StiffnessError: step {line} of the integrator underflows tolerance 1e-{line}
"""
OTHER = """\
Traceback (most recent call last):
  File "train.py", line 3, in main
    rows.join(index)
KeyError: 'a column that no table has'
"""


@pytest.fixture
def own_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An index of two threads, of which one has a title that a terminal would obey."""
    threads = [
        (
            IssueThread(ADDRESS, "Stiff \x1b[31mflows\x1b[0m\x00", "", "a smaller step", "减小步长"),
            features(tmp_path, LOG),
        ),
        (IssueThread("https://github.com/someone/rows/issues/1", "Rows", "port-in-use"), features(tmp_path, OTHER)),
    ]
    index = ThreadIndex(pack_index(threads))
    monkeypatch.setattr(find, "_thread_index", lambda: index)


def features(folder: Path, log: str) -> Features:
    path = folder / "of_thread.log"
    path.write_text(log.format(user="li", line=12))
    return features_of(read_logs(find_log_sources([str(path)])[0], (), Setup()))


def written(folder: Path, log: str | bytes) -> str:
    path = folder / "run.log"
    path.write_bytes(log if isinstance(log, bytes) else log.encode())
    return str(path)


@pytest.mark.usefixtures("own_index")
def test_the_same_failure_of_another_run_is_found_in_every_format(tmp_path: Path) -> None:
    report = read_failure([written(tmp_path, LOG.format(user="wang", line=4711))]).report()
    assert [thread.address for thread in report.similar] == [ADDRESS]
    assert report.similar[0].likeness > 0.9
    for language, settled in (("en", "a smaller step"), ("zh", "减小步长")):
        for format_name in FORMATS:
            shown = render(report, format_name, language)
            assert ADDRESS in shown
            assert settled in shown
            assert "\x1b" not in shown
    thread = json.loads(render(report, "json", "zh"))["similar"][0]
    assert thread.keys() == {"address", "title", "settled", "hazard", "likeness"}
    assert (thread["settled"], thread["hazard"]) == ("减小步长", None)


@pytest.mark.usefixtures("own_index")
def test_a_thread_of_a_known_hazard_is_settled_by_it(tmp_path: Path) -> None:
    (thread,) = read_failure([written(tmp_path, OTHER.replace("rows.", "lines."))]).report().similar
    hazard = next(hazard for hazard in all_hazards() if hazard.name == "port-in-use")
    assert (thread.settled, thread.hazard) == (hazard.title, hazard.name)


@pytest.mark.usefixtures("own_index")
@pytest.mark.parametrize(
    "log",
    [
        "KeyError: 'another'\n",
        "AssertionError\n",
        "oddflow.PressureError: what nobody has met before\n",
        "{'loss': 1.2, 'epoch': 0.1}\n" * 30,
        "the integrator failed: step 3 underflows tolerance\n{'loss': 0.9, 'epoch': 0.2}\n",
        "",
    ],
)
def test_nothing_is_said_of_what_is_unknown_or_not_wrong(tmp_path: Path, log: str) -> None:
    assert read_failure([written(tmp_path, log)]).report().similar == ()


def test_nothing_is_said_where_the_cause_is_certain() -> None:
    log = Path(__file__).parent / "hazards" / "zero3-moe-hang" / "bad.log"
    report = read_failure([str(log)]).report()
    assert report.verdict is Verdict.NO_GO
    assert report.similar == ()
    assert json.loads(render(report, "json", "en"))["similar"] == []


def test_what_is_shown_anyhow_is_not_shown_twice() -> None:
    log = Path(__file__).parent / "hazards" / "checkpoint-recompute-differs" / "bad_metadata.log"
    report = read_failure([str(log)]).report()
    shown = {source for finding in report.findings for source in finding.sources}
    assert report.similar
    assert not shown & {thread.address for thread in report.similar}


@pytest.mark.parametrize(
    "log",
    [
        b"RuntimeError: " + b"a word " * 1_500_000,
        b"RuntimeError: NCCL\x00error\x00in\x00" * 2000,
        b"Traceback (most recent call last):\n" + b'  File "a\x00.py", line 1, in \xff\xfe\n' * 5000,
        b"ValueError: " + b"https://" * 100_000 + b"\n",
        b"OSError: " + b"a/" * 1_000_000 + b"\n" + b"error " * 200_000,
    ],
    ids=["long-line", "nul", "frames", "addresses", "folders"],
)
def test_whatever_a_log_holds_is_answered(tmp_path: Path, log: bytes) -> None:
    report = read_failure([written(tmp_path, log)]).report()
    assert len(report.similar) <= find.MAX_SIMILAR


def test_the_shipped_index_is_small_and_its_threads_can_be_shown() -> None:
    assert PATH.stat().st_size <= 2_000_000
    index = ThreadIndex.shipped()
    known = {hazard.name for hazard in all_hazards()}
    addresses = [thread.address for thread in index.threads]
    assert len(set(addresses)) == len(addresses)
    for thread in index.threads:
        assert thread.address.startswith("https://")
        assert thread.hazard in {"", *known}, f"{thread.hazard}: run scripts/similar_threads.py"
        assert clean_line(thread.title) == thread.title
        assert bool(thread.shows) == bool(thread.shows_zh)
        assert thread.title or thread.shows


def test_the_index_of_cases_is_small_and_of_hazards() -> None:
    assert len(build_case_index()) <= 300_000
    known = {hazard.name for hazard in all_hazards() if not hazard.fallback}
    threads = load_case_index().threads
    assert len(threads) > 400
    assert {thread.hazard for thread in threads} <= known
    assert all(thread.address.startswith(f"{thread.hazard}/bad") for thread in threads)


def test_a_log_that_was_cut_is_held_against_the_hazards_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = IssueThread("zero3-moe-hang/bad", hazard="zero3-moe-hang")
    others = [
        (IssueThread(f"other/{number}", hazard="zero3-model-parallel-is-none"), {number: 1.0}) for number in range(50)
    ]
    index = ThreadIndex(pack_index([(case, features(tmp_path, LOG)), *others]))
    monkeypatch.setattr(find, "_cases", lambda: index)
    whole = LOG.format(user="b", line=8)
    (finding,) = read_failure([written(tmp_path, "".join(whole.splitlines(keepends=True)[:-1]))]).report().findings
    assert (finding.hazard, finding.certainty) == ("zero3-moe-hang", Certainty.POSSIBLE)
    assert "matches the remaining frames best" in finding.cause.en
    assert "zero3-moe-hang" not in {one.hazard for one in read_failure([written(tmp_path, whole)]).report().findings}


def test_a_part_of_a_case_is_known_by_what_it_has() -> None:
    index = ThreadIndex(
        pack_index(
            [(IssueThread("a/bad", hazard="a"), {1: 1.0, 2: 1.0, 3: 1.0}), (IssueThread("b/bad", hazard="b"), {1: 1.0})]
        )
    )
    assert [number for _, number in index.containing({2: 1.0, 3: 1.0})] == [0]
    assert index.containing({2: 1.0, 3: 1.0}, excluded={0}) == []
    assert index.containing({1: 0.5}) == []
    ((part, number),) = index.containing({2: 1.0, 9: 1.0})
    assert number == 0
    assert part == pytest.approx(0.5)


def test_an_index_gives_back_what_was_put_into_it() -> None:
    threads = [
        (IssueThread("a", "A"), {1: 0.5, 4_294_967_295: 1.5}),
        (IssueThread("b", "B", cited=True), {1: 0.7, 9: 1.0}),
    ]
    index = ThreadIndex(pack_index(threads))
    assert index.threads == tuple(thread for thread, _ in threads)
    assert index.features_of() == [own for _, own in threads]
    assert [number for _, number in index.similar_to({9: 40.0, 1: 0.1})] == [1]
    assert index.similar_to({9: 1.0}) == []
    assert index.similar_to({9: 40.0}, excluded={1}) == []
    with pytest.raises(ValueError, match="65535"):
        pack_index([(IssueThread(""), {})] * 65_536)
