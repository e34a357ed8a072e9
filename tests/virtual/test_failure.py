"""What an exception is told as."""

from __future__ import annotations

import argparse
import multiprocessing

import pytest

from gonogo.virtual.failure import _argparse_message, _describe_first_cause, unwrap_exit_cause


def test_a_parsers_refusal_is_told_in_its_words() -> None:
    parser = argparse.ArgumentParser(prog="train.py")
    parser.add_argument("--steps", type=int)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--steps", "many"])
    assert str(ended.value) == "2"
    assert _argparse_message(ended.value) == "train.py: error: argument --steps: invalid int value: 'many'"


@pytest.mark.parametrize("error", [SystemExit(3), SystemExit("out of data"), ValueError("x")])
def test_any_other_end_has_its_own(error: BaseException) -> None:
    with pytest.raises(type(error)) as ended:
        raise error
    assert _argparse_message(ended.value) is None


def test_the_first_cause_of_a_chain_is_told() -> None:
    with pytest.raises(ImportError) as ended:
        _import_lazily()
    assert _describe_first_cause(ended.value) == "ModuleNotFoundError: No module named 'no_such_module'"


def _import_lazily() -> None:
    try:
        try:
            import no_such_module  # type: ignore[import-not-found] # noqa: F401
        except ImportError as error:
            raise RuntimeError("Failed to import models") from error
    except RuntimeError as error:
        raise ImportError("Could not import module 'AutoModel'") from error


def test_what_was_only_being_handled_or_happened_in_another_process_is_no_cause() -> None:
    with pytest.raises(ValueError, match="y") as ended:
        _raise_while_handling()
    assert _describe_first_cause(ended.value) == ""
    with multiprocessing.get_context("fork").Pool(1) as pool, pytest.raises(ZeroDivisionError) as there:
        pool.apply(_divide)
    assert there.value.__cause__ is not None
    assert _describe_first_cause(there.value) == ""


def _raise_while_handling() -> None:
    try:
        raise KeyError("x")
    except KeyError:
        raise ValueError("y")  # noqa: B904


def _divide() -> float:
    return 1 / 0


@pytest.mark.parametrize(("code", "hidden"), [(1, True), (0, False), ("out of data", False)])
def test_an_exit_by_a_number_hides_what_was_printed_before_it(code: object, hidden: bool) -> None:
    def main() -> None:
        try:
            raise KeyError("printed")
        except KeyError:
            raise SystemExit(code)  # noqa: B904  as frameworks do

    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(unwrap_exit_cause(ended.value), KeyError if hidden else SystemExit)


def test_a_parsers_refusal_is_no_hidden_exception() -> None:
    parser = argparse.ArgumentParser(prog="train.py")
    parser.add_argument("--steps", type=int)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--steps", "many"])
    assert unwrap_exit_cause(ended.value) is ended.value
