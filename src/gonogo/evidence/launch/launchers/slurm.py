"""What a job asks slurm for: ``#SBATCH`` lines and ``srun``'s options."""

from __future__ import annotations

from collections.abc import Mapping

from gonogo.evidence.document.source_file import SourceFile
from gonogo.evidence.field import Field, whole_number
from gonogo.evidence.launch.command_line import Options
from gonogo.evidence.launch.launchers.options import SRUN
from gonogo.evidence.launch.option_parsing import parse_known
from gonogo.evidence.shell.text import Piece, ShellWord


def directives(source: SourceFile) -> dict[str, Field]:
    """The ``#SBATCH`` lines, by option name as slurm writes it (``ntasks-per-node``), up to the first command."""
    words: list[ShellWord] = []
    offset = source.start
    if b"#SBATCH" not in source.data:
        return {}
    for line in source.data[offset:].splitlines(keepends=True):
        stripped = line.strip()
        if stripped and not stripped.startswith(b"#"):
            break
        if line.startswith(b"#SBATCH"):
            words += _words(source, offset + len(b"#SBATCH"), offset + len(line))
        offset += len(line)
    # Each line is options only, so what is no option ends nothing.
    found: dict[str, Field] = {}
    rest: tuple[ShellWord, ...] = tuple(words)
    while rest:
        options, left = parse_known(rest, SRUN)
        found.update(as_mapping(options))
        rest = left[1:] if len(left) == len(rest) or left else ()
    return with_gpus_per_node(found)


def _words(source: SourceFile, start: int, end: int) -> list[ShellWord]:
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


def as_mapping(options: Options) -> dict[str, Field]:
    """slurm's options by name as slurm writes them."""
    return {name.replace("_", "-"): options.get(name) for name in options.names()}


def with_gpus_per_node(found: dict[str, Field]) -> dict[str, Field]:
    """Name the GPUs of a node however they are asked for: ``--gres=gpu:a100:8``, ``--gpus-per-node=a100:8``."""
    for name in ("gpus-per-node", "gres"):
        field = found.get(name)
        if field is None or not isinstance(field.value, str):
            continue
        parts = [part for part in field.value.split(",") if name != "gres" or part.startswith("gpu")]
        count = parts[0].partition("(")[0].rpartition(":")[2] if parts else ""
        if count.isdigit():
            found["gpus-per-node"] = Field.of(int(count), field.place, field.reason)
            break
        if parts and name == "gres":
            found["gpus-per-node"] = Field.of(1, field.place, field.reason)
    return found


def variables(found: Mapping[str, Field]) -> dict[str, str]:
    """The variables that slurm sets in a job that asks for this."""
    nodes = whole_number(found.get("nodes"))
    per_node = whole_number(found.get("ntasks-per-node"))
    tasks = whole_number(found.get("ntasks"))
    gpus = whole_number(found.get("gpus-per-node"))
    if nodes is None and "nodes" not in found and found and tasks is None:
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
        "SLURM_CPUS_PER_TASK": whole_number(found.get("cpus-per-task")),
    }
    return {name: str(value) for name, value in values.items() if value is not None}
