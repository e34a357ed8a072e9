"""Programs that ``srun`` or ``mpirun`` starts once per rank, without another launcher: their environment variables.

A script's stand-in for ``srun`` sets the variables of rank 0; those of the other ranks follow from them, also where a
shell that ``srun`` starts calls the program.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from gonogo.evidence.field import Field, whole_number
from gonogo.evidence.launch.command_line import CommandOptions
from gonogo.evidence.launch.launchers import runners, slurm
from gonogo.evidence.launch.launchers.hostfile import MAX_HOSTFILE_BYTES, parse_hostfile
from gonogo.evidence.launch.option_parsing import parse_known_options
from gonogo.evidence.launch.reading import typed_words
from gonogo.evidence.number import parse_whole_number
from gonogo.evidence.paths import is_file
from gonogo.evidence.source_file import SourceFile
from gonogo.rehearse.launch.launch import LaunchedProcess, LaunchMachine, is_unspecified_count

TASK_STARTERS = ("srun", "mpirun", "mpiexec")
_MAX_TASKS = 1 << 16
_JOB_VARIABLES = {
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
}
"""Where ``srun`` takes an option from that it isn't given (its manual, INPUT ENVIRONMENT VARIABLES)."""
_NODE_RANGE_PATTERN = re.compile(r"([^\[\],]*)\[([\d,-]+)\]([^\[\],]*)")


class TaskCall(NamedTuple):
    """What ``srun`` or ``mpirun`` starts: the command, and the environment variables of its first task."""

    words: list[str]
    variables: dict[str, str]


