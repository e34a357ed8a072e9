"""``--ranks mesh``: one rank for each role in a mesh."""

from __future__ import annotations

import pytest

from gonogo.finding import UserError
from gonogo.rehearse.launch.launch import LaunchedProcess, ResolvedLaunch
from gonogo.rehearse.ranks.mesh import Mesh, mesh_ranks, parse_mesh


def _launch(arguments: str, world: int = 64) -> ResolvedLaunch:
    words = tuple(arguments.split())
    processes = tuple(LaunchedProcess(rank, rank % 8, world, 8, rank // 8, words) for rank in range(world))
    return ResolvedLaunch("torchrun", "script", "pretrain_gpt.py", world // 8, processes, {}, ".")


@pytest.mark.parametrize(
    ("arguments", "ranks"),
    [
        ("--tensor-model-parallel-size 4", {0, 1}),
        ("--pipeline-model-parallel-size 8", {0, 8, 56}),
        ("--pipeline-model-parallel-size=8 --use-tp-pp-dp-mapping", {0, 1, 7}),
        ("--tensor_model_parallel_size 2 --context_parallel_size 2 --pipeline_model_parallel_size 2", {0, 1, 2, 32}),
        ("--parallelism.tensor_parallel_degree 2 --parallelism.expert_parallel_degree 8", {0, 1, 2}),
    ],
)
def test_one_rank_of_each_role(arguments: str, ranks: set[int]) -> None:
    assert mesh_ranks(_launch(arguments)) == ranks


@pytest.mark.parametrize("arguments", ["", "--train-iters 10", "--tensor-model-parallel-size"])
def test_a_launch_without_sizes_is_told_what_to_use_instead(arguments: str) -> None:
    with pytest.raises(UserError, match="--ranks sample"):
        mesh_ranks(_launch(arguments))
    assert parse_mesh(("--tensor-model-parallel-size", "3"), 64) is None


def test_places_are_numbered_as_megatron_numbers_them() -> None:
    assert Mesh(2, 2, 1, 2, 8).rank(tensor=1, context=1, data=3, stage=1) == 1 + 2 * (1 + 2 * (3 + 8))
