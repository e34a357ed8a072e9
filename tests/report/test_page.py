"""Lines of a report: wrapped as Rich wraps them, Chinese filled to the margin, colour only where it is wanted."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text as OfRich

from gonogo.report.page import Page, StyledText, column_width, should_use_colour, truncate, wrap_text
from gonogo.report.table import Table

_WORDS = st.text("abc .,(", max_size=80)
_ANY = st.text("ab 显存，。（ル…“", max_size=60)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _lines(text: str, width: int) -> list[str]:
    return [line.plain for line in wrap_text(StyledText(text), width)]


@given(text=_WORDS, room=st.integers(0, 30))
def test_english_is_wrapped_as_rich_wraps_it(text: str, room: int) -> None:
    width = max((len(word) for word in text.split()), default=1) + room + 1
    console = Console(width=width, file=io.StringIO())
    assert _lines(text.strip(), width) == [line.plain.rstrip() for line in OfRich(text.strip()).wrap(console, width)]


@given(text=_ANY, width=st.integers(2, 40))
def test_no_line_is_too_long_and_nothing_is_lost(text: str, width: int) -> None:
    lines = _lines(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@given(text=_ANY)
def test_columns_are_counted_as_rich_counts_them(text: str) -> None:
    assert column_width(text) == cell_len(text)


def test_chinese_fills_the_line_and_no_line_begins_with_closing_punctuation() -> None:
    lines = _lines("显存不足，请减小批次大小。然后重试，或者使用更大的显卡。", 10)
    assert all(column_width(line) >= 8 for line in lines[:-1])
    assert not any(line.startswith(("，", "。")) for line in lines)


def test_a_style_goes_on_over_the_break() -> None:
    line = StyledText.assemble(("error", "bold red"), ": one two three", (" four", "dim"))
    pieces = list(wrap_text(line, 10))
    assert [piece.plain for piece in pieces] == ["error: one", "two three", "four"]
    assert pieces[0].parts[0] == ("error", "bold red")
    assert pieces[2].parts == [("four", "dim")]


def test_what_is_to_be_copied_is_not_wrapped() -> None:
    buffer = io.StringIO()
    Page(buffer, width=10).line("https://example.org/a/long/address", wrap=False)
    assert buffer.getvalue() == "https://example.org/a/long/address\n"


def test_the_end_of_a_long_title_is_left_out() -> None:
    assert truncate("显存不足", 8) == "显存不足"
    assert truncate("显存不足", 7) == "显存不…"
    buffer = io.StringIO()
    Page(buffer, width=6).rule("a title that is too long")
    assert column_width(buffer.getvalue().rstrip("\n")) == 6


@pytest.mark.parametrize(("environment", "wanted"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colour_is_for_terminals_that_want_it(
    environment: dict[str, str], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert should_use_colour(_Terminal()) is wanted
    assert not should_use_colour(io.StringIO())


def test_the_width_is_the_terminals_unless_columns_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "33")
    assert Page(io.StringIO()).width == 33
    monkeypatch.delenv("COLUMNS")
    assert Page(io.StringIO()).width == 80  # no terminal at all


def test_a_head_of_two_words_gives_way_before_a_cell_is_broken() -> None:
    columns = ("rank", "device", "parameters", "gradients", "rollout engine")
    table = Table(
        "GPU memory at the peak", columns, (("0", "cuda:0", "0.2 MiB", "0", "33.0 GiB"),), frozenset({2, 3, 4})
    )

    def drawn(width: int) -> str:
        stream = io.StringIO()
        Page(stream, width=width).table(table)
        return stream.getvalue()

    assert "rollout engine" in drawn(60)
    assert "rollout engine" not in drawn(50)
    assert "cuda:0" in drawn(50)
