"""Kinds of training jobs in Kubernetes and its operators, and the number and kind of pods of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import yaml

from gonogo.evidence.launch.jobs.pod import gpus_of, total_replicas, workload_of_pod
from gonogo.evidence.launch.jobs.workload import Workload
from gonogo.evidence.launch.jobs.yaml_node import PlacedText, YamlNode

_TRAINJOB_STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
_POD_OVERRIDE_KEYS = ("podSpecOverrides", "podTemplateOverrides", "runtimePatches")
"""Fields by which a TrainJob overrides volumes of its runtime's pods, in various releases of Kubeflow Trainer."""
_COMPLETION_INDEX_VARIABLE = {"JOB_COMPLETION_INDEX": "0"}


def kubernetes_jobs(node: YamlNode) -> Iterator[Workload]:
    """The jobs that an object is or contains."""
    if node["kind"].text == "Job" and (node["apiVersion"].text or "").startswith("batch.volcano.sh/"):
        yield from _volcano_job(node)
        return
    maker = _WORKLOADS_BY_KIND.get(node["kind"].text or "")
    if maker is not None and node["apiVersion"].text:
        yield from maker(node)


def _torchrun_variables(nodes: YamlNode | int, per_node: YamlNode, resources: YamlNode) -> dict[str, str]:
    """The environment variables that operators of PyTorch jobs set for torchrun, on the first node."""
    gpus, count = gpus_of(resources).number, nodes if isinstance(nodes, int) else nodes.number or 1
    requested = per_node.text or ""
    return {
        "PET_NNODES": str(count),
        "PET_NPROC_PER_NODE": requested if requested.isdecimal() else str(gpus) if gpus else requested or "1",
        "PET_NODE_RANK": "0",
        "PET_MASTER_ADDR": "localhost",
        "PET_MASTER_PORT": "29500",
    }


def _resources_of_training_container(spec: YamlNode) -> YamlNode:
    """The resources of the first container that requests accelerators; an empty node if none does."""
    containers = [one["resources"] for one in spec["containers"]]
    return next((one for one in containers if gpus_of(one).node is not None), YamlNode(None, spec.source))


def _pytorch_job(node: YamlNode) -> Iterator[Workload]:
    replicas = dict(node["spec"]["pytorchReplicaSpecs"].items())
    first = replicas.get("Master") or replicas.get("Worker")
    if first is not None:
        yield _torch_workload("PyTorchJob", node, first, list(replicas.values()))


def _hyperpod_job(node: YamlNode) -> Iterator[Workload]:
    groups = list(node["spec"]["replicaSpecs"])
    if groups:
        yield _torch_workload("HyperPodPyTorchJob", node, groups[0], groups)


def _torch_workload(kind: str, node: YamlNode, first: YamlNode, groups: list[YamlNode]) -> Workload:
    """The workload of a PyTorch job, from its first pod and all groups of pods."""
    pod, nodes = first["template"]["spec"], total_replicas(groups)
    added = _torchrun_variables(nodes, node["spec"]["nprocPerNode"], _resources_of_training_container(pod))
    world = {"MASTER_ADDR": "localhost", "MASTER_PORT": "23456", "RANK": "0", "WORLD_SIZE": added["PET_NNODES"]}
    return workload_of_pod(kind, pod, nodes, {**added, **world})


def _train_job(node: YamlNode) -> Iterator[Workload]:
    """A TrainJob combined with its runtime, if that is in the same file; other runtimes are unknown."""
    trainer, reference = node["spec"]["trainer"], node["spec"]["runtimeRef"]
    runtime = YamlNode(None, node.source)
    for one in node.documents():
        kinds = (reference["kind"].text,) if reference["kind"].text else ("ClusterTrainingRuntime", "TrainingRuntime")
        if one["kind"].text in kinds and one["metadata"]["name"].text == reference["name"].text:
            runtime = one["spec"]
    jobs = list(runtime["template"]["spec"]["replicatedJobs"])
    steps = [one for one in jobs if one["template"]["metadata"]["labels"][_TRAINJOB_STEP_LABEL].text == "trainer"]
    chosen = next(iter(steps or [one for one in jobs if one["name"].text == "node"]), None)
    pod = runtime if chosen is None else chosen["template"]["spec"]["template"]["spec"]
    policy, resources = runtime["mlPolicy"], trainer["resourcesPerNode"]
    nodes = next((one for one in (trainer["numNodes"], policy["numNodes"]) if one.node is not None), 1)
    requested = (trainer["numProcPerNode"], policy["torch"]["numProcPerNode"])
    per_node = next((one for one in requested if one.text), YamlNode(None, node.source))
    added = _torchrun_variables(
        nodes, per_node, resources if resources.node is not None else _resources_of_training_container(pod)
    )
    work = workload_of_pod("TrainJob", pod, nodes, {} if policy["mpi"].node is not None else added, given=trainer)
    changed = any(node["spec"][name].node is not None for name in _POD_OVERRIDE_KEYS)
    work = msgspec.structs.replace(work, shm_bytes=None) if changed else work
    if work.words:
        yield work


def _job_set(node: YamlNode) -> Iterator[Workload]:
    found = []
    for replicated in node["spec"]["replicatedJobs"]:
        job = replicated["template"]["spec"]
        counts = (job["parallelism"], replicated["replicas"])
        unknown = next((one for one in counts if one.node is not None and one.number is None), None)
        nodes = (counts[0].number or 1) * (counts[1].number or 1) if unknown is None else unknown
        found.append(workload_of_pod("JobSet", job["template"]["spec"], nodes, _COMPLETION_INDEX_VARIABLE))
    yield from [work for work in found if _requests_gpus(work)] or found[:1]


