"""Programs that srun and mpirun start once per rank, typed or in a job script: their ranks and variables."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gonogo.confinement.confinement import Confinement
from gonogo.finding import Verdict
from gonogo.rehearse.answer import rehearsal_report
from gonogo.rehearse.launch.launch import UNSPECIFIED_GPU_COUNT, LaunchMachine, ResolvedLaunch
from gonogo.rehearse.launch.tasks import host_names, job_variables, task_call, task_processes
from gonogo.rehearse.request import RehearsalRequest
from gonogo.rehearse.resolve import CommandContext, resolve
from gonogo.rehearse.run import rehearse

MACHINE = LaunchMachine("cuda", "NVIDIA H100 80GB HBM3", (9, 0), 85 << 30, 8)
OF_A_JOB = ("SLURM_", "SLURMD_", "OMPI_", "PMI", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(OF_A_JOB)}


def resolved(folder: Path, *command: str, **environment: str) -> ResolvedLaunch:
    (folder / "project").mkdir(exist_ok=True)
    (folder / "project" / "train.py").write_text("")
    (folder / "scratch").mkdir()
    situation = CommandContext(
        surroundings=MACHINE,
        environment={**ENVIRONMENT, **environment},
        cwd=str(folder / "project"),
        confinement=Confinement(folder / "scratch"),
        timeout=60.0,
        python=sys.executable,
    )
    return resolve(command, situation).launch


def job(folder: Path, text: str) -> Path:
    (folder / "project").mkdir()
    path = folder / "project" / "job.sh"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("command", "tasks", "nodes"),
    [
        ("srun python t.py", 1, 1),
        ("srun -n 4 python t.py", 4, 1),
        ("srun -n16 --gres=gpu:8 python t.py", 16, 2),
        ("srun --nodes=2 --ntasks-per-node=8 python t.py", 16, 2),
        ("srun -N 3 python t.py", 3, 3),
        ("mpirun -np 16 python t.py", 16, 2),
        ("mpirun -np 4 -mca btl tcp -x A=1 --bind-to none python t.py", 4, 1),
        ("mpirun -H a:4,b:4 -np 8 python t.py", 8, 2),
        ("mpirun -H a:4,b:4 python t.py", 8, 2),
        ("mpiexec -n 8 -ppn 4 python t.py", 8, 2),
    ],
)
def test_ranks_and_nodes(command: str, tasks: int, nodes: int) -> None:
    call = task_call(command.split(), {}, MACHINE)
    assert call.words == ["python", "t.py"]
    if tasks == 1:
        assert task_processes(call.variables, (), MACHINE) is None
        return
    processes = task_processes(call.variables, ("x",), MACHINE)
    assert processes is not None
    assert [process.rank for process in processes] == list(range(tasks))
    assert processes[-1].node == nodes - 1
    assert processes[-1].local_rank == tasks // nodes - 1
    assert {process.world_size for process in processes} == {tasks}
    assert processes[0].arguments == ("x",)


def test_gpus_that_are_not_known_do_not_count() -> None:
    unknown = LaunchMachine("cuda", "NVIDIA H100 80GB HBM3", (9, 0), 85 << 30, UNSPECIFIED_GPU_COUNT)
    assert task_call(["mpirun", "-np", "16", "python", "t.py"], {}, unknown).variables["MPI_LOCALNRANKS"] == "16"


def test_options_come_before_those_of_the_job() -> None:
    of_job = {
        "SLURM_NNODES": "2",
        "SLURM_NTASKS_PER_NODE": "8",
        "SLURM_JOB_NODELIST": "gpu[07-08]",
        "SLURM_JOB_ID": "9",
    }
    all_tasks = task_call(["srun", "python", "t.py"], of_job, MACHINE).variables
    assert (all_tasks["SLURM_NTASKS"], all_tasks["SLURM_TASKS_PER_NODE"]) == ("16", "8(x2)")
    assert (all_tasks["SLURM_JOB_ID"], all_tasks["SLURMD_NODENAME"]) == ("9", "gpu07")
    some = task_call(["srun", "-N1", "-n", "2", "python", "t.py"], of_job, MACHINE).variables
    assert (some["SLURM_NTASKS"], some["SLURM_NNODES"]) == ("2", "1")


def test_each_task_sees_the_gpus_requested_for_it() -> None:
    call = task_call(["srun", "-n", "4", "--gpus-per-task=2", "python", "t.py"], {}, MACHINE)
    assert call.variables["CUDA_VISIBLE_DEVICES"] == "0,1"
    processes = task_processes(call.variables, (), MACHINE)
    assert processes is not None
    assert [process.environment["CUDA_VISIBLE_DEVICES"] for process in processes] == ["0,1", "2,3", "4,5", "6,7"]
    assert {process.local_rank for process in processes} == {0}


def test_variables_given_to_the_tasks() -> None:
    assert task_call(["srun", "--export=ALL,A=1", "-n", "2", "python"], {}, MACHINE).variables["A"] == "1"
    assert task_call(["srun", "--export", "B=2,C=3", "python"], {}, MACHINE).variables["C"] == "3"
    assert (
        task_call(["mpirun", "-x", "NCCL_DEBUG=INFO", "-x", "PATH", "p"], {}, MACHINE).variables["NCCL_DEBUG"] == "INFO"
    )


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        ("a", ["a"]),
        ("node[1-3],gpu7", ["node1", "node2", "node3", "gpu7"]),
        ("n[008-010,12]-ib", ["n008-ib", "n009-ib", "n010-ib", "n12-ib"]),
        ("", []),
        ("n[1-99999999999]", []),
    ],
)
def test_host_names(listed: str, names: list[str]) -> None:
    assert list(host_names(listed)) == names


def test_a_job_script_has_the_variables_of_its_job(tmp_path: Path) -> None:
    path = job(tmp_path, "#!/bin/bash\n#SBATCH -J sft\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=8\necho\n")
    variables = job_variables(path, {})
    assert variables["SLURM_JOB_NAME"] == "sft"
    assert (variables["SLURM_NTASKS"], variables["SLURM_JOB_NODELIST"]) == ("16", "node[1-2]")
    assert job_variables(path, {"SLURM_JOB_ID": "7"}) == {}  # within a job, the real ones count
    path.write_text("#!/bin/bash\necho\n")
    assert job_variables(path, {}) == {}
    assert job_variables(tmp_path / "none.sh", {}) == {}


def test_a_typed_srun_starts_the_program_per_rank(tmp_path: Path) -> None:
    launch = resolved(tmp_path, "srun", "-N", "2", "-n", "16", "python", "train.py", "--lr", "1")
    assert (launch.launcher, launch.world_size, launch.nodes) == ("srun", 16, 2)
    assert launch.program == "train.py"
    last = launch.processes[-1]
    assert last.arguments == ("--lr", "1")
    assert [last.environment[name] for name in ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID")] == ["15", "7", "1"]
    assert launch.environment["SLURM_NTASKS"] == "16"


def test_a_typed_mpirun_starts_the_program_per_rank(tmp_path: Path) -> None:
    launch = resolved(tmp_path, "mpirun", "-np", "4", "python", "train.py")
    assert (launch.launcher, launch.world_size, launch.nodes) == ("mpirun", 4, 1)
    assert [process.environment["OMPI_COMM_WORLD_LOCAL_RANK"] for process in launch.processes] == ["0", "1", "2", "3"]


def test_a_job_script_starts_as_many_tasks_as_it_requests(tmp_path: Path) -> None:
    script = """\
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export HEAD=$(srun --nodes=1 --ntasks=1 echo here)
srun bash -c 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS python train.py'
"""
    job(tmp_path, script)
    launch = resolved(tmp_path, "bash", "job.sh")
    assert (launch.world_size, launch.nodes) == (8, 2)
    assert (launch.environment["MASTER_ADDR"], launch.environment["HEAD"]) == ("node1", "here")
    assert launch.processes[5].environment["RANK"] == "5"


def test_a_launcher_within_srun_decides_its_ranks_itself(tmp_path: Path) -> None:
    launch = resolved(
        tmp_path, "srun", "-N", "2", "-n", "2", "torchrun", "--nnodes=2", "--nproc_per_node=4", "train.py"
    )
    assert (launch.launcher, launch.world_size) == ("torchrun", 8)


_TRAIN = """\
import os
import torch
import torch.distributed as dist
from mpi4py import MPI

