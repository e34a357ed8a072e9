"""``deepspeed``: DeepSpeed's launcher, on one node or on the nodes of a hostfile."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gonogo.evidence.field import Field, whole_number
from gonogo.evidence.launch.command_line import OptionTable, split_names
from gonogo.evidence.launch.launchers.counts import (
    ALL_GPUS,
    DEFAULT,
    UNEVEN_PROCESSES,
    LaunchSettings,
    LaunchSize,
    launch_size_per_node,
    one_process_per_gpu,
    to_positive_count,
)
from gonogo.evidence.launch.launchers.description import LauncherDescription
from gonogo.evidence.launch.launchers.hostfile import (
    MAX_HOSTFILE_BYTES,
    filter_hosts,
    parse_hostfile,
    parse_include_filter,
)
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import UserError, translated

_FROM_HOSTFILE = translated("counted in the hostfile {path}")
_HOSTFILE_UNREADABLE = translated("the hostfile {path} can't be read on this machine")
_DEFAULT_HOSTFILE = "/job/hostfile"
_DEEPSPEED_OPTIONS = OptionTable(
    split_names(
        """
        hostfile include exclude num_nodes num_gpus num_accelerators master_port master_addr node_rank
        launcher launcher_args enable_each_rank_log autotuning bind_core_list ssh_port venv_script log_level
        """
    ),
    split_names(
        """
        help module no_python no_local_rank no_ssh no_ssh_check force_multi save_pid bind_cores_to_rank quiet
        """
    ),
    {"h": "help", "H": "hostfile", "i": "include", "e": "exclude", "q": "quiet"},
)
"""As of deepspeed 0.19.8."""


def _launch_size(settings: LaunchSettings) -> LaunchSize:
    options, variables, cwd = settings.options, settings.variables, settings.cwd
    hostfile = options.get("hostfile")
    asked_nodes, asked_gpus = options.get("num_nodes"), options.get("num_gpus", "num_accelerators")
    include, exclude = options.get("include"), options.get("exclude")
    hosts: dict[str, int] | None = None
    named = hostfile
    if hostfile.absent and os.path.isfile(_DEFAULT_HOSTFILE):
        named = Field.of(_DEFAULT_HOSTFILE, None, DEFAULT)
    if named.known:
        hosts = _read_hosts(cwd / str(named.value))
        if hosts is None and hostfile.known:
            return _size_without_hostfile(asked_nodes, asked_gpus, include, hostfile)
    elif named.unknown:
        return _size_without_hostfile(asked_nodes, asked_gpus, include, hostfile)
    if include.unknown or exclude.unknown:
        unknown = include if include.unknown else exclude
        return LaunchSize(Field.of(1, None) if hosts is None else unknown, unknown, unknown, hostfile)
    if hosts is None:
        return _single_node_size(asked_gpus, include, exclude, variables, hostfile)
    slots = filter_hosts(hosts, include.string or "", exclude.string or "")
    place = include.place or exclude.place or named.place
    reason = _FROM_HOSTFILE.format(path=str(named.value))
    if slots is None or asked_nodes.unknown or asked_gpus.unknown:
        unknown = Field.not_known(place, reason)
        return LaunchSize(unknown, unknown, unknown, hostfile)
    counts = [len(numbers) for numbers in slots.values()]
    nodes_asked, gpus_asked = whole_number(asked_nodes), whole_number(asked_gpus)
    if nodes_asked is not None and nodes_asked > 0:
        counts = counts[:nodes_asked]
    if gpus_asked is not None and gpus_asked > 0:
        counts = [gpus_asked] * len(counts)
    per_node = (
        Field.of(counts[0], place, reason)
        if len(set(counts)) == 1
        else Field.not_known(place, UNEVEN_PROCESSES.format(total=sum(counts), nodes=len(counts)))
    )
    return LaunchSize(Field.of(len(counts), place, reason), per_node, Field.of(sum(counts), place, reason), hostfile)


def _read_hosts(path: Path) -> dict[str, int] | None:
    try:
        return parse_hostfile(SourceFile.read(path, limit=MAX_HOSTFILE_BYTES).text)
    except UserError:
        return None


def _size_without_hostfile(nodes: Field, gpus: Field, include: Field, hostfile: Field) -> LaunchSize:
    reason = _HOSTFILE_UNREADABLE.format(path=str(hostfile.value)) if hostfile.known else hostfile.reason
    unknown = Field.not_known(hostfile.place, reason)
    hosts = parse_include_filter(include.value) if include.string else None
    if hosts is not None:
        found = Field.of(len(hosts), include.place)
        counts = [len(numbers) if numbers is not None else None for numbers in hosts.values()]
        if counts and counts[0] is not None and len(set(counts)) == 1:
            return launch_size_per_node(found, Field.of(counts[0], include.place), hostfile)
        return launch_size_per_node(found, unknown, hostfile)
    return launch_size_per_node(
        to_positive_count(nodes) if not nodes.absent else unknown,
        to_positive_count(gpus) if not gpus.absent else unknown,
        hostfile,
    )


def _single_node_size(
    gpus: Field, include: Field, exclude: Field, variables: Mapping[str, Field], hostfile: Field
) -> LaunchSize:
    one = Field.of(1, None, DEFAULT)
    if include.string:
        hosts = parse_include_filter(include.string)
        slots = next(iter(hosts.values())) if hosts else None
        if slots is not None and hosts is not None and len(hosts) == 1:
            return launch_size_per_node(one, Field.of(len(slots), include.place), hostfile)
        return launch_size_per_node(one, Field.not_known(include.place, ALL_GPUS), hostfile)
    if exclude.known:
        return launch_size_per_node(one, Field.not_known(exclude.place, ALL_GPUS), hostfile)
    number = gpus.number
    if gpus.known and isinstance(number, int) and number > 0:
        return launch_size_per_node(one, to_positive_count(gpus), hostfile)
    if gpus.unknown:
        return launch_size_per_node(one, gpus, hostfile)
    return launch_size_per_node(one, one_process_per_gpu(variables), hostfile)


DEEPSPEED = LauncherDescription(
    "deepspeed",
    _launch_size,
    commands=("deepspeed", "deepspeed.pt", "ds"),
    modules=("deepspeed.launcher.runner",),
    options=_DEEPSPEED_OPTIONS,
    package="deepspeed",
    example="deepspeed --num_gpus 8 train.py --deepspeed ds_config.json",
)
