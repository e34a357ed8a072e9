"""What ``--task … --write`` writes: ``gonogo check`` finds nothing in it; real TRL and ms-swift, rehearsed, are GO."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from frameworks_installed import framework
from launchers.small_project import make_project
from msgspec.structs import replace
from plan_facts import ENGINES, SEVEN_BILLION, model_in

from gonogo.check.findings import check
from gonogo.finding import Verdict
from gonogo.trials.plan.choice import estimate_by_formula
from gonogo.trials.plan.closed_form import NO_CALIBRATION
from gonogo.trials.plan.request import PlanOptions, build_plan_request
from gonogo.trials.plan.strategy import Family, Strategy
from gonogo.trials.plan.task.rollout import RolloutChoice
from gonogo.trials.plan.task.settings import TaskOptions
from gonogo.trials.plan.write import required_changes, write_strategy

COLOCATED = RolloutChoice("colocate", share=0.3, sleep=True)
SERVED = RolloutChoice("server", gpus=1)
TASKS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"task": "dpo"}, {"reference": "model"}),
    ({"task": "dpo"}, {"reference": "precomputed"}),
    ({"task": "kto"}, {"reference": "adapter"}),
    ({"task": "rm"}, {}),
    ({"task": "gkd", "teacher": "model"}, {}),
    ({"task": "grpo"}, {"rollout": COLOCATED}),
    ({"task": "grpo", "reward_model": "scorer"}, {"rollout": COLOCATED}),
    ({"task": "grpo"}, {"rollout": SERVED}),
    ({"task": "rloo", "beta": 0.1}, {"rollout": COLOCATED, "reference": "model"}),
]
NAMES = ["dpo", "dpo-precomputed", "kto-lora", "rm", "gkd", "grpo", "grpo-rewarded", "grpo-server", "rloo"]


def written(
    folder: Path, given: dict[str, Any], chosen: dict[str, Any], gpus: str = "2xH100-80G", width: int = 3584
) -> Path:
    """The files of a strategy under ZeRO-3, of the model below the folder."""
    if "reward_model" in given:
        shutil.copytree("model", given["reward_model"])
        scores = Path(given["reward_model"], "config.json")
        config = json.loads(scores.read_text())
        scores.write_text(json.dumps({**config, "architectures": ["Qwen2ForSequenceClassification"], "num_labels": 1}))
    tune = "lora" if chosen.get("reference") == "adapter" else "full"
    lengths = {"prompt_len": 96, "completion_len": 16, **({"generations": 4} if "rollout" in chosen else {})}
    options = PlanOptions(model="model", gpus=gpus, tune=tune, task=TaskOptions(**lengths, **given))
    asked, _ = build_plan_request(options, None)
    strategy = Strategy(Family(3), True, 4, 2, **chosen)
    facts = replace(SEVEN_BILLION, hidden_size=width, engine=ENGINES)
    choice = estimate_by_formula(asked.without_server_gpus(strategy.rollout.gpus), facts, strategy, NO_CALIBRATION)
    write_strategy(folder / "written", choice, asked, facts)
    assert required_changes(choice, asked, facts)
    return folder / "written"


@pytest.mark.parametrize(("given", "chosen"), TASKS, ids=NAMES)
def test_check_finds_nothing_in_it(
    given: dict[str, Any], chosen: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_in(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    folder = written(tmp_path, given, chosen)
    monkeypatch.chdir(folder)
    launches = {path.name for path in folder.glob("launch_*.sh")} - {"launch_server.sh"}
    expected = {f"launch_{name}.sh" for name in ("deepspeed", "torchrun", "accelerate", "swift")}
    assert launches == expected - ({"launch_swift.sh"} if chosen.get("reference") == "precomputed" else set())
    for launch in sorted(launches):
        report = check([], ["bash", launch]).report
        assert (report.verdict, report.findings) == (Verdict.GO, ()), launch


def test_a_server_has_the_gpus_that_the_trainer_has_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model_in(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    folder = written(tmp_path, {"task": "grpo"}, {"rollout": RolloutChoice("server", tp=2, gpus=2)}, "8xH100-80G")
    assert "CUDA_VISIBLE_DEVICES=6,7" in (folder / "launch_server.sh").read_text()
    trains = (folder / "launch_torchrun.sh").read_text()
    assert "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5\n" in trains
    assert "--nproc_per_node 6" in trains
    assert json.loads((folder / "ds_config.json").read_text())["train_batch_size"] == 4 * 2 * 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "chosen", "launcher"),
    [
        pytest.param(*TASKS[0], "deepspeed", marks=pytest.mark.very_slow),
        pytest.param(*TASKS[1], "torchrun", marks=pytest.mark.very_slow),
        pytest.param(*TASKS[2], "accelerate", marks=pytest.mark.very_slow),
        pytest.param(*TASKS[3], "torchrun", marks=pytest.mark.very_slow),
        pytest.param(*TASKS[4], "accelerate", marks=pytest.mark.very_slow),
        pytest.param(*TASKS[5], "accelerate"),
        pytest.param(*TASKS[6], "torchrun", marks=pytest.mark.very_slow),
        pytest.param(*TASKS[7], "deepspeed", marks=pytest.mark.very_slow),
        pytest.param(*TASKS[8], "accelerate", marks=pytest.mark.very_slow),
    ],
    ids=NAMES,
)
def test_the_real_trl_rehearses_go(
    given: dict[str, Any], chosen: dict[str, Any], launcher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report = rehearsed(tmp_path, given, chosen, launcher, samples(given["task"]), framework("trl"))
    assert report["verdict"] == "GO", (report["findings"], report["skipped"])


@pytest.mark.very_slow
@pytest.mark.parametrize(
    ("given", "chosen"),
    [task for name, task in zip(NAMES, TASKS, strict=True) if name != "dpo-precomputed"],
    ids=[name for name in NAMES if name != "dpo-precomputed"],
)
def test_the_real_ms_swift_rehearses_go(
    given: dict[str, Any], chosen: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = (framework("swift"), framework("trl_before_1"))
    rows = samples_of_swift(given["task"])
    report = rehearsed(tmp_path, given, chosen, "swift", rows, *folders)
    assert report["verdict"] == "GO", (report["findings"], report["skipped"])


def rehearsed(
    tmp_path: Path, given: dict[str, Any], chosen: dict[str, Any], launcher: str, rows: list[dict[str, Any]],
    *packages: Path,
) -> dict[str, Any]:  # fmt: skip
    """The report of a written launch, of a project that is made in the working folder."""
    pytest.importorskip("deepspeed")
    make_project(tmp_path)
    folder = written(tmp_path, given, chosen, width=64)
    (folder / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for name in {given.get("teacher"), given.get("reward_model")} - {None}:
        (folder / name).symlink_to(tmp_path / name)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(one) for one in packages)}
    done = subprocess.run(
        [sys.executable, "-m", "gonogo", "rehearse", "--gpus", "2xH100-80G", "--host-memory", "1T", "--format", "json",
         "--", "bash", f"launch_{launcher}.sh"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr[-2000:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def samples(task: str) -> list[dict[str, Any]]:
    """Conversations, as the written script's comment asks for them."""
    rows = []
    for number in range(64):
        asked = [{"role": "user", "content": f"What is {number} plus 1?"}]
        good, bad = (
            [{"role": "assistant", "content": f"It is {answer}."}] for answer in (number + 1, number + 2)
        )  # fmt: skip
        rows.append(
            {
                "dpo": {"prompt": asked, "chosen": good, "rejected": bad},
                "rm": {"chosen": asked + good, "rejected": asked + bad},
                "kto": {"prompt": asked, "completion": good, "label": number % 2 == 0},
                "gkd": {"messages": asked + good},
            }.get(task, {"prompt": asked, "answer": str(number + 1)})
        )
    return rows


def samples_of_swift(task: str) -> list[dict[str, Any]]:
    """The same for ms-swift, as the comment in its launch asks for them."""
    rows = []
    for number in range(64):
        asked = [{"role": "user", "content": f"What is {number} plus 1?"}]
        answered = [*asked, {"role": "assistant", "content": f"It is {number + 1}."}]
        rejected = {"messages": answered, "rejected_response": f"It is {number + 2}."}
        rows.append(
            {
                "dpo": rejected,
                "rm": rejected,
                "kto": {"messages": answered, "label": number % 2 == 0},
                "gkd": {"messages": answered},
            }.get(task, {"messages": asked})
        )
    return rows
