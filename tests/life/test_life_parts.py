"""The parts of a life's rehearsal, each alone: origins, the second command, other ranks' files, bad options."""

from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.evidence.rehearsal.life_table import life_report
from gonogo.evidence.rehearsal.lives import HeldState, RankRunState, StateMoment, StateOrigin
from gonogo.evidence.rehearsal.record import AcceleratorFacts, RankRecord, RehearsalRecord
from gonogo.finding import UserError
from gonogo.finding.lives.life_report import Interruption
from gonogo.finding.lives.state_names import state_text
from gonogo.judge.rehearsal_summary import rehearsal_summary
from gonogo.rehearse.lives import (
    StageCommands,
    add_files_of_other_ranks,
    check_life_options,
    parse_life_stages,
    resume_command,
)
from gonogo.report.lives.state_tables import life_tables


@pytest.mark.parametrize(
    ("command", "words", "gpus", "second"),
    [
        ("python a.py", None, None, "python a.py"),
        ("python a.py --lr 1", "--resume out/1", None, "python a.py --lr 1 --resume out/1"),
        ("python a.py --resume none --lr 1", "--resume out/1", None, "python a.py --resume out/1 --lr 1"),
        ("python a.py --resume=none --lr 1", "--resume out/1", None, "python a.py --resume=out/1 --lr 1"),
        ("python a.py --lr 1", "--resume=out/1", None, "python a.py --lr 1 --resume out/1"),
        ("torchrun --nproc_per_node 8 a.py --lr 1", None, 4, "torchrun --nproc_per_node 4 a.py --lr 1"),
        ("torchrun --nproc-per-node=8 a.py", None, 4, "torchrun --nproc-per-node=4 a.py"),
        ("torchrun --nproc_per_node 8 a.py", "--nproc_per_node 2", 4, "torchrun --nproc_per_node 2 a.py"),
        ("accelerate launch --num_processes 8 a.py", None, 4, "accelerate launch --num_processes 4 a.py"),
        ("python a.py", "trainer.resume_mode=auto", None, "python a.py trainer.resume_mode=auto"),
        ("python a.py --resume --lr 1", "--resume", None, "python a.py --resume --lr 1"),
    ],
)
def test_the_second_command(command: str, words: str | None, gpus: int | None, second: str) -> None:
    assert " ".join(resume_command(command.split(), words, gpus)) == second


@pytest.mark.parametrize(
    "life",
    [
        *("train", "train,save", "resume,save,kill", "save,kill,resume,save", "", "save,kill,reusme", "merge,serve"),
        *("save,kill,merge", "save,serve,merge", "save,convert"),
    ],
)
def test_stages_that_are_none(life: str) -> None:
    with pytest.raises(UserError, match="--life"):
        parse_life_stages(life, None, None)


def test_options_that_do_not_go_together() -> None:
    assert parse_life_stages(None, None, None) == ()
    assert parse_life_stages("Train, save,kill,resume", None, None) == ("train", "save", "kill", "resume")
    assert parse_life_stages("save,kill,resume,merge", None, None) == ("save", "kill", "resume", "merge")
    assert parse_life_stages("save,convert", None, None, StageCommands(convert="python a.py")) == ("save", "convert")
    with pytest.raises(UserError, match="--merge-with needs --life train,save,merge"):
        parse_life_stages("save,serve", None, None, StageCommands(merge="python a.py"))
    with pytest.raises(UserError, match="--serve-with 'a: No closing quotation"):
        parse_life_stages("save,serve", None, None, StageCommands(serve="'a"))
    for stage in ("convert", "merge", "serve"):
        with pytest.raises(UserError, match=f"--{stage}-with is empty"):
            parse_life_stages(f"save,{stage}", None, None, StageCommands(**{stage: " "}))
    with pytest.raises(UserError, match="--resume-with is empty"):
        parse_life_stages("save,kill,resume", None, "")
    with pytest.raises(UserError, match="--resume-on needs --life"):
        parse_life_stages(None, "4xH100-80G", None)
    with pytest.raises(UserError, match="--resume-with needs --life"):
        parse_life_stages(None, None, "--resume")
    with pytest.raises(UserError, match="--ray"):
        check_life_options(("save",), "auto", has_viewer_output=False)
    with pytest.raises(UserError, match="No closing quotation"):
        resume_command(["python", "a.py"], "'out", None)


