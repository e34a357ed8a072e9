"""A rehearsal from command to record, with a worker that runs programs without virtual devices."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import msgspec
import pytest
from test_shell import snapshot

from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import UserError
from gonogo.prepare.packages import PackageOverlay
from gonogo.rehearse.launch.worker_environment import mirror_datasets_cache
from gonogo.rehearse.progress import RehearsalStatus
from gonogo.rehearse.request import RehearsalRequest
from gonogo.rehearse.run import rehearse
from gonogo.rehearse.workers import scratch

_FAKE_WORKER = str(Path(__file__).with_name("fake_worker.py"))
_SHOW = """
import json, os, sys
with open(os.environ["SEEN"] + os.environ.get("RANK", ""), "w") as file:
    json.dump([sys.argv, dict(os.environ), os.getcwd(), sys.path], file)
"""


class Project:
    """A user's folder, and rehearsals in it that must leave it as it was."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "project"
        self.seen = root / "seen"
        self.kept = root / "kept"
        self.folder.mkdir()

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))

    def rehearse(self, *command: str, **options: object) -> RehearsalRecord:
        before = snapshot(self.folder)
        try:
            shutil.rmtree(self.kept, ignore_errors=True)
            options = {"timeout": 60.0, "keep": self.kept, **options}
            return rehearse(RehearsalRequest(list(command), **options), None)  # type: ignore[arg-type]
        finally:
            assert snapshot(self.folder) == before
            assert not self.seen.exists()

    def saw(self, rank: str = "") -> tuple[list[str], dict[str, str], str, list[str]]:
        argv, environment, cwd, path = json.loads(self.written(f"{self.seen}{rank}").read_text())
        return argv, environment, cwd, path

    def written(self, path: str | Path) -> Path:
        """What the rehearsed programs wrote to a path."""
        return Path(f"{self.kept}/changed{path}")

    def living(self) -> list[int]:
        """Processes of rehearsed programs, by the variable that the test has set."""
        mark = f"SEEN={self.seen}\0".encode()
        found = []
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if not folder.name.isdigit() or mark not in (folder / "environ").read_bytes():
                    continue
                if any(name in (folder / "cmdline").read_bytes() for name in (b"fake_worker", b"sleep")):
                    found.append(int(folder.name))
        return found

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and len(self.living()) < count:
            time.sleep(0.1)
        assert len(self.living()) >= count


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    project = Project(tmp_path)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.chdir(project.folder)
    monkeypatch.setenv("SEEN", str(project.seen))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(
        "gonogo.rehearse.workers.workers.python_module_command",
        lambda python, _module, plan, **_: [python, _FAKE_WORKER, plan],
    )
    for name in ("CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    yield project
    assert list(temporary.iterdir()) == []  # nothing of a rehearsal is left


def plan_of(record: RehearsalRecord, index: int = 0) -> dict[str, object]:
    text = next(event for event in record.ranks[index].events if event.startswith("plan: "))
    return json.loads(text.removeprefix("plan: "))


def test_one_rank_of_a_deepspeed_launch(project: Project) -> None:
    project.write("train.py", _SHOW)
    record = project.rehearse("deepspeed", "--num_gpus", "4", "train.py", "--deepspeed", "ds.json", host_memory="1T")
    assert (record.world_size, record.nodes, record.ranks_per_node, record.launcher) == (4, 1, 4, "deepspeed")
    assert (record.accelerator.name, record.steps, record.host_memory_bytes) == ("H100-80G", 2, 1 << 40)
    assert [(rank.rank, rank.outcome) for rank in record.ranks] == [(0, "completed")]
    assert record.cwd == str(project.folder)
    plan = plan_of(record)
    assert (plan["world_size"], plan["local_world_size"], plan["devices"]) == (4, 4, 4)
    argv, environment, cwd, path = project.saw("0")
    assert argv == ["train.py", "--local_rank=0", "--deepspeed", "ds.json"]
    assert cwd == str(project.folder)
    assert environment["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert environment["HF_HUB_OFFLINE"] == environment["TRANSFORMERS_OFFLINE"] == "1"
    assert environment["PYTHONHASHSEED"] == "0"
    for name in ("HF_DATASETS_CACHE", "HF_MODULES_CACHE", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR"):
        assert environment[name].startswith(os.environ["TMPDIR"])
    assert environment["TMPDIR"].endswith("/caches/tmp")  # by a link where the user's own is too long for sockets
    assert not os.path.exists(environment["TMPDIR"])  # it goes with the rehearsal
    assert environment["HOME"] == os.environ["HOME"]
    assert "" not in path


def test_all_ranks_each_in_its_place(project: Project) -> None:
    project.write("train.py", _SHOW)
    record = project.rehearse("deepspeed", "--num_gpus", "3", "train.py", ranks="all", gpus="8xA100-80G")
    assert [rank.rank for rank in record.ranks] == [0, 1, 2]
    assert [project.saw(str(rank))[1]["LOCAL_RANK"] for rank in range(3)] == ["0", "1", "2"]
    assert plan_of(record)["devices"] == 8
    assert record.accelerator.name == "A100-80G"


def test_a_plain_program_sees_all_devices(project: Project) -> None:
    project.write("train.py", _SHOW)
    record = project.rehearse("env", "A=1", "python", "-u", "train.py", "x", gpus="4xL40S")
    assert (record.world_size, record.launcher, plan_of(record)["devices"]) == (1, "python", 4)
    argv, environment, _, _ = project.saw()
    assert argv == ["train.py", "x"]
    assert environment["A"] == "1"
    assert "RANK" not in environment
    assert plan_of(project.rehearse("python", "train.py"))["devices"] == 1


def test_the_time_that_an_environment_takes_is_not_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    def install(*_arguments: object, **_options: object) -> PackageOverlay:
        time.sleep(0.3)
        return PackageOverlay()

    def run(request: RehearsalRequest, *_arguments: object) -> None:
        raise TimeoutError(request.timeout)

    monkeypatch.setattr("gonogo.rehearse.run.packages_for", install)
    monkeypatch.setattr("gonogo.rehearse.run._run_rehearsal", run)
    with pytest.raises(TimeoutError) as ended:
        rehearse(RehearsalRequest(["python", "train.py"], timeout=5.0))
    assert 5.3 <= ended.value.args[0] < 20


@pytest.mark.parametrize("server", ["trl vllm-serve --model m", "swift rollout --model m", "swift infer --model m"])
def test_of_a_scripts_launches_the_first_that_trains_is_rehearsed(project: Project, server: str) -> None:
    project.write("train.py", _SHOW)
    project.write("run.sh", f"{server}\ntorchrun --nproc_per_node 2 train.py first\ntorchrun train.py second\n")
    record = project.rehearse("bash", "run.sh", gpus="2xH100-80G", timeout=300.0)
    assert (record.launcher, record.world_size) == ("torchrun", 2)
    assert project.saw("0")[0] == ["train.py", "first"]


@pytest.mark.parametrize(
    "words",
    [
        ("uv", "run", "--with", "x", "train.py", "--lr", "1"),
        ("srun", "--nodes=1", "torchrun", "--nproc_per_node", "1", "train.py", "--lr", "1"),
        ("ray", "job", "submit", "--no-wait", "--", "python3", "train.py", "--lr", "1"),
    ],
)
def test_what_starts_another_command_is_typed_as_in_a_script(words: tuple[str, ...], project: Project) -> None:
    project.write("train.py", _SHOW)
    assert project.rehearse(*words).ranks[0].outcome == "completed"
    assert project.saw("0" if "torchrun" in words else "")[0][-2:] == ["--lr", "1"]


@pytest.mark.parametrize(
    "words",
    [
        ("sbatch", "run.sh", "--lr", "1"),
        ("sbatch", "--nodes=1", "-p", "gpu", "-N1", "--exclusive", "run.sh", "--lr", "1"),
    ],
)
def test_a_submitted_job_is_rehearsed_as_its_node_runs_it(words: tuple[str, ...], project: Project) -> None:
    project.write("train.py", _SHOW)
    project.write("run.sh", '#!/bin/bash\n#SBATCH --nodes=1\nsrun python train.py "$@"\n')
    assert project.rehearse(*words).ranks[0].outcome == "completed"
    assert project.saw("")[0][-2:] == ["--lr", "1"]


def test_a_plain_program_whose_environment_says_its_place(project: Project) -> None:
    project.write("train.py", _SHOW)
    line = ["RANK=0", "WORLD_SIZE=8", "LOCAL_RANK=0", "MASTER_ADDR=localhost", "python", "train.py"]
    record = project.rehearse(*line, gpus="4xH100-80G", ranks="0,5")
    assert (record.world_size, record.nodes, [rank.rank for rank in record.ranks]) == (8, 2, [0, 5])
    assert project.saw("5")[1]["LOCAL_RANK"] == "1"


def test_visible_devices_make_the_machine_large_enough(project: Project) -> None:
    project.write("train.py", "")
    record = project.rehearse("CUDA_VISIBLE_DEVICES=2,6", "deepspeed", "--no_local_rank", "train.py", gpus="8xH100-80G")
    assert (record.world_size, plan_of(record)["devices"]) == (2, 8)
    named = project.rehearse("CUDA_VISIBLE_DEVICES=2,6", "python", "train.py")
    assert plan_of(named)["devices"] == 7


def test_the_rank_that_finds_no_visible_device_is_run_besides(project: Project) -> None:
    project.write("train.py", "")
    record = project.rehearse(
        "CUDA_VISIBLE_DEVICES=0,1", "torchrun", "--nproc_per_node", "4", "train.py", gpus="4xV100-32G"
    )
    assert [rank.rank for rank in record.ranks] == [0, 2]


def test_a_launch_script_hands_on_what_it_wrote(project: Project) -> None:
    project.write("train.py", _SHOW)
    project.write(
        "launch.sh",
        """\
        export FROM_SCRIPT=1
        echo '{}' > ds.json
        echo 'worker-0 slots=2' > hosts
        rm -rf output; wget http://example.com/x
        deepspeed --hostfile hosts train.py --deepspeed ds.json > train.log
        deepspeed eval.py
        python prepare.py
        """,
    )
    record = project.rehearse("bash", "launch.sh", "x")
    assert record.command == ["bash", "launch.sh", "x"]
    assert record.world_size == 2
    argv, environment, _, _ = project.saw("0")
    assert argv == ["train.py", "--local_rank=0", "--deepspeed", "ds.json"]
    assert environment["FROM_SCRIPT"] == "1"
    whats = " | ".join(what for what, _ in record.skipped)
    assert "deepspeed eval.py" in whats
    assert "python prepare.py" in whats
    assert "wget http://example.com/x" in whats
    assert "rm -rf output" not in whats  # it really ran
    assert any("gonogo rehearse -- deepspeed eval.py" in why for _, why in record.skipped)
    assert len(record.skipped_zh) == len(record.skipped)


def test_a_program_that_a_script_writes_is_found(project: Project) -> None:
    project.write("launch.sh", "cat > made.py <<'EOF'\nprint('made')\nEOF\npython made.py\n")
    assert project.rehearse("bash", "launch.sh").ranks[0].outcome == "completed"


def test_what_a_script_changed_by_way_of_a_link_is_seen(project: Project, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project.folder)
    project.write("output/checkpoint-1/model.bin", "weights")
    project.write(
        "train.py",
        f"""\
        import os
        os.makedirs("output")  # which the script has removed
        assert os.listdir("output") == []
        assert open("{project.folder}/ds.json").read() == "x\\n"
        """,
    )
    project.write("launch.sh", f"cd {tmp_path}/link\necho x > ds.json\nrm -rf output\npython train.py\n")
    record = project.rehearse("bash", "launch.sh")
    assert record.ranks[0].outcome == "completed", record.ranks[0].events
    assert project.written(project.folder / "ds.json").read_text() == "x\n"


def test_a_worker_that_dies_is_a_killed_rank_with_its_last_lines(project: Project) -> None:
    project.write("train.py", "import os\nprint('about to end', flush=True)\nos.kill(os.getpid(), 9)\n")
    (rank,) = project.rehearse("python", "train.py").ranks
    assert rank.outcome == "killed"
    assert rank.events[0].endswith("ended by SIGKILL")
    assert rank.events[-1] == "about to end"
    assert rank.last_activity == "forward, step 1, model.layers.3"
    assert rank.operators == 123


@pytest.mark.slow
def test_a_program_that_never_trains_times_out(project: Project) -> None:
    project.write("train.py", "import time\nwhile True: time.sleep(1)\n")
    started = time.monotonic()
    record = project.rehearse("deepspeed", "--num_gpus", "8", "train.py", ranks="all", timeout=4.0)
    assert time.monotonic() - started < 60
    assert {rank.outcome for rank in record.ranks} == {"timed-out"}
    assert record.ranks[0].last_activity == "told to end"
    assert not any("the worker was not started" in rank.events for rank in record.ranks)  # they meet: all run at once


@pytest.mark.slow
def test_a_worker_that_does_not_listen_is_killed_with_its_children(project: Project, monkeypatch) -> None:
    monkeypatch.setattr("gonogo.rehearse.workers.workers._WRITE_TIMEOUT_SECONDS", 0.5)
    project.write(
        "train.py",
        """\
        import os, signal, subprocess, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.environ["SEEN"]
        subprocess.Popen(["sleep", "300"])
        subprocess.Popen(["sleep", "300"], start_new_session=True)
        time.sleep(300)
        """,
    )
    (rank,) = project.rehearse("python", "train.py", timeout=5.0).ranks
    assert rank.outcome == "timed-out"
    assert project.living() == []


# It names the variable by which the test finds its process: others are withheld.
_WAITS = "import os, time\nos.environ['SEEN']\ntime.sleep(300)\n"
_INTERRUPTED = """
import os, sys
from gonogo.rehearse.workers import workers
from gonogo.rehearse.request import RehearsalRequest
from gonogo.rehearse.run import rehearse
workers.python_module_command = lambda python, _module, plan, **_: [python, sys.argv[1], plan]
record = rehearse(RehearsalRequest(["deepspeed", "--num_gpus", "4", "train.py"], ranks="all", timeout=60))
print([rank.outcome for rank in record.ranks])
"""


# The real command line, with the fake worker in the module's place.
_WITH_PARENT = """
from gonogo.rehearse.launch.python_start import python_module_command
def with_fake_worker(python, plan, **options):
    words = python_module_command(python, "gonogo.virtual", plan, **options)
    return [*words[:2], words[2].partition("runpy.run_module")[0] + "runpy.run_path(" + repr(sys.argv[1]) + ")", plan]
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_ranks_and_keeps_what_is_known(project: Project, number: signal.Signals) -> None:
    project.write("train.py", _WAITS)
    parent = subprocess.Popen([sys.executable, "-c", _INTERRUPTED, _FAKE_WORKER], stdout=subprocess.PIPE, text=True)
    project.wait_for(9)  # the parent, and each rank with its relay outside
    time.sleep(1.0)
    parent.send_signal(number)
    out, _ = parent.communicate(timeout=300)
    assert out.strip() == str(["interrupted"] * 4)
    assert project.living() == []


def test_no_worker_outlives_a_rehearsal_that_is_killed(project: Project) -> None:
    project.write("train.py", _WAITS)
    code = _INTERRUPTED.replace("[python, sys.argv[1], plan]", "with_fake_worker(python, plan, **_)")
    code = code.replace("record =", _WITH_PARENT + "\nrecord =").replace('"all"', '"0"')
    parent = subprocess.Popen([sys.executable, "-c", code, _FAKE_WORKER])
    project.wait_for(3)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and project.living():
        time.sleep(0.1)
    assert project.living() == []
    shutil.rmtree(os.environ["TMPDIR"])  # what nobody was left to clear
    os.mkdir(os.environ["TMPDIR"])


def test_keep_holds_records_plans_and_logs(project: Project, tmp_path: Path) -> None:
    project.write("train.py", "print('hello')\n")
    kept = tmp_path / "kept/deep"
    record = project.rehearse("python", "train.py", keep=kept)
    assert {path.name for path in (kept / "rank-0").iterdir()} == {
        "plan.json", "record.json", "progress.jsonl", "output.log",
    }  # fmt: skip
    assert (kept / "rank-0/output.log").read_text() == "hello\n"
    assert msgspec.json.decode((kept / "rehearsal.json").read_bytes(), type=RehearsalRecord) == record
    assert not (kept / "deleted.txt").exists()
    project.write(
        "train.py", "import os\nos.remove('old.txt')\nopen('new.txt', 'w').write('x')\nos.symlink('/etc/passwd', 'l')\n"
    )
    project.write("old.txt", "")
    kept = tmp_path / "again"
    project.rehearse("python", "train.py", keep=kept)
    assert (kept / "deleted.txt").read_text() == f"{project.folder}/old.txt\n"
    assert (kept / f"changed{project.folder}/new.txt").read_text() == "x"
    assert (kept / f"changed{project.folder}/l").is_symlink()
    with pytest.raises(UserError, match="new or empty"):
        project.rehearse("python", "train.py", keep=kept)


def test_a_long_log_is_cut(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gonogo.rehearse.workers.workers._MAX_BYTES", 1 << 16)
    monkeypatch.setattr("gonogo.rehearse.workers.workers._MAX_TAIL_BYTES", 1 << 12)
    project.write("train.py", "for i in range(100000): print('line', i)\n")
    project.rehearse("python", "train.py", keep=tmp_path / "kept")
    log = (tmp_path / "kept/rank-0/output.log").read_text()
    assert len(log) < 1 << 18
    assert log.endswith("line 99999\n")


@pytest.mark.very_slow
def test_the_same_rehearsal_twice_differs_in_seconds_only(project: Project) -> None:
    project.write("train.py", "")
    project.write("launch.sh", "rm x\ntorchrun --nproc_per_node 2 train.py\n")
    first, second = (project.rehearse("bash", "launch.sh", ranks="all") for _ in range(2))
    for record in (first, second):
        record.seconds = 0.0
        for rank in record.ranks:
            rank.events = []  # the plan, which names the scratch folder
    assert first == second


def test_what_the_user_has_to_provide_is_the_users_error(project: Project, monkeypatch) -> None:
    project.write(
        "train.py",
        """\
        import inspect
        for frame in inspect.stack():
            if "record" in frame.frame.f_globals:
                frame.frame.f_globals["record"].user_error = ("no config", "没有配置")
        """,
    )
    with pytest.raises(UserError) as error:
        project.rehearse("python", "train.py")
    assert (error.value.text.en, error.value.text.zh) == ("no config", "没有配置")


@pytest.mark.parametrize(
    ("command", "options", "said"),
    [
        (["python", "nothing.py"], {}, "the script nothing.py does not exist"),
        (["python", "."], {}, r"the script \. is a directory"),
        (["deepspeed", "--num_gpus", "2", "nothing.py"], {}, "the script nothing.py does not exist"),
        (["python", "-m", "no_such_module"], {}, "can't find module no_such_module"),
        (["python", "-c", "print(1)"], {}, "put the code into a file"),
        (["python"], {}, "put the code into a file"),
        (["horovodrun", "-np", "8", "python", "train.py"], {}, r"can't rehearse `horovodrun .*torchrun"),
        (["A=1"], {}, "can't rehearse"),
        (["./nothing.sh"], {}, r"the script \./nothing\.sh does not exist"),
        (
            ["deepspeed", "--num_gpus", "8", "train.py"],
            {"gpus": "4xH100-80G"},
            "8 processes per node, but --gpus has 4",
        ),
        (["deepspeed", "--num_gpus", "8", "train.py"], {"gpus": "H1000"}, "H100-80G"),
        (["deepspeed", "--num_gpus", "8", "train.py"], {"ranks": "8"}, "ranks 0 to 7"),
        (
            ["deepspeed", "--num_gpus", "8", "train.py"],
            {"ranks": "first"},
            "must be auto, sample, mesh, all, or rank numbers such as 0 or 0,3",
        ),
        (["torchrun", "--nproc_per_node", "1000", "train.py"], {}, "starts 1000 processes per node, but at most 256"),
        (["torchrun", "--nproc_per_node", "8", "train.py"], {"nodes": 2}, r"starts 1 node\(s\), but 2 are requested"),
        (["python", "train.py"], {"with_packages": ("deepspeed>=0.14",)}, "NAME==VERSION"),
        (["python", "train.py"], {"host_memory": "lots"}, "--host-memory"),
    ],
)
def test_bad_input_gets_one_clear_line(project: Project, command: list[str], options: dict, said: str) -> None:
    project.write("train.py", "")
    with pytest.raises(UserError, match=said) as error:
        project.rehearse(*command, **options)
    assert "\n" not in error.value.text.en + error.value.text.zh
    assert error.value.text.zh != error.value.text.en


def test_gpus_that_nothing_tells_are_assumed_and_said(project: Project) -> None:
    """A command that takes what the machine has is rehearsed all the same: asking would end the first try."""
    project.write("train.py", "import os\nassert os.environ['WORLD_SIZE'] == '8'\n")
    record = project.rehearse("accelerate", "launch", "train.py")
    assert record.ranks[0].outcome == "completed"
    assert record.world_size == 8
    assert any("assuming 8; --gpus 4xH100-80G" in english for english, _ in record.notes)


def test_a_python_by_its_path(project: Project, tmp_path: Path) -> None:
    project.write("train.py", "")
    own = project.rehearse(sys.executable, "train.py", gpus="1xH100-80G")
    assert own.notes == []
    other = tmp_path / "other/bin/python"
    other.parent.mkdir(parents=True)
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    record = project.rehearse(str(other), "train.py", gpus="1xH100-80G")
    assert str(other) in record.notes[0][0]
    assert record.ranks[0].outcome == "completed"


def test_the_temporary_folder_has_to_be_usable(project: Project, tmp_path: Path, monkeypatch) -> None:
    project.write("train.py", "")
    monkeypatch.setattr(scratch, "_MIN_FREE", 1 << 60)
    with pytest.raises(UserError, match=r"temporary folder .*tmp is full"):
        project.rehearse("python", "train.py")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"can't use the temporary folder .*nowhere"):
        project.rehearse("python", "train.py")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_disk_that_fills_up(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=False).returncode != 0:
        pytest.skip("no disk can be mounted here")
    try:
        monkeypatch.setenv("TMPDIR", str(small))
        project.write("train.py", "import os\nopen(os.environ['TMPDIR'] + '/big', 'w').write('x' * (4 << 20))\n")
        with pytest.raises(UserError, match=r"small is full .*TMPDIR"):
            project.rehearse("python", "train.py")
        monkeypatch.setattr(scratch, "_MIN_FREE", 1 << 10)
        with pytest.raises(UserError, match=r"small is full .*TMPDIR"):
            project.rehearse("python", "train.py")
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.slow
def test_progress_is_handed_on(project: Project) -> None:
    project.write("train.py", "import time\ntime.sleep(0.6)\n")
    seen: list[RehearsalStatus] = []
    rehearse(RehearsalRequest(["deepspeed", "--num_gpus", "2", "train.py"], timeout=30.0), seen.append)
    assert seen[0].activity.en == "reading the launch command"
    running = next(status for status in seen if status.ranks and status.ranks[0].progress is not None)
    assert running.ranks[0].state == "running"
    assert running.ranks[0].progress.activity == "model.layers.3"


def test_prepared_data_sets_are_seen_and_not_written(tmp_path: Path) -> None:
    cache = tmp_path / "home/.cache/huggingface/datasets/alpaca/default"
    cache.mkdir(parents=True)
    (cache / "train.arrow").write_text("rows")
    (cache / "train.lock").write_text("")
    mirror = mirror_datasets_cache({"HOME": str(tmp_path / "home")}, tmp_path / "mirror")
    assert (mirror / "alpaca/default/train.arrow").read_text() == "rows"
    assert not (mirror / "alpaca/default/train.lock").exists()
    (mirror / "alpaca/default/cache-1.arrow").write_text("new")
    assert sorted(path.name for path in cache.iterdir()) == ["train.arrow", "train.lock"]
