"""How many nodes and processes a command starts, whoever starts them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from gonogo.evidence.field import Field
from gonogo.evidence.launch.launchers import LAUNCHERS
from gonogo.evidence.launch.launchers.counts import ALONE, UNSETTLED, LaunchSettings, LaunchSize, count
from gonogo.evidence.launch.launchers.recognise import LauncherCall
from gonogo.evidence.launch.launchers.slurm import processes_of_srun
from gonogo.finding import Text

_BY_MPI = Text("MPI distributes them over its hosts", "由 MPI 分配到各主机")


def world_of(
    call: LauncherCall,
    variables: Mapping[str, Field],
    slurm: Mapping[str, Field],
    cwd: Path,
    accelerate: Callable[..., Field] | None,
) -> LaunchSize:
    """The nodes and processes that a call starts; ``accelerate`` looks keys up in accelerate's config."""
    if call.launcher in LAUNCHERS:
        return LAUNCHERS[call.launcher].world(LaunchSettings(call.launcher_options, variables, cwd, accelerate))
    if call.launcher == "unknown":
        unknown = Field.not_known(call.launcher_options.end, UNSETTLED)
        return LaunchSize(unknown, unknown, unknown)
    if call.mpirun is not None:
        total = count(call.mpirun.get("np", "n", "c"))
        unknown = Field.not_known(total.place, _BY_MPI)
        return LaunchSize(unknown, unknown, total)
    return processes_of_srun(slurm) if call.slurm is not None else _alone(variables)


def _alone(variables: Mapping[str, Field]) -> LaunchSize:
    size = variables.get("WORLD_SIZE")
    if size is not None and "RANK" in variables:
        total = count(size)
        unknown = Field.not_known(size.place, UNSETTLED)
        return LaunchSize(unknown, unknown, total)
    one = Field.of(1, None, ALONE)
    return LaunchSize(one, one, one)