class _Layout(NamedTuple):
    """How many tasks there are on how many nodes."""

    tasks: int
    nodes: int

    @property
    def per_node(self) -> int:
        """On each node but perhaps the last."""
        return -(-self.tasks // self.nodes)


def job_variables(script: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """What Slurm sets in a job with the script's ``#SBATCH`` lines; none without such lines, or within a job."""
    if "SLURM_JOB_ID" in environment or not is_file(script):
        return {}
    options = slurm.sbatch_directives(SourceFile.read(script))
    if not options:
        return {}
    found = slurm.slurm_variables(options)
    nodes = parse_whole_number(found.get("SLURM_NNODES", "1")) or 1
    name = options.get("job-name", Field.missing()).string or script.name
    return {
        **found,
        **_node_variables(nodes),
        "SLURM_JOB_ID": "1",
        "SLURM_JOBID": "1",
        "SLURM_JOB_NAME": name,
        "SLURM_SUBMIT_DIR": str(script.parent),
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
    }


def task_call(words: Sequence[str], environment: Mapping[str, str], machine: LaunchMachine) -> TaskCall:
    """What a command of ``srun`` or ``mpirun`` starts."""
    typed, _ = typed_words(words)
    if os.path.basename(words[0]) == "srun":
        options, left = parse_known_options(typed[1:], slurm.SRUN)
        given = slurm.with_gpus_per_node(slurm.slurm_options(options))
        variables = _srun_variables(given, environment, machine)
    else:
        options, left = runners.split_mpirun_command(typed[1:])
        variables = _mpirun_variables(options, machine)
    start = len(words) - len(left)
    return TaskCall(list(words[start:]), {**variables, **dict(_set_by(words[1:start]))})


def _set_by(options: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The variables that ``srun --export=ALL,NAME=VALUE`` and ``mpirun -x NAME=VALUE`` set."""
    for before, option in pairwise(["", *options]):
        exported = option.removeprefix("--export=") if option.startswith("--export=") else ""
        given = option if before in ("-x", "--export") else exported
        for part in given.split(","):
            name, equals, value = part.partition("=")
            if equals:
                yield name, value


def _srun_variables(
    given: Mapping[str, Field], environment: Mapping[str, str], machine: LaunchMachine
) -> dict[str, str]:
    numbers = {name: whole_number(given.get(name)) for name in _JOB_VARIABLES}
    for name, variables in _JOB_VARIABLES.items():
        if numbers[name] is None and not (name == "ntasks-per-node" and numbers["ntasks"] is not None):
            values = (parse_whole_number(environment.get(variable, "")) for variable in variables)
            numbers[name] = next((value for value in values if value is not None), None)
    nodes, tasks, per_node = numbers["nodes"], numbers["ntasks"], numbers["ntasks-per-node"]
    if per_node is not None and whole_number(given.get("ntasks")) is None:
        tasks = (nodes or 1) * per_node
    layout = _layout(tasks if tasks is not None else nodes or 1, nodes, per_node, machine)
    each = f"{layout.per_node}(x{layout.nodes})" if layout.nodes > 1 else str(layout.per_node)
    per_task = whole_number(given.get("gpus-per-task"))
    return {
        **_node_variables(layout.nodes, environment),
        "SLURM_JOB_ID": environment.get("SLURM_JOB_ID", "1"),
        "SLURM_JOBID": environment.get("SLURM_JOB_ID", "1"),
        "SLURM_STEP_ID": "0",
        "SLURM_NNODES": str(layout.nodes),
        "SLURM_JOB_NUM_NODES": str(layout.nodes),
        "SLURM_STEP_NUM_NODES": str(layout.nodes),
        "SLURM_NTASKS": str(layout.tasks),
        "SLURM_NPROCS": str(layout.tasks),
        "SLURM_STEP_NUM_TASKS": str(layout.tasks),
        "SLURM_TASKS_PER_NODE": each,
        "SLURM_STEP_TASKS_PER_NODE": each,
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
        **({"SLURM_NTASKS_PER_NODE": str(per_node)} if per_node is not None else {}),
        **({"SLURM_GPUS_ON_NODE": str(machine.count)} if not is_unspecified_count(machine.count) else {}),
        # With GPUs for each task, Slurm shows each of them its own.
        **({"SLURM_GPUS_PER_TASK": str(per_task)} if per_task else {}),
        **({machine.visible_devices_variable: ",".join(map(str, range(per_task)))} if per_task else {}),
    }


def _mpirun_variables(options: CommandOptions, machine: LaunchMachine) -> dict[str, str]:
    """As Open MPI and MPICH name them: both, since a program reads those of the one that it knows."""
    hosts = _hosts(options)
    nodes = len(hosts) or None
    per_node = whole_number(options.get("npernode", "ppn", "N"))
    tasks = whole_number(options.get("np", "n", "c"))
    if tasks is None:
        tasks = per_node * (nodes or 1) if per_node is not None else sum(hosts.values()) or 1
    layout = _layout(tasks, nodes, per_node, machine)
    return {
        "OMPI_COMM_WORLD_SIZE": str(layout.tasks),
        "OMPI_COMM_WORLD_RANK": "0",
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(layout.per_node),
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        "OMPI_COMM_WORLD_NODE_RANK": "0",
        "OMPI_UNIVERSE_SIZE": str(layout.tasks),
        "PMI_SIZE": str(layout.tasks),
        "PMI_RANK": "0",
        "MPI_LOCALNRANKS": str(layout.per_node),
        "MPI_LOCALRANKID": "0",
    }


def _hosts(options: CommandOptions) -> dict[str, int]:
    """The hosts that mpirun is given, and their slots."""
    named = options.get("H", "host", "hosts").string
    if named:
        parts = [part.partition(":") for part in named.split(",") if part]
        return {name: parse_whole_number(slots) or 1 for name, _, slots in parts}
    file = options.get("hostfile", "machinefile", "f").string
    if file and os.path.isfile(file) and os.path.getsize(file) <= MAX_HOSTFILE_BYTES:
        return parse_hostfile(Path(file).read_text(encoding="utf-8", errors="replace")) or {}
    return {}


def _layout(tasks: int, nodes: int | None, per_node: int | None, machine: LaunchMachine) -> _Layout:
    """On nodes that aren't given, there is a task for each GPU."""
    tasks = max(1, min(tasks, _MAX_TASKS))
    if nodes is None and machine.nodes is not None:
        nodes = machine.nodes
    if nodes is None:
        size = per_node or (tasks if is_unspecified_count(machine.count) else machine.count)
        nodes = -(-tasks // max(size, 1))
    return _Layout(tasks, max(1, min(nodes, tasks)))


def _node_variables(nodes: int, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The names of the nodes: those of the job that this runs in, else made-up ones."""
    listed = (environment or {}).get("SLURM_JOB_NODELIST") or ("localhost" if nodes == 1 else f"node[1-{nodes}]")
    first = next(host_names(listed), listed)
    return {
        "SLURM_JOB_NODELIST": listed,
        "SLURM_NODELIST": listed,
        "SLURM_STEP_NODELIST": listed,
        "SLURMD_NODENAME": first,
        "SLURM_NODEID": "0",
    }


def host_names(listed: str) -> Iterator[str]:
    """The hosts of a list such as ``node[01-03],gpu7``, as ``scontrol show hostnames`` prints them."""
    for part in re.split(r",(?![^\[]*\])", listed):
        found = _NODE_RANGE_PATTERN.fullmatch(part)
        if found is None:
            if part:
                yield part
            continue
        before, ranges, after = found.groups()
        for one in ranges.split(","):
            first, _, last = one.partition("-")
            if first and (not last or len(last) <= 6):
                for number in range(int(first), min(int(last or first), int(first) + _MAX_TASKS) + 1):
                    yield f"{before}{number:0{len(first)}}{after}"


def task_processes(
    environment: Mapping[str, str], arguments: tuple[str, ...], machine: LaunchMachine
) -> list[LaunchedProcess] | None:
    """The processes of all tasks, from the variables of the first; None if there are no others."""
    tasks = parse_whole_number(environment.get("SLURM_STEP_NUM_TASKS", ""))
    if tasks is not None:
        per_node = -(-tasks // (parse_whole_number(environment.get("SLURM_STEP_NUM_NODES", "")) or 1))
    else:
        tasks = parse_whole_number(environment.get("OMPI_COMM_WORLD_SIZE", ""))
        per_node = parse_whole_number(environment.get("OMPI_COMM_WORLD_LOCAL_SIZE", "")) or tasks or 1
    if tasks is None or not 1 < tasks <= _MAX_TASKS:
        return None
    own_gpus = parse_whole_number(environment.get("SLURM_GPUS_PER_TASK", ""))
    processes = []
    for rank in range(tasks):
        node, local_rank = divmod(rank, per_node)
        places = {
            "SLURM_PROCID": rank,
            "SLURM_LOCALID": local_rank,
            "SLURM_NODEID": node,
            "OMPI_COMM_WORLD_RANK": rank,
            "OMPI_COMM_WORLD_LOCAL_RANK": local_rank,
            "OMPI_COMM_WORLD_NODE_RANK": local_rank,
            "PMI_RANK": rank,
            "MPI_LOCALRANKID": local_rank,
            # Set by a shell that the task starts: export RANK=$SLURM_PROCID.
            "RANK": rank,
            "LOCAL_RANK": local_rank,
            "NODE_RANK": node,
        }
        own = {name: str(place) for name, place in places.items() if environment.get(name) == "0"}
        if own_gpus:
            first = local_rank * own_gpus
            own[machine.visible_devices_variable] = ",".join(str(first + index) for index in range(own_gpus))
        processes.append(
            LaunchedProcess(
                rank=rank,
                local_rank=0 if own_gpus else local_rank,
                world_size=tasks,
                local_world_size=min(per_node, tasks - node * per_node),
                node=node,
                arguments=arguments,
                environment=own,
            )
        )
    return processes
