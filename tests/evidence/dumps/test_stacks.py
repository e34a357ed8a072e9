"""What ``py-spy dump`` prints of ranks that stand. The file is py-spy 0.4's, of two processes with gloo."""

from __future__ import annotations

from pathlib import Path

from gonogo.diagnose.findings import read_failure
from gonogo.finding import Certainty

REAL = Path(__file__).with_name("py_spy_of_two_ranks.txt")


def test_the_rank_that_stands_elsewhere_is_what_the_others_wait_for(tmp_path: Path) -> None:
    log = tmp_path / "spy.txt"
    log.write_text(REAL.read_text())
    found = read_failure([str(log)]).report().findings[0]
    assert (found.hazard, found.ranks, found.certainty) == ("rank-late-at-collective", (0,), Certainty.LIKELY)
    assert "Rank 1 waits in a collective at hang.py:11 in main" in found.cause.en
    assert "Rank 0 remains at hang.py:3 in evaluate" in found.cause.en
    assert found.spans[0].text == "evaluate (hang.py:3)"


def test_a_file_a_rank_tells_the_rank_by_its_name(tmp_path: Path) -> None:
    first, _, second = REAL.read_text().partition("Process 29695")
    (tmp_path / "rank7.txt").write_text(first)
    (tmp_path / "rank4.txt").write_text(f"Process 29695{second}")
    assert read_failure([str(tmp_path)]).report().findings[0].ranks == (7,)


def test_ranks_that_all_wait_or_all_compute_say_nothing(tmp_path: Path) -> None:
    first, _, second = REAL.read_text().partition("Process 29695")
    for text in (first, f"Process 29695{second}", first + first.replace("29694", "3").replace("rank=0", "rank=1")):
        log = tmp_path / "spy.txt"
        log.write_text(text)
        assert read_failure([str(log)]).report().findings == ()


def test_lines_that_only_look_like_stacks(tmp_path: Path) -> None:
    log = tmp_path / "spy.txt"
    for text in (
        "Process 1: a\n" * 300,
        'Thread 1 (idle): "MainThread"\n    f (x.py:1)\n',
        "Process 99999999999: --rank=1\n",
    ):
        log.write_text(text)
        assert read_failure([str(log)]).report().findings == ()
