"""Jobs of more kinds of queues, as public examples write them: what each runs, on what, and with which files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gonogo.check.findings import check
from gonogo.check.runs import gather_runs_of_inputs
from gonogo.check.settings import CheckSettings
from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.launch.jobs.workload import Workload, shell_code_of, unfilled_variables
from gonogo.evidence.launch.manifest import parse_workloads
from gonogo.evidence.launch.reading import read_launches
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import UserError
from gonogo.rehearse.launch.queued import machine_requested_by, with_job_from_file
from gonogo.rehearse.request import RehearsalRequest

BAD = '{"zero_optimization": {"stage": 9}, "train_micro_batch_size_per_gpu": 1}'
SHELL = (
    "torchrun --nproc_per_node 8 --nnodes 2 --node_rank $RANK --master_addr $MASTER_ADDR train.py --deepspeed ds.json"
)
EXAMPLES = [["torchrun", "--nproc_per_node=8", "train.py", "--deepspeed", "ds.json"], ["bash", "-xc", SHELL]]


def pod(command: list[str] | None, gpus: object = 8, **more: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "x/y:z"}
    if command is not None:
        container["command"] = command
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus, "memory": "512Gi"}}
    return {"spec": {"containers": [container], **more}}


def job(kind: str, version: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "tune"}, "spec": spec}


def jobs(command: list[str]) -> dict[str, dict[str, Any]]:
    """Two nodes of 8 accelerators each, in the words of each queue."""
    both = {"replicas": 1, "template": pod(command)}
    task = {"name": "master", "replicas": 1, "template": pod(command)}
    p5 = {"nodeSelector": {"node.kubernetes.io/instance-type": "ml.p5.48xlarge"}}
    gke = {"matchExpressions": [{"key": "cloud.google.com/gke-accelerator", "operator": "In",
                                 "values": ["nvidia-h100-80gb"]}]}  # fmt: skip
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [gke]}}
    torch = job("PyTorchJob", "kubeflow.org/v1", pytorchReplicaSpecs={"Master": both, "Worker": both})
    return {
        "HyperPodPyTorchJob": job("HyperPodPyTorchJob", "sagemaker.amazonaws.com/v1", nprocPerNode="8",
                                  replicaSpecs=[{"name": "pods", "replicas": 2, "template": pod(command, **p5)}]),
        "MPIJob": job("MPIJob", "kubeflow.org/v2beta1", slotsPerWorker=8, mpiReplicaSpecs={
            "Launcher": {"replicas": 1, "template": pod(command, 0)},
            "Worker": {"replicas": 2, "template": pod(["/usr/sbin/sshd"])}}),
        "Volcano Job": job("Job", "batch.volcano.sh/v1alpha1", plugins={"pytorch": ["--master=master", "--port=29500"]},
                           tasks=[task, {**task, "name": "worker"}]),
        "RunaiJob": job("RunaiJob", "run.ai/v1", parallelism=2, template=pod(command)),
        "PyTorchJob": job("AppWrapper", "workload.codeflare.dev/v1beta2", components=[{"template": torch}]),
        "Pod": {**job("Pod", "v1"), **pod(command, affinity={"nodeAffinity": required})},
    }  # fmt: skip


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text("import deepspeed\n")
    (tmp_path / "ds.json").write_text(BAD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(content: str | dict[str, Any]) -> Workload:
    Path("job.yaml").write_text(content if isinstance(content, str) else yaml.safe_dump(content, width=1000))
    (work,) = parse_workloads(SourceFile.read("job.yaml"))
    return work


def hazards(path: str = "job.yaml") -> set[str]:
    return {finding.hazard for finding in check((path,), ()).report.findings}


@pytest.mark.parametrize("kind", jobs([]))
@pytest.mark.parametrize("command", EXAMPLES, ids=["plain", "shell"])
def test_a_job_is_its_command_on_its_nodes(project: Path, kind: str, command: list[str]) -> None:
    work = written(jobs(command)[kind])
    nodes = 1 if kind == "Pod" else 2
    assert (work.kind, work.nodes, work.gpus, work.memory_bytes) == (kind, nodes, 8, 512 << 30)
    (launch,) = read_launches(SourceFile.read("job.yaml"))
    assert (launch.launcher, launch.program.value) == ("torchrun", "train.py")
    assert launch.processes_per_node.value == 8
    assert "ds-zero-stage-invalid" in hazards()
    request = with_job_from_file(RehearsalRequest(["job.yaml"]))
    machines = {"HyperPodPyTorchJob": "p5.48xlarge", "Pod": "8xH100-80G"}
    assert (request.nodes, request.gpus) == (nodes, machines.get(kind, "8"))
    variables = {name: word.text for name, word in work.environment.items()}
    if kind == "Volcano Job":
        assert (variables["RANK"], variables["WORLD_SIZE"], variables["MASTER_PORT"]) == ("0", "2", "29500")


def test_half_an_instance_is_not_the_instance(project: Path) -> None:
    spec = pod(["torchrun", "train.py"], 4, nodeSelector={"node.kubernetes.io/instance-type": "p5.48xlarge"})
    assert machine_requested_by(written({**job("Pod", "v1"), **spec})) == "4xH100-80G"


def test_a_pod_without_accelerators_is_no_training(project: Path) -> None:
    assert (
        parse_workloads(SourceFile("pod.yaml", yaml.safe_dump({**job("Pod", "v1"), **pod(["python"], 0)}).encode()))
        == ()
    )


RAY = """\
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: tune}
spec:
  entrypoint: python train.py --deepspeed ds.json
  runtimeEnvYAML: |
    pip: [deepspeed==0.14.2]
    env_vars: {HF_HOME: /cache}
  rayClusterSpec:
    headGroupSpec: {template: {spec: {containers: [{name: head, image: 'rayproject/ray:2.43.0'}]}}}
    workerGroupSpecs:
    - replicas: 2
      template: {spec: {containers: [{name: w, image: x, resources: {limits: {nvidia.com/gpu: 8}}}]}}
