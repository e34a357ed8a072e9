"""One list of findings from all that is known of a run: its files, its rehearsal, its guard's records, its log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import samples
from msgspec.structs import replace

from gonogo.check.static_findings import StaticFindings, check_project, dump_findings, load_findings
from gonogo.diagnose.findings import read_failure
from gonogo.evidence.rehearsal.chain import exception_chain
from gonogo.evidence.rehearsal.failures import failure_places
from gonogo.evidence.rehearsal.record import Failure, Frame, RehearsalRecord
from gonogo.finding import Certainty, Finding, Report, Severity, Text, UserError, Verdict
from gonogo.rehearse.answer import rehearsal_report

TRAIN = """\
import deepspeed
import torch
from model import build, batches


def main():
    model = build()
    engine, _, _, _ = deepspeed.initialize(model=model, config="ds_config.json")
    for batch in batches():
        loss = engine(**batch)
        loss = loss + sum(p.sum() for p in model.parameters()) * 0.0
        engine.backward(loss)
        engine.step()


main()
"""
SUM = 11
ZERO_3 = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}
COMMAND = ["deepspeed", "--num_gpus", "2", "train.py"]
SITE = "/venv/lib/python3.11/site-packages"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "ds_config.json").write_text(json.dumps(ZERO_3, indent=2))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GONOGO_DEBUG", "1")
    return tmp_path


def raised(error: str, *frames: Frame, traceback: str = "", **changes: object) -> RehearsalRecord:
    kind, _, message = error.partition(": ")
    failure = Failure(kind, message, frames, "forward", 1, traceback=traceback, **changes)  # type: ignore[arg-type]
    ended = samples.rank_record(outcome="raised", failure=failure, phases=["load", "init"], devices=[])
    return samples.rehearsal_record(ended)


def users(path: Path, line: int) -> Frame:
    return Frame(str(path), line, "main", path.read_text().splitlines()[line - 1].strip(), "user")


def judged(record: RehearsalRecord, command: list[str] | None = None) -> Report:
    return rehearsal_report(record, files=check_project(command or COMMAND, use_installed=False))


def told(report: Report) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(one.hazard, one.certainty.value, one.ranks) for one in report.findings if one.severity is Severity.ERROR]


# -- a place in the code -----------------------------------------------------------------------------------------------


def test_an_exception_at_a_place_that_the_files_name_is_explained_by_it(project: Path) -> None:
    report = judged(raised("RuntimeError: words that nobody knows", users(project / "train.py", SUM)))
    assert told(report) == [("zero3-direct-param-use-invalid-gradient", "certain", (0,))]
    assert any(fix.edits for fix in report.findings[0].fixes)
    assert report.verdict is Verdict.NO_GO
    assert not any("matches no known hazard" in skipped.why.en for skipped in report.skipped)


def test_an_exception_elsewhere_stands_above_what_only_the_files_show(project: Path) -> None:
    report = judged(raised("KeyError: 'labels'", users(project / "train.py", 9)))
    assert told(report) == [
        ("program-raises", "certain", (0,)),
        ("zero3-direct-param-use-invalid-gradient", "certain", ()),
    ]


def test_the_same_hazard_of_both_is_one_finding_with_both_places(project: Path) -> None:
    message = "Function SumBackward0 returned an invalid gradient at index 0 - got [0] but expected shape compatible"
    record = raised(f"RuntimeError: {message} with [8]", users(project / "train.py", 12))
    report = judged(record)
    assert told(report) == [("zero3-direct-param-use-invalid-gradient", "certain", (0,))]
    places = [(span.path, span.line) for span in report.findings[0].spans]
    assert {("train.py", SUM), ("train.py", 12), ("ds_config.json", 7)} <= set(places)
    assert any(fix.edits for fix in report.findings[0].fixes)


def test_what_may_explain_an_exception_stands_above_it_and_the_run_fails_for_certain(project: Path) -> None:
    record = raised("RuntimeError: words that nobody knows", users(project / "train.py", SUM))
    files = check_project(COMMAND, use_installed=False)
    likely = tuple(replace(one, certainty=Certainty.LIKELY) for one in files.findings)
    report = rehearsal_report(record, files=replace(files, findings=likely))
    assert [hazard for hazard, *_ in told(report)] == ["zero3-direct-param-use-invalid-gradient", "program-raises"]
    assert report.verdict is Verdict.NO_GO


def test_a_copy_of_the_project_elsewhere_is_the_project(project: Path) -> None:
    elsewhere = Frame("/home/u/run/train.py", SUM, "main", TRAIN.splitlines()[SUM - 1].strip(), "user")
    assert told(judged(raised("RuntimeError: nobody knows", elsewhere)))[0][2] == (0,)
    other = Frame("/home/u/run/train.py", SUM, "main", "another line", "user")
    assert told(judged(raised("RuntimeError: nobody knows", other)))[0][0] == "program-raises"


# -- a setting ---------------------------------------------------------------------------------------------------------


def test_an_exception_that_names_a_setting_is_explained_by_it(project: Path) -> None:
    (project / "ds_config.json").write_text(json.dumps(ZERO_3 | {"optimizer": {"type": "AdamQ9", "params": {}}}))
    (project / "train.py").write_text(TRAIN.replace(" + sum(p.sum() for p in model.parameters()) * 0.0", ""))
    record = raised("AttributeError: module 'torch.optim' has no attribute 'AdamQ9'", users(project / "train.py", 8))
    assert told(judged(record))[:2] == [("ds-optimizer-unknown", "likely", (0,)), ("program-raises", "certain", (0,))]
    record = raised("AttributeError: 'NoneType' object has no attribute 'shape'", users(project / "train.py", 9))
    assert told(judged(record))[0][0] == "program-raises"


# -- packages ----------------------------------------------------------------------------------------------------------

LAZY = f"""\
Traceback (most recent call last):
  File "{SITE}/transformers/utils/import_utils.py", line 1967, in _get_module
    return importlib.import_module("." + module_name, self.__name__)
  File "{SITE}/torchvision/__init__.py", line 10, in <module>
    from torchvision import _meta_registrations, datasets, io, models, ops, transforms, utils
  File "{SITE}/torchvision/_meta_registrations.py", line 163, in <module>
    @torch.library.register_fake("torchvision::nms")
  File "{SITE}/torch/library.py", line 1023, in register
    use_lib._register_fake(
RuntimeError: operator torchvision::nms does not exist

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/work/train.py", line 3, in <module>
    from transformers import AutoProcessor
  File "{SITE}/transformers/utils/import_utils.py", line 1955, in __getattr__
    module = self._get_module(self._class_to_module[name])
RuntimeError: Failed to import transformers.models.auto.processing_auto because of the following error (look up to \
see its traceback):
operator torchvision::nms does not exist
"""


def lazy_import() -> RehearsalRecord:
    outer = [line for line in LAZY.splitlines() if line.startswith("RuntimeError")][-1]
    return raised(
        outer,
        Frame("/work/train.py", 3, "<module>", "from transformers import AutoProcessor", "user"),
        Frame(f"{SITE}/transformers/utils/import_utils.py", 1955, "__getattr__", "", "library"),
        traceback=LAZY,
        cause="RuntimeError: operator torchvision::nms does not exist",
    )


def test_a_chain_is_followed_to_its_first_cause() -> None:
    failure = lazy_import().ranks[0].failure
    assert failure is not None
    first, last = exception_chain(failure)
    assert (first.type, first.message) == ("RuntimeError", "operator torchvision::nms does not exist")
    assert [frame.owner for frame in first.frames] == ["library", "library", "library", "torch"]
    assert last.frames == failure.frames
    assert f"{SITE}/torchvision/_meta_registrations.py" in [span.path for span in failure_places(failure)]


def test_versions_that_do_not_fit_explain_the_import_that_fails_for_them(project: Path) -> None:
    pins = "torch==2.13.0\ntorchvision==0.29.0\ntransformers==5.0.0\n"
    (project / "requirements.txt").write_text(pins)
    (project / "train.py").write_text("import torch\nfrom torch import nn\nfrom transformers import AutoProcessor\n")
    report = judged(lazy_import())
    assert told(report) == [("torchvision-of-other-torch", "certain", (0,))]
    assert report.verdict is Verdict.NO_GO


def test_versions_explain_nothing_that_is_raised_elsewhere(project: Path) -> None:
    (project / "requirements.txt").write_text("torch==2.13.0\ntorchvision==0.29.0\n")
    (project / "train.py").write_text("import torch\nx = {}\nx['labels']\n")
    report = judged(raised("KeyError: 'labels'", users(project / "train.py", 3)))
    assert told(report)[0] == ("program-raises", "certain", (0,))


def test_what_is_laid_over_is_what_the_run_has(project: Path) -> None:
    (project / "requirements.txt").write_text("torch==2.13.0\ntorchvision==0.29.0\n")
    assert "torchvision-of-other-torch" in [one.hazard for one in check_project(COMMAND).findings]
    files = check_project(COMMAND, file_overrides={"torchvision": "0.28.0"})
    assert "torchvision-of-other-torch" not in [one.hazard for one in files.findings]


# -- a rehearsal that went past it -------------------------------------------------------------------------------------


def completed(world_size: int = 2, ranks: int = 2) -> RehearsalRecord:
    return samples.rehearsal_record(*(samples.rank_record(rank) for rank in range(ranks)), world_size=world_size)


def test_a_place_that_the_real_program_went_past_is_no_certain_error(project: Path) -> None:
    report = judged(completed())
    assert told(report) == [("zero3-direct-param-use-invalid-gradient", "possible", ())]
    assert "The rehearsal contradicts this: ranks 0-1 ran past this point" in report.findings[0].cause.en
    assert report.verdict is Verdict.GO


def test_a_rehearsal_that_did_not_come_so_far_says_nothing_of_it(project: Path) -> None:
    unfinished = samples.rehearsal_record(samples.rank_record(0, "timed-out"))
    assert told(judged(unfinished)) == [("zero3-direct-param-use-invalid-gradient", "certain", ())]
    (project / "train.py").write_text(TRAIN.replace("        loss = loss + sum", "        if 0: loss = loss + sum"))
    assert "contradicts this" not in "".join(finding.cause.en for finding in judged(completed()).findings)


def test_another_version_that_was_rehearsed_says_nothing_of_it(project: Path) -> None:
    (project / "requirements.txt").write_text("torch==2.1.0\n")
    assert ("zero3-direct-param-use-invalid-gradient", "certain", ()) in told(judged(completed()))


def test_versions_that_no_file_tells_are_a_risk_where_what_they_lack_was_put_in_its_place(project: Path) -> None:
    laid = {"deepspeed": "0.14.0", "numpy": "2.4.6"}
    found = check_project(COMMAND, file_overrides=laid).findings
    assert ("deepspeed-torch-api-mismatch", "likely") in [(one.hazard, one.certainty.value) for one in found]
    report = rehearsal_report(completed(), str(project), files=check_project(COMMAND, file_overrides=laid))
    [finding] = [one for one in report.findings if one.hazard == "deepspeed-torch-api-mismatch"]
    assert (finding.certainty.value, report.verdict) == ("possible", Verdict.GO)
    assert "Whether the real run has the same versions is not known" in finding.cause.en


def test_what_no_rehearsal_can_show_stays_as_it_is(project: Path) -> None:
    command = ["env", "CUDA_VISIBLE_DEVICES=0,0", *COMMAND]
    before = [one for one in check_project(command, use_installed=False).findings if "visible" in one.hazard]
    after = [one for one in judged(completed(), command).findings if "visible" in one.hazard]
    assert before
    assert [one.certainty for one in after] == [one.certainty for one in before]


# -- faults ------------------------------------------------------------------------------------------------------------


def test_a_fault_of_reading_files_costs_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("in check")

    monkeypatch.setattr("gonogo.check.findings.gather_runs_of_inputs", fails)
    report = judged(completed())
    assert report.verdict is Verdict.GO
    assert [skipped.why.en[:55] for skipped in report.skipped if skipped.what.en == "the run's files"] == [
        "internal error in gonogo (ZeroDivisionError: in check);"
    ]


def test_files_that_can_not_be_read_are_not_covered(project: Path) -> None:
    (project / "gonogo.toml").write_text("no-such-setting = 1\n")
    report = judged(completed())
    assert report.verdict is Verdict.GO
    assert any(skipped.what.en == "the run's files" for skipped in report.skipped)


def test_settings_and_comments_count(project: Path) -> None:
    allowed = TRAIN.replace("* 0.0", "* 0.0  # gonogo: allow zero3-direct-param-use-invalid-gradient")
    (project / "train.py").write_text(allowed)
    assert not told(judged(completed()))
    (project / "train.py").write_text(TRAIN)
    (project / "pyproject.toml").write_text('[tool.gonogo]\nignore = ["zero3-direct-*"]\n')
    assert not told(judged(completed()))


# -- logs, and guarded runs --------------------------------------------------------------------------------------------

LOG = """\
Traceback (most recent call last):
  File "/home/u/run/train.py", line 16, in <module>
    main()
  File "/home/u/run/train.py", line 11, in main
    loss = loss + sum(p.sum() for p in model.parameters()) * 0.0
RuntimeError: words that nobody knows
"""


def test_a_log_and_the_files_of_its_run(project: Path) -> None:
    (project / "run.log").write_text(LOG)
    alone = read_failure(["run.log"]).report()
    assert told(alone) == [("program-raises", "certain", ())]  # it failed there for certain, why is not known
    assert alone.verdict is Verdict.NO_GO
    report = read_failure(["run.log"], command=COMMAND).report()
    assert told(report) == [("zero3-direct-param-use-invalid-gradient", "certain", ())]
    assert report.verdict is Verdict.NO_GO
    assert ("run.log", 6) in [(span.path, span.line) for span in report.findings[0].spans]
    assert any("scripts: train.py" in covered.en for covered in report.covered)
    by_folder = read_failure(["run.log"], project=Path()).report()
    assert told(by_folder)[0][0] == "zero3-direct-param-use-invalid-gradient"


def test_what_the_log_does_not_show_is_not_certain_to_have_ended_the_run(project: Path) -> None:
    (project / "run.log").write_text(LOG.replace("line 11", "line 9").replace("loss = loss + sum(p", "for b in (p"))
    report = read_failure(["run.log"], command=COMMAND).report()
    assert told(report) == [
        ("zero3-direct-param-use-invalid-gradient", "likely", ()),
        ("program-raises", "possible", ()),
    ]
    assert report.answer is not None
    assert not report.answer.sure
    assert report.verdict is Verdict.CANNOT_TELL


def test_a_project_that_is_not_there_is_said(project: Path) -> None:
    (project / "run.log").write_text(LOG)
    with pytest.raises(UserError, match="--project nowhere: no such file or folder"):
        read_failure(["run.log"], project=Path("nowhere")).report()


def test_what_was_found_before_the_start_is_kept_for_the_report(project: Path) -> None:
    files = check_project(COMMAND, use_installed=False)
    path = project / "check.json"
    path.write_bytes(dump_findings(files))
    kept = load_findings(path)
    assert kept.findings == files.findings
    assert "train.py" in kept.sources
    path.write_text("{")
    assert load_findings(path) == StaticFindings()


def test_a_finding_with_nothing_beside_it_is_as_it_was(project: Path) -> None:
    record = raised("KeyError: 'labels'", users(project / "train.py", 9))
    alone = rehearsal_report(record)
    nothing: tuple[Finding, ...] = ()
    assert rehearsal_report(record, files=StaticFindings(findings=nothing)).findings == alone.findings
    assert Text("a", "b") not in alone.covered


# -- what went into the loss --------------------------------------------------------------------------------------

_INTO_LOSS = {
    "stacked norms": """\
        loss = engine(**batch)
        loss = loss + 0.0 * torch.stack([p.norm() for p in model.parameters()]).sum()
        engine.backward(loss)
""",
    "a name of its own": """\
        extra = 0.0 * sum(p.sum() for p in model.parameters())
        loss = engine(**batch)
        loss += extra
        scaled = loss / 4
        engine.backward(scaled)
""",
    "the mean of it": """\
        loss = engine(**batch)
        loss = loss + sum(p.sum() for p in model.parameters()) * 0.0
        engine.backward(loss.mean())
""",
}
_NOT_INTO_LOSS = {
    "of a loss that is given up": """\
        loss = engine(**batch)
        loss = loss + sum(p.sum() for p in model.parameters()) * 0.0
        print(loss)
        loss = engine(**batch)
        engine.backward(loss)
""",
    "beside the backward": """\
        loss = engine(**batch)
        other_loss = sum(p.sum() for p in model.parameters()) * 0.0
        engine.backward(loss)
        print(other_loss)
""",
}


def _fails_in_backward(folder: Path, body: str) -> Report:
    start, end = TRAIN.index("        loss = engine"), TRAIN.index("        engine.step()")
    (folder / "train.py").write_text(TRAIN[:start] + body + TRAIN[end:])
    text = (folder / "train.py").read_text()
    line = 1 + next(n for n, one in enumerate(text.splitlines()) if "backward(" in one)
    library = Frame(f"{SITE}/deepspeed/runtime/engine.py", 2600, "backward", "loss.backward()", "library")
    record = raised("RuntimeError: words that nobody knows", users(folder / "train.py", line), library)
    return judged(record)


@pytest.mark.parametrize("body", _INTO_LOSS.values(), ids=_INTO_LOSS)
def test_what_went_into_the_loss_explains_a_backward_that_fails(project: Path, body: str) -> None:
    report = _fails_in_backward(project, body)
    assert told(report) == [("zero3-direct-param-use-invalid-gradient", "certain", (0,))]
    assert report.verdict is Verdict.NO_GO


@pytest.mark.parametrize("body", _NOT_INTO_LOSS.values(), ids=_NOT_INTO_LOSS)
def test_what_did_not_go_into_the_loss_does_not(project: Path, body: str) -> None:
    assert "program-raises" in [hazard for hazard, _, _ in told(_fails_in_backward(project, body))]
