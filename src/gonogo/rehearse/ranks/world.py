"""The world of a launch: the machine it needs, held against the machine it was given, and the ranks to run."""

from __future__ import annotations

import re

from gonogo.evidence.environment.hardware import Machine, machine_from, requested_nodes
from gonogo.finding import translated
from gonogo.finding.errors import UserError
from gonogo.rehearse.launch.launch import UNSTATED, LaunchedProcess, ResolvedLaunch, Surroundings, is_unstated
from gonogo.rehearse.ranks.mesh import is_mesh, mesh_ranks
from gonogo.rehearse.ranks.rank_options import ALL_UP_TO, AUTO, FIRST_AND_LAST, OF_A_LIFE
from gonogo.rehearse.ranks.sample import is_sample, sample_of
from gonogo.rehearse.request import RehearsalRequest


class CountNotSaid(UserError):
    """Nobody says how many accelerators a node has."""


def machine_for(launch: ResolvedLaunch, request: RehearsalRequest, stated: Machine) -> Machine:
    """The machine of a rehearsal: as stated, and where that says nothing, as the command needs it.

    Raises UserError where neither says how many accelerators a node has, and where the two contradict each other.
    """
    per_node = launch.processes_per_node
    if is_unstated(per_node):
        raise CountNotSaid(
            translated("neither the command nor --gpus says how many GPUs each node has: add --gpus 8x{name}").format(
                name=stated.accelerator.name
            )
        )
    asked = requested_nodes(request.gpus, request.nodes)
    if asked is not None and asked != launch.nodes:
        raise UserError(
            translated(
                "the command starts {launched} node(s), but {asked} are requested: change --nodes (--gpus), "
                "or the command (torchrun --nnodes, accelerate --num_machines, deepspeed --hostfile)"
            ).format(launched=launch.nodes, asked=asked)
        )
    if stated.count == UNSTATED:
        count = max([per_node, *(_named_devices(launch, process) for process in launch.processes[:per_node])])
        return machine_from(request.gpus, launch.nodes, request.host_memory, count)
    if per_node > stated.count:
        raise UserError(
            translated(
                "the command starts {processes} processes per node, but --gpus has {count} GPUs: start "
                "{count}, or use --gpus {processes}x{name}"
            ).format(processes=per_node, count=stated.count, name=stated.accelerator.name)
        )
    return machine_from(request.gpus, launch.nodes, request.host_memory, stated.count)


def _environment(launch: ResolvedLaunch, process: LaunchedProcess) -> dict[str, str]:
    kept = {name: value for name, value in launch.environment.items() if name not in process.removed}
    return {**kept, **process.environment}


def _named_devices(launch: ResolvedLaunch, process: LaunchedProcess) -> int:
    """How many devices a node must have for the list of visible ones to make sense; 0 without a list."""
    environment = _environment(launch, process)
    listed = environment.get("CUDA_VISIBLE_DEVICES") or environment.get("ASCEND_RT_VISIBLE_DEVICES") or ""
    numbers = [int(entry) for entry in listed.split(",") if entry.strip().isdigit()]
    return max(numbers, default=-1) + 1


def ranks_to_run(asked: str, launch: ResolvedLaunch, machine: Machine, *, may_be_more: bool = False) -> list[int]:
    """The ranks of ``auto``, ``0``, ``0,3``, ``0-3``, ``sample``, ``mesh`` or ``all``, in order.

    With ``may_be_more``, those that the launch has: the program may start the others itself.

    Where the list of visible devices is too short for the processes of a node, the first rank that finds no device is
    run besides: the others can't tell. Raises UserError for what is no rank of the launch.
    """
    world = launch.world_size
    if asked.strip().lower() == "all":
        return list(range(world))
    if asked == OF_A_LIFE:
        return list(range(world)) if world <= ALL_UP_TO else [0, 1]
    if asked == FIRST_AND_LAST:
        return sorted({0, world - 1})
    asked = "0" if asked.strip().lower() == AUTO else asked
    ranks: set[int] = sample_of(launch) if is_sample(asked) else mesh_ranks(launch) if is_mesh(asked) else set()
    for part in asked.split(",") if not ranks else ():
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        if match is None:
            raise UserError(
                translated("--ranks {asked}: must be auto, like 0 or 0,3, or sample, mesh or all").format(asked=asked)
            )
        ranks.update(range(int(match[1]), int(match[2] or match[1]) + 1))
        if may_be_more:
            ranks = {rank for rank in ranks if rank < world} or {0}
        if max(ranks, default=0) >= world:
            raise UserError(
                translated("--ranks {asked}: the command starts {world} process(es): ranks 0 to {last}").format(
                    asked=asked, world=world, last=world - 1
                )
            )
    surroundings = Surroundings.of(machine, None)
    for process in launch.processes:
        visible = surroundings.visible_count(_environment(launch, process))
        if process.local_world_size > 1 and process.local_rank >= visible:
            ranks.add(process.rank)
            break
    return sorted(ranks)