world = MPI.COMM_WORLD
os.environ["MASTER_ADDR"] = world.bcast("head" if world.rank == 0 else None)
os.environ["MASTER_PORT"] = str(29500)
assert os.environ["MASTER_ADDR"] == "head"
torch.cuda.set_device(world.rank % torch.cuda.device_count())
dist.init_process_group("nccl", rank=world.rank, world_size=world.size)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.randn(2, 8, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(("ranks", "verdict"), [("0,3", Verdict.GO), ("3", Verdict.CANNOT_TELL)])
def test_ranks_of_mpirun_that_meet_through_mpi4py(
    ranks: str, verdict: Verdict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(os.environ):
        if name.startswith(OF_A_JOB):
            monkeypatch.delenv(name)
    (tmp_path / "train.py").write_text(_TRAIN)
    monkeypatch.chdir(tmp_path)
    command = ["mpirun", "-np", "4", "python", "train.py"]
    record = rehearse(RehearsalRequest(command, gpus="4xH100-80G", ranks=ranks, timeout=300.0), None)
    assert rehearsal_report(record).verdict is verdict
    unsupported = [str(one) for rank in record.ranks for one in rank.unsupported]
    assert ["MPI.Comm.bcast" in one for one in unsupported] == ([True] if verdict is Verdict.CANNOT_TELL else [])
