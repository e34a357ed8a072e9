"""The resources that a job requests from Slurm: ``#SBATCH`` lines and ``srun``'s options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gonogo.evidence.field import Field, whole_number
from gonogo.evidence.launch.command_line import CommandOptions, OptionTable, split_names
from gonogo.evidence.launch.launchers.counts import LaunchSize, launch_size_per_node, to_positive_count
from gonogo.evidence.launch.option_parsing import parse_known_options
from gonogo.evidence.number import parse_whole_number
from gonogo.evidence.shell.text import Piece, ShellWord
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import translated

_MAX_WORDS = 200
_MAX_BYTES = 512 << 10
"""Only this many bytes of a script are searched for ``#SBATCH`` lines."""
"""Words of one ``#SBATCH`` line that are read; each of them that is no option is met anew with all behind it."""
_STARTED_BY_SLURM = translated("Slurm starts the processes")
SRUN = OptionTable(
    split_names(
        """
        account nodes ntasks ntasks_per_node gres gpus gpus_per_node gpus_per_task gpus_per_socket cpus_per_task
        cpus_per_gpu mem mem_per_cpu mem_per_gpu partition time job_name nodelist exclude nodefile output error input
        chdir export jobid mpi ntasks_per_gpu ntasks_per_core ntasks_per_socket cpu_bind gpu_bind mem_bind
        distribution qos reservation constraint kill_on_bad_exit wait container_image container_mounts
        container_workdir container_name comment dependency open_mode relative begin het_group overcommit_limit
        time_min threads_per_core hint network tmp signal switches uid gid wckey array mail_type mail_user licenses
        """
    ),
    split_names(
        """
        exclusive overlap unbuffered label pty no_kill quiet verbose immediate oversubscribe share spread_job
        use_min_nodes preserve_env disable_status no_container_mount_home container_mount_home exact whole requeue
        no_requeue parsable contiguous overcommit x11
        """
    ),
    {
        "A": "account",
        "N": "nodes",
        "n": "ntasks",
        "G": "gpus",
        "c": "cpus_per_task",
        "p": "partition",
        "t": "time",
        "J": "job_name",
        "w": "nodelist",
        "x": "exclude",
        "o": "output",
        "e": "error",
        "i": "input",
        "D": "chdir",
        "q": "qos",
        "C": "constraint",
        "K": "kill_on_bad_exit",
        "W": "wait",
        "m": "distribution",
        "d": "dependency",
        "r": "relative",
        "u": "unbuffered",
        "l": "label",
        "v": "verbose",
        "Q": "quiet",
        "s": "oversubscribe",
        "k": "no_kill",
        "O": "overcommit",
        "a": "array",
        "F": "nodefile",
        "L": "licenses",
        "b": "begin",
        "H": "hold",
    },
)
"""Slurm's ``srun`` and ``sbatch`` (23.11)."""


def sbatch_directives(source: SourceFile) -> dict[str, Field]:
    """The ``#SBATCH`` lines before the first command, keyed by Slurm's option name (``ntasks-per-node``)."""
    offset = source.start
    if b"#SBATCH" not in source.data:
        return {}
    found: dict[str, Field] = {}
    for line in source.data[offset : offset + _MAX_BYTES].splitlines(keepends=True):
        stripped = line.strip()
        if stripped and not stripped.startswith(b"#"):
            break
        if line.startswith(b"#SBATCH"):
            words = _sbatch_words(source, offset + len(b"#SBATCH"), offset + len(line))
            found.update(_directive_options(words[:_MAX_WORDS]))
        offset += len(line)
    return with_gpus_per_node(found)


def _directive_options(words: Sequence[ShellWord]) -> dict[str, Field]:
    """The options of one ``#SBATCH`` line; words that aren't options are skipped, since no command follows."""
    found: dict[str, Field] = {}
    rest = tuple(words)
    while rest:
        options, left = parse_known_options(rest, SRUN)
        found.update(slurm_options(options))
        rest = left[1:]
    return found


def _sbatch_words(source: SourceFile, start: int, end: int) -> list[ShellWord]:
    data = source.data[start:end]
    comment = data.find(b" #")
    data = data[:comment] if comment >= 0 else data
    words: list[ShellWord] = []
    position = 0
    for part in data.split():
        position = data.find(part, position)
        text = part.decode("utf-8", "surrogateescape").replace('"', "").replace("'", "")
        begin = start + position
        piece = Piece(text, source, begin, begin + len(part), literal=len(text) == len(part))
        words.append(ShellWord((piece,), piece.place))
        position += len(part)
    return words


def slurm_options(options: CommandOptions) -> dict[str, Field]:
    """Slurm's options, keyed by the name that Slurm uses, with hyphens."""
    return {name.replace("_", "-"): options.get(name) for name in options.names()}


def with_gpus_per_node(options: dict[str, Field]) -> dict[str, Field]:
    """Set ``gpus-per-node`` from any way of requesting GPUs: ``--gres=gpu:a100:8``, ``--gpus-per-node=a100:8``."""
    for name in ("gpus-per-node", "gres"):
        field = options.get(name)
        if field is None or not isinstance(field.value, str):
            continue
        parts = [part for part in field.value.split(",") if name != "gres" or part.startswith("gpu")]
        count = parse_whole_number(parts[0].partition("(")[0].rpartition(":")[2] if parts else "")
        if count is not None:
            options["gpus-per-node"] = Field.of(count, field.place, field.reason)
            break
        if parts and name == "gres":
            options["gpus-per-node"] = Field.of(1, field.place, field.reason)
    return options


def slurm_variables(options: Mapping[str, Field]) -> dict[str, str]:
    """The environment variables that Slurm sets in a job that requests these options."""
    nodes = whole_number(options.get("nodes"))
    per_node = whole_number(options.get("ntasks-per-node"))
    tasks = whole_number(options.get("ntasks"))
    gpus = whole_number(options.get("gpus-per-node"))
    if nodes is None and "nodes" not in options and options and tasks is None:
        nodes = 1
    if tasks is None and nodes is not None and per_node is not None:
        tasks = nodes * per_node
    values = {
        "SLURM_NNODES": nodes,
        "SLURM_JOB_NUM_NODES": nodes,
        "SLURM_NTASKS_PER_NODE": per_node,
        "SLURM_TASKS_PER_NODE": per_node if nodes == 1 else None,
        "SLURM_NTASKS": tasks,
        "SLURM_NPROCS": tasks,
        "SLURM_GPUS_ON_NODE": gpus,
        "SLURM_GPUS_PER_NODE": gpus,
        "SLURM_CPUS_PER_TASK": whole_number(options.get("cpus-per-task")),
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def srun_launch_size(slurm: Mapping[str, Field]) -> LaunchSize:
    """How many processes Slurm itself starts, according to its options."""
    absent = Field.missing()
    nodes, tasks = slurm.get("nodes", absent), slurm.get("ntasks", absent)
    per_node = slurm.get("ntasks-per-node", absent)
    if not per_node.absent:
        return launch_size_per_node(to_positive_count(nodes, 1), to_positive_count(per_node))
    if tasks.absent:
        return launch_size_per_node(to_positive_count(nodes, 1), Field.of(1, None, _STARTED_BY_SLURM))
    total = to_positive_count(tasks)
    machines = to_positive_count(nodes) if not nodes.absent else Field.not_known(tasks.place, _STARTED_BY_SLURM)
    if total.known and machines.known and total.value % machines.value == 0:
        return LaunchSize(machines, Field.of(total.value // machines.value, tasks.place), total)
    return LaunchSize(machines, Field.not_known(tasks.place, _STARTED_BY_SLURM), total)
