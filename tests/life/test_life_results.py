"""What is made of a checkpoint: the comparison with what was trained, the usual commands, and a few real results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from result_comparison import judged
from results import CELLS, TRUTH, ResultCell

from gonogo.evidence.rehearsal.life_table import life_report
from gonogo.evidence.rehearsal.lives import HeldState, LifePart, RankRunState, SavedTensor, StateMoment, StateOrigin
from gonogo.evidence.rehearsal.record import AcceleratorFacts, RankRecord, RehearsalRecord
from gonogo.evidence.rehearsal.result_table import result_report
from gonogo.judge.rehearsal_summary import rehearsal_summary
from gonogo.rehearse.life_answer import skipped_life_checks
from gonogo.rehearse.lives import default_stage_command
from gonogo.report.lives.result_tables import result_tables

_TRAINED = HeldState("parameter", "a.weight", (8,), "float32")


def _record(life: RankRunState, part: LifePart) -> RehearsalRecord:
    accelerator = AcceleratorFacts("H100-80G", "cuda", 80 << 30, 1 << 30)
    record = RehearsalRecord(["python", "a.py"], "/x", 1, 1, 1, accelerator, 2, None)
    record.ranks, record.life_part = [RankRecord(0, 0, "cuda:0", "completed", life=life)], part
    return record


def _statuses(
    holds: tuple[tuple[str, str, str], ...], *loaded: HeldState, key: str = "a.weight", stage: LifePart = "serve"
) -> dict[str, str]:
    """What becomes of a weight that a file has under a key, where a model with these weights is loaded."""
    saved = [SavedTensor("ck.pt", key, (8,), "float32", holds)] if holds else []
    first = _record(RankRunState("first", saved=saved, at_save=StateMoment(2, (_TRAINED,))), "first")
    moment = StateMoment(0, loaded) if loaded else None
    first.afterwards = [_record(RankRunState(stage, at_start=moment), stage)]
    report = result_report(first)
    assert report is not None
    assert report.is_loaded == bool(loaded)
    return {row.name: row.status for row in report.states}


def _held(*origins: StateOrigin, name: str = "a.weight", size: int = 8) -> HeldState:
    return HeldState("parameter", name, (size,), "float32", origins=origins)


def test_what_became_of_a_trained_weight() -> None:
    own, flat = _TRAINED.identity, ("optimizer", "weights", "group 0, tensor 0")
    from_own = StateOrigin("parameter", "", "a.weight", "ck.pt")
    assert _statuses((own,), _held(from_own)) == {"a.weight": "restored"}
    assert _statuses((own,), _held()) == {"a.weight": "not-read"}
    assert _statuses((), _held()) == {"a.weight": "not-written"}
    assert _statuses((own,), _held(from_own, size=4)) == {"a.weight": "partly"}
    merged = _held(StateOrigin("base", file="ck.pt"), from_own, name="b.weight")
    assert _statuses((own,), merged) == {"a.weight": "restored"}, "an adapter's weight is in that of its layer"
    parts = StateOrigin(*flat, "ck.pt")
    assert _statuses((flat,), _held(parts)) == {"a.weight": "restored"}
    assert _statuses((flat,), _held(), key="module.a.weight") == {"a.weight": "not-read"}
    assert _statuses((flat,), _held(parts, name="b.weight")) == {"a.weight": "unknown"}
    drawn = {"a.weight": "restored", "head.weight": "drawn-anew"}
    assert _statuses((own,), _held(from_own), _held(name="head.weight")) == drawn
    assert _statuses((own,), stage="convert") == {"a.weight": "restored"}
    assert _statuses((), stage="convert") == {"a.weight": "not-written"}


def test_nothing_was_made_of_it() -> None:
    first = _record(RankRunState("first", at_save=StateMoment(2, (_TRAINED,))), "first")
    assert result_report(first) is None


def test_the_usual_commands(tmp_path: Path) -> None:
    """What a folder is shows what is done with it; the last stage's folder is the result."""
    for name in ("out/adapter_config.json", "out/config.json", "merged/config.json"):
        path = tmp_path / "x" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    first = _record(RankRunState("first", written=["/x/out/adapter_config.json", "/x/out/config.json"]), "first")
    merged = _record(RankRunState("merge", written=["merged/config.json"]), "merge")
    none = _record(RankRunState("convert", written=["/x/gone/config.json"]), "convert")
    merge, serve = (
        default_stage_command("merge", tmp_path, [first]),
        default_stage_command("serve", tmp_path, [first, merged, none]),
    )
    assert merge is not None
    assert merge[3:] == ["merge", "/x/out", "/x/out-merged"]
    assert serve is not None
    assert serve[3:] == ["serve", "/x/merged"]
    assert default_stage_command("merge", tmp_path, [merged]) is None


