"""What a job queue is given, as launches: Kubernetes' PyTorchJob, TrainJob, JobSet and Job, and SkyPilot's tasks.

Of each: the command with its environment, and the nodes, accelerators and memory that it asks for. What an operator
adds to a container's environment is added here too, for the first node.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gonogo.evidence.document.source_file import Place, SourceFile
from gonogo.evidence.launch.yaml_node import Node, Word

if TYPE_CHECKING:
    from gonogo.evidence.shell.run import ShellCommand

_KINDS = re.compile(rb"^kind:\s*[\"']?(PyTorchJob|TrainJob|JobSet|Job)\b", re.MULTILINE)
_SKYPILOT = re.compile(rb"^(?:resources|num_nodes|workdir|envs|setup):", re.MULTILINE)
_RUN = re.compile(rb"^run:", re.MULTILINE)
_LARGEST = 1 << 20
_GPU = re.compile(r"(?:nvidia\.com/gpu|huawei\.com/[Aa]scend\w*)$")
_SIZES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SHM = "/dev/shm"
SHM_OF_A_POD = 64 << 20
"""What container runtimes (containerd, CRI-O) mount at /dev/shm of a pod that asks for nothing, in bytes."""
_CHANGES_OF_PODS = ("podSpecOverrides", "podTemplateOverrides", "runtimePatches")
"""How a TrainJob lays volumes over its runtime's pods, by releases of Kubeflow Trainer."""
_SHELLS = ("bash", "sh", "/bin/bash", "/bin/sh", "/usr/bin/bash")
_LABELS = ("node.kubernetes.io/instance-type", "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator")


class Workload(msgspec.Struct, frozen=True):
    """One job. Memory in bytes; None where it is not asked for."""

    kind: str
    words: tuple[Word, ...]
    environment: dict[str, Word]
    nodes: int
    gpus: int | None
    """Of a node."""
    accelerator: str | None
    """As the file names it: an accelerator, or a cloud's instance."""
    memory_bytes: int | None
    shm_bytes: int | None
    """Of /dev/shm; None where it is bounded by the memory alone, or by what is not known here."""
    container: Place
    """What runs the command: where a finding about it points."""
    image: Word | None
    folder: str | None
    """Where it is started, in the image or on the rented machine."""
    setup: Word | None = None
    """What a shell runs before, on each node."""


def is_manifest(source: SourceFile) -> bool:
    """Whether a YAML file may be one, by words that only those have."""
    data = source.data
    if len(data) > _LARGEST:
        return False
    if _KINDS.search(data) and b"apiVersion:" in data:
        return True
    return bool(_RUN.search(data) and _SKYPILOT.search(data))


def workloads(source: SourceFile) -> tuple[Workload, ...]:
    """The jobs of a file, in order; none where it is no such file, or broken."""
    import yaml

    if not is_manifest(source):
        return ()
    documents: list[Node] = []
    try:
        composed = yaml.compose_all(source.text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        documents.extend(Node(document, source) for document in composed)
    except (yaml.YAMLError, RecursionError):
        pass  # what stands before the broken one is read
    found: list[Workload] = []
    for node in documents:
        kind = node["kind"].text
        maker = _MAKERS.get(kind or "")
        if kind == "TrainJob":
            found += _train_job(node, documents)
        elif maker is not None and node["apiVersion"].text:
            found += maker(node)
        elif node["run"].text and not kind:
            found.append(_skypilot(node))
    return tuple(found)


def workload_at(place: Place) -> Workload | None:
    """The job whose command stands there; None where the place is in no such file."""
    for work in workloads(place.source):
        if work.words and work.words[0].place.start <= place.start <= work.words[-1].place.end:
            return work
    return None


def manifest_commands(source: SourceFile, folder: Path) -> list[ShellCommand]:
    """The commands that the jobs of a file run."""
    from gonogo.evidence.shell.run import ShellCommand, read_shell
    from gonogo.evidence.shell.state import Variable
    from gonogo.evidence.shell.text import Piece, ShellWord

    def piece(word: Word) -> Piece:
        return Piece(word.text, source, word.place.start, word.place.end)

    commands = []
    for work in workloads(source):
        words = tuple(ShellWord((piece(word),), word.place, quoted=True) for word in work.words)
        environment = {
            name: Variable((piece(word),), word.place, exported=True) for name, word in work.environment.items()
        }
        script = script_of(work)
        if script is not None and script.block:
            first = source.data.find(b"\n", script.place.start, script.place.end) + 1
            part = (first, script.place.end)
            commands += read_shell(source, folder, cwd_known=False, environment=environment, part=part)
        elif words:
            place = Place(source, work.words[0].place.start, work.words[-1].place.end)
            commands.append(ShellCommand(words, place, place, environment, frozenset(), {}, folder, False, {}))
    return commands


def script_of(work: Workload) -> Word | None:
    """The code of ``bash -c CODE``, where the job's command is that."""
    shell = [word.text for word in work.words[:2]]
    if len(work.words) == 3 and shell[0] in _SHELLS and re.fullmatch("-[a-z]*c", shell[1] or ""):
        return work.words[2]
    return None


def _size(text: str | None) -> int | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]i?)?B?\+?", text or "")
    return int(float(match[1]) * _SIZES[match[2] or ""]) if match else None


