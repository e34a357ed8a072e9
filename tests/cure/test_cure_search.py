"""The search for a cure, on rehearsals that are made up: what is kept, what is left out, what is never done."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from made_up import Rehearsals, error, project

from gonogo.finding import Applicability, Edit, Finding, Fix, Report, Text, UserError, Verdict
from gonogo.rehearse.request import RehearsalRequest
from gonogo.report import FORMATS, render
from gonogo.trials.cure.apply import apply_cure, write_patch
from gonogo.trials.cure.cure import CureResult, cure
from gonogo.trials.cure.request import CureRequest


def replacing(path: str, old: str, new: str, *, safe: bool = False) -> Fix:
    """A fix as a hazard would make it of the file as it is."""
    data = Path(path).read_bytes()
    start = data.index(old.encode())
    edit = Edit(path, start, start + len(old), old.encode(), new.encode())
    title = Text(f"{old} becomes {new}", f"{old} 改为 {new}")
    return Fix(title, Applicability.SAFE if safe else Applicability.UNSAFE, edits=(edit,))


def search(
    folder: Path, rehearsals: Rehearsals, monkeypatch: pytest.MonkeyPatch, *command: str, **asked: Any
) -> CureResult:
    monkeypatch.chdir(folder)
    rehearsal = RehearsalRequest(list(command) or ["bash", "launch.sh"])
    scratch = folder.parent / f"{folder.name}-scratch"
    scratch.mkdir()
    return cure(CureRequest(rehearsal, **asked), scratch, rehearsals)


def steps_of(report: Report) -> list[str]:
    assert report.cure is not None
    return [step.title.en for step in report.cure.steps]


def lacks(text: str, hazard: str, *fixes: str) -> Any:
    """A hazard of train.py that is met until a text stands in it; each fix puts one of these in the place of STEPS."""

    def judge(_request: RehearsalRequest) -> tuple[Finding, ...]:
        if text in Path("train.py").read_text():
            return ()
        as_it_was = "STEPS = 4" in Path("train.py").read_text()
        return (error(hazard, *(replacing("train.py", "STEPS = 4", fix) for fix in fixes if as_it_was)),)

    return judge


def test_a_run_that_is_go_needs_no_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rehearsals = Rehearsals(lambda request: ())
    report = search(project(tmp_path), rehearsals, monkeypatch).report
    assert report.verdict is Verdict.GO
    assert report.cure is not None
    assert not report.cure.needed
    assert [request.ranks for request in rehearsals.requests] == ["0", "sample"]  # what one rank shows is no proof
    assert "nothing to cure" in report.notes[0].en


def test_the_first_fix_that_makes_it_go_is_the_patch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(tmp_path)
    rehearsals = Rehearsals(lacks("STEPS = 6", "program-raises", "STEPS = 5", "STEPS = 6", "STEPS = 6 + 0"))
    cured = search(folder, rehearsals, monkeypatch)
    report = cured.report
    assert report.verdict is Verdict.GO
    assert steps_of(report) == ["STEPS = 4 becomes STEPS = 6"]
    assert report.cure is not None
    assert report.cure.proven
    assert [one.title.en for one in report.cure.tried] == ["STEPS = 4 becomes STEPS = 5"]
    assert "STEPS = 4" in (folder / "train.py").read_text()  # nothing of the user's is changed
    for format_name in FORMATS:
        for language in ("en", "zh"):
            assert render(report, format_name, language)
    assert json.loads(render(report, "json", "en"))["cure"]["patch"] == report.cure.patch
    assert "git apply cure.patch" in render(report, "text", "en")


def test_the_patch_applies_and_can_be_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(tmp_path)
    before = (folder / "train.py").read_text()
    cured = search(folder, Rehearsals(lacks("STEPS = 6", "program-raises", "STEPS = 6")), monkeypatch)
    write_patch(cured, Path("cure.patch"))
    subprocess.run(["git", "apply", "cure.patch"], check=True, cwd=folder)
    assert "STEPS = 6" in (folder / "train.py").read_text()
    subprocess.run(["git", "apply", "-R", "cure.patch"], check=True, cwd=folder)
    report = apply_cure(cured, cured.report)
    assert report.cure is not None
    assert report.cure.applied
    assert "patch -R -p1" in report.notes[-1].en
    assert (folder / "train.py").read_text() == before.replace("STEPS = 4", "STEPS = 6")


def test_what_has_changed_meanwhile_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(tmp_path)
    cured = search(folder, Rehearsals(lacks("STEPS = 6", "program-raises", "STEPS = 6")), monkeypatch)
    (folder / "train.py").write_text("STEPS = 7\n")
    with pytest.raises(UserError, match=r"train\.py changed during the search"):
        apply_cure(cured, cured.report)
    assert (folder / "train.py").read_text() == "STEPS = 7\n"


def test_steps_follow_one_another_and_what_is_not_needed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first step only moves the failure on; the second would have been enough."""

    def judge(_request: RehearsalRequest) -> tuple[Finding, ...]:
        text = Path("train.py").read_text()
        if "import torch.nn" in text:
            return ()
        if "STEPS = 5" in text:
            return (error("device-mismatch", replacing("train.py", "import torch", "import torch.nn")),)
        return (error("program-raises", replacing("train.py", "STEPS = 4", "STEPS = 5")),)

    report = search(project(tmp_path), Rehearsals(judge), monkeypatch).report
    assert report.verdict is Verdict.GO
    assert steps_of(report) == ["import torch becomes import torch.nn"]
    assert report.cure is not None
    assert "STEPS" not in "".join(line for line in report.cure.patch.splitlines() if line[0] in "+-")


