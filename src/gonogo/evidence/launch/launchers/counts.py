"""The numbers of nodes and processes in a launch, from launchers' options and environment variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from gonogo.evidence.field import Field
from gonogo.evidence.launch.command_line import CommandOptions
from gonogo.finding import translated

DEFAULT = translated("the launcher's default value")
ALL_GPUS = translated("the launcher starts one process for each GPU of the machine")
_NOT_A_PROCESS_COUNT = translated("`{value}` is not a number of processes")
_VISIBLE_GPUS = translated("the GPUs in CUDA_VISIBLE_DEVICES")
ALONE = translated("no launcher is used, so one process is started")
UNSETTLED = translated("the files don't say how many processes are started")
UNEVEN_PROCESSES = translated("{total} processes can't be divided evenly over {nodes} nodes")


class LaunchSize(msgspec.Struct, frozen=True):
    """The number of nodes and processes of a launch."""

    nodes: Field
    processes_per_node: Field
    world_size: Field
    hostfile: Field = Field.missing()


class LaunchSettings(msgspec.Struct, frozen=True):
    """The settings from which a launcher determines the number of processes."""

    options: CommandOptions
    """The launcher's own options."""
    variables: Mapping[str, Field]
    cwd: Path
    accelerate: Callable[..., Field] | None = None
    """Returns the value under nested keys of accelerate's config, if there is one."""


def total_processes(nodes: Field, per_node: Field) -> Field:
    """The total number of processes."""
    if nodes.known and per_node.known:
        place = per_node.place or nodes.place
        return Field.of(nodes.value * per_node.value, place, per_node.reason)
    unknown = per_node if not per_node.known else nodes
    return Field.not_known(unknown.place, unknown.reason)


def launch_size_per_node(nodes: Field, per_node: Field, hostfile: Field | None = None) -> LaunchSize:
    """A launch size from the number of nodes and the number of processes per node."""
    return LaunchSize(nodes, per_node, total_processes(nodes, per_node), hostfile or Field.missing())


def to_positive_count(field: Field, default: int | None = None) -> Field:
    """A field as a positive integer, or the default if it is absent."""
    if field.absent:
        return Field.of(default, None, DEFAULT) if default is not None else Field.not_known(None, UNSETTLED)
    if field.unknown:
        return field
    number = field.number
    if isinstance(number, int) and number > 0:
        return Field.of(number, field.place, field.reason)
    return Field.not_known(field.place, _NOT_A_PROCESS_COUNT.format(value=str(field.value)[:40]))


def visible_gpu_count(variables: Mapping[str, Field]) -> Field:
    """The number of GPUs in CUDA_VISIBLE_DEVICES; absent if it is not set."""
    field = variables.get("CUDA_VISIBLE_DEVICES") or variables.get("ASCEND_RT_VISIBLE_DEVICES") or Field.missing()
    if not field.known:
        return field
    devices = [part for part in str(field.value).split(",") if part.strip()]
    return Field.of(len(devices), field.place, _VISIBLE_GPUS)


def one_process_per_gpu(variables: Mapping[str, Field]) -> Field:
    """One process for each GPU in CUDA_VISIBLE_DEVICES; unknown if it is not set."""
    field = visible_gpu_count(variables)
    if field.known and field.value:
        return field
    return Field.not_known(field.place, ALL_GPUS)