def _requests_gpus(workload: Workload) -> bool:
    return workload.gpus is not None or len(workload.numbers) > 0


def _batch_job(node: YamlNode) -> Iterator[Workload]:
    spec = node["spec"]
    yield workload_of_pod(
        node["kind"].text or "", spec["template"]["spec"], spec["parallelism"], _COMPLETION_INDEX_VARIABLE
    )


def _pod(node: YamlNode) -> Iterator[Workload]:
    """A pod, if it requests accelerators: other pods rarely train."""
    work = workload_of_pod("Pod", node["spec"], 1, {})
    if _requests_gpus(work):
        yield work


def _mpi_job(node: YamlNode) -> Iterator[Workload]:
    """The launcher's command, with the workers' resources."""
    replicas = dict(node["spec"]["mpiReplicaSpecs"].items())
    launcher, worker = replicas.get("Launcher"), replicas.get("Worker")
    if launcher is None:
        return
    workers = launcher if worker is None else worker
    pod = workers["template"]["spec"]
    yield workload_of_pod("MPIJob", launcher["template"]["spec"], total_replicas([workers]), {}, works_on=pod)


def _volcano_job(node: YamlNode) -> Iterator[Workload]:
    """The first task with accelerators, with the world set by Volcano's PyTorch plugin if it is used."""
    tasks = list(node["spec"]["tasks"])
    working = [
        one for one in tasks if gpus_of(_resources_of_training_container(one["template"]["spec"])).node is not None
    ] or tasks
    if not working:
        return
    nodes, added = total_replicas(working), {"VC_TASK_INDEX": "0"}
    if node["spec"]["plugins"]["pytorch"].node is not None:
        port = next((one.text or "" for one in node["spec"]["plugins"]["pytorch"] if "--port=" in (one.text or "")), "")
        added |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port.partition("=")[2] or "23456", "RANK": "0"}
        added["WORLD_SIZE"] = str(nodes if isinstance(nodes, int) else 1)
    launcher = next((one for one in tasks if one["name"].text in ("mpimaster", "launcher")), None)
    pod = working[0]["template"]["spec"]
    if launcher is not None and launcher not in working:
        yield workload_of_pod("Volcano Job", launcher["template"]["spec"], nodes, {}, works_on=pod)
    else:
        yield workload_of_pod("Volcano Job", pod, nodes, added)


def _wrapped_workloads(node: YamlNode) -> Iterator[Workload]:
    """The components of an AppWrapper, or the items of a List."""
    for one in node["items"]:
        yield from kubernetes_jobs(one)
    for one in node["spec"]["components"]:
        yield from kubernetes_jobs(one["template"])


def _ray_job(node: YamlNode) -> Iterator[Workload]:
    """The entry point, with the groups that have accelerators; Ray sets no world variables for its driver."""
    spec, entry = node["spec"], node["spec"]["entrypoint"]
    cluster = spec["rayClusterSpec"]
    head, groups = cluster["headGroupSpec"], [*cluster["workerGroupSpecs"], cluster["headGroupSpec"]]
    working = [one for one in groups if _group_has_gpus(one)]
    if not entry.text:
        return
    first = working[0] if working else head
    nodes = total_replicas(working or [head])
    work = workload_of_pod("RayJob", head["template"]["spec"], nodes, {}, works_on=first["template"]["spec"])
    here, there = entry.place, spec["runtimeEnvYAML"].place
    requested = _parse_runtime_env(spec["runtimeEnvYAML"])
    yield msgspec.structs.replace(
        work,
        words=(PlacedText("bash", here), PlacedText("-c", here), entry.placed_text()),
        environment=work.environment
        | {name: PlacedText(value.text, there) for name, value in requested["env_vars"].items()},
        packages=tuple(PlacedText(one.text, there) for one in _pip_packages(requested["pip"]) if one.text),
        container=work.container if work.container.end else here,
    )


def _group_has_gpus(group: YamlNode) -> bool:
    return any(gpus_of(one["resources"]).node is not None for one in group["template"]["spec"]["containers"])


def _pip_packages(pip: YamlNode) -> Iterator[YamlNode]:
    """``pip: [...]`` or ``pip: {packages: [...]}``."""
    yield from pip
    yield from pip["packages"]


def _parse_runtime_env(block: YamlNode) -> YamlNode:
    """The job's runtime environment, which is YAML inside a YAML scalar."""
    try:
        return YamlNode(yaml.compose(block.text or "", yaml.SafeLoader), block.source)
    except (yaml.YAMLError, RecursionError):
        return YamlNode(None, block.source)


_WORKLOADS_BY_KIND: dict[str, Callable[[YamlNode], Iterator[Workload]]] = {
    "PyTorchJob": _pytorch_job,
    "HyperPodPyTorchJob": _hyperpod_job,
    "TrainJob": _train_job,
    "JobSet": _job_set,
    "Job": _batch_job,
    "RunaiJob": _batch_job,
    "MPIJob": _mpi_job,
    "RayJob": _ray_job,
    "Pod": _pod,
    "AppWrapper": _wrapped_workloads,
    "List": _wrapped_workloads,
}
KINDS = tuple(_WORKLOADS_BY_KIND)