"""


def test_a_ray_job_is_its_driver_on_the_groups_with_accelerators(project: Path) -> None:
    work = written(RAY)
    assert (work.kind, work.nodes, work.gpus, work.environment["HF_HOME"].text) == ("RayJob", 2, 8, "/cache")
    code = shell_code_of(work)
    assert code is not None
    assert code.text == "python train.py --deepspeed ds.json"
    assert str(told().version("deepspeed")) == "0.14.2"
    assert "ds-zero-stage-invalid" in hazards()
    with pytest.raises(UserError, match="--gpus 16xH100-80G"):
        with_job_from_file(RehearsalRequest(["job.yaml"]))
    assert with_job_from_file(RehearsalRequest(["job.yaml"], "16xH100-80G", 1)).nodes == 1
    assert written(RAY.replace("|\n    pip", "|\n    : [pip")).packages == ()


def told() -> Environment:
    (run,) = [
        run
        for run in gather_runs_of_inputs(["job.yaml"], (), settings=CheckSettings(), use_installed=True).runs
        if run.launch
    ]
    assert run.environment.declared is not None
    return run.environment.declared


def test_a_runtimes_arguments_are_those_of_the_step_that_trains(project: Path) -> None:
    """Kubeflow's runtime for DeepSpeed has sshd on its nodes, and trains in its launcher."""

    def group(name: str, command: list[str], labels: dict[str, str]) -> dict[str, Any]:
        inner = {"template": pod(command or None, 0)}
        return {"name": name, "template": {"metadata": {"labels": labels}, "spec": inner}}

    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    groups = [group("node", ["/usr/sbin/sshd", "-De"], {}), group("launcher", [], step)]
    runtime = job("ClusterTrainingRuntime", "trainer.kubeflow.org/v1alpha1", mlPolicy={"numNodes": 2, "mpi": {}},
                  template={"spec": {"replicatedJobs": groups}})  # fmt: skip
    trainer = {"command": ["mpirun", "-np", "16", "python", "train.py"],
               "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}}  # fmt: skip
    train = job("TrainJob", "trainer.kubeflow.org/v1alpha1", runtimeRef={"name": "tune"}, trainer=trainer)
    work = written(f"{yaml.safe_dump(runtime)}---\n{yaml.safe_dump(train)}")
    assert [word.text for word in work.words] == trainer["command"]
    assert (work.nodes, work.gpus, "PET_NNODES" in work.environment) == (2, 8, False)


TEMPLATE = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: $NUM_NODES
      template:
        spec:
          containers:
          - name: pytorch
            command: [torchrun, "--nproc_per_node=$GPU_PER_NODE", "--nnodes=${NUM_NODES}", train.py,
                      --deepspeed, ds.json]
            resources: {limits: {nvidia.com/gpu: $GPU_PER_NODE}}
"""


def test_what_envsubst_is_to_fill_in_is_not_known(project: Path) -> None:
    work = written(TEMPLATE)
    assert (work.nodes, work.gpus, unfilled_variables(work)) == (None, None, ["NUM_NODES", "GPU_PER_NODE"])
    (launch,) = read_launches(SourceFile.read("job.yaml"))
    assert not launch.nodes.known
    assert not launch.processes_per_node.known
    assert "ds-zero-stage-invalid" in hazards()
    with pytest.raises(UserError) as caught:
        with_job_from_file(RehearsalRequest(["job.yaml"]))
    assert "$NUM_NODES, $GPU_PER_NODE; set them" in caught.value.text.en
    assert "envsubst < job.yaml > filled.yaml" in caught.value.text.zh
    filled = TEMPLATE.replace("${NUM_NODES}", "2").replace("$NUM_NODES", "2").replace("$GPU_PER_NODE", "8")
    assert (written(filled).nodes, with_job_from_file(RehearsalRequest(["job.yaml"])).gpus) == (2, "8")
    words = f"command: [bash, -c, '{SHELL}']"
    shell = filled.replace(filled[filled.index("command: ") : filled.index("\n            resources")], words)
    assert unfilled_variables(written(shell)) == [], "a shell may know it"


def test_a_template_is_to_be_rendered_first(project: Path) -> None:
    text = TEMPLATE.replace("spec:\n", "spec:\n  {{- if .Values.queue }}\n  suspend: true\n  {{- end }}\n", 1)
    Path("job.yaml").write_text(text)
    with pytest.raises(UserError, match="helm template"):
        with_job_from_file(RehearsalRequest(["job.yaml"]))
    (gap,) = gather_runs_of_inputs(["job.yaml"], (), settings=CheckSettings(), use_installed=True).not_ours
    assert "helm template" in gap.why.en
    assert "helm template" in gap.why.zh


CONFIG_MAP = f"""\
apiVersion: v1
kind: ConfigMap
metadata: {{name: scripts}}
data:
  train.py: |
    import deepspeed
  ds.json: '{BAD}'
---
"""


@pytest.mark.parametrize("how", ["whole", "items", "subPath"])
def test_what_a_config_map_of_the_file_mounts_is_there(project: Path, how: str) -> None:
    for name in ("train.py", "ds.json"):
        (project / name).unlink()
    source: dict[str, Any] = {"name": "scripts"}
    mounts = [{"name": "code", "mountPath": "/scripts"}]
    config = "/scripts/ds.json"
    if how == "items":
        source["items"] = [{"key": "train.py", "path": "train.py"}, {"key": "ds.json", "path": "conf/zero.json"}]
        config = "/scripts/conf/zero.json"
    if how == "subPath":
        mounts = [{"name": "code", "mountPath": f"/scripts/{one}", "subPath": one} for one in ("train.py", "ds.json")]
    spec = pod(["torchrun", "--nproc_per_node=8", "/scripts/train.py", f"--deepspeed={config}"])
    spec["spec"]["containers"][0]["volumeMounts"] = mounts
    spec["spec"]["volumes"] = [{"name": "code", "configMap": source}]
    Path("job.yaml").write_text(CONFIG_MAP + yaml.safe_dump({**job("Pod", "v1"), **spec}, width=1000))
    report = check(("job.yaml",), ()).report
    assert "ds-zero-stage-invalid" in {finding.hazard for finding in report.findings}
    assert any("train.py" in text.en for text in report.covered)
    code = with_job_from_file(RehearsalRequest(["job.yaml"])).command[2]
    program, option = code.split()[-2:]
    assert Path(program).read_text() == "import deepspeed\n"
    assert json.loads(Path(option.partition("=")[2]).read_text()) == json.loads(BAD)


def test_a_hostile_mount_writes_nowhere_else(project: Path) -> None:
    spec = pod(["torchrun", "train.py"])
    spec["spec"]["containers"][0]["volumeMounts"] = [{"name": "code", "mountPath": "/../../.."}]
    key = "../../../../../../../../../../tmp/gonogo-never"
    spec["spec"]["volumes"] = [{"name": "code", "configMap": {"name": "scripts"}}]
    maps = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scripts"}, "data": {key: "x"}}
    Path("job.yaml").write_text(f"{yaml.safe_dump(maps)}---\n{yaml.safe_dump({**job('Pod', 'v1'), **spec})}")
    with_job_from_file(RehearsalRequest(["job.yaml"]))
    assert not Path("/tmp/gonogo-never").exists()


SKY = """\
resources: {any_of: [{infra: aws, accelerators: 'H100:8'}, {infra: gcp, accelerators: 'H100:8'}], memory: 512+}
file_mounts:
  /sft: ./code
  ~/out: {source: 's3://bucket', mode: MOUNT}
  /data: s3://bucket
workdir: .
num_nodes: 2
run: |
  torchrun --nnodes $SKYPILOT_NUM_NODES --nproc_per_node $SKYPILOT_NUM_GPUS_PER_NODE \\
    /sft/train.py --deepspeed ~/sky_workdir/ds.json
"""


def test_what_a_task_brings_along_is_where_it_comes_from(project: Path) -> None:
    (project / "code").mkdir()
    (project / "train.py").rename(project / "code" / "train.py")
    work = written(SKY)
    assert (work.gpus, work.accelerator, work.mounts) == (8, "H100", {"~/sky_workdir": ".", "/sft": "./code"})
    (launch,) = read_launches(SourceFile.read("job.yaml"))
    assert launch.path_of(launch.program) == project / "code" / "train.py"
    assert "ds-zero-stage-invalid" in hazards()
    code = with_job_from_file(RehearsalRequest(["job.yaml"])).command[2]
    assert f"{project}/code/train.py --deepspeed {project}/ds.json" in code


def test_a_program_that_only_the_image_has_is_not_covered(project: Path) -> None:
    written({**job("Pod", "v1"), **pod(["torchrun", "/opt/train.py"])})
    (project / "launch.sh").write_text("docker run image torchrun --nproc_per_node 8 /opt/train.py\n")
    for path in ("job.yaml", "launch.sh"):
        (note,) = check((path,), ()).report.notes
        assert "/opt/train.py" in note.en
        assert "/opt/train.py" in note.zh
    written({**job("Pod", "v1"), **pod(["torchrun", "train.py"])})
    assert check(("job.yaml",), ()).report.notes == ()


def test_merged_keys_are_keys(project: Path) -> None:
    work = written("x: &base {replicas: 3, template: {spec: {containers: [{command: [torchrun, train.py]}]}}}\n"
                   "kind: PyTorchJob\napiVersion: kubeflow.org/v1\n"
                   "spec: {pytorchReplicaSpecs: {Worker: {<<: *base, replicas: 2}}}\n")  # fmt: skip
    assert (work.nodes, [word.text for word in work.words]) == (2, ["torchrun", "train.py"])
    assert (
        written("x: &a {kind: PyTorchJob, apiVersion: v1, y: {<<: *a}, <<: *a}\nrun: a\nsetup: b\n").kind == "SkyPilot"
    )


IMAGE = "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime"
INSTALLS = "pip install deepspeed==0.14.2"


@pytest.mark.parametrize(
    "command",
    [f'docker run --gpus all {IMAGE} bash -c "{INSTALLS} && torchrun --nproc_per_node 8 train.py"',
     f"docker run --gpus all {IMAGE} bash inner.sh",
     f"docker run -i {IMAGE} bash <<'EOF'\n{INSTALLS}\ntorchrun --nproc_per_node 8 train.py\nEOF",
     f"srun --container-image={IMAGE} bash -c '{INSTALLS}; torchrun --nproc_per_node 8 train.py'"],
    ids=["code", "script", "input", "srun"],
)  # fmt: skip
@pytest.mark.parametrize("typed", [False, True])
def test_what_a_container_installs_before_it_trains_is_its_environment(
    project: Path, command: str, typed: bool
) -> None:
    (project / "inner.sh").write_text(f"{INSTALLS}\ntorchrun --nproc_per_node 8 train.py\n")
    (project / "launch.sh").write_text(f"#!/bin/bash\n{command}\n")
    (project / "requirements.txt").write_text("deepspeed==0.16.9\n")
    what: tuple[list[str], tuple[str, ...]] = ([], ("bash", "launch.sh")) if typed else (["launch.sh"], ())
    runs = [
        run for run in gather_runs_of_inputs(*what, settings=CheckSettings(), use_installed=True).runs if run.launch
    ]
    found = runs[0].environment.declared
    assert found is not None
    assert (str(found.version("deepspeed")), str(found.version("torch"))) == ("0.14.2", "2.6.0")


@pytest.mark.parametrize("arguments", [["bash", "-c", f"{INSTALLS}\n{SHELL}"], ["bash", "run.sh"]])
@pytest.mark.parametrize("style", [None, '"'])
def test_what_a_job_installs_is_read_however_it_is_written(project: Path, arguments: list[str], style: str) -> None:
    (project / "run.sh").write_text(f"{INSTALLS}\n{SHELL}\n")
    spec = {**job("Pod", "v1"), **pod(arguments)}
    Path("job.yaml").write_text(yaml.safe_dump(spec, width=1000, default_style=style))
    assert str(told().version("deepspeed")) == "0.14.2"


def gonogo(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gonogo", *words], cwd=folder, capture_output=True, text=True, timeout=300,
        env={**os.environ, "LANG": "C"},
    )  # fmt: skip


FOLDED = """\
apiVersion: v1
kind: Pod
spec:
  containers:
  - command: [bash, -c]
    args:
    - CODE
    resources: {limits: {nvidia.com/gpu: 8}}
"""
LINES = "pip install deepspeed==0.14.2 &&|torchrun --nproc_per_node 8|train.py --deepspeed ds.json"


FOLDS = LINES.replace("|", "\n      ")


@pytest.mark.parametrize(
    "code",
    [LINES.replace("|", " "), FOLDS, f">-\n      {FOLDS}", f"'{FOLDS}'", f'"{LINES.replace("&&|", "|")}"',
     f">\n      set -x\n\n      {FOLDS}"],
    ids=["plain", "lines", "folded", "quoted", "escaped", "paragraphs"],
)  # fmt: skip
def test_code_is_read_however_yaml_folds_it(project: Path, code: str) -> None:
    Path("job.yaml").write_text(FOLDED.replace("CODE", code.replace("|", "\\n", 1).replace("|", " ")))
    source = SourceFile.read("job.yaml")
    (launch,) = read_launches(source)
    assert (launch.launcher, launch.program.value, launch.deepspeed_config.value) == ("torchrun", "train.py", "ds.json")
    line = next(number for number, text in enumerate(source.text.splitlines(), 1) if "torchrun" in text)
    assert launch.line in (line, line + 1 if code[0] == '"' else line)
    assert "ds-zero-stage-invalid" in hazards()
    assert str(told().version("deepspeed")) == "0.14.2"


@pytest.mark.slow
def test_whatever_takes_a_launch_takes_a_job(project: Path) -> None:
    spec = {**job("Pod", "v1"), **pod(["python", "train.py"], 1)}
    Path("job.yaml").write_text(yaml.safe_dump(spec))
    (project / "train.py").write_text("import torch\ntorch.ones(4, device='cuda').sum()\n")
    done = gonogo(project, "cure", "--gpus", "1xH100-80G", "--format", "json", "--", "job.yaml")
    assert json.loads(done.stdout)["cure"]["rehearsals"] == 1, done.stderr
    done = gonogo(project, "prepare", "--format", "json", "--", "job.yaml")
    assert "job.yaml" in done.stdout, done.stderr
    bisect = ("bisect", "--package", "gonogo", "--good", "0", "--bad", "1", "--", "job.yaml")
    assert "can't rehearse" not in gonogo(project, *bisect).stderr
    Path("job.yaml").write_text(TEMPLATE)
    for command in ("rehearse", "cure", "prepare", "plan"):
        done = gonogo(project, command, "--", "job.yaml")
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1, done.stderr
