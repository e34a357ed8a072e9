"""`gonogo bisect` on rehearsals that are made up, and once on real ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import samples
from msgspec.structs import replace
from packaging.version import Version

from gonogo.finding import Certainty, Finding, Report, Severity, Skipped, Text, UserError, Verdict
from gonogo.judge.rehearsal_summary import rehearsal_summary
from gonogo.rehearse.progress import OnProgress, RehearsalStatus
from gonogo.rehearse.request import RehearsalRequest
from gonogo.report import FORMATS, render
from gonogo.trials.bisect.bisect import BisectRequest, bisect
from gonogo.trials.bisect.report import bisect_report

CLIPPING = "zero3-offload-clip-grad-device-regression"


def report(verdict: str, hazard: str | None = None, message: str = "") -> Report:
    text = Text("a title", "标题")
    findings = ()
    if hazard is not None:
        findings = (Finding(hazard, Certainty.CERTAIN, Severity.ERROR, text, Text("a cause", "原因"), ranks=(0,)),)
    others = Text("not rehearsed", "未排练")
    skipped = (Skipped(Text("7 of 8 ranks", "7 个 rank"), others, beyond_request=True),)
    if verdict == "CANNOT-TELL":
        why = Text("it reads what all ranks write: use --ranks all", "它读取所有 rank 写入的内容")
        skipped = (Skipped(Text("rank 0: save", "rank 0：保存"), why), *skipped)
    failure = replace(samples.failure(), type="ValueError", message=message) if message else None
    record = samples.rehearsal_record(samples.rank_record(failure=failure))
    return Report(
        "rehearse",
        Verdict(verdict),
        findings,
        skipped=skipped,
        rehearsal=replace(rehearsal_summary(record, ""), seconds=1.5),
    )


GO, NO_GO, UNTOLD = report("GO"), report("NO-GO", CLIPPING), report("CANNOT-TELL")
OTHERWISE = report("NO-GO", "gpu-oom-activations")


class Index:
    """Releases 0.14.0 to 0.14.9, and what rehearsing with each of them comes to."""

    def __init__(self, **reports: Report | Exception) -> None:
        self.reports = {f"0.14.{name[1:]}": found for name, found in reports.items()}
        self.requests: list[RehearsalRequest] = []

    def attempt(self, request: RehearsalRequest, on_progress: OnProgress | None) -> tuple[Report, bool]:
        self.requests.append(request)
        if on_progress is not None:
            on_progress(RehearsalStatus(Text("rehearsing", "排练中"), 1.0))
        found = self.reports.get(request.with_packages[-1].removeprefix("deepspeed=="), GO)
        if isinstance(found, Exception):
            raise found
        return found, False

    def bisect(self, good: str, bad: str, on_progress: OnProgress | None = None, **rehearsal: Any) -> Report:
        request = RehearsalRequest(["python", "train.py"], **rehearsal)
        return bisect_report(bisect(BisectRequest("DeepSpeed", good, bad, request), self.attempt, on_progress))


@pytest.fixture(autouse=True)
def releases(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [Version(f"0.14.{patch}") for patch in range(10)]
    monkeypatch.setattr(
        "gonogo.trials.bisect.bisect.available_releases", lambda name: listed if name == "deepspeed" else []
    )


def test_the_release_that_breaks_it() -> None:
    index = Index(_2=NO_GO, _3=NO_GO, _4=NO_GO)
    said: list[str] = []
    found = index.bisect("0.14.0", "0.14.4", lambda status: said.append(status.activity.en), with_packages=("trl==1",))
    assert found.verdict is Verdict.NO_GO
    assert [note.en for note in found.notes] == [
        "deepspeed 0.14.2 breaks the run: 0.14.1 is the last release that works"
    ]
    assert [finding.hazard for finding in found.findings] == [CLIPPING]
    assert found.bisection is not None
    assert found.bisection.version == "0.14.2"
    assert [trial.version for trial in found.bisection.tried] == ["0.14.4", "0.14.0", "0.14.2", "0.14.1"]
    assert all(request.with_packages[0] == "trl==1" for request in index.requests)
    assert said[2] == "deepspeed 0.14.2 (3/4): rehearsing"


def test_the_release_that_mends_it() -> None:
    found = Index(_1=NO_GO, _2=NO_GO).bisect("0.14.9", "0.14.1")
    assert found.notes[0].en == "deepspeed 0.14.3 fixes the run: 0.14.2 is the last release that fails"
    assert found.bisection is not None
    assert (found.bisection.change, found.bisection.version) == ("mends", "0.14.3")


def test_releases_that_can_not_be_judged_are_stepped_around() -> None:
    not_there = UserError(Text("deepspeed==0.14.3 could not be installed", "无法安装"))
    found = Index(_2=UNTOLD, _3=not_there, _1=OTHERWISE, _5=NO_GO).bisect("0.14.0", "0.14.5")
    assert found.notes[0].en == "deepspeed 0.14.5 breaks the run: 0.14.4 is the last release that works"
    told = {skipped.what.en: skipped.why.en for skipped in found.skipped}
    assert told["deepspeed 0.14.2"] == "rank 0: save: it reads what all ranks write: use --ranks all"
    assert told["deepspeed 0.14.3"] == "deepspeed==0.14.3 could not be installed"
    assert "7 of 8 ranks" in told


def test_one_of_several_where_those_between_can_not_be_judged() -> None:
    found = Index(_2=OTHERWISE, _3=NO_GO).bisect("0.14.1", "0.14.3")
    assert found.verdict is Verdict.CANNOT_TELL
    assert "the release that makes the difference is not known, because 0.14.2" in found.notes[0].en
    assert {s.what.en: s.why.en for s in found.skipped}["deepspeed 0.14.2"].startswith(
        "it fails for another reason: gpu-"
    )
    assert found.bisection is not None
    assert found.bisection.undecided == ("0.14.2",)


def test_exceptions_that_no_hazard_knows_are_told_apart_by_what_they_say() -> None:
    first, second = report("NO-GO", "program-raises", "no log"), report("NO-GO", "program-raises", "no BUFSIZE")
    found = Index(_1=second, _2=second, _3=first, _4=first).bisect("0.14.0", "0.14.4")
    assert found.bisection is not None
    judged = {trial.version: trial.judged for trial in found.bisection.tried}
    assert judged == {"0.14.4": "bad", "0.14.0": "good", "0.14.2": "skipped", "0.14.1": "skipped", "0.14.3": "bad"}
    assert found.verdict is Verdict.CANNOT_TELL


@pytest.mark.parametrize(
    ("reports", "verdict", "said"),
    [
        ({}, "GO", "there is nothing to find"),
        ({"_1": NO_GO, "_3": NO_GO}, "NO-GO", "the version makes no difference"),
        ({"_1": UNTOLD, "_3": NO_GO}, "CANNOT-TELL", "deepspeed 0.14.1 can't be judged"),
        ({"_3": UNTOLD}, "CANNOT-TELL", "deepspeed 0.14.3 can't be judged"),
    ],
)
def test_ends_between_which_there_is_nothing_to_search(reports: dict[str, Report], verdict: str, said: str) -> None:
    index = Index(**reports)
    found = index.bisect("0.14.1", "0.14.3")
    assert found.verdict.value == verdict
    assert said in found.notes[0].en
    assert len(index.requests) == 2


@pytest.mark.parametrize(
    ("after", "note"),
    [
        (0, None),
        (1, None),
        (2, "the run works with deepspeed 0.14.0 and fails with 0.14.8; 7 releases between them were not tried"),
        (3, "the run works with deepspeed 0.14.4 and fails with 0.14.8; 3 releases between them were not tried"),
    ],
)
def test_ctrl_c_keeps_what_is_known(after: int, note: str | None) -> None:
    index = Index(**{f"_{patch}": NO_GO for patch in range(6, 10)})

    def attempt(request: RehearsalRequest, on_progress: OnProgress | None) -> tuple[Report, bool]:
        if len(index.requests) == after:
            return UNTOLD, True
        return index.attempt(request, on_progress)

    rehearsal = RehearsalRequest(["python", "train.py"])
    result = bisect(BisectRequest("deepspeed", "0.14.0", "0.14.8", rehearsal), attempt)
    found = bisect_report(result)
    assert result.interrupted
    assert found.verdict is Verdict.CANNOT_TELL
    assert found.notes[0].en.startswith("interrupted")
    assert [text.en for text in found.notes[1:]] == ([] if note is None else [note])
    assert found.bisection is not None
    assert len(found.bisection.tried) == after


@pytest.mark.parametrize(
    ("package", "good", "bad", "options", "said"),
    [
        ("deepspeed", "0.14.3", "0.14.1", {}, "wrong way around"),
        ("deepspeed", "0.14.1", "0.14.1", {}, "both 0.14.1"),
        ("deepspeed", "newest", "0.14.1", {}, "--good 'newest': must be a version"),
        ("deepspeed", "0.14.1", "0.15.7", {}, "--bad 0.15.7: pip finds no such release of deepspeed; the nearest are"),
        ("torch", "2.8.0", "2.9.0", {}, "create a Python environment for each version"),
        ("deepspeed", "0.14.1", "0.14.3", {"with_packages": ("DeepSpeed==0.14.4",)}, "remove this option"),
    ],
)
def test_what_can_not_be_searched_is_said_in_one_line(
    package: str, good: str, bad: str, options: dict[str, Any], said: str
) -> None:
    index = Index(_3=NO_GO)
    rehearsal = RehearsalRequest(["python", "train.py"], **options)
    with pytest.raises(UserError) as error:
        bisect(BisectRequest(package, good, bad, rehearsal), index.attempt)
    assert said in error.value.text.en
    assert "\n" not in error.value.text.en


def test_an_end_that_can_not_be_rehearsed_is_the_users_to_cure() -> None:
    with pytest.raises(UserError, match="no script"):
        Index(_3=UserError(Text("no script", "没有脚本"))).bisect("0.14.1", "0.14.3")


def test_records_are_kept_in_a_folder_for_each_release(tmp_path: Path) -> None:
    index = Index(_3=NO_GO)
    index.bisect("0.14.2", "0.14.3", keep=tmp_path)
    assert [request.keep for request in index.requests] == [
        tmp_path / "deepspeed-0.14.3",
        tmp_path / "deepspeed-0.14.2",
    ]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("format_name", FORMATS)
def test_every_format_is_written(format_name: str, language: str) -> None:
    text = render(Index(_2=UNTOLD, _3=NO_GO).bisect("0.14.0", "0.14.3"), format_name, language)
    if format_name in ("text", "markdown", "json"):
        assert "0.14.1" in text
        assert CLIPPING in text.replace("\\", "")
    if format_name in ("text", "markdown"):
        assert ("试过的 deepspeed 版本" if language == "zh" else "Releases of deepspeed tried") in text


def gonogo(folder: Path, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gonogo", "bisect", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--package", "deepspeed", "--good", "0.14.0"), "no command to rehearse"),
        (("--package", "deepspeed", "--good", "0.14.0", "--", "python", "x.py"), "--bad is missing"),
    ],
)
def test_what_is_missing_is_said(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = gonogo(tmp_path, *arguments, "--lang", "en")
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


PROGRAM = """
import deepspeed
import torch

config = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}},
}
model = torch.nn.Linear(8, 8)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for _ in range(3):
    loss = engine(torch.ones(1, 8, device=engine.device, dtype=torch.bfloat16)).float().sum()
    engine.backward(loss)
    engine.step()
"""


@pytest.mark.very_slow
@pytest.mark.timeout(900)
def test_the_deepspeed_that_mended_clipping_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    (tmp_path / "train.py").write_text(PROGRAM)
    done = gonogo(
        tmp_path, "--package", "deepspeed", "--good", "0.14.4", "--bad", "0.14.1", "--gpus", "2xH100-80G",
        "--format", "json", "--lang", "en", "--", "deepspeed", "--num_gpus", "2", "train.py", timeout=800,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr + done.stdout
    found = json.loads(done.stdout)
    assert found["notes"] == ["deepspeed 0.14.3 fixes the run: 0.14.2 is the last release that fails"]
    assert {trial["version"]: trial["judged"] for trial in found["bisection"]["tried"]} == {
        "0.14.1": "bad",
        "0.14.2": "bad",
        "0.14.3": "good",
        "0.14.4": "good",
    }
    assert found["findings"][0]["hazard"] == CLIPPING
