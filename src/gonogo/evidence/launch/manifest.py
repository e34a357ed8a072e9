"""What a job queue is given, as launches: Kubernetes' PyTorchJob, TrainJob, JobSet and Job, and SkyPilot's tasks.

Of each: the command with its environment, and the nodes, accelerators and memory that it asks for. What an operator
adds to a container's environment is added here too, for the first node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gonogo.evidence.document.source_file import Place, SourceFile

if TYPE_CHECKING:
    from gonogo.evidence.shell.run import ShellCommand

_KINDS = re.compile(rb"^kind:\s*[\"']?(PyTorchJob|TrainJob|JobSet|Job)\b", re.MULTILINE)
_SKYPILOT = re.compile(rb"^(?:resources|num_nodes|workdir|envs|setup):", re.MULTILINE)
_RUN = re.compile(rb"^run:", re.MULTILINE)
_LARGEST = 1 << 20
_GPU = re.compile(r"(?:nvidia\.com/gpu|huawei\.com/[Aa]scend\w*)$")
_SIZES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SHM = "/dev/shm"
_SHELLS = ("bash", "sh", "/bin/bash", "/bin/sh", "/usr/bin/bash")
_LABELS = ("node.kubernetes.io/instance-type", "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator")


class Word(msgspec.Struct, frozen=True):
    """A text of the file, and where it stands; ``text`` is None where the queue makes it."""

    text: str | None
    place: Place
    block: bool = False
    """It is a block of lines as they are (``|``), so that a shell may read it where it stands."""


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
    image: str | None
    folder: str | None
    """Where it is started, in the image or on the rented machine."""


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
    found = []
    try:
        for document in yaml.compose_all(source.text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            node = _Node(document, source)
            maker = _MAKERS.get(node["kind"].text or "")
            if maker is not None and node["apiVersion"].text:
                found += maker(node)
            elif node["run"].text and not node["kind"].text:
                found.append(_skypilot(node))
    except (yaml.YAMLError, RecursionError):
        return tuple(found)
    return tuple(found)


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
    if len(work.words) == 3 and shell[0] in _SHELLS and shell[1] in ("-c", "-lc", "-ec", "-exc", "-xec"):
        return work.words[2]
    return None


class _Node:
    """A node of the document, or nothing: what is asked of nothing is nothing."""

    def __init__(self, node: Any, source: SourceFile) -> None:
        self.node = node
        self.source = source

    def __getitem__(self, key: str) -> _Node:
        for name, value in self.items():
            if name == key:
                return value
        return _Node(None, self.source)

    def items(self) -> Iterator[tuple[str, _Node]]:
        if self.node is not None and self.node.id == "mapping":
            for key, value in self.node.value:
                yield str(key.value), _Node(value, self.source)

    def __iter__(self) -> Iterator[_Node]:
        if self.node is not None and self.node.id == "sequence":
            yield from (_Node(one, self.source) for one in self.node.value)

    @property
    def text(self) -> str | None:
        return self.node.value if self.node is not None and self.node.id == "scalar" else None

    @property
    def number(self) -> int | None:
        return int(self.text) if self.text is not None and re.fullmatch(r"\d{1,7}", self.text) else None

    @property
    def place(self) -> Place:
        if self.node is None:
            return Place(self.source, 0, 0)
        start, end = (
            self.source.start + len(self.source.text[: mark.index].encode("utf-8"))
            for mark in (self.node.start_mark, self.node.end_mark)
        )
        return Place(self.source, start, max(start, end))

    def word(self) -> Word:
        return Word(self.text, self.place, self.node is not None and getattr(self.node, "style", None) == "|")


def _size(text: str | None) -> int | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]i?)?B?\+?", text or "")
    return int(float(match[1]) * _SIZES[match[2] or ""]) if match else None


def _of_pod(kind: str, spec: _Node, nodes: int, per_node: str | None, given: _Node | None = None) -> Workload:
    """A job whose nodes are pods. ``given``: what a TrainJob lays over its container."""
    containers = list(spec["containers"])
    chosen = next((one for one in containers if _gpus(one["resources"]) is not None), None)
    container = chosen or next(iter(containers), _Node(None, spec.source))
    over = given or _Node(None, spec.source)
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
        _shm(spec, container),
        container["image"].text or over["image"].text,
        container["workingDir"].text,
    )


def _gpus(resources: _Node) -> int | None:
    for holder in (resources["limits"], resources["requests"]):
        for name, count in holder.items():
            if _GPU.match(name):
                return count.number
    return None


def _shm(spec: _Node, container: _Node) -> int | None:
    """The size of the container's /dev/shm, where a volume in memory is mounted there."""
    mounted = {one["name"].text for one in container["volumeMounts"] if one["mountPath"].text == _SHM}
    for volume in spec["volumes"]:
        if volume["name"].text in mounted and volume["emptyDir"]["medium"].text == "Memory":
            return _size(volume["emptyDir"]["sizeLimit"].text)
    return None


def _operators(kind: str, nodes: int, per_node: str | None, gpus: int | None, spec: _Node) -> dict[str, Word]:
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


def _pytorch(node: _Node) -> list[Workload]:
    replicas = dict(node["spec"]["pytorchReplicaSpecs"].items())
    first = replicas.get("Master") or replicas.get("Worker")
    if first is None:
        return []
    nodes = sum(replica["replicas"].number or 1 for replica in replicas.values())
    per_node = node["spec"]["nprocPerNode"].text
    return [_of_pod("PyTorchJob", first["template"]["spec"], nodes, per_node)]


def _train_job(node: _Node) -> list[Workload]:
    trainer = node["spec"]["trainer"]
    if not [*trainer["command"], *trainer["args"]]:
        return []
    return [
        _of_pod(
            "TrainJob",
            _Node(None, node.source),
            trainer["numNodes"].number or 1,
            trainer["numProcPerNode"].text,
            trainer,
        )
    ]


def _job_set(node: _Node) -> list[Workload]:
    found = []
    for replicated in node["spec"]["replicatedJobs"]:
        job = replicated["template"]["spec"]
        nodes = (replicated["replicas"].number or 1) * (job["parallelism"].number or 1)
        found.append(_of_pod("JobSet", job["template"]["spec"], nodes, None))
    with_gpus = [work for work in found if work.gpus]
    return with_gpus or found[:1]


def _job(node: _Node) -> list[Workload]:
    spec = node["spec"]
    return [_of_pod("Job", spec["template"]["spec"], spec["parallelism"].number or 1, None)]


_MAKERS = {"PyTorchJob": _pytorch, "TrainJob": _train_job, "JobSet": _job_set, "Job": _job}


def _skypilot(node: _Node) -> Workload:
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
        resources["image_id"].text,
        node["workdir"].text,
    )
