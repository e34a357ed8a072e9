"""How the guard comes into a process: only into ranks, and without a trace in the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from guard.worlds import environment

from gonogo.evidence.guarded.files import read_run
from gonogo.guard.rank.arming import is_launcher

RANK = {"RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}


def python(program: str, environ: dict[str, str], **named: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)


def test_a_process_that_is_no_rank_is_left_alone(tmp_path: Path) -> None:
    program = (
        "import sys; print([m for m in sys.modules if m in ('torch', 'msgspec', 'gonogo.guard.rank.worker')], sys.path)"
    )
    guarded = python(program, environment(tmp_path / "run"))
    alone = python(program, {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", "")})
    assert guarded.stdout == alone.stdout
    assert guarded.stderr == ""
    assert read_run(tmp_path / "run").ranks == []


def test_the_next_sitecustomize_is_run(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import sys\nsys.mine = __file__\n")
    path = f"{tmp_path / 'own'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = python(
        "import sys, sitecustomize; print(sys.mine, sitecustomize.__file__)",
        environment(tmp_path / "run", PYTHONPATH=path),
    )
    assert done.stdout.split() == [str(tmp_path / "own" / "sitecustomize.py")] * 2


def test_a_rank_that_dies_before_it_trains(tmp_path: Path) -> None:
    done = python("import json\njson.loads('{')", environment(tmp_path, **RANK))
    assert done.returncode == 1
    assert "JSONDecodeError" in done.stderr
    [rank] = read_run(tmp_path).ranks
    assert rank.rank == 1
    [raised] = rank.exceptions
    assert (raised.type, raised.fatal, raised.phase) == ("json.decoder.JSONDecodeError", True, "load")
    assert rank.end is not None
    assert (rank.end.reason, rank.end.status) == ("exception", 1)


def test_what_a_rank_starts_is_no_rank(tmp_path: Path) -> None:
    program = (
        "import os, subprocess, sys, time\n"
        "subprocess.run([sys.executable, '-c', 'raise SystemExit(int(\"x\"))'])\n"
        "child = os.fork()\n"
        "if not child: raise ValueError('of the child')\n"
        "os.waitpid(child, 0)\n"
    )
    done = python(program, environment(tmp_path, **RANK))
    assert done.returncode == 0
    assert "of the child" in done.stderr
    [rank] = read_run(tmp_path).ranks
    assert rank.exceptions == []
    assert rank.end is not None
    assert rank.end.reason == "exit"


def test_an_exception_in_a_thread_is_noted_with_its_name(tmp_path: Path) -> None:
    program = "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='loader')\nt.start(); t.join()"
    done = python(program, environment(tmp_path, **RANK))
    assert done.returncode == 0
    [raised] = read_run(tmp_path).ranks[0].exceptions
    assert (raised.type, raised.thread, raised.fatal) == ("ZeroDivisionError", "loader", False)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGSEGV, signal.SIGKILL])
def test_a_rank_that_a_signal_ends_while_it_waits_in_c(tmp_path: Path, end: signal.Signals) -> None:
    program = "import ctypes\nprint('waits', flush=True)\nctypes.PyDLL(None).pause()\n"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, env=environment(tmp_path, **RANK), stdout=subprocess.PIPE) as rank:
        assert rank.stdout is not None
        rank.stdout.readline()
        time.sleep(0.5)
        rank.send_signal(end)
        assert rank.wait(20) == -end
    [left] = read_run(tmp_path).ranks
    assert left.start is not None
    assert left.end is None
    if end is signal.SIGKILL:
        assert left.dump is None
    else:
        assert left.dump is not None
        assert left.dump.threads[0].frames[-1].line == 3
        assert left.dump.error == ("" if end is signal.SIGTERM else "Segmentation fault")


def test_a_handler_of_the_programs_is_kept(tmp_path: Path) -> None:
    program = (
        "import os, signal\n"
        "signal.signal(signal.SIGTERM, lambda *a: print('mine'))\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    done = python(program, environment(tmp_path, **RANK))
    assert (done.stdout, done.returncode) == ("mine\n", 0)


def test_a_full_disk_is_said_once_and_harms_nothing(tmp_path: Path) -> None:
    variables = environment(tmp_path, **RANK)
    (tmp_path / "rank-1.jsonl").symlink_to("/dev/full")
    done = python("import time; time.sleep(1); print('trained')", variables)
    assert (done.stdout, done.returncode) == ("trained\n", 0)
    assert done.stderr.count("gonogo") == 1
    assert "No space left on device" in done.stderr


def test_options_that_cannot_be_read_harm_nothing(tmp_path: Path) -> None:
    variables = environment(tmp_path / "run", **RANK)
    (tmp_path / "run" / "options.json").write_text("not JSON")
    done = python("print('trained')", variables)
    assert (done.stdout, done.returncode) == ("trained\n", 0)
    assert done.stderr.count("gonogo") == 1


@pytest.mark.parametrize(
    ("command", "launches"),
    [
        ("python /usr/bin/torchrun train.py", True),
        ("python -u -m torch.distributed.run train.py", True),
        ("python -m deepspeed.launcher.launch --world_info=x train.py", True),
        ("python /opt/bin/deepspeed train.py", True),
        ("python -u train.py --launcher torchrun", False),
        ("python -m llamafactory.train", False),
        ("python", False),
    ],
)
def test_launchers_are_known(command: str, launches: bool) -> None:
    assert is_launcher(command.split()) is launches
