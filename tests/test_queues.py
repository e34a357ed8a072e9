"""What is submitted: manifests and tasks read by check and rehearse, jobs checked before sbatch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gonogo.check.findings import check
from gonogo.check.runs import gather_runs_of_inputs
from gonogo.check.settings import CheckSettings
from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.launch.manifest import Workload, is_manifest, parse_workloads
from gonogo.evidence.launch.reading import read_launches
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Certainty, UserError
from gonogo.rehearse.launch.queued import with_job_from_file
from gonogo.rehearse.request import RehearsalRequest

GIB = 1 << 30
POD = """
{indent}nodeSelector: {{nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}}
{indent}containers:
{indent}- name: sidecar
{indent}  image: busybox
{indent}- name: pytorch
{indent}  image: pytorch/pytorch:2.6.0
{indent}  command: [torchrun, train.py]
{indent}  args: [--deepspeed, $(DS)]
{indent}  env:
{indent}  - {{name: DS, value: ds.json}}
{indent}  - {{name: TOKEN, valueFrom: {{secretKeyRef: {{name: a, key: b}}}}}}
{indent}  resources: {{limits: {{nvidia.com/gpu: 8, memory: 512Gi}}}}
{indent}  volumeMounts: [{{name: shm, mountPath: /dev/shm}}]
{indent}volumes: [{{name: shm, emptyDir: {{medium: Memory, sizeLimit: 16Gi}}}}]
"""


def pod(depth: int) -> str:
    return POD.format(indent=" " * depth)


PYTORCH_JOB = f"""\
apiVersion: v1
kind: ConfigMap
metadata: {{name: other}}
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: tune}}
spec:
  nprocPerNode: "8"
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        spec:{pod(10)}
    Worker:
      replicas: 3
      template:
        spec:{pod(10)}
"""
TRAIN_JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: tune}
spec:
  runtimeRef: {name: torch-distributed}
  trainer:
    image: pytorch/pytorch:2.6.0
    command: [torchrun, train.py]
    args: [--deepspeed, ds.json]
    numNodes: 2
    numProcPerNode: 8
    resourcesPerNode: {limits: {nvidia.com/gpu: 8, memory: 512Gi}}
    env: [{name: DS, value: ds.json}]
"""
JOB_SET = f"""\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: tune}}
spec:
  replicatedJobs:
  - name: workers
    replicas: 1
    template:
      spec:
        parallelism: 4
        completions: 4
        template:
          spec:{pod(12)}
"""
RUNTIME = f"""\
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {{name: torch-distributed}}
spec:
  mlPolicy: {{numNodes: 3, torch: {{}}}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          spec:
            template:
              spec:{pod(16)}
"""
SKYPILOT = """\
resources:
  accelerators: {H100: 8}
  memory: 512+
num_nodes: 2
envs:
  DS: ds.json
setup: pip install deepspeed
run: |
  set -e
  torchrun --nnodes $SKYPILOT_NUM_NODES --nproc_per_node $SKYPILOT_NUM_GPUS_PER_NODE \\
    train.py --deepspeed $DS
"""
JOBS = {"pytorch": PYTORCH_JOB, "train": TRAIN_JOB, "set": JOB_SET, "sky": SKYPILOT}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text("import deepspeed\n")
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 9}, "train_micro_batch_size_per_gpu": 1}')
    for name, text in JOBS.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def work_in(text: str) -> Workload:
    source = SourceFile("job.yaml", text.encode())
    assert is_manifest(source)
    (work,) = parse_workloads(source)
    return work


