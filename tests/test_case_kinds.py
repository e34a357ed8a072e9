"""What check says of projects of the kinds that strangers' launches were judged wrongly at."""

from __future__ import annotations

from pathlib import Path

import pytest
from case_kinds import CASES
from case_kinds.case import Case, answer


def _name(case: Case) -> str:
    return f"{case.kind}/{case.name}"


@pytest.mark.parametrize("case", [pytest.param(one, id=_name(one)) for one in CASES])
def test_each_is_told_as_it_is(case: Case, tmp_path: Path) -> None:
    verdict, certain = answer(case, tmp_path)
    assert case.right(verdict, certain), (case.why, verdict, certain)


def test_each_kind_has_three() -> None:
    kinds = [case.kind for case in CASES]
    assert all(kinds.count(kind) >= 3 for kind in kinds)
