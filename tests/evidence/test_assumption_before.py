"""Which assumption of a rehearsal may be why an exception was raised."""

from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.evidence.rehearsal.failures import assumption_behind_failure
from gonogo.evidence.rehearsal.record import (
    AcceleratorFacts,
    Assumption,
    AssumptionKind,
    Failure,
    Frame,
    Phase,
    RankRecord,
    RehearsalRecord,
)
from gonogo.finding import Certainty
from gonogo.hazards.index import all_hazards

WORDS = "what any sentence says"  # an assumption's words decide nothing, its kind does
NO_BFLOAT16 = "Got unsupported ScalarType BFloat16"


@pytest.mark.parametrize(
    ("assumed", "line", "message", "weakens"),
    [
        ("zeros", 43, NO_BFLOAT16, False),  # scores.cpu().numpy(): refused whatever is in it
        ("zeros", 42, NO_BFLOAT16, True),  # what was read in the line above may have chosen the way
        ("", 43, NO_BFLOAT16, True),
        ("peer_parameters", 41, "mat1 and mat2 shapes cannot be multiplied", False),
        ("peer_parameters", 43, "DDP expects same model across all ranks", True),
        ("zeros", 43, "index 3 is out of bounds for axis 0 with size 2", True),
    ],
)
def test_an_assumption_weakens_what_it_may_have_chosen(
    assumed: AssumptionKind, line: int, message: str, weakens: bool
) -> None:
    frame = Frame(path="/home/user/train.py", line=43, function="<module>", owner="user")
    failure = Failure(type="TypeError", message=message, frames=(frame,), phase="evaluate", step=1)
    rank = RankRecord(
        0, 0, "cuda:0", "raised", assumptions=[Assumption(WORDS, f"/home/user/train.py:{line}", kind=assumed)]
    )
    assert (assumption_behind_failure(rank, failure) is not None) is weakens


@pytest.mark.parametrize(
    ("assumed", "message", "weakens"),
    [
        ("finite", "step() has already been called since the last update().", False),
        ("finite", "No inf checks were recorded for this optimizer.", False),
        ("finite", "the loss scale is below its minimum", True),
        ("zeros", "step() has already been called since the last update().", True),  # the program's own branch
    ],
)
def test_the_order_of_a_scalers_calls_hangs_on_no_value(assumed: AssumptionKind, message: str, weakens: bool) -> None:
    frames = (
        Frame(path="/home/user/train.py", line=43, function="<module>", owner="user"),
        Frame(path="/site-packages/torch/amp/grad_scaler.py", line=412, function="step", owner="library"),
    )
    failure = Failure(type="RuntimeError", message=message, frames=frames, phase="step", step=1)
    rank = RankRecord(0, 0, "cuda:0", "raised", assumptions=[Assumption(WORDS, "/home/user/train.py:43", kind=assumed)])
    assert (assumption_behind_failure(rank, failure) is not None) is weakens


@pytest.mark.parametrize(
    ("kind", "assumed", "weakens"),
    [
        ("torch._dynamo.exc.Unsupported", "", False),
        ("torch._dynamo.exc.Unsupported", "scores", False),
        ("torch._dynamo.exc.Unsupported", "number", True),
        ("ValueError", "", True),
        ("ValueError", "scores", True),
    ],
)
def test_no_value_of_a_tensor_is_a_reason_for_the_compilers_refusal(
    kind: str, assumed: AssumptionKind, weakens: bool
) -> None:
    frame = Frame(path="/home/user/train.py", line=43, function="clip", owner="user")
    failure = Failure(type=kind, message="Data-dependent branching", frames=(frame,), phase="forward", step=0)
    rank = RankRecord(0, 0, "cuda:0", "raised", assumptions=[Assumption(WORDS, "/home/user/train.py:41", kind=assumed)])
    assert (assumption_behind_failure(rank, failure) is not None) is weakens