@pytest.mark.parametrize(
    ("name", "kind", "nodes"),
    [("pytorch", "PyTorchJob", 4), ("train", "TrainJob", 2), ("set", "JobSet", 4), ("sky", "SkyPilot", 2)],
)
def test_a_job_says_what_it_runs_and_on_what(project: Path, name: str, kind: str, nodes: int) -> None:
    work = work_in(JOBS[name])
    assert (work.kind, work.nodes, work.gpus, work.memory_bytes) == (kind, nodes, 8, 512 * GIB)
    assert work.environment["DS"].text == "ds.json"
    assert work.shm_bytes == (16 * GIB if name in ("pytorch", "set") else None)
    (launch,) = read_launches(SourceFile.read(f"{name}.yaml"))
    assert launch.launcher == "torchrun"
    assert launch.program.value == "train.py"
    assert launch.path_of(launch.deepspeed_config) == project / "ds.json"
    if name != "set":  # whose pods are told of no world
        assert (launch.nodes.value, launch.processes_per_node.value) == (nodes, 8)
    asked = with_job_from_file(RehearsalRequest([f"{name}.yaml"]))
    assert asked.command[:2] == ["bash", "-c"]
    assert "export DS=ds.json" in asked.command[2]
    gpus = "8xH100-80G" if name != "train" else "8"  # a TrainJob names no kind of GPU
    assert (asked.gpus, asked.nodes, asked.host_memory) == (gpus, nodes, "524288M")
    assert asked.shm_bytes == work.shm_bytes
    assert with_job_from_file(RehearsalRequest([f"{name}.yaml"], "4xA100-80G", 1, "1T")).gpus == "4xA100-80G"


def test_a_train_job_is_laid_over_the_runtime_in_its_file() -> None:
    """The job's own command, resources and number of nodes win; the rest is the runtime's."""
    work = work_in(TRAIN_JOB + RUNTIME)
    assert (work.nodes, work.gpus, work.shm_bytes, work.accelerator) == (2, 8, 16 * GIB, "NVIDIA-H100-80GB-HBM3")
    bare = "\n".join(line for line in TRAIN_JOB.splitlines() if "numNodes" not in line and "command" not in line)
    work = work_in(f"{bare}\n{RUNTIME}")
    assert work.nodes == 3
    assert [word.text for word in work.words] == ["torchrun", "train.py", "--deepspeed", "ds.json"]
    moved = TRAIN_JOB.replace("spec:\n", "spec:\n  podTemplateOverrides: [{spec: {volumes: []}}]\n", 1)
    assert work_in(moved + RUNTIME).shm_bytes is None


@pytest.mark.parametrize(
    ("before", "after", "mib"),
    [("mountPath: /dev/shm", "mountPath: /data", 64), ("containers:", "hostIPC: true\n          containers:", None),
     ("sizeLimit: 16Gi", "sizeLimit: 64Mi", 64), (", sizeLimit: 16Gi", "", None),
     ("emptyDir: {medium: Memory, sizeLimit: 16Gi}", "hostPath: {path: /dev/shm}", None)],
)  # fmt: skip
def test_a_pods_shared_memory_is_judged(project: Path, before: str, after: str, mib: int | None) -> None:
    """What the pod has at /dev/shm against the workers that pass batches through it; with none, against NCCL."""
    text = PYTORCH_JOB.replace(before, after)
    assert text != PYTORCH_JOB
    work = work_in(text)
    assert work.shm_bytes == (None if mib is None else mib << 20)
    (project / "pytorch.yaml").write_text(text)
    found = check((str(project / "pytorch.yaml"),), ()).report.findings
    shown = {one.hazard: one for one in found if one.hazard in ("nccl-shm-no-space", "dev-shm-bus-error")}
    assert set(shown) == ({"nccl-shm-no-space"} if mib else set())
    (project / "pytorch.yaml").write_text(text.replace("$(DS)]", "$(DS), --dataloader_num_workers, '4']"))
    parses = "from transformers import HfArgumentParser, TrainingArguments\nHfArgumentParser(TrainingArguments)"
    (project / "train.py").write_text(f"{parses}.parse_args_into_dataclasses()\n")
    found = check((str(project / "pytorch.yaml"),), ()).report.findings
    shown = {one.hazard: one for one in found if one.hazard in ("nccl-shm-no-space", "dev-shm-bus-error")}
    assert set(shown) == ({"dev-shm-bus-error"} if mib else set())
    if mib:
        assert "64 MiB of /dev/shm" in str(shown["dev-shm-bus-error"].cause)
        assert "medium: Memory" in str(shown["dev-shm-bus-error"].cure[0])


def gonogo(folder: Path, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gonogo", *words], cwd=folder, capture_output=True, text=True, timeout=120,
        env={**os.environ, "LANG": "C", **({"PATH": path} if path else {})},
    )  # fmt: skip


@pytest.mark.parametrize("name", ["pytorch", "sky"])
def test_check_follows_a_job_to_its_config(project: Path, name: str) -> None:
    done = gonogo(project, "check", f"{name}.yaml", "--format", "json")
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert "ds-zero-stage-invalid" in {finding["hazard"] for finding in report["findings"]}


