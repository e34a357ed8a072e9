"""What is sent to a Ray node and back: a rank's assignment, adapted to the node; its record and its log.

The plan, the environment variables and the launch script's changes are shipped. Everything else must exist on the
node under the same path: the Python environment, the program, its data and model files, overlaid packages.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import os
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

import gonogo
from gonogo.confinement.confinement import Confinement
from gonogo.confinement.trees import OPAQUE
from gonogo.finding import Text, translated
from gonogo.rehearse.workers.workers import Assignment
from gonogo.virtual.protocol.plan import WorkerPlan

_COMPARED_PACKAGES = ("torch", "deepspeed", "transformers", "accelerate", "peft")


class Shipment(msgspec.Struct, frozen=True):
    """One rank as it is sent to a node."""

    plan: WorkerPlan
    python: str
    environment: dict[str, str]
    cwd: str
    folder: str
    """The worker's folder on the sending machine; the node replaces it with its own."""
    files: bytes
    """The content of that folder, as a tar."""
    changed: tuple[tuple[bytes, tuple[str, ...]], ...]
    """The launch script's changes: trees that mirror the root folder, each as a tar with its opaque folders."""
    needed: tuple[str, ...]
    """Paths that must exist on the node."""
    versions: dict[str, str]


class RankResult(msgspec.Struct, frozen=True):
    """What a node returns."""

    record: bytes = b""
    log: bytes = b""
    progress: bytes = b""
    trace: bytes = b""
    refused: tuple[str, str] | None = None
    """Why the node can't run it, in English and Chinese."""


def pack(assignment: Assignment) -> Shipment:
    """The assignment as a shipment."""
    plan = assignment.plan
    program = Path(assignment.cwd, plan.program)
    overlays = assignment.environment.get("GONOGO_OVERLAYS", "").split(os.pathsep)
    needed = [assignment.cwd, assignment.python, *filter(None, overlays)]
    if plan.program_kind == "script" and program.exists():  # else the launch script wrote it, and it is shipped
        needed.append(str(program))
    return Shipment(
        plan=plan,
        python=assignment.python,
        environment=assignment.environment,
        cwd=assignment.cwd,
        folder=str(assignment.folder),
        files=_tar_folder(assignment.folder),
        changed=tuple((_tar_folder(tree), tuple(_opaque_folders(tree))) for tree in assignment.below),
        needed=tuple(path for path in needed if os.path.exists(path)),
        versions=versions(),
    )


def unpack(shipment: Shipment, confinement: Confinement) -> Assignment:
    """The assignment for the node, with the node's own folders; its world has yet to be created."""
    folder = confinement.shared / "rank"
    _extract_tar(shipment.files, folder)
    below = []
    for number, (changed, opaque) in enumerate(shipment.changed):
        tree = confinement.scratch / f"changed-{number}"
        _extract_tar(changed, tree)
        for inside in opaque:
            os.setxattr(tree / inside, OPAQUE, b"y")
        below.append(tree)

    def to_local_path(text: str) -> str:
        return text.replace(shipment.folder, str(folder))

    plan = shipment.plan
    return Assignment(
        plan=msgspec.structs.replace(
            plan,
            scratch=to_local_path(plan.scratch),
            record=to_local_path(plan.record),
            progress=to_local_path(plan.progress),
            trace=to_local_path(plan.trace),
        ),
        python=shipment.python,
        environment={name: to_local_path(value) for name, value in shipment.environment.items()},
        cwd=shipment.cwd,
        folder=folder,
        shown=confinement.readable,
        log=confinement.scratch / "output.log",
        world=None,
        below=tuple(below),
    )


def unsuitable_node_reason(shipment: Shipment, node: str) -> Text | None:
    """Why this node can't run it, or None if it can."""
    missing = next((path for path in shipment.needed if not os.path.exists(path)), None)
    if missing is not None:
        return translated(
            "Ray node {node}: {path} does not exist: every node needs the program, its data and the same "
            "Python environment under the same paths, for example on a shared file system"
        ).format(node=node, path=missing)
    ours = versions() if os.path.realpath(sys.executable) == os.path.realpath(shipment.python) else shipment.versions
    for name, version in shipment.versions.items():
        if ours.get(name) != version:
            return translated(
                "Ray node {node} has {name} {there}, but this machine has {here}: install the same versions "
                "on every node"
            ).format(node=node, name=name, there=ours.get(name, "-"), here=version)
    return None


def versions() -> dict[str, str]:
    """The versions that must agree between nodes."""
    found = {"gonogo": gonogo.__version__, "python": ".".join(map(str, sys.version_info[:2]))}
    for name in _COMPARED_PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _tar_folder(folder: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(folder, arcname=".")
    return packed.getvalue()


def _opaque_folders(tree: Path) -> Iterator[str]:
    """Folders that hide the real folder's content, which a tar doesn't record."""
    for folder, _, _ in os.walk(tree):
        if OPAQUE in os.listxattr(folder):
            yield os.path.relpath(folder, tree)


def _extract_tar(data: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extraction_filter = lambda member, _path: member  # links into the user's caches are gonogo's own
        archive.extractall(folder)
