"""A job's file, or a notebook, as a command to rehearse: the queue's manifest becomes the machine and the launch."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import tempfile
from pathlib import Path

import msgspec

from gonogo.evidence.document.source_file import SourceFile
from gonogo.evidence.environment.hardware import find_accelerator
from gonogo.evidence.environment.instances import rented
from gonogo.evidence.launch.job_file import YAML, notebook_of_command
from gonogo.evidence.launch.manifest import Workload, is_manifest, script_of, workloads
from gonogo.evidence.paths import is_file
from gonogo.finding import Text
from gonogo.finding.errors import UserError

_NAMES = {
    "nvidia-tesla-t4": "T4",
    "nvidia-l4": "L4",
    "nvidia-tesla-a100": "A100-40G",
    "nvidia-a100-80gb": "A100-80G",
    "nvidia-h100-80gb": "H100-80G",
    "nvidia-h100-mega-80gb": "H100-80G",
    "nvidia-h200-141gb": "H200",
    "nvidia-b200": "B200",
    "a100": "A100-40G",
    "v100": "V100-16G",
}
"""What Google's labels and SkyPilot call accelerators that have another name here."""


class Asked(msgspec.Struct, frozen=True):
    """A command with the options that it is rehearsed with."""

    command: list[str]
    gpus: str | None
    nodes: int | None
    host_memory: str | None
    shm_bytes: int | None = None
    """A node's /dev/shm, where the file says it."""


def unpacked(asked: Asked) -> Asked:
    """What a file of a queue asks for; any other command as it is. Options that are given win. Raises UserError."""
    notebook = notebook_of_command(asked.command) if asked.command else None
    if notebook is not None:
        return msgspec.structs.replace(asked, command=_command_of_notebook(notebook))
    if len(asked.command) != 1 or not asked.command[0].endswith(YAML) or not is_file(asked.command[0]):
        return asked
    path = asked.command[0]
    source = SourceFile.read(path)
    found = workloads(source) if is_manifest(source) else ()
    found = tuple(work for work in found if work.words)
    if len(found) != 1 or any(word.text is None for word in found[0].words):
        raise UserError(
            Text(
                "{path}: not one job with a command of its own (PyTorchJob, TrainJob, JobSet, Job, or a SkyPilot "
                "task): give its command after --",
                "{path}：其中不是恰好一个带有命令的任务（PyTorchJob、TrainJob、JobSet、Job 或 SkyPilot 任务）：请把命令"
                "写在 -- 之后",
            ).format(path=path)
        )
    work = found[0]
    memory = None if work.memory_bytes is None else f"{max(1, work.memory_bytes >> 20)}M"
    gpus = asked.gpus or _machine_of(work)
    command = _command_of(work, Path(path))
    return Asked(command, gpus, asked.nodes or work.nodes, asked.host_memory or memory, work.shm_bytes)


def _command_of_notebook(name: str) -> list[str]:
    """Its Python, in a file of the same name elsewhere, with the imports of the folder that it lies in."""
    source = SourceFile.read(name)
    if source.writable:
        raise UserError(Text("{path}: no notebook", "{path}：不是 notebook").format(path=name))
    folder = tempfile.mkdtemp(prefix="gonogo-notebook-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = Path(folder) / Path(name).name
    script.write_bytes(source.data)
    here = str(Path(name).absolute().parent)
    paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    return ["env", "-C", here, f"PYTHONPATH={os.pathsep.join(paths)}", "python", str(script)]


def _machine_of(work: Workload) -> str | None:
    """``8xH100-80G``; None where the job does not say how many, or not of which kind."""
    name = _NAMES.get((work.accelerator or "").lower(), work.accelerator)
    if name and rented(name):
        return name
    if name:
        try:
            name = find_accelerator(name).name
        except UserError:
            name = None
    if work.gpus is None:
        return name
    return f"{work.gpus}x{name}" if name else str(work.gpus)


def _command_of(work: Workload, path: Path) -> list[str]:
    """The command as a shell runs it, with the job's variables, in the folder of the job's files."""
    folder = path.parent
    if work.kind == "SkyPilot" and work.folder and not os.path.isabs(work.folder):
        folder = folder / work.folder
    lines = [f"cd {shlex.quote(str(folder))}"] if str(folder) != "." else []
    lines += [f"export {name}={shlex.quote(word.text)}" for name, word in work.environment.items()
              if word.text is not None and name.isidentifier()]  # fmt: skip
    script = script_of(work)
    lines.append((script.text or "") if script is not None else shlex.join(word.text or "" for word in work.words))
    return ["bash", "-c", "\n".join(lines)]