@pytest.mark.parametrize(
    "text",
    ["", "a: b\n", "run: x\n", "kind: PyTorchJob\n", "apiVersion: v1\nkind: Job\nspec: [", "run: 3\nsetup: {a: *b}\n",
     "apiVersion: v1\nkind: PyTorchJob\nspec: {pytorchReplicaSpecs: [1]}\n", "apiVersion: v1\nkind: Job\nspec: 3\n",
     "num_nodes: x\nrun: [1]\n", "kind: Job\napiVersion: " + "[" * 3000],
)  # fmt: skip
def test_what_is_no_job_or_broken_is_none(text: str) -> None:
    source = SourceFile("job.yaml", text.encode())
    assert [work for work in parse_workloads(source) if work.words] == []
    assert read_launches(source) == ()


def test_a_file_with_no_job_of_its_own_is_said(project: Path) -> None:
    (project / "two.yaml").write_text(f"{TRAIN_JOB}---\n{TRAIN_JOB}")
    with pytest.raises(UserError) as caught:
        with_job_from_file(RehearsalRequest(["two.yaml"]))
    assert "not exactly one job" in caught.value.text.en
    assert with_job_from_file(RehearsalRequest(["bash", "launch.sh"])).command == ["bash", "launch.sh"]


IMAGE = "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime"


def environment_in(folder: Path, job: str, requirements: str = "") -> Environment:
    (folder / "job.yaml").write_text(job)
    (folder / "requirements.txt").write_text(requirements)
    (run,) = [
        run
        for run in gather_runs_of_inputs(["job.yaml"], (), settings=CheckSettings(), use_installed=True).runs
        if run.launch
    ]
    assert run.environment.declared is not None, "this machine is not the image"
    return run.environment.declared


def test_a_jobs_image_and_what_it_installs_are_its_environment(project: Path) -> None:
    job = TRAIN_JOB.replace("pytorch/pytorch:2.6.0", IMAGE)
    told = environment_in(project, job)
    assert (str(told.version("torch")), told.cuda.value, told.toolkit.absent) == ("2.6.0", "12.4", True)
    assert environment_in(project, job, "torch==2.4.1\n").version("torch") is None, "either may be what trains"
    told = environment_in(project, job, "torch>=2.4\ndeepspeed==0.15.4\n")
    assert (str(told.version("torch")), str(told.version("deepspeed"))) == ("2.6.0", "0.15.4")
    command = 'command: [bash, -c, "pip install deepspeed==0.14.2 && torchrun --nproc_per_node 8 train.py"]'
    shell = job.replace("command: [torchrun, train.py]", command).replace("    args: [--deepspeed, ds.json]\n", "")
    told = environment_in(project, shell, "deepspeed==0.15.4\n")
    assert str(told.version("deepspeed")) == "0.14.2", "the job installs it"
    told = environment_in(project, shell.replace("&& torchrun", "|| torchrun"))
    assert told.version("deepspeed") is None, "it may fail to"
    assert environment_in(project, TRAIN_JOB.replace("pytorch/pytorch:2.6.0", "us.pkg.dev/me/train:v3")).packages == {}


CONTAINERS = [
    "docker run --gpus all --rm -v $PWD:/work -w /work {image} torchrun --nproc_per_node 8 train.py",
    "docker run --gpus all {image} bash inner.sh",
    "apptainer exec --nv docker://{image} torchrun --nproc_per_node 8 train.py",
    "srun --container-image={image} --container-mounts=$PWD:/work bash -c 'torchrun --nproc_per_node 8 train.py'",
    "#SBATCH --container-image=docker.io#{image}\nsrun torchrun --nproc_per_node 8 train.py",
]


@pytest.mark.parametrize("command", CONTAINERS)
@pytest.mark.parametrize("typed", [False, True])
def test_a_containers_image_is_the_environment_of_what_it_runs(project: Path, command: str, typed: bool) -> None:
    (project / "inner.sh").write_text("torchrun --nproc_per_node 8 train.py\n")
    (project / "launch.sh").write_text("#!/bin/bash\n" + command.format(image=IMAGE) + "\n")

    def told(requirements: str) -> Environment:
        (project / "requirements.txt").write_text(requirements)
        what: tuple[list[str], tuple[str, ...]] = ([], ("bash", "launch.sh")) if typed else (["launch.sh"], ())
        gathered = gather_runs_of_inputs(*what, settings=CheckSettings(), use_installed=True)
        (run,) = [run for run in gathered.runs if run.launch]
        assert run.launch is not None
        assert run.launch.in_container
        assert run.environment.declared is not None, "this machine is not the image"
        return run.environment.declared

    environment = told("deepspeed==0.15.4\n")
    assert (str(environment.version("torch")), environment.cuda.value) == ("2.6.0", "12.4")
    assert str(environment.version("deepspeed")) == "0.15.4"
    assert told("torch==2.4.1\n").version("torch") is None, "either may be what trains"


