"""Real trainings into which one failure is brought: `gonogo run` blames the right rank, for the right reason."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from guard.launched import INJECTED, Launch, environment, gonogo_run, injected, launched, torchrun
from ports import free_port

pytestmark = pytest.mark.slow


def stopped_when_told(
    folder: Path, what: str, engine: str = "ddp", ranks: int = 2, stall: float = 3.0, timeout: float = 200.0
) -> Launch:
    """Run a training that comes to stand still until the report says so, then ask it to end as a scheduler would."""
    options = ("--stall-seconds", str(stall))
    command = gonogo_run(folder, *options, "--", *torchrun(ranks, INJECTED, what, engine))
    child = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + timeout
    report = folder / "report.json"
    try:
        while child.poll() is None and time.monotonic() < deadline and not _tells_of_a_standstill(report):
            time.sleep(0.5)
        child.send_signal(signal.SIGTERM)
        stdout, stderr = child.communicate(timeout=300)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
    told = json.loads(report.read_text(encoding="utf-8"))
    return Launch(child.returncode, stdout, stderr, folder, told)


def _tells_of_a_standstill(report: Path) -> bool:
    if not report.exists():
        return False
    return bool(json.loads(report.read_text(encoding="utf-8"))["guarded_run"]["standstill"])


class TestARankEnds:
    @pytest.mark.very_slow
    def test_by_an_exception(self, tmp_path: Path) -> None:
        done = injected(tmp_path, "raises")
        assert done.status == 1
        assert (done.first["hazard"], done.first["ranks"]) == ("program-raises", [1])
        assert "a sample without a label" in done.first["cause"]
        assert done.first["spans"][0]["path"].endswith("injected.py")
        assert done.run["first_failed"]["rank"] == 1
        assert [rank["outcome"] for rank in done.run["ranks"]] == ["raised, following", "raised"]
        assert done.report["verdict"] == "NO-GO"
        assert "Rank 1 failed first." in done.stderr

    @pytest.mark.very_slow
    def test_by_sigkill(self, tmp_path: Path) -> None:
        done = injected(tmp_path, "killed")
        assert (done.hazards, done.first["ranks"]) == (["rank-killed"], [1])
        assert "SIGKILL" in done.first["title"]
        assert re.search("after step [34],", done.first["cause"])  # a sign of life is given several times a second
        assert done.run["ranks"][1]["signal"] == "SIGKILL"

    @pytest.mark.very_slow
    @pytest.mark.parametrize(("what", "told"), [("exits", "status 3"), ("segfault", "SIGSEGV")])
    def test_without_a_word(self, tmp_path: Path, what: str, told: str) -> None:
        done = injected(tmp_path, what)
        assert (done.first["hazard"], done.first["ranks"]) == ("rank-killed", [1])
        assert told in done.first["title"]

    @pytest.mark.very_slow
    @pytest.mark.parametrize("ranks", [2, 4])
    def test_under_deepspeed(self, tmp_path: Path, ranks: int) -> None:
        done = injected(tmp_path, "killed", "zero3", ranks)
        assert (done.first["hazard"], done.first["ranks"]) == ("rank-killed", [1])
        assert len(done.run["ranks"]) == ranks

    @pytest.mark.very_slow
    @pytest.mark.parametrize("ranks", [2, 4])
    def test_a_tensor_left_behind(self, tmp_path: Path, ranks: int) -> None:
        done = injected(tmp_path, "left-behind", "zero3", ranks)
        assert (done.first["hazard"], done.first["ranks"]) == ("device-mismatch", [1])
        assert done.first["module"] == "tower"
        assert "meta" in done.first["cause"]
        assert done.run["first_failed"]["rank"] == 1

    @pytest.mark.very_slow
    def test_well_while_others_go_on(self, tmp_path: Path) -> None:
        done = injected(tmp_path, "leaves")
        assert done.first["hazard"] == "uneven-data-per-rank-hang"
        assert "`range(STEPS)`" in done.first["cause"]


class TestTheRanksAreNotAlike:
    @pytest.mark.very_slow
    def test_in_a_version(self, tmp_path: Path) -> None:
        done = injected(tmp_path, "other-version")
        assert done.status == 0
        assert (done.hazards, done.first["ranks"], done.first["severity"]) == (
            ["ranks-set-up-differently"],
            [1],
            "warning",
        )
        assert "0.0.30 on rank 0; 0.0.29 on rank 1" in done.first["cause"]
        assert done.report["verdict"] == "GO"

    @pytest.mark.very_slow
    @pytest.mark.parametrize("ranks", [2, 4])
    def test_in_a_setting(self, tmp_path: Path, ranks: int) -> None:
        done = injected(tmp_path, "other-config", "zero2", ranks)
        assert (done.first["hazard"], done.first["ranks"]) == ("ranks-set-up-differently", [1])
        assert "train_micro_batch_size_per_gpu" in done.first["cause"]

    @pytest.mark.very_slow
    def test_in_the_model(self, tmp_path: Path) -> None:
        done = injected(tmp_path, "other-model", "zero1", options=("--stall-seconds", "3"))
        assert done.status != 0
        assert (done.first["hazard"], done.first["ranks"]) == ("ranks-set-up-differently", [1])
        assert done.first["severity"] == "error"


class TestItStandsStill:
    @pytest.mark.very_slow
    @pytest.mark.parametrize(("engine", "ranks"), [("ddp", 2), ("zero3", 2), ("zero1", 4)])
    def test_a_rank_that_sleeps_is_named_while_it_lasts(self, tmp_path: Path, engine: str, ranks: int) -> None:
        done = stopped_when_told(tmp_path, "sleeps", engine, ranks)
        assert (done.first["hazard"], done.first["ranks"]) == ("rank-late-at-collective", [1])
        assert "sleeping" in done.first["cause"]
        assert "is held up" in done.stderr
        assert done.run["standstill"]["late"] == [1]
        assert done.run["standstill"]["waiting"] == [rank for rank in range(ranks) if rank != 1]
        assert done.status != 0

    @pytest.mark.very_slow
    def test_a_collective_that_a_rank_skips(self, tmp_path: Path) -> None:
        done = stopped_when_told(tmp_path, "skips", "zero1")
        assert done.first["hazard"] in ("collective-in-branch-of-one-rank", "ranks-part-at-collective")
        assert done.first["ranks"] == [0, 1]
        assert "injected.py" in done.first["spans"][0]["path"]

    @pytest.mark.very_slow
    def test_sizes_that_differ(self, tmp_path: Path) -> None:
        done = stopped_when_told(tmp_path, "other-size")
        assert done.hazards[0] == "collective-sizes-differ"

    @pytest.mark.very_slow
    def test_a_process_that_is_stopped(self, tmp_path: Path) -> None:
        done = stopped_when_told(tmp_path, "stopped", stall=15.0)
        assert (done.first["hazard"], done.first["ranks"]) == ("rank-late-at-collective", [1])


class TestSeveralNodes:
    @pytest.mark.very_slow
    def test_they_share_a_folder(self, tmp_path: Path) -> None:
        port = str(free_port())
        nodes = []
        for node in (0, 1):
            launch = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=1"]
            launch += [f"--node_rank={node}", "--master_addr=127.0.0.1", f"--master_port={port}", INJECTED, "raises"]
            command = gonogo_run(tmp_path, "--", *launch)
            nodes.append(
                subprocess.Popen(
                    command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
                )
            )
        said = [node.communicate(timeout=200)[1] for node in nodes]
        assert all(node.returncode for node in nodes)
        report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
        assert len(report["guarded_run"]["launches"]) == 2
        assert [rank["rank"] for rank in report["guarded_run"]["ranks"]] == [0, 1]
        assert (report["findings"][0]["hazard"], report["findings"][0]["ranks"]) == ("program-raises", [1])
        assert any("a sample without a label" in one for one in said)


class TestMemory:
    @pytest.mark.very_slow
    def test_that_grows_is_told_before_it_is_gone(self, tmp_path: Path) -> None:
        growth = _free_memory() // 150
        done = injected(tmp_path, "grows", STEPS="24", PAUSE="1.1", GROWTH=str(growth))
        assert done.status == 0
        assert (done.first["hazard"], done.first["ranks"]) == ("memory-grows-with-steps", [1])
        assert done.first["severity"] == "warning"


def _free_memory() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))


class TestTheGuardHarmsNobody:
    @pytest.mark.very_slow
    def test_training_goes_on_when_gonogo_is_killed(self, tmp_path: Path) -> None:
        command = gonogo_run(tmp_path / "run", "--", *torchrun(2, INJECTED, "healthy"))
        with (tmp_path / "out").open("w") as out:
            child = subprocess.Popen(
                command, env=environment(STEPS="30"), stdout=out, stderr=subprocess.DEVNULL, start_new_session=True
            )
        beats = [tmp_path / "run" / f"rank-{rank}.jsonl" for rank in (0, 1)]
        _wait(
            lambda: all(b'"kind":"step"' in beat.read_bytes() for beat in beats if beat.exists()) and beats[1].exists()
        )
        child.kill()
        child.wait()
        _wait(lambda: (tmp_path / "out").read_text().count("is through") == 2)
        _wait(lambda: all(b'"kind":"end"' in beat.read_bytes() for beat in beats))
        done = subprocess.run(
            [sys.executable, "-m", "gonogo", "run", "--report", str(tmp_path / "run")],
            env=environment(), capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 3
        assert "30 steps" in done.stdout
        assert "gonogo run itself was killed" in done.stdout

    @pytest.mark.very_slow
    def test_training_goes_on_when_the_folders_disk_is_full(self, tmp_path: Path) -> None:
        for rank in (0, 1):  # whatever is written to /dev/full finds no space
            (tmp_path / f"rank-{rank}.jsonl").symlink_to("/dev/full")
        done = injected(tmp_path, "healthy")
        assert done.status == 0
        assert done.stdout.count("is through") == 2
        assert 1 <= done.stderr.count("No space left on device") <= 4
        assert done.report["verdict"] == "CANNOT-TELL"

    @pytest.mark.very_slow
    @pytest.mark.parametrize("launcher", ["deepspeed", "accelerate", "python", "bash"])
    def test_it_works_through_every_launcher(self, tmp_path: Path, launcher: str) -> None:
        binaries = Path(sys.executable).parent
        port = str(free_port())
        accelerate = [f"{binaries}/accelerate", "launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"]
        script = tmp_path / "launch.sh"
        script.write_text(f'{sys.executable} -m torch.distributed.run --nproc_per_node=2 --master_port={port} "$@"\n')
        command = {
            "deepspeed": [
                f"{binaries}/deepspeed",
                "--num_gpus",
                "2",
                "--master_port",
                port,
                INJECTED,
                "raises",
                "zero1",
            ],
            "accelerate": [
                *accelerate,
                "--mixed_precision",
                "no",
                "--dynamo_backend",
                "no",
                "--main_process_port",
                port,
                INJECTED,
                "raises",
            ],
            "python": [sys.executable, INJECTED, "raises"],
            "bash": ["bash", str(script), INJECTED, "raises"],
        }[launcher]
        alone = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        if launcher == "python":
            other = subprocess.Popen(
                command, env=environment(**{**alone, "RANK": "0", "LOCAL_RANK": "0"}), stderr=subprocess.DEVNULL
            )
            done = launched(tmp_path / "run", *command, **alone)
            other.kill()
        else:
            done = launched(tmp_path / "run", *command)
        assert done.status != 0
        assert (done.first["hazard"], done.first["ranks"]) == ("program-raises", [1])
        shutil.rmtree(tmp_path / "run")


def _wait(until: object, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not until():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.2)
