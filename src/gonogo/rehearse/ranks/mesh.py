"""``--ranks mesh``: one rank for each role in a mesh of tensor, context, expert and pipeline parallelism.

Ranks of one role do the same on tensors of the same shapes, so one of each tells what all need. The sizes are those
of the command's arguments, as Megatron-LM, ms-swift and torchtitan call them; ranks are numbered as Megatron-Core does
by default: tensor, context, data, then pipeline parallelism, or data after pipeline with ``--use-tp-pp-dp-mapping``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gonogo.finding import translated
from gonogo.finding.errors import UserError
from gonogo.rehearse.launch.launch import ResolvedLaunch

MESH = "mesh"
_TENSOR_PARALLEL_OPTIONS = ("tensor_model_parallel_size", "parallelism.tensor_parallel_degree")
_CONTEXT = ("context_parallel_size", "parallelism.context_parallel_degree")
_EXPERT = ("expert_model_parallel_size", "parallelism.expert_parallel_degree")
_PIPELINE_PARALLEL_OPTIONS = ("pipeline_model_parallel_size", "parallelism.pipeline_parallel_degree")
_DATA_LAST_OPTION = "use_tp_pp_dp_mapping"


class Mesh(NamedTuple):
    """The sizes of a launch."""

    tensor: int
    context: int
    expert: int
    pipeline: int
    data: int
    data_last: bool = False

    def rank(self, *, tensor: int = 0, context: int = 0, data: int = 0, stage: int = 0) -> int:
        """The rank at a place."""
        outer = stage + self.pipeline * data if self.data_last else data + self.data * stage
        return tensor + self.tensor * (context + self.context * outer)


def is_mesh(ranks_option: str) -> bool:
    """Whether ``--ranks`` asks for one rank of each role."""
    return ranks_option.strip().lower() == MESH


def mesh_ranks(launch: ResolvedLaunch) -> set[int]:
    """One rank of each role: first, second and last stage of the pipeline; peers in tensor, context and expert groups.

    Raises UserError where the command's arguments name no such size, or sizes that don't divide the world.
    """
    mesh = parse_mesh(launch.processes[0].arguments, launch.world_size)
    if mesh is None:
        raise UserError(
            translated(
                "--ranks mesh: the command's arguments give no tensor, context, expert or pipeline-parallel size "
                "that divides the world size, {world}: name the ranks, or use --ranks sample"
            ).format(world=launch.world_size)
        )
    ranks = {mesh.rank(stage=stage) for stage in {0, min(1, mesh.pipeline - 1), mesh.pipeline - 1}}
    if mesh.tensor > 1:
        ranks.add(mesh.rank(tensor=1))
    if mesh.context > 1:
        ranks.add(mesh.rank(context=1))
    if mesh.expert > 1 and mesh.data > 1:
        ranks.add(mesh.rank(data=1))
    return ranks


def parse_mesh(arguments: Sequence[str], world: int) -> Mesh | None:
    """The sizes that the arguments give; None where they give none, or some that don't divide the world."""
    given = _options(arguments)
    sizes = [_size(given, names) for names in (_TENSOR_PARALLEL_OPTIONS, _CONTEXT, _EXPERT, _PIPELINE_PARALLEL_OPTIONS)]
    tensor, context, expert, pipeline = sizes
    held = tensor * context * pipeline
    if max(sizes) == 1 or min(sizes) < 1 or world % held:
        return None
    return Mesh(tensor, context, expert, pipeline, world // held, _DATA_LAST_OPTION in given)


def _options(arguments: Sequence[str]) -> dict[str, str]:
    """The value of each option, its name with ``_`` for ``-``; the last one that is given."""
    found: dict[str, str] = {}
    for word, after in zip(arguments, (*arguments[1:], ""), strict=False):  # none has none after it
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found[name.replace("-", "_")] = value if equals else after
    return found


def _size(options: dict[str, str], names: tuple[str, ...]) -> int:
    value = next((options[name] for name in names if name in options), "1")
    return int(value) if value.isdigit() else 0
