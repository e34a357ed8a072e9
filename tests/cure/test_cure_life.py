"""State that is lost between saving and resuming, where one setting is why: which change cures it, and where."""

from __future__ import annotations

from pathlib import Path

import pytest
import samples
from made_up import Rehearsals, error, project

from gonogo.check.findings import check
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Finding, Report, Skipped, Text, Verdict
from gonogo.hazards.facts.left_out_of_checkpoint import modules_to_save_fixes
from gonogo.hazards.index import all_hazards
from gonogo.rehearse.progress import OnProgress
from gonogo.rehearse.request import RehearsalRequest
from gonogo.trials.cure.cure import CureResult, cure
from gonogo.trials.cure.request import CureRequest

_LAUNCH = "torchrun --nproc_per_node 2 train.py --output_dir out"
_TRAINER = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments

args = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()[0]
trainer = Trainer(model=None, args=args)
trainer.train({resume})
"""
_ARGUMENTS = """\
from transformers import Trainer, TrainingArguments

args = TrainingArguments("out", save_only_model=True, save_steps=2)
Trainer(model=None, args=args).train(resume_from_checkpoint=True)
"""
_ENGINE = """\
import deepspeed

engine, *_ = deepspeed.initialize(model=None, config="ds.json")
engine.load_checkpoint("ck", {keyword}=False)
"""
_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}\n'
_YAML = "stage: sft\nfinetuning_type: full\nmodel_name_or_path: base\noutput_dir: out\nsave_only_model: true\n"
_OPTIMIZER, _SCHEDULE = "resume-optimizer-not-restored", "resume-schedule-restarted"


def _cured(
    folder: Path, monkeypatch: pytest.MonkeyPatch, hazard: str, broken_by: str, cured_by: str, command: list[str]
) -> tuple[CureResult, Rehearsals]:
    """The cure of a run that fails while one of its files says one thing, or none the other."""
    scratch = folder.parent / "scratch"
    scratch.mkdir()
    monkeypatch.chdir(folder)

    def judge(request: RehearsalRequest) -> tuple[Finding, ...]:
        texts = [path.read_text() for path in Path().iterdir() if path.is_file()]
        broken = broken_by and any(broken_by in text for text in texts)
        return (error(hazard),) if broken or not any(cured_by in text for text in texts) else ()

    rehearsals = Rehearsals(judge)
    request = RehearsalRequest(command, life=("train", "save", "kill", "resume"), resume_with="--resume")
    return cure(CureRequest(request, own_ranks=False), scratch, rehearsals), rehearsals


@pytest.mark.parametrize(
    ("hazard", "files", "broken_by", "cured_by"),
    [
        (_OPTIMIZER, {"launch__sh": f"{_LAUNCH} --save_only_model --seed 1\n"}, "save_only_model", "--seed 1"),
        (_SCHEDULE, {"launch__sh": f"{_LAUNCH} --resume_only_model true\n"}, "resume_only_model", "out"),
        (_OPTIMIZER, {"launch__sh": f"{_LAUNCH} --no-load-optim\n"}, "no-load-optim", "out"),
        (_OPTIMIZER, {"train__py": _ARGUMENTS}, "save_only_model", "save_steps"),
        (_OPTIMIZER, {"launch__sh": "llamafactory-cli train a.yaml\n", "a__yaml": _YAML}, "save_only", "stage"),
        (
            _OPTIMIZER, {"train__py": _ENGINE.format(keyword="load_optimizer_states"), "ds__json": _DS}, "states",
            '"ck")',
        ),
        (
            _SCHEDULE, {"train__py": _ENGINE.format(keyword="load_lr_scheduler_states"), "ds__json": _DS}, "states",
            '"ck")',
        ),
        (
            "resume-reads-no-checkpoint", {"train__py": _TRAINER.format(resume="")}, "",
            "trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)",
        ),
        (
            "resume-reads-no-checkpoint",
            {"launch__sh": "python3 -m verl.trainer.main_ppo trainer.resume_mode=disable trainer.save_freq=2\n"},
            "disable", "trainer.resume_mode=auto trainer",
        ),
        (
            "resume-reads-no-checkpoint",
            {
                "launch__sh": f"{_LAUNCH} --overwrite_output_dir true\n",
                "train__py": _TRAINER.format(resume="resume_from_checkpoint=args.resume_from_checkpoint"),
            },
            "overwrite", "out",
        ),
        (
            "result-weights-lost", {"launch__sh": f"{_LAUNCH} --deepspeed ds.json\n", "ds__json": _DS}, "",
            '"stage3_gather_16bit_weights_on_model_save": true',
        ),
        (
            "result-weights-lost",
            {
                "launch__sh": f"{_LAUNCH} --deepspeed ds.json\n",
                "ds__json": _DS.replace("3}", '3, "stage3_gather_16bit_weights_on_model_save": false}'),
            },
            "", '"stage3_gather_16bit_weights_on_model_save": true',
        ),
        (
            "save-only-model-with-best-model-at-end",
            {"launch__sh": f"{_LAUNCH} --save_only_model --seed 1\n"}, "save_only_model", "--seed 1",
        ),
    ],
)  # fmt: skip
def test_the_setting_that_loses_state_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hazard: str, files: dict[str, str], broken_by: str, cured_by: str
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    project(folder, **files)
    result, _ = _cured(folder, monkeypatch, hazard, broken_by, cured_by, ["bash", "launch.sh"])
    assert result.report.verdict is Verdict.GO, result.report.cure
    assert len(result.changed) == 1


def test_a_typed_command_is_resumed_as_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the second life adds goes behind the program's own words, not behind a script's name."""
    folder = tmp_path / "project"
    folder.mkdir()
    project(folder)
    command = [*_LAUNCH.split(), "--save_only_model"]
    result, rehearsals = _cured(folder, monkeypatch, _OPTIMIZER, "save_only_model", "--output_dir", command)
    assert result.report.cure is not None
    assert result.report.cure.command == tuple(_LAUNCH.split())
    assert [request.command for request in rehearsals.requests] == [command, _LAUNCH.split()]
    assert {request.resume_with for request in rehearsals.requests} == {"--resume"}


