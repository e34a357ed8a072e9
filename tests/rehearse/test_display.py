"""The live display: on a terminal each rank's row, elsewhere nothing."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gonogo.finding import Text
from gonogo.rehearse.display import _render, live_display
from gonogo.rehearse.progress import RankStatus, RehearsalStatus
from gonogo.virtual.protocol.plan import Progress

_DOING = Progress(0, "forward", 1, 12345, 3 << 30, 1 << 29, "model.\x1b[31mlayers.3")
_STATUS = RehearsalStatus(
    Text("rehearsing", "排练中"),
    12.3,
    (RankStatus(0, "running", _DOING), RankStatus(1, "out-of-memory"), RankStatus(2, "waiting")),
    steps=2,
)


def printed(status: RehearsalStatus, language: str, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(_render(status, language, width))
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("language", "words"),
    [
        (
            "en",
            [
                "rehearsing  12 s",
                "1 of 3 ranks done",
                "rank 0  forward, step 2 of 2",
                "12,345 operators",
                "GPU 3.0 GiB",
                "host 512 MiB",
                "out of memory",
                "waiting",
            ],
        ),
        ("zh", ["排练中  12 s", "前向，第 2 步，共 2 步", "12,345", "3.0 GiB", "512 MiB", "显存或内存不足", "等待"]),
    ],
)
def test_each_rank_has_a_row(language: str, words: list[str]) -> None:
    text = printed(_STATUS, language)
    assert all(word in text for word in words)
    assert "\x1b" not in text


def test_a_large_world_is_cut_to_those_that_run() -> None:
    ranks = tuple(RankStatus(rank, "running" if rank in (900, 901) else "waiting") for rank in range(1024))
    text = printed(RehearsalStatus(Text("rehearsing", "排练中"), 1.0, ranks), "en")
    assert "900" in text
    assert "+ 1012" in text


def test_a_terminal_gets_the_display_and_a_pipe_nothing() -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100)
    with live_display("en", terminal) as show:
        assert show is not None
        show(_STATUS)
    assert "model.[31mlayers.3" in terminal.file.getvalue()  # type: ignore[attr-defined]
    pipe = Console(file=io.StringIO(), force_terminal=False)
    with live_display("en", pipe) as show:
        assert show is None
    assert pipe.file.getvalue() == ""  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_a_narrow_terminal_shows_less_and_cuts_nothing(width: int) -> None:
    lines = [line.rstrip() for line in printed(_STATUS, "en", width).splitlines()]
    assert "…" not in "".join(lines)
    doing = next(line for line in lines if line.startswith("rank 0"))
    whole = next(line for line in printed(_STATUS, "en", 200).splitlines() if line.startswith("rank 0"))
    assert whole.startswith(doing)
    assert whole[len(doing) : len(doing) + 2].strip() == ""  # it ends with a whole part
    assert "forward, step 2 of 2" in doing


def test_a_failure_is_shown_while_the_second_pass_looks_for_its_origin() -> None:
    rank = RankStatus(0, "running", _DOING, "RuntimeError: no gradient (train.py:54)")
    text = printed(RehearsalStatus(Text("rehearsing", "排练中"), 1.0, (rank,)), "en", 160)
    assert "rank 0  RuntimeError: no gradient (train.py:54)  second pass, to find the forward" in text
    assert text.index("train.py:54") < text.index("forward, step 2")
