"""``--ranks mesh``: one rank for each role in a mesh of tensor, context, expert and pipeline parallelism.

Ranks of the same role run the same operations on tensors of the same shapes, so one rank of each shows what all need.
The sizes are read from the command's arguments, as Megatron-LM, ms-swift and torchtitan name them. Ranks are numbered
as in Megatron-Core, by default in the order tensor, context, data, pipeline, or with data after pipeline for
``--use-tp-pp-dp-mapping``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gonogo.evidence.script.identifiers import split_identifier
from gonogo.finding import UserError, translated
from gonogo.rehearse.launch.launch import ResolvedLaunch

MESH = "mesh"
_TENSOR_PARALLEL_OPTIONS = ("tensor_model_parallel_size", "parallelism.tensor_parallel_degree")
_CONTEXT_PARALLEL_OPTIONS = ("context_parallel_size", "parallelism.context_parallel_degree")
_EXPERT_PARALLEL_OPTIONS = ("expert_model_parallel_size", "parallelism.expert_parallel_degree")
_PIPELINE_PARALLEL_OPTIONS = ("pipeline_model_parallel_size", "parallelism.pipeline_parallel_degree")
_SAMPLE_DIMENSIONS = frozenset({"dp", "data", "fsdp", "ddp", "replicate", "shard", "batch"})
"""Words of a device mesh's dimension whose ranks have the same part of the model, of other samples."""
_PIPELINE_DIMENSIONS = frozenset({"pp", "pipeline", "pipe", "stage"})
_SEQUENCE_DIMENSIONS = frozenset({"cp", "sp", "context", "sequence"})
"""The last rank of such a dimension has the rest of a sequence that can't be divided evenly."""
_DATA_LAST_OPTION = "use_tp_pp_dp_mapping"


class Mesh(NamedTuple):
    """The parallel sizes of a launch."""

    tensor: int
    context: int
    expert: int
    pipeline: int
    data: int
    data_last: bool = False

    def rank(self, *, tensor: int = 0, context: int = 0, data: int = 0, stage: int = 0) -> int:
        """The rank at these coordinates."""
        outer = stage + self.pipeline * data if self.data_last else data + self.data * stage
        return tensor + self.tensor * (context + self.context * outer)

    def roles(self) -> set[int]:
        """One rank of each role: first, second and last stage; a peer in the tensor and expert groups; the last of a
        context-parallel group, which has the rest of a sequence that can't be divided evenly."""
        ranks = {self.rank(stage=stage) for stage in {0, min(1, self.pipeline - 1), self.pipeline - 1}}
        if self.tensor > 1:
            ranks.add(self.rank(tensor=1))
        if self.context > 1:
            ranks.add(self.rank(context=self.context - 1))
        if self.expert > 1 and self.data > 1:
            ranks.add(self.rank(data=1))
        return ranks


def roles_in_device_mesh(shape: Sequence[int], names: Sequence[str], world: int) -> set[int] | None:
    """One rank of each role in a device mesh, whose ranks are numbered last dimension first.

    Ranks that differ only along dimensions of samples do the same. None where it isn't a mesh of the whole world, or
    has no other dimension.
    """
    if len(shape) != len(names) or math.prod(shape) != world:
        return None
    ranks = {0}
    for position, (size, name) in enumerate(zip(shape, names, strict=True)):
        if size > 1 and not set(split_identifier(name)) & _SAMPLE_DIMENSIONS:
            step = math.prod(shape[position + 1 :])
            words = set(split_identifier(name))
            peers = {step, step * (size - 1)} if words & _PIPELINE_DIMENSIONS else {step}
            ranks |= {step * (size - 1)} if words & _SEQUENCE_DIMENSIONS else peers
    return ranks if len(ranks) > 1 else None


def is_mesh(ranks_option: str) -> bool:
    """Whether ``--ranks`` asks for one rank of each role."""
    return ranks_option.strip().lower() == MESH


def mesh_ranks(launch: ResolvedLaunch) -> set[int]:
    """One rank of each role: the first, second and last pipeline stage; a peer in tensor, context and expert groups.

    Raises UserError if the command's arguments give no such size, or sizes that don't divide the world size.
    """
    mesh = parse_mesh(launch.processes[0].arguments, launch.world_size)
    if mesh is None:
        raise UserError(
            translated(
                "--ranks mesh: the command's arguments give no tensor, context, expert or pipeline-parallel size "
                "that divides the world size, {world}: name the ranks, or use --ranks sample"
            ).format(world=launch.world_size)
        )
    return mesh.roles()


def parse_mesh(arguments: Sequence[str], world: int) -> Mesh | None:
    """The sizes in the arguments; None if there are none or they don't divide the world size."""
    return mesh_from_options(_options(arguments), world)


def mesh_from_options(given: Mapping[str, str], world: int) -> Mesh | None:
    """The parallel sizes among the options; None if there are none or they don't divide the world size."""
    sizes = [
        _option_as_integer(given, names)
        for names in (
            _TENSOR_PARALLEL_OPTIONS,
            _CONTEXT_PARALLEL_OPTIONS,
            _EXPERT_PARALLEL_OPTIONS,
            _PIPELINE_PARALLEL_OPTIONS,
        )
    ]
    tensor, context, expert, pipeline = sizes
    held = tensor * context * pipeline
    if max(sizes) == 1 or min(sizes) < 1 or world % held:
        return None
    return Mesh(tensor, context, expert, pipeline, world // held, _DATA_LAST_OPTION in given)


def _options(arguments: Sequence[str]) -> dict[str, str]:
    """The last value of each option, with ``_`` for ``-`` in its name."""
    found: dict[str, str] = {}
    for word, after in zip(arguments, (*arguments[1:], ""), strict=False):  # the last word has no successor
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found[name.replace("-", "_")] = value if equals else after
    return found


def _option_as_integer(options: Mapping[str, str], names: tuple[str, ...]) -> int:
    value = next((options[name] for name in names if name in options), "1")
    return int(value) if value.isdecimal() else 0
