"""``--ranks sample``: which ranks stand for all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.rehearse.ranks.sample import add_ranks_for_batch_shapes, is_sample, sample_ranks


def launch(nodes: int, per_node: int) -> Any:
    processes = [SimpleNamespace(rank=rank, node=rank // per_node) for rank in range(nodes * per_node)]
    return SimpleNamespace(processes=processes, world_size=len(processes))


@pytest.mark.parametrize(
    ("nodes", "per_node", "expected"), [(1, 1, {0}), (1, 8, {0, 7}), (3, 8, {0, 8, 16, 23}), (2, 1, {0, 1})]
)
def test_the_first_the_last_and_one_a_node(nodes: int, per_node: int, expected: set[int]) -> None:
    assert sample_ranks(launch(nodes, per_node)) == expected


def test_a_rank_for_each_kind_of_batch() -> None:
    kinds = ["text", "text", "image", "text", "image", "audio", "text", "text"]
    record = RankRecord(0, 0, "cuda:0", "completed", data_shapes=kinds)
    ranks, note = add_ranks_for_batch_shapes([0, 7], record)
    assert ranks == [0, 2, 5, 7]
    assert "ranks 0, 2, 5, 7" in note.en
    assert "3" in note.zh


def test_data_that_could_not_be_looked_at() -> None:
    ranks, note = add_ranks_for_batch_shapes([0, 7], RankRecord(0, 0, "cuda:0", "raised"))
    assert ranks == [0, 7]
    assert "could not be read in advance" in note.en
    assert "无法" in note.zh


def test_how_it_is_asked_for() -> None:
    assert is_sample(" Sample ")
    assert not is_sample("0,3")
