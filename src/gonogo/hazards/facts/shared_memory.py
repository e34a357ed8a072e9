"""How much shared memory a container has, by ``docker run`` or in a Kubernetes pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gonogo.evidence.launch.jobs.pod import DEFAULT_POD_SHM_BYTES
from gonogo.evidence.launch.manifest import workload_at
from gonogo.finding import Edit, Text, translated

if TYPE_CHECKING:
    from gonogo.evidence.launch.launch import Launch
    from gonogo.evidence.source_file import Place

SHARED_MEMORY_FIX = translated("share the host's /dev/shm: --ipc=host")
SHARED_MEMORY_CURE = (translated("Start the container with --ipc=host, or with --shm-size=16g"),)
_POD_CURE = (
    translated(
        "Give the pod a volume `emptyDir: {{medium: Memory}}` and mount it at /dev/shm (it counts toward the "
        "container's memory)"
    ).format(),
)
_DOCKER = translated("docker run gives the container 64 MB of /dev/shm")
_POD_SHM_CAUSE = translated("The pod has {size:.0f} MiB of /dev/shm")
_SHM_OPTIONS = ("--ipc", "--shm-size", "--tmpfs", "--mount", "-v", "--volume")
_CONTAINER_COMMANDS = ("docker", "nvidia-docker", "podman")


class SmallSharedMemory(msgspec.Struct, frozen=True):
    """A container whose /dev/shm has the small default size."""

    place: Place
    """The place that leaves the default: the word ``run``, or the pod's container."""
    text: Text
    """The beginning of a sentence that says which container has how much."""
    cure: tuple[Text, ...]
    edits: tuple[Edit, ...] = ()


def find_small_shared_memory(launch: Launch) -> SmallSharedMemory | None:
    """The launch's container if its /dev/shm has at most 64 MiB; None if it has more or is unknown."""
    work = workload_at(launch.place)
    if work is None:
        run = _docker_run_with_default_shm(launch)
        edit = run.source.place(run.end, run.end).edit(" --ipc=host") if run is not None else None
        return (
            SmallSharedMemory(run, _DOCKER, SHARED_MEMORY_CURE, (edit,))
            if run is not None and edit is not None
            else None
        )
    if work.shm_bytes is None or work.shm_bytes > DEFAULT_POD_SHM_BYTES:
        return None
    return SmallSharedMemory(work.container, _POD_SHM_CAUSE.format(size=work.shm_bytes / 2**20), _POD_CURE)


def _docker_run_with_default_shm(launch: Launch) -> Place | None:
    """The word ``run`` of a ``docker run`` that leaves docker's default of 64 MB."""
    if not launch.in_container:
        return None
    words = [word.value for word in launch.words]
    if any(value is None for value in words):
        return None
    values = [value or "" for value in words]
    at = next((i for i, value in enumerate(values[:-1]) if value.rpartition("/")[2] in _CONTAINER_COMMANDS), None)
    if at is None or values[at + 1] != "run":
        return None
    for index, value in enumerate(values[at + 2 :], at + 2):
        name = value.partition("=")[0]
        if name in ("--ipc", "--shm-size"):
            return None
        if name in _SHM_OPTIONS and "/dev/shm" in " ".join(values[index : index + 2]):
            return None
    place = launch.words[at + 1].place
    return place if place.source.writable else None