def _rank(rank: int, *written: str) -> RankRecord:
    return RankRecord(rank, rank, f"cuda:{rank}", "completed", life=RankRunState("first", written=list(written)))


def test_files_of_ranks_that_were_not_run(tmp_path: Path) -> None:
    """Named as ranks 0 and 1 name theirs; what one rank writes alone, and what is no file of a rank, is left alone."""
    folder = tmp_path / "out"
    folder.mkdir()
    first = ["zero_pp_rank_0_mp_rank_00_optim.pt", "rng_state_0.pth", "__0_0.distcp", "model_1.pt"]
    second = ["zero_pp_rank_1_mp_rank_00_optim.pt", "rng_state_1.pth", "__1_0.distcp", "log_1.txt"]
    for name in (*first, *second):
        (folder / name).write_text(name)
    ranks = [_rank(0, *(f"/out/{name}" for name in first)), _rank(1, *(f"/out/{name}" for name in second))]
    (told,) = add_files_of_other_ranks(tmp_path, ranks, 4)
    made = sorted(path.name for path in folder.iterdir() if path.name not in (*first, *second))
    assert made == [
        *("__2_0.distcp", "__3_0.distcp", "rng_state_2.pth", "rng_state_3.pth"),
        *("zero_pp_rank_2_mp_rank_00_optim.pt", "zero_pp_rank_3_mp_rank_00_optim.pt"),
    ]
    assert (folder / "rng_state_3.pth").read_text() == "rng_state_1.pth"
    assert "ranks 2-3" in told.en
    assert list(add_files_of_other_ranks(tmp_path, ranks, 2)) == []
    (missing,) = add_files_of_other_ranks(tmp_path, ranks[:1], 4)
    assert "--ranks 0,1" in missing.en


def _lives(had: HeldState, has: HeldState | None, others: tuple[HeldState, ...] = ()) -> RehearsalRecord:
    accelerator = AcceleratorFacts("H100-80G", "cuda", 80 << 30, 1 << 30)

    def record(*ranks: RankRecord) -> RehearsalRecord:
        return RehearsalRecord(["python", "a.py"], "/x", len(ranks), 1, 1, accelerator, 2, None, ranks=list(ranks))

    def rank(number: int, life: RankRunState) -> RankRecord:
        return RankRecord(number, number, f"cuda:{number}", "completed", life=life)

    second = [has, *others]
    ranks = [
        rank(number, RankRunState("second", at_start=StateMoment(0, (one,) if one is not None else ())))
        for number, one in enumerate(second)
    ]
    both = record(*ranks)
    both.first_life = record(rank(0, RankRunState("first", at_save=StateMoment(2, (had,)))))
    return both


def _status(had: HeldState, has: HeldState | None, *others: HeldState) -> str:
    report = life_report(_lives(had, has, others))
    assert report is not None
    return report.states[0].status


def _moment(*origins: StateOrigin, dtype: str = "float32", name: str = "a") -> HeldState:
    return HeldState("optimizer", name, (8,), dtype, "exp_avg", origins=origins)


def test_what_became_of_a_state() -> None:
    own = StateOrigin("optimizer", "exp_avg", "a", "ck.pt")
    assert _status(_moment(), _moment(own)) == "restored"
    assert _status(_moment(), _moment(StateOrigin("optimizer", "exp_avg", "b", "ck.pt"))) == "other-state"
    assert _status(_moment(), _moment(StateOrigin("optimizer", "exp_avg_sq", "a", "ck.pt"))) == "other-state"
    assert _status(_moment(), _moment(own, dtype="bfloat16")) == "other-dtype"
    assert _status(_moment(), _moment(StateOrigin("optimizer", "exp_avg", "a", "ck.pt", "", 0.5))) == "partly"
    assert _status(_moment(), None) == "not-written"
    flat = "group 0, tensor 0"
    padded = StateOrigin("optimizer", "exp_avg", flat, "ck.pt", "", 0.8)
    assert _status(_moment(name=flat), _moment(padded, name=flat)) == "restored"
    from_first, unknown = StateOrigin("rank", "", "0"), StateOrigin("rank", "", "7")
    assert _status(_moment(), _moment(own), _moment(from_first)) == "restored"
    assert _status(_moment(), _moment(), _moment(from_first)) == "not-written"
    assert _status(_moment(), _moment(unknown)) == "unknown"


