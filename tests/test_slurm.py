"""`gonogo sbatch`, `gonogo run` and what is believed of a job's variables, against a real Slurm: a cluster of one node
on the loopback, made for the test. Runs where Debian's slurm-wlm and munge are installed and the user is root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ports import free_port

from gonogo.evidence.launch.launchers.slurm import sbatch_directives, slurm_variables
from gonogo.evidence.source_file import SourceFile

SBIN = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
DAEMONS = {name: shutil.which(name, path=SBIN) for name in ("munged", "slurmctld", "slurmd", "sbatch", "mungekey")}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(None in DAEMONS.values() or os.getuid() != 0, reason="wants slurm-wlm, munge, and root"),
]
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={munge}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} Gres=gpu:8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE
"""
HEAD = """\
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH -c 1 --gpus-per-node=8
#SBATCH --output=out
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment in which Slurm's commands speak to a cluster of this test's own."""
    folder = tmp_path_factory.mktemp("slurm")
    host = os.uname().nodename.partition(".")[0]
    munge = Path("/tmp", f"gonogo-munge-{os.getpid()}")  # a socket's path may have a hundred characters
    munge.mkdir(mode=0o755)
    for number in range(8):
        (folder / f"gpu{number}").touch()
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-7]\n")
    ports = {"controller": free_port(), "daemon": free_port()}
    written = CONFIGURATION.format(host=host, folder=folder, munge=munge / "socket", cpus=os.cpu_count(), **ports)
    (folder / "slurm.conf").write_text(written)
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    subprocess.run([DAEMONS["mungekey"], "--create", "--keyfile", munge / "key"], check=True)
    own = [f"--{name}={munge / name}" for name in ("socket", "pid-file", "log-file", "seed-file")]
    commands = [
        [DAEMONS["munged"], "--foreground", "--force", f"--key-file={munge / 'key'}", *own],
        [DAEMONS["slurmctld"], "-D"],
        [DAEMONS["slurmd"], "-D", "-N", host],
    ]
    started = []
    try:
        for command in commands:
            with (folder / f"{Path(str(command[0])).name}.log").open("w") as log:
                started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
            time.sleep(1)
        deadline = time.monotonic() + 60
        while "idle" not in (said := _asked(["sinfo", "--noheader", "--format=%T"], environment)):
            assert time.monotonic() < deadline, (said, [one.read_text()[-500:] for one in folder.glob("*.log")])
            time.sleep(0.5)
        yield environment
    finally:
        _asked(["scancel", "--state=RUNNING"], environment)
        for process in reversed(started):
            process.terminate()
            process.wait(timeout=30)
        shutil.rmtree(munge)


def _asked(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout


@pytest.fixture
def submit(cluster: dict[str, str], tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`gonogo sbatch` in a folder; waits until no job is left in the queue."""

    def submitted(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gonogo", "sbatch", *words]
        done = subprocess.run(command, cwd=tmp_path, env=cluster, capture_output=True, text=True, check=False)
        deadline = time.monotonic() + 120
        while _asked(["squeue", "--noheader"], cluster).strip():
            assert time.monotonic() < deadline, "the job does not end"
            time.sleep(0.5)
        return done

    return submitted


def test_a_job_is_submitted_and_one_that_must_fail_is_not(
    submit: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(
        "import deepspeed\nprint('trains')\nengine, *_ = deepspeed.initialize(config='ds.json')\n"
    )
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 9}, "train_micro_batch_size_per_gpu": 1}')
    (tmp_path / "job.sbatch").write_text(f"{HEAD}echo $SLURM_JOB_NAME $*\ntorchrun --nproc_per_node 8 train.py\n")
    refused = submit("job.sbatch")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "not submitted" in refused.stderr
    assert not (tmp_path / "out").exists()
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 1}')
    done = submit("--job-name=tune", "job.sbatch", "--lr", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Submitted batch job ")
    assert (tmp_path / "out").read_text().splitlines()[0] == "tune --lr 1"


def test_what_is_believed_of_a_jobs_variables_is_what_slurm_sets(
    submit: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    job = tmp_path / "job.sbatch"
    job.write_text(f"{HEAD}env | grep ^SLURM_\n")
    assert submit("job.sbatch").returncode == 0
    real = dict(line.split("=", 1) for line in (tmp_path / "out").read_text().splitlines())
    believed = slurm_variables(sbatch_directives(SourceFile.read(job)))
    assert len(believed) >= 6
    assert {name: real.get(name) for name in believed} == believed


def test_a_run_guarded_within_srun_is_one_report_of_all_tasks(
    submit: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(
        "import os\nos.environ |= {'RANK': os.environ['SLURM_PROCID'], 'WORLD_SIZE': os.environ['SLURM_NTASKS'],\n"
        "    'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': '29871'}\n"
        "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "model = torch.nn.Linear(2, 1)\noptimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for _ in range(3):\n    model(torch.ones(1, 2)).sum().backward()\n"
        "    dist.all_reduce(model.weight.grad)\n    optimizer.step()\n"
        "if dist.get_rank() == 1:\n    raise ValueError('rank 1 is done for')\n"
    )
    gonogo = f"{sys.executable} -m gonogo"
    (tmp_path / "job.sbatch").write_text(
        f"{HEAD}srun --overcommit {gonogo} run --no-check -- {sys.executable} train.py\n"
    )
    done = submit("job.sbatch")
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "out").read_text()
    number = done.stdout.split()[-1]
    folder = tmp_path / "gonogo-runs" / f"slurm-{number}-0"
    assert sorted(path.name for path in folder.glob("rank-*.jsonl")) == ["rank-0.jsonl", "rank-1.jsonl"], said
    assert "rank 1 is done for" in (folder / "report.txt").read_text()
    assert said.count("error[program-raises]") == 1, "the first task prints the report of all"
