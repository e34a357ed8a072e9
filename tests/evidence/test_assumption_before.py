"""Which assumption of a rehearsal may be why an exception was raised."""

from __future__ import annotations

import pytest

from gonogo.evidence.rehearsal.failures import assumption_behind_failure
from gonogo.evidence.rehearsal.record import Assumption, Failure, Frame, RankRecord

READ = "values that the program reads are zero"
NO_BFLOAT16 = "Got unsupported ScalarType BFloat16"


@pytest.mark.parametrize(
    ("what", "line", "message", "weakens"),
    [
        (READ, 43, NO_BFLOAT16, False),  # scores.cpu().numpy(): refused whatever is in it
        (READ, 42, NO_BFLOAT16, True),  # what was read in the line above may have chosen the way
        ("a condition is taken as false", 43, NO_BFLOAT16, True),
        ("every rank's model has the same parameters", 41, "mat1 and mat2 shapes cannot be multiplied", False),
        ("every rank's model has the same parameters", 43, "DDP expects same model across all ranks", True),
        (READ, 43, "index 3 is out of bounds for axis 0 with size 2", True),
    ],
)
def test_an_assumption_weakens_what_it_may_have_chosen(what: str, line: int, message: str, weakens: bool) -> None:
    frame = Frame(path="/home/user/train.py", line=43, function="<module>", owner="user")
    failure = Failure(type="TypeError", message=message, frames=(frame,), phase="evaluate", step=1)
    rank = RankRecord(0, 0, "cuda:0", "raised", assumptions=[Assumption(what, f"/home/user/train.py:{line}")])
    assert (assumption_behind_failure(rank, failure) is not None) is weakens


@pytest.mark.parametrize(
    ("what", "message", "weakens"),
    [
        ("values are finite (no NaN, no infinity)", "step() has already been called since the last update().", False),
        ("values are finite (no NaN, no infinity)", "No inf checks were recorded for this optimizer.", False),
        ("values are finite (no NaN, no infinity)", "the loss scale is below its minimum", True),
        (READ, "step() has already been called since the last update().", True),  # the program's own branch
    ],
)
def test_the_order_of_a_scalers_calls_hangs_on_no_value(what: str, message: str, weakens: bool) -> None:
    frames = (
        Frame(path="/home/user/train.py", line=43, function="<module>", owner="user"),
        Frame(path="/site-packages/torch/amp/grad_scaler.py", line=412, function="step", owner="library"),
    )
    failure = Failure(type="RuntimeError", message=message, frames=frames, phase="step", step=1)
    rank = RankRecord(0, 0, "cuda:0", "raised", assumptions=[Assumption(what, "/home/user/train.py:43")])
    assert (assumption_behind_failure(rank, failure) is not None) is weakens


_AS_WRITTEN = "code under torch.compile is rehearsed uncompiled: in the run it compiles, and takes no more memory"
_SCORES = "choices among unknown scores are evenly spread"


@pytest.mark.parametrize(
    ("kind", "assumed", "weakens"),
    [
        ("torch._dynamo.exc.Unsupported", _AS_WRITTEN, False),
        ("torch._dynamo.exc.Unsupported", _SCORES, False),
        ("torch._dynamo.exc.Unsupported", "an unknown number: 16 in one step, 1/16 in the next", True),
        ("ValueError", _AS_WRITTEN, True),
        ("ValueError", _SCORES, True),
    ],
)
def test_no_value_of_a_tensor_is_a_reason_for_the_compilers_refusal(kind: str, assumed: str, weakens: bool) -> None:
    frame = Frame(path="/home/user/train.py", line=43, function="clip", owner="user")
    failure = Failure(type=kind, message="Data-dependent branching", frames=(frame,), phase="forward", step=0)
    rank = RankRecord(0, 0, "cuda:0", "raised", assumptions=[Assumption(assumed, "/home/user/train.py:41")])
    assert (assumption_behind_failure(rank, failure) is not None) is weakens
