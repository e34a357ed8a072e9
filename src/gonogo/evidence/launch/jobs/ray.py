"""KubeRay's RayJob: a driver, and the groups of pods that its cluster is made of."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import yaml

from gonogo.evidence.launch.jobs.pod import gpus_of, of_pod, replicas_of
from gonogo.evidence.launch.jobs.workload import Workload
from gonogo.evidence.launch.jobs.yaml_node import Word, YamlNode


def ray_job(node: YamlNode) -> Iterator[Workload]:
    """The entry point, on the groups with accelerators; Ray tells its driver of no world."""
    spec, entry = node["spec"], node["spec"]["entrypoint"]
    cluster = spec["rayClusterSpec"]
    head, groups = cluster["headGroupSpec"], [*cluster["workerGroupSpecs"], cluster["headGroupSpec"]]
    working = [one for one in groups if _has_gpus(one)]
    if not entry.text:
        return
    first = working[0] if working else head
    nodes = replicas_of(working or [head])
    work = of_pod("RayJob", head["template"]["spec"], nodes, {}, works_on=first["template"]["spec"])
    here, there = entry.place, spec["runtimeEnvYAML"].place
    asked = _run_time(spec["runtimeEnvYAML"])
    yield msgspec.structs.replace(
        work,
        words=(Word("bash", here), Word("-c", here), entry.word()),
        environment=work.environment | {name: Word(value.text, there) for name, value in asked["env_vars"].items()},
        packages=tuple(Word(one.text, there) for one in _packages(asked["pip"]) if one.text),
        container=work.container if work.container.end else here,
    )


def _has_gpus(group: YamlNode) -> bool:
    return any(gpus_of(one["resources"]).node is not None for one in group["template"]["spec"]["containers"])


def _packages(pip: YamlNode) -> Iterator[YamlNode]:
    """``pip: [...]`` or ``pip: {packages: [...]}``."""
    yield from pip
    yield from pip["packages"]


def _run_time(block: YamlNode) -> YamlNode:
    """The environment that the job is run in: YAML in a scalar of YAML."""
    try:
        return YamlNode(yaml.compose(block.text or "", yaml.SafeLoader), block.source)
    except (yaml.YAMLError, RecursionError):
        return YamlNode(None, block.source)
