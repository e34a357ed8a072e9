"""What an exception is told as."""

from __future__ import annotations

import argparse

import pytest

from gonogo.virtual.failure import _words_of_parser


def test_a_parsers_refusal_is_told_in_its_words() -> None:
    parser = argparse.ArgumentParser(prog="train.py")
    parser.add_argument("--steps", type=int)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--steps", "many"])
    assert str(ended.value) == "2"
    assert _words_of_parser(ended.value) == "train.py: error: argument --steps: invalid int value: 'many'"


@pytest.mark.parametrize("error", [SystemExit(3), SystemExit("out of data"), ValueError("x")])
def test_any_other_end_has_its_own(error: BaseException) -> None:
    with pytest.raises(type(error)) as ended:
        raise error
    assert _words_of_parser(ended.value) is None
