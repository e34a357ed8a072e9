"""What a hostile or careless reader can't gain: claims that hold without saying anything of the log."""

from __future__ import annotations

import pytest

from gonogo.diagnose.findings import LoggedFailure, read_failure
from gonogo.diagnose.pack.pack import make_reader_pack
from gonogo.diagnose.reader.claims import check_claims
from gonogo.diagnose.reader.model_answer import INSTRUCTIONS, ClaimedPlace, ModelAnswer, NumberClaim
from gonogo.finding.second_opinion.model_reading import CheckedClaim

LOG = (
    "transformers 4.51.3\nlen of the batch is 16333, world size 16\n"
    'Traceback (most recent call last):\n  File "/root/train.py", line 7, in main\n    f(x)\n'
    "ValueError: 16333 of 16 is odd\n"
)


@pytest.fixture(scope="module")
def failure(tmp_path_factory: pytest.TempPathFactory) -> LoggedFailure:
    log = tmp_path_factory.mktemp("claims") / "run.log"
    log.write_text(LOG)
    return read_failure([str(log)])


def claims(failure: LoggedFailure, answer: ModelAnswer) -> tuple[CheckedClaim, ...]:
    return check_claims(
        answer, failure.log, failure.files, make_reader_pack(failure.log, failure.report(), failure.files)
    )


@pytest.mark.parametrize(
    ("quote", "holds"),
    [
        ("ValueError: 16333 of 16 is odd", True),
        ("len of the batch … world size 16", True),
        ("it was odd … len of the batch", False),
        ("e...r...a...o...t...s...i", False),
        ("e r", False),
        ("...", False),
        ("ValueError: it was the driver", False),
    ],
)
def test_a_quote_stands_in_the_log_as_it_is_and_in_its_order(failure: LoggedFailure, quote: str, holds: bool) -> None:
    (claim,) = claims(failure, ModelAnswer("c", quotes=(quote,)))
    assert claim.holds is holds


@pytest.mark.parametrize(
    ("expression", "equals", "holds"),
    [("16333 % 16", 13, True), ("1 + 1", 2, False), ("8 * 9", 72, False), ("99999 - 1", 99998, False)],
)
def test_arithmetic_is_of_the_logs_numbers(failure: LoggedFailure, expression: str, equals: float, holds: bool) -> None:
    (claim,) = claims(failure, ModelAnswer("c", numbers=(NumberClaim(expression, equals),)))
    assert claim.holds is holds


def test_the_same_claim_counts_once(failure: LoggedFailure) -> None:
    answer = ModelAnswer(
        "c", quotes=("16333 of 16 is odd",) * 8, places=(ClaimedPlace("train.py", 7), ClaimedPlace("train.py", 7))
    )
    assert [claim.holds for claim in claims(failure, answer)] == [True, True]


def test_what_is_asked_of_a_reader_reads_as_a_sentence() -> None:
    assert "Answer with one JSON object" in INSTRUCTIONS
    assert "ModelAnswer" not in INSTRUCTIONS