def test_without_a_cure_it_is_told_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = search(
        project(tmp_path), Rehearsals(lacks("STEPS = 9", "program-raises", "STEPS = 5")), monkeypatch
    ).report
    assert report.verdict is Verdict.CANNOT_TELL
    assert [finding.hazard for finding in report.findings] == ["program-raises"]
    assert report.cure is not None
    assert not report.cure.patch
    assert [one.outcome.en for one in report.cure.tried] == ["the error remains"]
    assert "no cure found" in report.notes[0].en


@pytest.mark.parametrize("allowed", [False, True])
def test_what_is_learned_stays_the_same_unless_it_may_change(
    allowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(tmp_path)
    (folder / "launch.sh").write_text("torchrun --nproc_per_node 2 train.py --learning_rate 1e-4 --output_dir out\n")

    def judge(_request: RehearsalRequest) -> tuple[Finding, ...]:
        if "1e-5" in Path("launch.sh").read_text():
            return ()
        return (error("program-raises", replacing("launch.sh", "1e-4", "1e-5", safe=True)),)

    report = search(folder, Rehearsals(judge), monkeypatch, allow_training_changes=allowed).report
    assert report.verdict is (Verdict.GO if allowed else Verdict.CANNOT_TELL)
    if not allowed:
        assert report.cure is not None
        assert "learning_rate" in report.cure.tried[0].outcome.en


def test_a_typed_command_is_changed_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(_request: RehearsalRequest) -> tuple[Finding, ...]:
        script = next(Path.cwd().glob(".gonogo*"))
        if "export" in script.read_text():
            return ()
        return (error("program-raises", replacing(script.name, "torchrun", "export NAME='a b'\ntorchrun -m")),)

    report = search(
        project(tmp_path), Rehearsals(judge), monkeypatch, "torchrun", "--nproc_per_node", "2", "train.py"
    ).report
    assert report.cure is not None
    assert report.cure.variables == {"NAME": "a b"}
    assert report.cure.command == ("torchrun", "-m", "--nproc_per_node", "2", "train.py")
    assert not report.cure.patch
    assert report.cure.steps[0].files == ("<command>",)
    assert "export NAME='a b'" in render(report, "text", "en")


def test_no_new_trial_begins_after_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rehearsals = Rehearsals(lacks("STEPS = 6", "program-raises", "STEPS = 6"))
    report = search(project(tmp_path), rehearsals, monkeypatch, budget=0.0).report
    assert len(rehearsals.requests) == 1
    assert report.verdict is Verdict.CANNOT_TELL
    assert "--budget" in report.notes[0].en


def test_ctrl_c_tells_what_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = lacks("STEPS = 6", "program-raises", "STEPS = 6")

    def judge(request: RehearsalRequest) -> tuple[Finding, ...]:
        found: tuple[Finding, ...] = wanted(request)
        if not found:
            raise KeyboardInterrupt
        return found

    report = search(project(tmp_path), Rehearsals(judge), monkeypatch).report
    assert report.cure is not None
    assert report.cure.interrupted
    assert report.verdict is Verdict.CANNOT_TELL
    assert "interrupted" in report.notes[0].en


def test_the_copy_is_links_to_all_that_is_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = tmp_path / "data"
    outside.mkdir()
    (outside / "rows.bin").write_bytes(b"0" * 1000)
    folder = tmp_path / "project"
    folder.mkdir()
    project(folder)
    (folder / "package").mkdir()
    (folder / "package" / "model.py").write_text("WIDTH = 4\n")
    seen: list[bool] = []

    def judge(_request: RehearsalRequest) -> tuple[Finding, ...]:
        assert Path("../data/rows.bin").read_bytes() == b"0" * 1000
        assert Path("../data").is_symlink()
        if "8" in Path("package/model.py").read_text():
            return ()
        seen.append(Path("package").is_symlink())
        return (error("program-raises", replacing("package/model.py", "4", "8")),)

    report = search(folder, Rehearsals(judge), monkeypatch).report
    assert report.verdict is Verdict.GO
    assert seen == [True]
    assert (folder / "package" / "model.py").read_text() == "WIDTH = 4\n"
    assert report.cure is not None
    assert "+++ b/package/model.py" in report.cure.patch


def test_what_a_file_pins_is_rehearsed_and_a_new_pin_is_to_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(tmp_path, requirements__txt="torch\npeft==0.6.0\n")

    def judge(request: RehearsalRequest) -> tuple[Finding, ...]:
        if request.with_packages == ("peft==0.7.0",):
            return ()
        return (error("program-raises", replacing("requirements.txt", "0.6.0", "0.7.0")),)

    rehearsals = Rehearsals(judge)
    report = search(folder, rehearsals, monkeypatch).report
    assert rehearsals.requests[0].with_packages == ("peft==0.6.0",)
    assert report.cure is not None
    assert report.cure.pins == ("peft==0.7.0",)
    assert "+peft==0.7.0" in report.cure.patch
    assert "pip install peft==0.7.0" in render(report, "text", "en")


def test_a_command_that_cant_be_rehearsed_is_told_by_the_users_own_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, scratch = tmp_path / "project", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    monkeypatch.chdir(folder)

    def refuse(request: RehearsalRequest, on_progress: object) -> Any:
        raise UserError(Text(f"no train.py in {Path.cwd()}", f"{Path.cwd()} 中没有 train.py"))

    request = CureRequest(RehearsalRequest(["python", "train.py"], gpus="2xH100-80G"))
    with pytest.raises(UserError) as told:
        cure(request, scratch, refuse)
    assert told.value.text == Text(f"no train.py in {folder}", f"{folder} 中没有 train.py")
