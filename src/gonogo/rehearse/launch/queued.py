"""Turns a job file or a notebook into a command to rehearse: the manifest determines the machine and the launch."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from gonogo.evidence.environment.hardware import find_accelerator
from gonogo.evidence.environment.instances import parse_instance_type
from gonogo.evidence.launch.job_file import YAML, file_of_command, notebook_of_command, notebook_source
from gonogo.evidence.launch.jobs.workload import Workload, local_path_of_mount, shell_code_of, unfilled_variables
from gonogo.evidence.launch.manifest import is_manifest, parse_workloads, template_note
from gonogo.evidence.paths import is_file
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import UserError, translated
from gonogo.rehearse.request import RehearsalRequest

_GPU_BY_ACCELERATOR = {
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
"""Accelerator names in Google's labels and SkyPilot that differ from those used here."""
_MAX_SHOWN = 4
_NOT_EXACTLY_ONE_JOB = translated(
    "{path}: not exactly one job with a command (PyTorchJob, TrainJob, JobSet, Job, MPIJob, RayJob, Pod, "
    "or a SkyPilot task): give the command after --"
)
_UNFILLED_PLACEHOLDERS = translated(
    "{path}: placeholders still to be filled in: {names}; set them and rehearse the result, for example: "
    "envsubst < {path} > filled.yaml"
)
_MULTI_NODE_RAY_CLUSTER = translated(
    "{path}: a Ray cluster of {nodes} nodes, but only single-node clusters can be rehearsed: use --nodes "
    "1 with as many GPUs as the program requests, for example --gpus {count}xH100-80G"
)


def with_job_from_file(request: RehearsalRequest) -> RehearsalRequest:
    """The request for the job in a file, or an unchanged request; given options take precedence. Raises UserError.

    Every caller that rehearses a launch must pass it through here once, before anything else reads its command.
    """
    notebook = notebook_of_command(request.command) if request.command else None
    if notebook is not None:
        return replace(request, command=_notebook_command(notebook))
    if not request.command or (file_of_command(request.command) is None and not _is_not_a_job_file(request.command)):
        return request
    path = request.command[0]
    work = _find_job(path, SourceFile.read(path))
    if work.kind == "RayJob" and request.nodes is None and (work.nodes or 1) > 1:
        raise UserError(
            _MULTI_NODE_RAY_CLUSTER.format(path=path, nodes=work.nodes, count=(work.nodes or 1) * (work.gpus or 1))
        )
    memory = None if work.memory_bytes is None else f"{max(1, work.memory_bytes >> 20)}M"
    return replace(
        request,
        command=_job_command(work, Path(path)),
        gpus=request.gpus or machine_requested_by(work),
        nodes=request.nodes or work.nodes,
        host_memory=request.host_memory or memory,
        shm_bytes=work.shm_bytes,
    )


def _is_not_a_job_file(command: list[str]) -> bool:
    """Whether the command is a YAML file but no job, for which the error here is clearer than a launcher's."""
    return len(command) == 1 and command[0].endswith(YAML) and is_file(command[0])


def _find_job(path: str, source: SourceFile) -> Workload:
    """The only job in a file, or of several the one with accelerators. Raises UserError if there isn't just one."""
    if (note := template_note(source)) is not None:
        raise UserError(translated("{path}: {note}").format(path=path, note=note))
    found = [work for work in (parse_workloads(source) if is_manifest(source) else ()) if work.words]
    found = [work for work in found if len(found) == 1 or work.numbers or work.gpus]
    if len(found) != 1 or any(word.text is None for word in found[0].words):
        raise UserError(_NOT_EXACTLY_ONE_JOB.format(path=path))
    if names := unfilled_variables(found[0]):
        shown = ", ".join(f"${name}" for name in names[:_MAX_SHOWN]) + (" …" if len(names) > _MAX_SHOWN else "")
        raise UserError(_UNFILLED_PLACEHOLDERS.format(path=path, names=shown))
    return found[0]


def _notebook_command(name: str) -> list[str]:
    """The command that runs a notebook in its own folder, like a program. Raises UserError if it isn't a notebook."""
    notebook_source(name)
    place = Path(name).absolute()
    return ["env", "-C", str(place.parent), "python", str(place)]


def machine_requested_by(workload: Workload) -> str | None:
    """``8xH100-80G``, or as much of it as the job states; None if it states neither number nor kind."""
    name = _GPU_BY_ACCELERATOR.get((workload.accelerator or "").lower(), workload.accelerator)
    instance = parse_instance_type((name or "").removeprefix("ml."))  # SageMaker's names of EC2 instances
    if instance is not None:
        if workload.gpus in (None, instance[0].count):
            return instance[0].name
        name = instance[0].accelerator
    elif name:
        try:
            name = find_accelerator(name).name
        except UserError:
            name = None
    if workload.gpus is None:
        return name
    return f"{workload.gpus}x{name}" if name else str(workload.gpus)


def _job_command(workload: Workload, path: Path) -> list[str]:
    """The job's command as a shell command, with the job's variables, in the folder of its files."""
    folder = path.parent
    if workload.kind == "SkyPilot" and workload.folder and not os.path.isabs(workload.folder):
        folder = folder / workload.folder
    lines = [f"cd {shlex.quote(str(folder))}"] if str(folder) != "." else []
    lines += [f"export {name}={shlex.quote(word.text)}" for name, word in workload.environment.items()
              if word.text is not None and name.isidentifier()]  # fmt: skip
    script = shell_code_of(workload)
    lines.append((script.text or "") if script is not None else shlex.join(word.text or "" for word in workload.words))
    return ["bash", "-c", _replace_mounted_paths("\n".join(lines), workload, path)]


def _replace_mounted_paths(code: str, workload: Workload, path: Path) -> str:
    """The code with the paths of the job's mounts replaced by the corresponding local paths."""
    here = {there: local_path_of_mount(workload, there, path.parent.absolute()) or there for there in workload.mounts}
    if workload.files:
        folder = tempfile.mkdtemp(prefix="gonogo-job-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        for there, content in workload.files.items():
            place = Path(folder) / os.path.normpath(there).lstrip("/")
            if Path(folder) in place.resolve().parents:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(content.text or "", encoding="utf-8", errors="surrogateescape")
                here[there] = str(place)
    if not here:
        return code
    names = "|".join(re.escape(there.rstrip("/")) for there in sorted(here, key=len, reverse=True))
    found = {there.rstrip("/"): os.path.normpath(place) for there, place in here.items()}
    return re.sub(rf"(?<![\w/.~$}}-])(?:{names})(?![\w.-])", lambda match: shlex.quote(found[match[0]]), code)
