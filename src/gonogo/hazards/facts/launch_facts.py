"""Facts about a launch that several hazards need: numbers, visible GPUs, addresses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gonogo.evidence.field import Field, whole_number
from gonogo.evidence.patterns import Pattern

if TYPE_CHECKING:
    from gonogo.evidence.launch.launch import Launch
    from gonogo.evidence.run import Run
    from gonogo.evidence.source_file import Place

_GPU_ENTRY_PATTERN = Pattern(r"^(?:-?\d+|(?:GPU|MIG)-\S+)$")
TORCHRUN = ("torchrun", "torch.distributed.launch")


def split_words(text: str) -> frozenset[str]:
    """Split a text into its words, to write long lists of names in few lines."""
    return frozenset(text.split())


def slurm_number(launch: Launch, name: str) -> int | None:
    """A number that the job requests from Slurm."""
    return whole_number(launch.slurm.get(name))


def is_plain_python(launch: Launch, variables: Iterable[str]) -> bool:
    """Whether plain python starts one process, without any of the variables that a launcher would set."""
    alone = launch.launcher == "python" and (whole_number(launch.world_size) or 1) <= 1
    return alone and all(launch.variable(name).absent for name in variables)


def visible_gpus(launch: Launch) -> list[str] | None:
    """The entries of the command's CUDA_VISIBLE_DEVICES; None if it is not set or unknown."""
    value = launch.visible_devices.get()
    if value is None or not str(value).strip():
        return None
    entries = [part.strip() for part in str(value).split(",")]
    return entries if all(_GPU_ENTRY_PATTERN.match(entry) is not None for entry in entries) else None


def is_loopback(address: str) -> bool:
    """Whether an address, with or without a port, names the machine itself."""
    host = address.strip().lower()
    if host.startswith("[") and "]" in host:
        host = host[1 : host.index("]")]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    return host in ("localhost", "::1", "0.0.0.0") or host.startswith("127.")


def variable_name_place(field: Field, name: str) -> Place | None:
    """The place of a variable's name where it is set; None if unknown."""
    place = field.place
    if place is None or not place.source.writable or not place.text.startswith(f"{name}="):
        return None
    return place.source.place(place.start, place.start + len(name.encode()))


def is_started_by_srun(launch: Launch) -> bool:
    """Whether Slurm starts the command on each node: ``srun torchrun …`` or ``srun bash -c '…'``."""
    if launch.words and launch.words[0].value == "srun":
        return True
    statement = launch.statement or launch.place
    source = launch.source
    start = min(statement.start, source.line_start(launch.place.line))
    return b"srun" in source.data[start : launch.place.end]


def accelerate_setting(launch: Launch, run: Run, name: str) -> Field:
    """An accelerate setting: from the option, else from the config; unknown if neither can be read."""
    if name in launch.launcher_options:
        return launch.launcher_options.get(name)
    if run.accelerate is not None:
        field = run.accelerate.get(name)
        return Field.missing() if field.known and field.value is None else field
    if launch.accelerate_config.absent:
        return launch.launcher_options.get(name)
    return Field.not_known()


def accelerate_uses_deepspeed(launch: Launch, run: Run) -> bool | None:
    """Whether ``accelerate launch`` uses DeepSpeed; None if unknown."""
    if "use_deepspeed" in launch.launcher_options:
        return True
    if any(name in launch.launcher_options for name in ("multi_gpu", "use_fsdp", "cpu", "tpu", "use_megatron_lm")):
        return False
    if run.accelerate is not None:
        return run.accelerate.enables_deepspeed
    return False if launch.accelerate_config.absent else None