@pytest.mark.parametrize(
    ("assumed", "followed"),
    [
        ("number", True),
        ("chosen_number", True),
        ("zeros", True),
        ("peer_objects", True),
        ("finite", False),
        ("", False),
    ],
)
def test_a_value_that_the_program_got_is_followed_to_where_it_decides(
    tmp_path: Path, assumed: AssumptionKind, followed: bool
) -> None:
    program = tmp_path / "train.py"
    program.write_text("got = ask()\n\n\n\n\n\n\n\nif got:\n    raise ValueError\n")
    failure = Failure("ValueError", "", (Frame(str(program), 10, "<module>", "", "user"),), "load", 0)
    rank = RankRecord(0, 0, "cuda:0", "raised", assumptions=[Assumption(WORDS, f"{program}:1", kind=assumed)])
    assert (assumption_behind_failure(rank, failure) is not None) is followed


@pytest.mark.parametrize(
    ("assumed", "cured"), [("peer_objects", True), ("peer_tensors", True), ("number", False), ("", False)]
)
def test_more_ranks_are_the_cure_where_an_assumption_is_of_other_ranks(assumed: AssumptionKind, cured: bool) -> None:
    failure = Failure("ValueError", "", (Frame("/home/user/train.py", 43, "<module>", "", "user"),), "load", 0)
    rank = RankRecord(0, 0, "cuda:0", "raised", failure=failure)
    rank.assumptions = [Assumption(WORDS, "/home/user/train.py:42", kind=assumed)]
    facts = AcceleratorFacts("A100-80G", "cuda", 80 << 30, 0)
    record = RehearsalRecord(["python", "train.py"], "/home/user", 2, 1, 2, facts, 2, None, ranks=[rank])
    hazard = next(one for one in all_hazards() if one.name == "program-raises")
    (finding,) = hazard.in_rehearsal(record)
    assert finding.certainty is Certainty.LIKELY
    assert any("--ranks all" in cure.en for cure in finding.cure) is cured


ROWS = """\
rows = load_dataset("owner/name")






model = build()


def read(rows):
    total = 0.0
    for row in rows:
        text = row["output"]
        total += float(text)  # fails
    return total


print(read(rows))
"""
MAPPED = """\
rows = load_dataset("owner/name")






def parse(row):
    answer = row["output"]
    return {"value": float(answer)}  # fails


rows = rows.map(parse, num_proc=4)
"""
NOT_MAPPED = """\
rows = load_dataset("owner/name")






def parse(row):
    answer = row["output"]
    return {"value": float(answer)}  # fails


others = [{"output": "a"}]
list(map(parse, others))
rows.map(print)
"""
BESIDE = """\
rows = load_dataset("owner/name")






width = 10 // 0  # fails
read(rows, width)
"""


@pytest.mark.parametrize(
    ("program", "message", "phases", "weakens"),
    [
        (ROWS, "could not convert string to float: 'us us to'", ["load"], True),
        (ROWS, "read() missing 1 required positional argument: 'rows'", ["load"], False),
        (ROWS, "could not convert string to float: 'us us to'", ["load", "forward"], False),
        (BESIDE, "integer division or modulo by zero", ["load"], False),
        (MAPPED, "could not convert string to float: 'us us to'", ["load"], True),
        (NOT_MAPPED, "could not convert string to float: 'a'", ["load"], False),
    ],
    ids=[
        "the text of a row",
        "a call's arguments",
        "once they were trained on",
        "beside the rows",
        "in a map",
        "in a map of others",
    ],
)
def test_generated_rows_are_followed_to_where_their_text_is_read(
    tmp_path: Path, program: str, message: str, phases: list[Phase], weakens: bool
) -> None:
    path = tmp_path / "train.py"
    path.write_text(program)
    line = next(number for number, text in enumerate(program.splitlines(), 1) if "# fails" in text)
    failure = Failure("ValueError", message, (Frame(str(path), line, "<module>", "", "user"),), "load", 0)
    rank = RankRecord(0, 0, "cuda:0", "raised", phases=phases)
    rank.assumptions = [Assumption(WORDS, f"{path}:1", kind="generated")]
    assert (assumption_behind_failure(rank, failure) is not None) is weakens
