"""`gonogo run` around commands that are no training: streams, signals, statuses, the check, folders."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from guard.launched import environment, gonogo_run, launched

from gonogo.evidence.guarded.files import encode_record, read_run, records_path
from gonogo.evidence.guarded.launch import LaunchRecord, launch_path, read_children, read_launches
from gonogo.evidence.guarded.records import StartRecord
from gonogo.guard.child import CommandStartError, run_child
from gonogo.guard.parent import default_folder
from gonogo.guard.rank.machine_memory import memory_limit, oom_kills
from gonogo.guard.watch import TroubleWatch


def gonogo(*words: str, **named: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gonogo", *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **named,  # type: ignore[call-overload]
    )


class TestTheCommandIsAsEver:
    def test_its_status_is_passed_on(self, tmp_path: Path) -> None:
        assert launched(tmp_path / "a", "sh", "-c", "exit 7").status == 7
        assert launched(tmp_path / "b", "true").status == 0

    def test_a_signals_status_is_a_shells(self, tmp_path: Path) -> None:
        assert launched(tmp_path, "sh", "-c", "kill -9 $$").status == 137

    def test_its_streams_are_untouched(self, tmp_path: Path) -> None:
        done = subprocess.run(
            gonogo_run(tmp_path / "run", "--", "sh", "-c", "cat; echo out; printf 'no newline' >&2"),
            env=environment(),
            input="in\n",
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.stdout == "in\nout\n"
        assert done.stderr.startswith("no newline")

    def test_a_command_that_is_not_there_is_127(self, tmp_path: Path) -> None:
        done = launched(tmp_path, "no-such-command")
        assert done.status == 127
        assert "no-such-command: command not found" in done.stderr
        assert "Traceback" not in done.stderr

    def test_a_command_that_cannot_be_run_is_126(self, tmp_path: Path) -> None:
        (tmp_path / "data.txt").write_text("no program")
        assert launched(tmp_path / "run", str(tmp_path / "data.txt")).status == 126

    def test_a_command_that_trains_nothing_is_no_go_of_ours(self, tmp_path: Path) -> None:
        done = launched(tmp_path, "true")
        assert done.report["verdict"] == "CANNOT-TELL"
        assert "no process wrote a record" in done.stderr

    def test_its_environment_is_its_own(self, tmp_path: Path) -> None:
        done = launched(tmp_path, sys.executable, "-c", "import os; print(os.environ['MINE'])", MINE="kept")
        assert done.stdout == "kept\n"


class TestSignals:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP])
    def test_they_are_passed_on(self, tmp_path: Path, number: signal.Signals) -> None:
        program = (
            "import signal, sys, time\n"
            f"signal.signal({int(number)}, lambda *_: sys.exit(5))\n"
            "print('ready', flush=True)\n"
            "for _ in range(300): time.sleep(0.1)\n"  # a signal just before a sleep begins does not cut it short
        )
        command = gonogo_run(tmp_path / "run", "--", sys.executable, "-c", program)
        child = subprocess.Popen(
            command,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(number)
        child.communicate(timeout=300)
        assert child.returncode == 5
        assert read_launches(tmp_path / "run")[0].signals == [int(number)]

    def test_one_that_is_ignored_stays_ignored(self, tmp_path: Path) -> None:
        shell = f"trap '' HUP; exec {' '.join(gonogo_run(tmp_path / 'run', '--', 'sleep', '1'))}"
        child = subprocess.Popen(["sh", "-c", shell], env=environment(), stderr=subprocess.DEVNULL)
        time.sleep(0.7)
        child.send_signal(signal.SIGHUP)
        assert child.wait(30) == 0

    def test_the_command_starts_with_no_signal_held_back(self) -> None:
        program = "import signal, sys; sys.exit(len(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"
        assert run_child([sys.executable, "-c", program], dict(os.environ)).status == 0

    def test_ctrl_c_of_a_terminal_goes_to_the_command_once(self, tmp_path: Path) -> None:
        program = (
            "import signal, sys, time\n"
            "seen = []\n"
            "signal.signal(signal.SIGINT, lambda *_: seen.append(1))\n"
            "print('ready', flush=True)\n"
            "deadline = time.time() + 1.5\n"
            "while time.time() < deadline: time.sleep(0.1)\n"
            "sys.exit(40 + len(seen))\n"
        )
        master, slave = os.openpty()
        child = subprocess.Popen(
            gonogo_run(tmp_path / "run", "--", sys.executable, "-c", program),
            env=environment(),
            stdin=slave,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        os.write(master, b"\x03")
        assert child.wait(30) == 41
        os.close(master)
        os.close(slave)


class TestTheCheckBeforeIt:
    CONFIG = '{"zero_optimization": {"stage": 2}, "train_batch_size": 7, "train_micro_batch_size_per_gpu": 2, }'

    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        (tmp_path / "train.py").write_text("print('launched')\n")
        (tmp_path / "ds.json").write_text(self.CONFIG)
        return tmp_path

    def command(self, *options: str) -> list[str]:
        return ["run", "--folder", "records", *options, "--", "python", "train.py", "--deepspeed", "ds.json"]

    def test_no_go_stops(self, project: Path) -> None:
        done = gonogo(*self.command(), cwd=project)
        assert done.returncode == 1
        assert done.stdout == ""
        assert "NO-GO   gonogo check" in done.stderr
        assert "not launched: the check says NO-GO" in done.stderr
        assert not (project / "records").exists()

    def test_what_does_not_stop_it_is_counted(self, project: Path) -> None:
        (project / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "train_batch_size": 8, "no_such_key": 1}')
        done = gonogo(*self.command(), cwd=project)
        assert done.stdout == "launched\n"
        assert "don't prevent the launch" in done.stderr

    @pytest.mark.parametrize("option", ["--force", "--no-check"])
    def test_unless_told_otherwise(self, project: Path, option: str) -> None:
        done = gonogo(*self.command(option), cwd=project)
        assert done.returncode == 0
        assert done.stdout == "launched\n"


class TestFolders:
    def test_one_that_cannot_be_made_costs_the_guard_alone(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        done = launched(tmp_path / "file" / "records", "sh", "-c", "echo through; exit 3")
        assert (done.status, done.stdout) == (3, "through\n")
        assert done.stderr.count("gonogo:") == 1
        assert "the command runs without it" in done.stderr

    def test_one_that_is_deleted_meanwhile_is_one_line(self, tmp_path: Path) -> None:
        folder = tmp_path / "records"
        done = launched(folder, "sh", "-c", f"sleep 0.5; rm -r {folder}; sleep 1; echo through; exit 3")
        assert (done.status, done.stdout) == (3, "through\n")
        assert done.stderr.count("gonogo:") == done.stderr.count("\n") == 1
        assert "was deleted while the command was running" in done.stderr
        assert str(folder) in done.stderr
        assert not folder.exists()

    def test_a_rank_goes_on_where_it_is_deleted(self, tmp_path: Path) -> None:
        folder = tmp_path / "records"
        program = (
            "import os, shutil, time\n"
            f"assert os.path.exists({str(folder / 'rank-0.jsonl')!r})\n"
            f"shutil.rmtree({str(folder)!r})\n"
            "time.sleep(1.5)\n"
            "print('trained')\n"
        )
        done = launched(folder, sys.executable, "-c", program, RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
        assert (done.status, done.stdout) == (0, "trained\n")
        assert done.stderr.count("gonogo") == done.stderr.count("\n") == 1
        assert not folder.exists()

    def test_the_default_is_a_folder_of_its_own(self) -> None:
        assert default_folder({}).parent == Path("gonogo-runs")
        assert default_folder({"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3"}) == Path("gonogo-runs/slurm-12-3")
        step = {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3", "SLURM_RESTART_COUNT": "1"}
        assert default_folder(step).name == "slurm-12-3-restart1"
        assert not default_folder({"SLURM_JOB_ID": "12"}).name.startswith("slurm")

    def test_one_that_an_earlier_run_was_given_tells_of_the_last(self, tmp_path: Path) -> None:
        for started, status in ((1000.0, 1), (2000.0, 0)):
            launch = LaunchRecord("a", int(started), started=started, ended=started + 500, exit_status=status)
            launch_path(str(tmp_path), "a", launch.pid).write_bytes(msgspec.json.encode(launch))
        records = [StartRecord(1010.0, rank=1), StartRecord(1010.0, rank=0), StartRecord(2010.0, rank=0)]
        for record in records:
            with open(records_path(str(tmp_path), record.rank), "ab") as file:
                file.write(encode_record(record))
        run = read_run(tmp_path)
        assert [rank.rank for rank in run.ranks] == [0]
        assert run.ranks[0].earlier == []
        assert (run.exit_status, run.started) == (0, 2000.0)

    def test_report_of_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        done = gonogo("run", "--report", str(tmp_path / "nowhere"))
        assert done.returncode == 2
        assert done.stderr.startswith(f"gonogo: --report {tmp_path}/nowhere: No such file or directory")

    def test_report_and_a_command_exclude_each_other(self, tmp_path: Path) -> None:
        done = gonogo("run", "--report", str(tmp_path), "--", "true")
        assert done.returncode == 2
        assert "launches nothing" in done.stderr

    def test_no_command_at_all(self) -> None:
        done = gonogo("run", "--lang", "zh")
        assert done.returncode == 2
        assert "没有给出要运行的命令" in done.stderr

    def test_output_takes_the_report(self, tmp_path: Path) -> None:
        target = tmp_path / "report.json"
        done = launched(tmp_path / "run", "true", options=("--format", "json", "--output", str(target)))
        assert json.loads(target.read_text())["command"] == "run"
        assert done.stderr.splitlines()[-1].startswith("gonogo: CANNOT-TELL")


def test_every_option_is_documented() -> None:
    help_text = gonogo("run", "--help").stdout
    options = set(re.findall(r"(--[a-z][\w-]+)", help_text)) - {"--help", "--deepspeed", "--num_gpus"}
    assert {"--folder", "--no-check", "--stall-seconds"} <= options
    for name in ("run.md", "run.zh-CN.md"):
        text = (Path(__file__).parents[2] / "docs" / name).read_text(encoding="utf-8")
        assert {option for option in options if f"`{option}" not in text} == set()


class TestAroundIt:
    def test_how_a_launchers_processes_ended(self, tmp_path: Path) -> None:
        program = (
            "import subprocess, multiprocessing, os, sys\n"
            "one = subprocess.Popen(['sh', '-c', 'exit 4']); one.wait()\n"
            "two = subprocess.Popen(['sleep', '30']); two.kill(); two.wait()\n"
            "three = multiprocessing.get_context('fork').Process(target=os._exit, args=(6,))\n"
            "three.start(); three.join()\n"
            "print(one.pid, two.pid, three.pid)\n"
        )
        done = launched(tmp_path, sys.executable, "-c", program)
        pids = [int(word) for word in done.stdout.split()]
        children = read_children(tmp_path)
        assert [(child.pid, child.status) for child in children] == list(zip(pids, [4, -9, 6], strict=True))

    def test_the_launch_is_recorded(self, tmp_path: Path) -> None:
        launched(tmp_path, "sh", "-c", "exit 7")
        [launch] = read_launches(tmp_path)
        assert launch.exit_status == 7
        assert launch.child > 0
        assert launch.ended >= launch.started > 0
        assert launch.host_total > 0

    def test_what_the_kernel_tells_of_memory(self) -> None:
        assert memory_limit() > 1 << 28
        kills = oom_kills()
        assert kills is None or kills >= 0

    def test_a_command_that_is_nowhere_says_so(self) -> None:
        with pytest.raises(CommandStartError, match="command not found"):
            run_child(["/nowhere/at/all"], {})

    def test_trouble_is_told_of_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = [0.0]
        monkeypatch.setattr(time, "monotonic", lambda: clock[0])
        told: list[float] = []
        watch = TroubleWatch(tmp_path, lambda: told.append(clock[0]))
        (tmp_path / "rank-0.jsonl").write_text('{"kind":"start"}\n')
        watch.poll()
        assert told == []
        with (tmp_path / "rank-0.jsonl").open("a") as file:
            file.write('{"kind":"stall"}\n')
        watch.poll()
        clock[0] = 4.0
        watch.poll()
        assert told == [4.0]
        for _ in range(10):
            clock[0] += 1
            watch.poll()
        assert told == [4.0]