def test_weights_that_are_frozen() -> None:
    def weight(*origins: StateOrigin, drawn: bool = False) -> HeldState:
        return HeldState("parameter", "w", (8,), "float32", trained=False, drawn=drawn, origins=origins)

    assert _status(weight(), weight(StateOrigin("base", file="model.safetensors"))) == "unchanged"
    assert _status(weight(drawn=True), weight()) == "drawn-anew"
    assert _status(weight(drawn=True), weight(StateOrigin("parameter", "", "w", "ck.pt"))) == "restored"
    master = StateOrigin("optimizer", "weights", "group 0, tensor 0", "ck.pt")
    assert _status(weight(), weight(master)) == "restored", "the copy that the optimizer steps is the same numbers"


def test_what_another_process_made_of_a_checkpoint_is_not_known() -> None:
    """Neither lost nor restored; a file that was there before the run is what it was."""
    record = _lives(_moment(), _moment(StateOrigin("base", file="converted.pt")))
    assert record.first_life is not None
    (first,), (second,) = record.first_life.ranks, record.ranks
    assert first.life is not None
    assert second.life is not None
    first.life.began, second.life.unlabelled = 100.0, {"converted.pt": 101.0}
    report = life_report(record)
    assert report is not None
    assert [(row.status, row.read_from) for row in report.states] == [("unknown", ("converted.pt",))]
    second.life.unlabelled = {"converted.pt": 99.0}
    report = life_report(record)
    assert report is not None
    assert report.states[0].status == "not-written"


def test_what_the_first_life_did_not_write_is_nowhere_else() -> None:
    """A checkpoint that the resume asks for is the run's own: its absence says nothing of another machine."""
    record = _lives(_moment(), _moment())
    assert record.first_life is not None
    record.first_life.checkpoint_bytes = {"/x/out/checkpoint-2/model.safetensors": 8, "/x/ck.pt": 8}
    assert record.was_written_before("out/checkpoint-2")
    assert record.was_written_before("out/checkpoint-2/scheduler.pt")
    assert not record.was_written_before("out/checkpoint-9")
    assert not record.was_written_before("weights.bin"), "beside the program lie files of others, too"
    record.first_life.world_size = 8
    assert not record.was_written_before("out/checkpoint-2"), "of ranks that were not run, files are missing here"
    assert not record.first_life.was_written_before("out/checkpoint-2")


@pytest.mark.parametrize(
    ("name", "slot", "english", "chinese"),
    [
        ("a.weight", "", "a.weight", "a.weight"),
        ("a.weight", "exp_avg", "exp_avg of a.weight", "a.weight 的 exp_avg"),
        ("group 0, tensor 1", "exp_avg", "exp_avg of group 0, tensor 1", "第 0 组第 1 个张量 的 exp_avg"),
        ("2: partition 3", "", "2: partition 3", "2: 分区 3"),
    ],
)
def test_what_a_state_is_called(name: str, slot: str, english: str, chinese: str) -> None:
    text = state_text(name, slot)
    assert (text.en, text.zh) == (english, chinese)


def test_the_tables_in_chinese() -> None:
    """No words of English but names."""
    record = _lives(_moment(name="group 0, tensor 1"), None)
    record.interruptions = [
        Interruption("/x/a.pt", "/x/b.pt", torn=False, kind="half", why="training data", why_zh="训练数据")
    ]
    tables = life_tables(rehearsal_summary(record, "/x"), "zh")
    assert tables[0].rows[0][-1] == "第 0 组第 1 个张量"
    assert tables[-1].rows[0][-1] == "训练数据"
    assert life_tables(rehearsal_summary(record, "/x"), "en")[-1].rows[0][-1] == "training data"