@pytest.mark.parametrize("outcome", ["completed", "raised"])
def test_what_is_said_to_be_open_is_what_the_rehearsal_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    """A life that loses state runs to its end: only where the program fails is the rest not rehearsed."""
    folder = tmp_path / "project"
    folder.mkdir()
    project(folder)
    monkeypatch.chdir(folder)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    left = Skipped(Text("2 states", "2 项状态"), Text("a reason", "原因"))

    def rehearse(request: RehearsalRequest, _: OnProgress | None) -> tuple[RehearsalRecord, Report]:
        rank = samples.rank_record(0, outcome)
        rank.failure = samples.failure() if outcome == "raised" else None
        report = Report("rehearse", Verdict.NO_GO, (error(_OPTIMIZER),), covered=(left.what,), skipped=(left,))
        return samples.rehearsal_record(rank), report

    request = RehearsalRequest(["bash", "launch.sh"], life=("train", "save", "kill", "resume"))
    report = cure(CureRequest(request, own_ranks=False), scratch, rehearse).report
    assert report.verdict is Verdict.CANNOT_TELL
    if outcome == "completed":
        assert (report.skipped, report.covered) == ((left,), (left.what,))
    else:
        assert [one.what.en for one in report.skipped] == ["everything after the errors below"]
        assert not report.covered


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ("", "modules_to_save=['lm_head']"),
        (', modules_to_save=["embed_tokens"]', "modules_to_save=['embed_tokens', 'lm_head']"),
        (", modules_to_save=kept()", None),
    ],
)
def test_what_is_trained_beside_an_adapter_is_saved_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, becomes: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    project(tmp_path, train__py=f"from peft import LoraConfig\n\nconfig = LoraConfig(r=8{given})\n")
    run = next(run for run in check([], ["bash", "launch.sh"]).gathered.runs if run.launch is not None)
    hazard = next(hazard for hazard in all_hazards() if hazard.name == "result-weights-lost")
    lost = ["base_model.model.lm_head.weight", "base_model.model.q_proj.lora_A.default.weight"]
    edits = [edit for fix in modules_to_save_fixes(hazard, lost, run) for edit in fix.edits]
    assert [edit.after.decode().strip(", ") for edit in edits] == ([becomes] if becomes else [])
    assert not list(modules_to_save_fixes(hazard, lost[1:], run))
