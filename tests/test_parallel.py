"""Work spread over processes: the same answers in the same order, and a fault is not lost in a process."""

from __future__ import annotations

import os

import pytest

from gonogo.check import parallel


def _two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "usable_processor_count", lambda: 2)


@pytest.mark.parametrize("count", [0, 3, 200])
def test_answers_come_in_order(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _two_processors(monkeypatch)
    heard: list[int] = []
    assert parallel.parallel_map(lambda number: number * number, count, heard.append) == [n * n for n in range(count)]
    assert heard == sorted(heard)
    assert heard[-1:] == ([count] if count else [])


def test_many_are_asked_in_other_processes_and_few_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    _two_processors(monkeypatch)
    others = {*parallel.parallel_map(lambda number: os.getpid(), 200, lambda done: None)}
    assert os.getpid() not in others
    assert 1 <= len(others) <= 2  # one may have done it all before the other was there
    assert {*parallel.parallel_map(lambda number: os.getpid(), 10, lambda done: None)} == {os.getpid()}


def test_one_processor_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "usable_processor_count", lambda: 1)
    assert {*parallel.parallel_map(lambda number: os.getpid(), 200, lambda done: None)} == {os.getpid()}


def test_a_fault_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    _two_processors(monkeypatch)

    def ask(number: int) -> int:
        if number == 150:
            raise ValueError("the hundred and fiftieth")
        return number

    with pytest.raises(ValueError, match="the hundred and fiftieth"):
        parallel.parallel_map(ask, 200, lambda done: None)


def test_a_process_that_dies_is_an_error_and_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    _two_processors(monkeypatch)
    here = os.getpid()

    def ask(number: int) -> int:
        if number == 150 and os.getpid() != here:
            os._exit(9)
        return number

    with pytest.raises(Exception, match="terminated abruptly"):
        parallel.parallel_map(ask, 200, lambda done: None)
