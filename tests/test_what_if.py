"""``--set`` and ``--also``: where settings are changed, in a copy alone, and what is said where they can't be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import samples

from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Report, UserError, Verdict
from gonogo.rehearse.answer import rehearsal_report
from gonogo.rehearse.progress import OnProgress
from gonogo.rehearse.request import RehearsalRequest
from gonogo.report import render
from gonogo.report.answer.headline import make_headline
from gonogo.trials.what_if.changed_run import rehearse_with
from gonogo.trials.what_if.setting_changes import read_settings

CONFIG = """{
  "train_batch_size": 16,
  "train_micro_batch_size_per_gpu": "auto",
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}
}
"""
SCRIPT = """from transformers import HfArgumentParser, Trainer, TrainingArguments
args = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()[0]
Trainer(args=args).train()
"""
LAUNCH = """deepspeed --num_gpus 8 train.py --deepspeed ds.json \\
  --per_device_train_batch_size 2 --gradient_accumulation_steps 1 --model_max_length 2048 --output_dir out
"""


class Seen:
    """Rehearses nothing, and remembers the files of the folder that it was called in."""

    def __init__(self) -> None:
        self.files: list[dict[str, str]] = []

    def __call__(self, request: RehearsalRequest, on_progress: OnProgress | None) -> tuple[RehearsalRecord, Report]:
        self.files.append({name: Path(name).read_text() for name in ("launch.sh", "ds.json")})
        record = samples.rehearsal_record(samples.rank_record(0, "completed"))
        record.command = list(request.command)
        report = rehearsal_report(record)
        return record, msgspec.structs.replace(report, verdict=Verdict.GO)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    for name, text in (("ds.json", CONFIG), ("train.py", SCRIPT), ("launch.sh", LAUNCH)):
        (place / name).write_text(text)
    monkeypatch.chdir(place)
    return place


def rehearsed(changed: str, *also: str) -> tuple[Report, list[dict[str, str]]]:
    seen = Seen()
    request = RehearsalRequest(["bash", "launch.sh"])
    settings = read_settings([changed], "--set") if changed else {}
    _, report = rehearse_with(request, settings, [read_settings([one], "--also") for one in also], seen)
    return report, seen.files


def test_settings_are_changed_where_the_run_says_them_and_the_users_files_stay(folder: Path) -> None:
    before = {path.name: path.read_text() for path in folder.iterdir()}
    report, (files,) = rehearsed("micro-batch=4,seq-len=4096,stage=2,offload-optimizer=none")
    assert "--per_device_train_batch_size 4" in files["launch.sh"]
    assert "--model_max_length 4096" in files["launch.sh"]
    assert '"train_batch_size": 32' in files["ds.json"]
    assert '"stage": 2' in files["ds.json"]
    assert '"device": "none"' in files["ds.json"]
    assert {path.name: path.read_text() for path in folder.iterdir()} == before
    assert report.rehearsal is not None
    assert report.rehearsal.command == ("bash", "launch.sh")
    assert make_headline(report).next.what.en == (
        "to keep it, set micro-batch=4, seq-len=4096, stage=2, offload-optimizer=none in launch.sh, ds.json"
    )
    assert "gonogo-" not in render(report, "json", "en"), "no path of the copy"


def test_a_command_that_was_typed_is_changed_too(folder: Path) -> None:
    words = LAUNCH.replace("\\\n", " ").split()
    ran: list[str] = []

    def rehearse(request: RehearsalRequest, on_progress: Any) -> tuple[RehearsalRecord, Report]:
        ran.append(Path(request.command[-1]).read_text())
        return Seen()(request, on_progress)

    _, report = rehearse_with(RehearsalRequest(words), {"accumulation": "4"}, [], rehearse)
    assert "--gradient_accumulation_steps 4" in ran[0]
    assert report.rehearsal is not None
    assert report.rehearsal.command == tuple(words)


def test_others_are_rehearsed_beside_it_and_shown_in_one_table(folder: Path) -> None:
    report, files = rehearsed("", "stage=2", "micro-batch=1")
    assert [('"stage": 2' in one["ds.json"], "batch_size 1" in one["launch.sh"]) for one in files] == [
        (False, False),
        (True, False),
        (False, True),
    ]
    text = render(report, "text", "en")
    assert "With other settings" in text
    assert "micro-batch=1" in text
    assert '"also"' in render(report, "json", "en")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("micro-batch", "write NAME=VALUE"),
        ("micro_batch=2", "did you mean micro-batch?"),
        ("learning-rate=2", "the settings are micro-batch"),
        ("micro-batch=0", "a whole number, at least 1"),
        ("stage=4", "one of 0, 1, 2, 3"),
        ("stage=1,stage=2", "given twice"),
        ("micro-batch=2", "already uses this value"),
        ("stage=3", "already uses this value"),
        ("offload-optimizer=cpu", "already uses this value"),
    ],
)
def test_what_makes_no_sense_is_one_line_before_anything_runs(text: str, said: str, folder: Path) -> None:
    with pytest.raises(UserError) as raised:
        rehearsed("", text)
    assert said in raised.value.text.en
    assert "\n" not in raised.value.text.en


def test_a_setting_without_a_place_in_the_files_says_where_it_was_looked_for(folder: Path) -> None:
    (folder / "launch.sh").write_text(LAUNCH.replace("--model_max_length 2048", ""))
    with pytest.raises(UserError, match="no place was found"):
        rehearsed("seq-len=4096")