def _of_pod(kind: str, spec: Node, nodes: int, per_node: str | None, given: Node | None = None) -> Workload:
    """A job whose nodes are pods. ``given``: what a TrainJob lays over its container."""
    containers = list(spec["containers"])
    chosen = next((one for one in containers if _gpus(one["resources"]) is not None), None)
    container = chosen or next(iter(containers), Node(None, spec.source))
    over = given or Node(None, spec.source)
    resources = over["resourcesPerNode"] if over["resourcesPerNode"].node is not None else container["resources"]
    gpus = _gpus(resources)
    words = [*(over["command"] if over["command"].node is not None else container["command"])]
    words += [*(over["args"] if over["args"].node is not None else container["args"])]
    environment = {
        one["name"].text or "": Word(one["value"].text, one["value"].place)
        for holder in (container, over)
        for one in holder["env"]
    }
    environment = {**_operators(kind, nodes, per_node, gpus, spec), **environment}
    labels = {name: value.text for name, value in spec["nodeSelector"].items()}
    limits = resources["limits"]
    return Workload(
        kind,
        tuple(_expanded(word.word(), environment) for word in words),
        environment,
        nodes,
        gpus,
        next((labels[name] for name in _LABELS if labels.get(name)), None),
        _size(limits["memory"].text or resources["requests"]["memory"].text),
        _shm(spec, container) if container.node is not None else None,
        (container if container.node is not None else over).place,
        next((one["image"].word() for one in (over, container) if one["image"].text), None),
        container["workingDir"].text,
    )


def _gpus(resources: Node) -> int | None:
    for holder in (resources["limits"], resources["requests"]):
        for name, count in holder.items():
            if _GPU.match(name):
                return count.number
    return None


def _shm(spec: Node, container: Node) -> int | None:
    """The size of the container's /dev/shm; None where memory alone bounds it, or where a volume of another kind is."""
    if spec["hostIPC"].text == "true":
        return None
    mounted = {
        one["name"].text for one in container["volumeMounts"] if (one["mountPath"].text or "").rstrip("/") == _SHM
    }
    if not mounted:
        return SHM_OF_A_POD
    for volume in spec["volumes"]:
        if volume["name"].text in mounted and volume["emptyDir"]["medium"].text == "Memory":
            return _size(volume["emptyDir"]["sizeLimit"].text)
    return None


def _operators(kind: str, nodes: int, per_node: str | None, gpus: int | None, spec: Node) -> dict[str, Word]:
    """The variables that an operator gives to the pod of the first node."""
    if kind not in ("PyTorchJob", "TrainJob"):
        return {"JOB_COMPLETION_INDEX": Word("0", spec.place)}
    count = per_node if (per_node or "").isdigit() else str(gpus) if gpus else per_node or "1"
    values = {
        "PET_NNODES": str(nodes),
        "PET_NPROC_PER_NODE": count,
        "PET_NODE_RANK": "0",
        "PET_MASTER_ADDR": "localhost",
        "PET_MASTER_PORT": "29500",
    }
    if kind == "PyTorchJob":
        values |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "23456", "RANK": "0", "WORLD_SIZE": str(nodes)}
    return {name: Word(value, spec.place) for name, value in values.items()}


def _expanded(word: Word, environment: dict[str, Word]) -> Word:
    """``$(NAME)``, which Kubernetes itself replaces in commands and arguments."""

    def value(match: re.Match[str]) -> str:
        known = environment.get(match[1])
        return known.text if known is not None and known.text is not None else match[0]

    if not word.text:
        return word
    return Word(re.sub(r"\$\(([A-Za-z_]\w*)\)", value, word.text), word.place, word.block)