def test_of_a_container_without_an_image_this_machine_tells_nothing(project: Path) -> None:
    (project / "launch.sh").write_text("docker exec trainer torchrun --nproc_per_node 8 train.py\n")
    (run,) = gather_runs_of_inputs([], ("bash", "launch.sh"), settings=CheckSettings(), use_installed=True).runs
    assert run.environment.declared is not None
    assert run.environment.declared.packages == {}


@pytest.mark.parametrize("name", ["job.yaml", "tune.ipynb"])
def test_a_file_after_the_dashes_is_read_as_the_file(project: Path, name: str) -> None:
    (project / "job.yaml").write_text(TRAIN_JOB)
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": ["import torch\n"]}
    (project / "tune.ipynb").write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4}))
    assert check([], [name]).report == check([name]).report
    (project / "ds.yaml").write_text("a: 1\n")
    with pytest.raises(UserError, match="starts no program that gonogo recognizes"):
        check([], ["ds.yaml"])


def test_skypilots_setup_and_image_are_its_environment(project: Path) -> None:
    task = SKYPILOT.replace("setup: pip install deepspeed", "setup: |\n  pip install -U \\\n    deepspeed==0.14.2")
    assert str(environment_in(project, task).version("deepspeed")) == "0.14.2"
    told = environment_in(project, task.replace("resources:\n", f"resources:\n  image_id: docker:{IMAGE}\n"))
    assert str(told.version("torch")) == "2.6.0"
    told = environment_in(project, task.replace("resources:\n", f"resources:\n  image_id: {IMAGE}\n"))
    assert told.version("torch") is None


def test_a_fault_of_the_release_that_a_job_installs_is_certain(project: Path) -> None:
    offload = {"stage": 3, "offload_optimizer": {"device": "cpu"}}
    config = {"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.0, "zero_optimization": offload}
    (project / "ds.json").write_text(json.dumps(config))
    (project / "sky.yaml").write_text(SKYPILOT.replace("deepspeed\n", "deepspeed==0.14.2\n", 1))
    found = check(["sky.yaml"]).report.findings
    (finding,) = [one for one in found if one.hazard == "zero3-offload-clip-grad-device-regression"]
    assert finding.certainty is Certainty.CERTAIN
    assert finding.spans[0].path == "sky.yaml"


def test_sbatch_gets_its_words_unless_the_check_says_no(project: Path) -> None:
    tools = project / "bin"
    tools.mkdir()
    (tools / "sbatch").write_text('#!/bin/sh\necho "submitted $*"\n')
    (tools / "sbatch").chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    job = "#!/bin/bash\n#SBATCH --gpus-per-node=8\ntorchrun --nproc_per_node 8 train.py --deepspeed {config}\n"
    (project / "bad.sbatch").write_text(job.format(config="ds.json"))
    (project / "good.sbatch").write_text(job.format(config="good.json"))
    (project / "good.json").write_text('{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 1}')
    refused = gonogo(project, "sbatch", "--nodes=2", "bad.sbatch", path=path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "ds-zero-stage-invalid" in refused.stderr
    assert "not submitted" in refused.stderr
    done = gonogo(project, "sbatch", "--nodes=2", "-J", "x", "good.sbatch", "--lr", "1", path=path)
    assert (done.returncode, done.stdout) == (0, "submitted --nodes=2 -J x good.sbatch --lr 1\n"), done.stderr
    forced = gonogo(project, "sbatch", "--gonogo-force", "bad.sbatch", path=path)
    assert forced.stdout == "submitted bad.sbatch\n"
    missing = gonogo(project, "sbatch", "bad.sbatch", path="/nonexistent")
    assert missing.returncode == 2
    assert "sbatch is not on PATH" in missing.stderr
