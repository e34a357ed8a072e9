"""How many nodes and processes a launch starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gonogo.evidence.document.source_file import SourceFile
from gonogo.evidence.field import Field, whole_number
from gonogo.evidence.launch.command_line import Options
from gonogo.evidence.launch.launchers.hostfile import filtered, hosts_of, included, numbers_in
from gonogo.evidence.launch.launchers.recognise import Called
from gonogo.finding import Text
from gonogo.finding.errors import UserError

if TYPE_CHECKING:
    from gonogo.evidence.config.accelerate import AccelerateConfig

_DEFAULT = Text("the launcher's default", "启动器的默认值")
_ALL_GPUS = Text("it starts one process for each GPU of the machine", "每张 GPU 启动一个进程，数量取决于机器")
_ELASTIC = Text("`{value}` nodes: their number is settled when it starts", "节点数 `{value}` 在启动时才确定")
_NO_NUMBER = Text("`{value}` is not a number of processes", "`{value}` 不是进程数")
_VISIBLE = Text("the GPUs of CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES 中的 GPU")
_HOSTFILE = Text("as the hostfile {path} says", "按 hostfile {path}")
_NO_HOSTFILE = Text("the hostfile {path} can't be read here", "此处无法读取 hostfile {path}")
_ALONE = Text("no launcher: one process", "没有启动器：单进程")
_BY_SLURM = Text("slurm starts them", "由 slurm 启动")
_BY_MPI = Text("MPI spreads them over its hosts", "由 MPI 分配到各主机")
_UNSETTLED = Text("the number of processes is not told by the files", "文件没有给出进程数")
_UNEVEN = Text(
    "{total} processes are not the same number on each of {nodes} nodes", "{total} 个进程无法平均分到 {nodes} 个节点"
)
_FROM_CONFIG = Text("from accelerate's config", "来自 accelerate 的配置文件")
_DEFAULT_HOSTFILE = "/job/hostfile"


class World(msgspec.Struct, frozen=True):
    """The size of a launch."""

    nodes: Field
    processes_per_node: Field
    world_size: Field
    hostfile: Field = Field.missing()


def world_of(
    call: Called,
    variables: Mapping[str, Field],
    slurm: Mapping[str, Field],
    cwd: Path,
    accelerate: AccelerateConfig | None,
) -> World:
    """The nodes and processes that a call starts."""
    launcher = call.launcher
    if launcher in ("torchrun", "torch.distributed.launch"):
        world = _torchrun(call.launcher_options, variables)
    elif launcher == "deepspeed":
        world = _deepspeed(call.launcher_options, variables, cwd)
    elif launcher == "accelerate":
        world = _accelerate(call.launcher_options, variables, accelerate)
    elif launcher == "swift":
        world = _swift(variables)
    elif launcher == "llamafactory":
        world = _llamafactory(variables)
    elif launcher in ("trl", "axolotl"):
        world = _accelerate(call.launcher_options, variables, accelerate)
    elif launcher == "unknown":
        unknown = Field.not_known(call.launcher_options.end, _UNSETTLED)
        world = World(unknown, unknown, unknown)
    elif call.mpirun is not None:
        total = _count(call.mpirun.get("np", "n", "c"))
        unknown = Field.not_known(total.place, _BY_MPI)
        world = World(unknown, unknown, total)
    elif call.slurm is not None:
        world = _srun(slurm)
    else:
        world = _python(variables)
    return world


def _times(nodes: Field, per_node: Field) -> Field:
    if nodes.known and per_node.known:
        place = per_node.place or nodes.place
        return Field.of(nodes.value * per_node.value, place, per_node.reason)
    unknown = per_node if not per_node.known else nodes
    return Field.not_known(unknown.place, unknown.reason)


def _world(nodes: Field, per_node: Field, hostfile: Field | None = None) -> World:
    return World(nodes, per_node, _times(nodes, per_node), hostfile or Field.missing())


def _count(field: Field, default: int | None = None) -> Field:
    """A field as a whole number; the default where it is absent."""
    if field.absent:
        return Field.of(default, None, _DEFAULT) if default is not None else Field.not_known(None, _UNSETTLED)
    if field.unknown:
        return field
    number = field.number
    if isinstance(number, int) and number > 0:
        return Field.of(number, field.place, field.reason)
    return Field.not_known(field.place, _NO_NUMBER.format(value=str(field.value)[:40]))


def visible(variables: Mapping[str, Field]) -> Field:
    """How many GPUs CUDA_VISIBLE_DEVICES leaves; absent where it is not set."""
    field = variables.get("CUDA_VISIBLE_DEVICES") or variables.get("ASCEND_RT_VISIBLE_DEVICES") or Field.missing()
    if not field.known:
        return field
    devices = [part for part in str(field.value).split(",") if part.strip()]
    return Field.of(len(devices), field.place, _VISIBLE)


def _each_gpu(variables: Mapping[str, Field]) -> Field:
    field = visible(variables)
    if field.known and field.value:
        return field
    return Field.not_known(field.place, _ALL_GPUS)


def _torchrun(options: Options, variables: Mapping[str, Field]) -> World:
    nodes = options.get("nnodes")
    if nodes.absent:
        nodes = variables.get("PET_NNODES", nodes)
    if isinstance(nodes.value, str) and ":" in nodes.value:
        least, _, most = nodes.value.partition(":")
        nodes = (
            Field.of(most, nodes.place)
            if least == most
            else Field.not_known(nodes.place, _ELASTIC.format(value=nodes.value[:40]))
        )
    per_node = options.get("nproc_per_node")
    if per_node.absent:
        per_node = variables.get("PET_NPROC_PER_NODE", per_node)
    if per_node.value in ("gpu", "auto"):
        gpus = _each_gpu(variables)
        per_node = msgspec.structs.replace(gpus, place=per_node.place)
    return _world(_count(nodes, 1), _count(per_node, 1))


def _deepspeed(options: Options, variables: Mapping[str, Field], cwd: Path) -> World:
    hostfile = options.get("hostfile")
    asked_nodes, asked_gpus = options.get("num_nodes"), options.get("num_gpus", "num_accelerators")
    include, exclude = options.get("include"), options.get("exclude")
    hosts: dict[str, int] | None = None
    named = hostfile
    if hostfile.absent and os.path.isfile(_DEFAULT_HOSTFILE):
        named = Field.of(_DEFAULT_HOSTFILE, None, _DEFAULT)
    if named.known:
        hosts = _read_hosts(cwd / str(named.value))
        if hosts is None and hostfile.known:
            return _without_hostfile(asked_nodes, asked_gpus, include, hostfile)
    elif named.unknown:
        return _without_hostfile(asked_nodes, asked_gpus, include, hostfile)
    if include.unknown or exclude.unknown:
        unknown = include if include.unknown else exclude
        return World(Field.of(1, None) if hosts is None else unknown, unknown, unknown, hostfile)
    if hosts is None:
        return _one_node(asked_gpus, include, exclude, variables, hostfile)
    slots = filtered(hosts, include.string or "", exclude.string or "")
    place = include.place or exclude.place or named.place
    reason = _HOSTFILE.format(path=str(named.value))
    if slots is None or asked_nodes.unknown or asked_gpus.unknown:
        unknown = Field.not_known(place, reason)
        return World(unknown, unknown, unknown, hostfile)
    counts = [len(numbers) for numbers in slots.values()]
    nodes_asked, gpus_asked = whole_number(asked_nodes), whole_number(asked_gpus)
    if nodes_asked is not None and nodes_asked > 0:
        counts = counts[:nodes_asked]
    if gpus_asked is not None and gpus_asked > 0:
        counts = [gpus_asked] * len(counts)
    per_node = (
        Field.of(counts[0], place, reason)
        if len(set(counts)) == 1
        else Field.not_known(place, _UNEVEN.format(total=sum(counts), nodes=len(counts)))
    )
    return World(Field.of(len(counts), place, reason), per_node, Field.of(sum(counts), place, reason), hostfile)


def _read_hosts(path: Path) -> dict[str, int] | None:
    try:
        return hosts_of(SourceFile.read(path).text)
    except UserError:
        return None


def _without_hostfile(nodes: Field, gpus: Field, include: Field, hostfile: Field) -> World:
    reason = _NO_HOSTFILE.format(path=str(hostfile.value)) if hostfile.known else hostfile.reason
    unknown = Field.not_known(hostfile.place, reason)
    hosts = included(include.value) if include.string else None
    if hosts is not None:
        found = Field.of(len(hosts), include.place)
        counts = [len(numbers) if numbers is not None else None for numbers in hosts.values()]
        if counts and counts[0] is not None and len(set(counts)) == 1:
            return _world(found, Field.of(counts[0], include.place), hostfile)
        return _world(found, unknown, hostfile)
    return _world(
        _count(nodes) if not nodes.absent else unknown, _count(gpus) if not gpus.absent else unknown, hostfile
    )


def _one_node(gpus: Field, include: Field, exclude: Field, variables: Mapping[str, Field], hostfile: Field) -> World:
    one = Field.of(1, None, _DEFAULT)
    if include.string:
        hosts = included(include.string)
        slots = next(iter(hosts.values())) if hosts else None
        if slots is not None and hosts is not None and len(hosts) == 1:
            return _world(one, Field.of(len(slots), include.place), hostfile)
        return _world(one, Field.not_known(include.place, _ALL_GPUS), hostfile)
    if exclude.known:
        return _world(one, Field.not_known(exclude.place, _ALL_GPUS), hostfile)
    number = gpus.number
    if gpus.known and isinstance(number, int) and number > 0:
        return _world(one, _count(gpus), hostfile)
    if gpus.unknown:
        return _world(one, gpus, hostfile)
    return _world(one, _each_gpu(variables), hostfile)


def _accelerate(options: Options, variables: Mapping[str, Field], config: AccelerateConfig | None) -> World:
    total = options.get("num_processes")
    nodes = options.get("num_machines")
    gpu_ids = options.get("gpu_ids")
    if config is not None:
        total = config.get("num_processes") if total.absent else total
        nodes = config.get("num_machines") if nodes.absent else nodes
        gpu_ids = config.get("gpu_ids") if gpu_ids.absent else gpu_ids
    machines = _count(nodes, 1)
    if total.absent or total.value in (-1, "-1"):
        chosen = numbers_in(str(gpu_ids.value)) if gpu_ids.known and gpu_ids.value not in ("all", None) else None
        gpus = Field.of(len(chosen), gpu_ids.place) if chosen else _each_gpu(variables)
        return _world(machines, gpus)
    processes = _count(total)
    if not (processes.known and machines.known):
        unknown = processes if not processes.known else machines
        return World(machines, Field.not_known(unknown.place, unknown.reason), processes)
    if processes.value % machines.value:
        reason = _UNEVEN.format(total=processes.value, nodes=machines.value)
        return World(machines, Field.not_known(processes.place, reason), processes)
    return World(machines, Field.of(processes.value // machines.value, processes.place), processes)


def _swift(variables: Mapping[str, Field]) -> World:
    per_node, nodes = variables.get("NPROC_PER_NODE", Field.missing()), variables.get("NNODES", Field.missing())
    if per_node.absent and nodes.absent:
        one = Field.of(1, None, _ALONE)
        return World(one, one, one)
    return _world(_count(nodes, 1), _count(per_node, 1))


def _llamafactory(variables: Mapping[str, Field]) -> World:
    per_node, nodes = variables.get("NPROC_PER_NODE", Field.missing()), variables.get("NNODES", Field.missing())
    gpus = _count(per_node) if not per_node.absent else _each_gpu(variables)
    return _world(_count(nodes, 1), gpus)


def _srun(slurm: Mapping[str, Field]) -> World:
    absent = Field.missing()
    nodes, tasks = slurm.get("nodes", absent), slurm.get("ntasks", absent)
    per_node = slurm.get("ntasks-per-node", absent)
    if not per_node.absent:
        return _world(_count(nodes, 1), _count(per_node))
    if tasks.absent:
        return _world(_count(nodes, 1), Field.of(1, None, _BY_SLURM))
    total = _count(tasks)
    machines = _count(nodes) if not nodes.absent else Field.not_known(tasks.place, _BY_SLURM)
    if total.known and machines.known and total.value % machines.value == 0:
        return World(machines, Field.of(total.value // machines.value, tasks.place), total)
    return World(machines, Field.not_known(tasks.place, _BY_SLURM), total)


def _python(variables: Mapping[str, Field]) -> World:
    size = variables.get("WORLD_SIZE")
    if size is not None and "RANK" in variables:
        total = _count(size)
        unknown = Field.not_known(size.place, _UNSETTLED)
        return World(unknown, unknown, total)
    one = Field.of(1, None, _ALONE)
    return World(one, one, one)


__all__ = ["World", "visible", "world_of"]