def test_the_truth_is_of_these_results() -> None:
    truth = json.loads(TRUTH.read_text(encoding="utf-8"))
    assert set(truth) == {cell.name for cell in CELLS if cell.really}
    for cell in CELLS:
        told = truth.get(cell.name, {})
        if cell.really:
            assert (cell.verdict.name == "GO") == (not told.get("error") and not told["lost"]), cell.name


_HERE = ("z3.json |  |  | ", "--frozen --bf16", "result prefix", "--kept |", "--unmerged", "dcp", "vllm serve")


@pytest.mark.very_slow
@pytest.mark.parametrize(
    "cell", [pytest.param(cell, id=cell.name) for cell in CELLS if any(part in cell.name for part in _HERE)]
)
def test_a_result(cell: ResultCell, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    wrong, answer = judged(cell, json.loads(TRUTH.read_text(encoding="utf-8")).get(cell.name), folder)
    assert not wrong, answer


def test_a_stage_that_fails_leaves_the_resume_known() -> None:
    """The answer is the failed stage's; what was seen of the lives stays in it."""
    moment = StateMoment(2, (_TRAINED,))
    first = _record(RankRunState("first", at_save=moment), "first")
    second = _record(RankRunState("second", at_start=moment), "second")
    second.first_life = first
    failed = _record(RankRunState("merge"), "merge")
    failed.first_life, failed.second_life, failed.resumes_as_given = first, second, False
    failed.life_stages = ("save", "kill", "resume", "merge", "serve")
    report = life_report(failed)
    assert report is not None
    assert [row.name for row in report.states] == ["a.weight"]
    (skipped,) = skipped_life_checks(failed)
    assert (skipped.what.en, skipped.why.en) == ("loading the result", "not reached: merging the adapter failed")
    failed.second_life = None
    assert life_report(failed) is None


def test_a_stage_without_a_folder_names_the_program_to_give() -> None:
    life = RankRunState("first", at_save=StateMoment(2, (_TRAINED,)), written=["out/step 2/weights.pt"])
    first = _record(life, "first")
    first.life_stages = ("save", "merge", "serve")
    merge, serve = skipped_life_checks(first)
    assert merge.remedy is not None
    assert merge.remedy.options == ("--merge-with=python merge.py 'out/step 2'",)
    assert (serve.remedy, serve.what.en) == (None, "loading the result")


@pytest.mark.parametrize(("language", "lost"), [("en", "LOST: in none of its files"), ("zh", "丢失：不在任何文件中")])
def test_the_table_of_the_result(language: str, lost: str) -> None:
    saved = [SavedTensor("out/model.bin", "a.weight", (8,), "float32", (_TRAINED.identity,))]
    moment = StateMoment(2, (_TRAINED, HeldState("parameter", "head.weight", (8,), "float32")))
    first = _record(RankRunState("first", saved=saved, at_save=moment), "first")
    first.afterwards = [_record(RankRunState("convert", saved=saved), "convert")]
    states, stages = result_tables(rehearsal_summary(first, "/x"), language)
    assert [row[1:] for row in states.rows][1] == ("1", lost, "", "head.weight")
    assert states.rows[0][3] == "out/model.bin"
    assert stages.rows[0][3] == "1"
