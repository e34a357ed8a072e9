"""Dumps of torch's Flight Recorder. Those in ``three_ranks`` are of torch 2.13 with gloo: rank 1 makes five calls, the
others a sixth; only the folders in their stacks were renamed."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gonogo.diagnose.findings import read_failure
from gonogo.evidence.dumps.flight_recorder import parse_flight_recorder_dump
from gonogo.evidence.dumps.plain_pickle import load_plain_pickle
from gonogo.finding import Certainty, Finding

REAL = Path(__file__).parent / "three_ranks"


def content_of(rank: int) -> Any:
    return load_plain_pickle((REAL / f"nccl_trace_rank_{rank}").read_bytes())


def findings_in(folder: Path, **contents: Any) -> tuple[Finding, ...]:
    for name, content in contents.items():
        (folder / f"nccl_trace_{name}").write_bytes(pickle.dumps(content, protocol=2))
    return read_failure([str(folder)]).report().findings


def test_the_rank_that_the_others_wait_for_is_named_with_the_call_and_its_own_last_one() -> None:
    found = read_failure([str(REAL)]).report().findings[0]
    assert (found.hazard, found.ranks, found.certainty) == ("rank-late-at-collective", (1,), Certainty.LIKELY)
    for part in ("Rank 0 waits in broadcast([16] Float) as call 6", "train.py:10 in step", "call there was 5, all_red"):
        assert part in found.cause.en


def test_of_a_rank_without_a_dump_it_is_possible_only(tmp_path: Path) -> None:
    found = findings_in(tmp_path, rank_0=content_of(0))[0]
    assert (found.hazard, found.ranks, found.certainty) == ("rank-late-at-collective", (1, 2), Certainty.POSSIBLE)


def test_a_rank_whose_dump_has_no_call_of_the_group_has_a_dump(tmp_path: Path) -> None:
    other = content_of(1)
    other["pg_config"]["1"] = {"name": "1", "desc": "group", "ranks": "[1]"}
    for entry in other["entries"]:
        entry.update(process_group=("1", "group"), pg_id=1)
    other["entries"][-1].update(state="scheduled", retired=False)
    other.pop("pg_status")
    found = findings_in(tmp_path, rank_0=content_of(0), rank_1=other)[0]
    assert (found.hazard, found.ranks, found.certainty) == ("rank-late-at-collective", (1,), Certainty.LIKELY)
    assert "the dump of rank 1 has no call of this group. Rank 1 waits in" in found.cause.en
    assert "call 5 of group 1 at train.py" in found.cause.en
    for entry in other["entries"]:
        entry["record_id"] += 2_000  # its ring has lost what came before
    found = findings_in(tmp_path, rank_1=other)[0]
    assert (found.ranks, found.certainty) == ((1,), Certainty.POSSIBLE)


@pytest.mark.parametrize(
    ("hazard", "changed"),
    [
        ("collective-sizes-differ", {"input_sizes": [[3]]}),
        ("collective-sizes-differ", {"input_dtypes": ["Int"]}),
        ("ranks-part-at-collective", {"profiling_name": "nccl:reduce_scatter"}),
    ],
)
def test_calls_that_are_not_alike(hazard: str, changed: dict[str, Any], tmp_path: Path) -> None:
    other = content_of(1)
    other["entries"][3].update(changed)
    found = findings_in(tmp_path, rank_0=content_of(0), rank_1=other, rank_2=content_of(2))[0]
    assert (found.hazard, found.ranks, found.certainty) == (hazard, (0, 1, 2), Certainty.LIKELY)
    assert "call 4 of group 0" in found.cause.en


def test_nothing_is_said_of_ranks_that_agree_or_whose_rings_do_not_overlap(tmp_path: Path) -> None:
    early, late = content_of(1), content_of(1)
    assert findings_in(tmp_path, rank_0=early, rank_1=early, rank_2=early) == ()
    late["entries"] = late["entries"][3:]
    early["entries"] = early["entries"][:5]
    assert findings_in(tmp_path, rank_0=early, rank_1=late, rank_2=early) == ()


def test_json_dumps_whose_numbers_are_texts(tmp_path: Path) -> None:
    for rank in range(3):
        content = content_of(rank)
        for entry in content["entries"]:
            entry.pop("frames")
            entry["collective_seq_id"] = str(entry["collective_seq_id"])
        (tmp_path / f"fr_trace_rank_{rank}.json").write_text(json.dumps(content))
    assert read_failure([str(tmp_path)]).report().findings[0].ranks == (1,)


class Imports:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch was_run",)


HOSTILE = {
    "imports os": pickle.dumps({"entries": [Imports()]}, protocol=2),
    "nothing": b"",
    "ends early": (REAL / "nccl_trace_rank_0").read_bytes()[:900],
    "a memo of four billion": b"\x80\x02}r\xff\xff\xff\xff.",
    "a text of four billion": b"\x80\x02X\xff\xff\xff\xffabc.",
    "marks only": b"\x80\x02" + b"(" * 10_000 + b".",
    "an empty stack": b"\x80\x02u.",
    "lists in lists": b"\x80\x02" + b"]" * 50_000 + b"a" * 49_999 + b".",
    "a list that holds itself": b"\x80\x02]q\x00h\x00a.",
    "no entries": pickle.dumps({"version": "2.10"}, protocol=2),
    "other things": pickle.dumps({"entries": [1, None, {"frames": 3}], "pg_config": []}, protocol=2),
    "json": b'{"entries": [{"process_group": {}}]}',
    "deep json": b'{"entries": ' + b"[" * 100_000,
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_dump_is_no_dump_and_nothing_of_it_is_run(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_flight_recorder_dump("nccl_trace_rank_0", data) is None
    (tmp_path / "nccl_trace_rank_0").write_bytes(data)
    assert all(one.certainty is not Certainty.CERTAIN for one in read_failure([str(tmp_path)]).report().findings)
    assert not (tmp_path / "was_run").exists()
