"""What ``docker run`` gives a container of shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gonogo.finding import Edit, Text

if TYPE_CHECKING:
    from gonogo.evidence.document.source_file import Place
    from gonogo.evidence.launch.launch import Launch

SHARED_MEMORY_CURE = (
    Text("Start the container with --ipc=host, or with --shm-size=16g", "启动容器时加 --ipc=host，或 --shm-size=16g"),
)
SHARED_MEMORY_FIX = Text("share the host's /dev/shm: --ipc=host", "共用主机的 /dev/shm：--ipc=host")
_GIVES_MORE = ("--ipc", "--shm-size", "--tmpfs", "--mount", "-v", "--volume")


def small_shared_memory(launch: Launch) -> Place | None:
    """The word ``run`` of a ``docker run`` that leaves the container with docker's 64 MB of /dev/shm."""
    if not launch.in_container:
        return None
    words = [word.value for word in launch.words]
    if any(value is None for value in words):
        return None
    values = [value or "" for value in words]
    at = next((i for i, value in enumerate(values[:-1]) if value.rpartition("/")[2] in _DOCKERS), None)
    if at is None or values[at + 1] != "run":
        return None
    for index, value in enumerate(values[at + 2 :], at + 2):
        name = value.partition("=")[0]
        if name in ("--ipc", "--shm-size"):
            return None
        if name in _GIVES_MORE and "/dev/shm" in " ".join(values[index : index + 2]):
            return None
    place = launch.words[at + 1].place
    return place if place.source.writable else None


def sharing_the_hosts(run_word: Place) -> Edit:
    """The edit that adds ``--ipc=host`` behind ``docker run``."""
    return run_word.source.place(run_word.end, run_word.end).edit(" --ipc=host")


_DOCKERS = ("docker", "nvidia-docker", "podman")
