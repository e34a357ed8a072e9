"""The machine that a launch needs, compared with the machine it was given, and the ranks to run."""

from __future__ import annotations

import re

from gonogo.evidence.environment.hardware import Machine, parse_machine, requested_nodes
from gonogo.finding import UserError, translated
from gonogo.rehearse.launch.launch import (
    MAX_RANKS_PER_NODE,
    UNSPECIFIED_GPU_COUNT,
    LaunchedProcess,
    LaunchMachine,
    ResolvedLaunch,
    is_unspecified_count,
)
from gonogo.rehearse.ranks.mesh import is_mesh, mesh_ranks
from gonogo.rehearse.ranks.rank_options import AUTO, FIRST_AND_LAST, LIFE_DEFAULT, MAX_DEFAULT_RANKS, ROLES
from gonogo.rehearse.ranks.sample import is_sample, sample_ranks
from gonogo.rehearse.request import RehearsalRequest


def machine_for(launch: ResolvedLaunch, request: RehearsalRequest, requested_machine: Machine) -> Machine:
    """The machine of a rehearsal: as requested, and otherwise as the command needs it.

    Raises UserError if they contradict each other, or if the command starts too many processes.
    """
    per_node = launch.processes_per_node
    if is_unspecified_count(per_node):
        raise UserError(
            translated("the command starts {processes} processes per node, but at most {most} can be rehearsed").format(
                processes=per_node, most=MAX_RANKS_PER_NODE
            )
        )
    requested = requested_nodes(request.gpus, request.nodes)
    if requested is not None and requested != launch.nodes:
        raise UserError(
            translated(
                "the command starts {launched} node(s), but {asked} are requested: change --nodes (--gpus), "
                "or the command (torchrun --nnodes, accelerate --num_machines, deepspeed --hostfile)"
            ).format(launched=launch.nodes, asked=requested)
        )
    if requested_machine.count == UNSPECIFIED_GPU_COUNT:
        count = max(
            [per_node, *(_devices_required_by_visible_list(launch, process) for process in launch.processes[:per_node])]
        )
        return parse_machine(request.gpus, launch.nodes, request.host_memory, count)
    if per_node > requested_machine.count:
        raise UserError(
            translated(
                "the command starts {processes} processes per node, but --gpus has {count} GPUs: start "
                "{count}, or use --gpus {processes}x{name}"
            ).format(processes=per_node, count=requested_machine.count, name=requested_machine.accelerator.name)
        )
    return parse_machine(request.gpus, launch.nodes, request.host_memory, requested_machine.count)


def _process_environment(launch: ResolvedLaunch, process: LaunchedProcess) -> dict[str, str]:
    kept = {name: value for name, value in launch.environment.items() if name not in process.removed}
    return {**kept, **process.environment}


def _devices_required_by_visible_list(launch: ResolvedLaunch, process: LaunchedProcess) -> int:
    """The number of devices that a node needs for its list of visible devices to be valid; 0 without a list."""
    environment = _process_environment(launch, process)
    listed = environment.get("CUDA_VISIBLE_DEVICES") or environment.get("ASCEND_RT_VISIBLE_DEVICES") or ""
    numbers = [int(entry) for entry in listed.split(",") if entry.strip().isdecimal()]
    return max(numbers, default=-1) + 1


def ranks_to_run(
    ranks_option: str, launch: ResolvedLaunch, machine: Machine, *, program_may_start_more: bool = False
) -> list[int]:
    """The ranks of ``auto``, ``0``, ``0,3``, ``0-3``, ``sample``, ``mesh`` or ``all``, sorted.

    With ``program_may_start_more``, only those that the launch has: the program may start the others itself.

    If the list of visible devices is too short for the processes of a node, the first rank without a device is added,
    because no other rank would notice. Raises UserError for a rank that the launch doesn't have.
    """
    world = launch.world_size
    if ranks_option.strip().lower() == "all":
        return list(range(world))
    if ranks_option == LIFE_DEFAULT:
        return list(range(world)) if world <= MAX_DEFAULT_RANKS else [0, 1]
    if ranks_option.startswith(ROLES):
        roles = [int(part) for part in ranks_option.removeprefix(ROLES).split(",")]
        ranks_option = FIRST_AND_LAST if max(roles) >= world else ranks_option
        if ranks_option != FIRST_AND_LAST:
            return sorted(roles)
    if ranks_option == FIRST_AND_LAST:
        return sorted({0, world - 1})
    ranks_option = "0" if ranks_option.strip().lower() == AUTO else ranks_option
    ranks: set[int] = (
        sample_ranks(launch) if is_sample(ranks_option) else mesh_ranks(launch) if is_mesh(ranks_option) else set()
    )
    for part in ranks_option.split(",") if not ranks else ():
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        if match is None:
            raise UserError(
                translated("--ranks {asked}: must be auto, sample, mesh, all, or rank numbers such as 0 or 0,3").format(
                    asked=ranks_option
                )
            )
        ranks.update(range(int(match[1]), int(match[2] or match[1]) + 1))
        if program_may_start_more:
            ranks = {rank for rank in ranks if rank < world} or {0}
        if max(ranks, default=0) >= world:
            raise UserError(
                translated("--ranks {asked}: the command starts {world} process(es): ranks 0 to {last}").format(
                    asked=ranks_option, world=world, last=world - 1
                )
            )
    surroundings = LaunchMachine.from_machine(machine, None)
    for process in launch.processes:
        visible = surroundings.visible_count(_process_environment(launch, process))
        if process.local_world_size > 1 and process.local_rank >= visible:
            ranks.add(process.rank)
            break
    return sorted(ranks)