def _pytorch(node: Node) -> list[Workload]:
    replicas = dict(node["spec"]["pytorchReplicaSpecs"].items())
    first = replicas.get("Master") or replicas.get("Worker")
    if first is None:
        return []
    nodes = sum(replica["replicas"].number or 1 for replica in replicas.values())
    per_node = node["spec"]["nprocPerNode"].text
    return [_of_pod("PyTorchJob", first["template"]["spec"], nodes, per_node)]


def _train_job(node: Node, documents: list[Node]) -> list[Workload]:
    """A TrainJob over its runtime, where that stands in the same file; of another runtime nothing is known."""
    trainer, reference = node["spec"]["trainer"], node["spec"]["runtimeRef"]
    runtime = Node(None, node.source)
    for one in documents:
        kinds = (reference["kind"].text,) if reference["kind"].text else ("ClusterTrainingRuntime", "TrainingRuntime")
        if one["kind"].text in kinds and one["metadata"]["name"].text == reference["name"].text:
            runtime = one["spec"]
    jobs = list(runtime["template"]["spec"]["replicatedJobs"])
    pods = [one["template"]["spec"]["template"]["spec"] for one in jobs if one["name"].text == "node"]
    pod = pods[0] if pods else runtime
    policy = runtime["mlPolicy"]
    nodes = trainer["numNodes"].number or policy["numNodes"].number or 1
    per_node = trainer["numProcPerNode"].text or policy["torch"]["numProcPerNode"].text
    work = _of_pod("TrainJob", pod, nodes, per_node, trainer)
    changed = any(node["spec"][name].node is not None for name in _CHANGES_OF_PODS)
    work = msgspec.structs.replace(work, shm_bytes=None) if changed else work
    return [work] if work.words else []


def _job_set(node: Node) -> list[Workload]:
    found = []
    for replicated in node["spec"]["replicatedJobs"]:
        job = replicated["template"]["spec"]
        nodes = (replicated["replicas"].number or 1) * (job["parallelism"].number or 1)
        found.append(_of_pod("JobSet", job["template"]["spec"], nodes, None))
    with_gpus = [work for work in found if work.gpus]
    return with_gpus or found[:1]


def _job(node: Node) -> list[Workload]:
    spec = node["spec"]
    return [_of_pod("Job", spec["template"]["spec"], spec["parallelism"].number or 1, None)]


_MAKERS = {"PyTorchJob": _pytorch, "JobSet": _job_set, "Job": _job}


def _skypilot(node: Node) -> Workload:
    resources = node["resources"]
    offered = resources["accelerators"]
    said = offered.text or next((one.text for one in offered if one.text), None)
    if said is None:
        said = next((f"{name}:{count.text or 1}" for name, count in offered.items()), None)
    name, _, count = (said or "").partition(":")
    nodes = node["num_nodes"].number or 1
    gpus = int(count) if count.isdigit() else 1 if name else None
    environment = {
        "SKYPILOT_NUM_NODES": str(nodes),
        "SKYPILOT_NODE_RANK": "0",
        "SKYPILOT_NODE_IPS": "\n".join(["127.0.0.1"] * nodes),
        "SKYPILOT_NUM_GPUS_PER_NODE": str(gpus or 0),
    }
    here = node["run"].place
    words = {name: Word(value, here) for name, value in environment.items()}
    for variables in (node["envs"], node["secrets"]):
        words |= {name: Word(value.text, value.place) for name, value in variables.items()}
    memory = (resources["memory"].text or "").rstrip("+x")
    return Workload(
        "SkyPilot",
        (Word("bash", here), Word("-c", here), node["run"].word()),
        words,
        nodes,
        gpus,
        resources["instance_type"].text or name or None,
        int(float(memory) * 2**30) if re.fullmatch(r"\d+(\.\d+)?", memory) else _size(memory),
        None,
        here,
        _container_of(resources["image_id"]),
        node["workdir"].text,
        node["setup"].word() if node["setup"].text else None,
    )


def _container_of(image: Node) -> Word | None:
    """``docker:IMAGE``; other images are machines', whose names tell no versions."""
    if not (image.text or "").startswith("docker:"):
        return None
    return Word((image.text or "").removeprefix("docker:"), image.place)
