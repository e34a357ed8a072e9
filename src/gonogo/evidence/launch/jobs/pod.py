"""A job whose nodes are pods, from Kubernetes' pod templates."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gonogo.evidence.launch.jobs.workload import Workload, parse_size_bytes
from gonogo.evidence.launch.jobs.yaml_node import PlacedText, YamlNode

_GPU_RESOURCE_PATTERN = re.compile(r"(?:nvidia\.com/gpu|huawei\.com/[Aa]scend\w*)$")
_SHM_PATH = "/dev/shm"
DEFAULT_POD_SHM_BYTES = 64 << 20
"""The default size of /dev/shm in a pod (containerd, CRI-O), in bytes."""
_GPU_TYPE_LABELS = (
    "node.kubernetes.io/instance-type", "sagemaker.amazonaws.com/instance-type", "nvidia.com/gpu.product",
           "cloud.google.com/gke-accelerator", "run.ai/type")  # fmt: skip


def workload_of_pod(
    kind: str,
    spec: YamlNode,
    nodes: YamlNode | int,
    operator_variables: dict[str, str],
    *,
    given: YamlNode | None = None,
    works_on: YamlNode | None = None,
) -> Workload:
    """A job of ``nodes`` such pods. ``operator_variables``: the variables that an operator sets in the first pod.

    ``given``: a TrainJob's overrides of the container. ``works_on``: the pod with the accelerators, if the command
    runs in another one.
    """
    nothing = YamlNode(None, spec.source)
    container, over = _training_container(spec), given or nothing
    requesting = container if works_on is None else _training_container(works_on)
    resources = over["resourcesPerNode"] if over["resourcesPerNode"].node is not None else requesting["resources"]
    words = [*(over["command"] if over["command"].node is not None else container["command"])]
    words += [*(over["args"] if over["args"].node is not None else container["args"])]
    environment = {
        one["name"].text or "": PlacedText(one["value"].text, one["value"].place)
        for holder in (container, over)
        for one in holder["env"]
    }
    environment = {**{name: PlacedText(value, spec.place) for name, value in operator_variables.items()}, **environment}
    limits, pod = resources["limits"], works_on or spec
    count = nodes if isinstance(nodes, YamlNode) else nothing
    return Workload(
        kind,
        tuple(_expand_variables(word.placed_text(), environment) for word in words),
        environment,
        nodes if isinstance(nodes, int) else 1 if count.node is None else count.number,
        gpus_of(resources).number,
        _accelerator(pod),
        parse_size_bytes(limits["memory"].text or resources["requests"]["memory"].text),
        _shm_bytes(pod, requesting) if requesting.node is not None else None,
        (container if container.node is not None else over).place,
        next((one["image"].placed_text() for one in (over, container) if one["image"].text), None),
        container["workingDir"].text,
        files=_config_maps(spec, container),
        numbers=tuple(one.placed_text() for one in (count, gpus_of(resources)) if one.text),
    )


def _training_container(spec: YamlNode) -> YamlNode:
    """The first container with accelerators, or else the first one."""
    containers = list(spec["containers"])
    with_gpus = (one for one in containers if gpus_of(one["resources"]).node is not None)
    return next(with_gpus, None) or next(iter(containers), YamlNode(None, spec.source))


def gpus_of(resources: YamlNode) -> YamlNode:
    """The number of accelerators that a container requests, as written; an empty node if it requests none."""
    for holder in (resources["limits"], resources["requests"]):
        for name, count in holder.items():
            if _GPU_RESOURCE_PATTERN.match(name):
                return count
    return YamlNode(None, resources.source)


def total_replicas(groups: Sequence[YamlNode]) -> YamlNode | int:
    """The total number of pods in groups; the unresolved number if one of them is a placeholder."""
    counts = [one["replicas"] for one in groups]
    open_ones = [one for one in counts if one.node is not None and one.number is None]
    return open_ones[0] if open_ones else sum(1 if one.number is None else one.number for one in counts)


def _accelerator(spec: YamlNode) -> str | None:
    """The accelerator or instance type of the pod's nodes, from its node selector or affinity."""
    labels = {name: value.text for name, value in spec["nodeSelector"].items()}
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    for term in required["nodeSelectorTerms"]:
        for one in term["matchExpressions"]:
            values = [value.text for value in one["values"]]
            if one["operator"].text == "In" and len(values) == 1:
                labels.setdefault(one["key"].text or "", values[0])
    return next((labels[name] for name in _GPU_TYPE_LABELS if labels.get(name)), None)


def _shm_bytes(spec: YamlNode, container: YamlNode) -> int | None:
    """The size of the container's /dev/shm; None if it is limited only by memory, or is another kind of volume."""
    if spec["hostIPC"].text == "true":
        return None
    mounted = {
        one["name"].text for one in container["volumeMounts"] if (one["mountPath"].text or "").rstrip("/") == _SHM_PATH
    }
    if not mounted:
        return DEFAULT_POD_SHM_BYTES
    for volume in spec["volumes"]:
        if volume["name"].text in mounted and volume["emptyDir"]["medium"].text == "Memory":
            return parse_size_bytes(volume["emptyDir"]["sizeLimit"].text)
    return None


def _config_maps(spec: YamlNode, container: YamlNode) -> dict[str, PlacedText]:
    """The files mounted from config maps in the same file, by path; each key of a map is a file."""
    maps = {one["metadata"]["name"].text: one["data"] for one in spec.documents() if one["kind"].text == "ConfigMap"}
    volumes = {one["name"].text: one["configMap"] for one in spec["volumes"] if one["configMap"].node is not None}
    found = {}
    for mount in container["volumeMounts"]:
        volume, at = volumes.get(mount["name"].text), (mount["mountPath"].text or "").rstrip("/")
        if volume is None or not at:
            continue
        paths = {one["key"].text: one["path"].text for one in volume["items"]}
        only = mount["subPath"].text
        for key, content in maps.get(volume["name"].text, YamlNode(None, spec.source)).items():
            name = paths.get(key) if paths else key
            if name and content.text is not None and only in (None, name):
                found[at if only else f"{at}/{name}"] = content.placed_text()
    return found


def _expand_variables(word: PlacedText, environment: dict[str, PlacedText]) -> PlacedText:
    """Expand ``$(NAME)``, which Kubernetes itself replaces in commands and arguments."""

    def variable_value(match: re.Match[str]) -> str:
        known = environment.get(match[1])
        return known.text if known is not None and known.text is not None else match[0]

    if not word.text:
        return word
    return PlacedText(re.sub(r"\$\(([A-Za-z_]\w*)\)", variable_value, word.text), word.place, word.style)
