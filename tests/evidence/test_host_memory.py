from __future__ import annotations

from gonogo.evidence.rehearsal.host_memory import host_memory_by_node
from gonogo.evidence.rehearsal.record import (
    FIRST_RANK_HOLDS_ASSUMPTION,
    FIRST_RANK_READS_ASSUMPTION,
    AcceleratorFacts,
    HostMemory,
    Phase,
    RankRecord,
    RehearsalRecord,
)


def record(*peaks: tuple[int, int, int, Phase], ranks_per_node: int = 8, nodes: int = 1) -> RehearsalRecord:
    """A rehearsal of the ranks in ``peaks``: (rank, peak, peak outside loading and saving, the peak's phase)."""
    return RehearsalRecord(
        command=[],
        cwd="/",
        world_size=ranks_per_node * nodes,
        nodes=nodes,
        ranks_per_node=ranks_per_node,
        accelerator=AcceleratorFacts("H100-80G", "cuda", 80, 1),
        steps=2,
        host_memory_bytes=None,
        ranks=[
            RankRecord(
                rank,
                rank % ranks_per_node,
                "cuda:0",
                "completed",
                host=HostMemory(peak, peak // 2, phase, 1, {}, steady_peak_bytes=steady),
            )
            for rank, peak, steady, phase in peaks
        ],
    )


def test_all_ranks_run() -> None:
    (node,) = host_memory_by_node(record((0, 10, 10, "step"), (1, 14, 14, "step"), ranks_per_node=2))
    assert (node.peak_bytes, node.pinned_bytes, node.proven_bytes) == (24, 12, 24)
    assert not node.is_estimated
    assert node.rank_with_highest_peak[0].rank == 1


def test_the_first_rank_speaks_for_the_others_in_training() -> None:
    (node,) = host_memory_by_node(record((0, 10, 10, "step")))
    assert (node.peak_bytes, node.proven_bytes) == (80, 80)
    assert node.is_estimated


def test_the_first_rank_alone_gathers_for_saving() -> None:
    (node,) = host_memory_by_node(record((0, 30, 10, "save")))
    assert node.peak_bytes == 30 + 7 * 10  # it saves while the others keep what they train with
    assert node.proven_bytes == 8 * 10
    (node,) = host_memory_by_node(record((0, 30, 0, "save")))
    assert (node.peak_bytes, node.pinned_bytes, node.proven_bytes) == (30, 15, 30)


def test_each_rank_loads_by_itself() -> None:
    (node,) = host_memory_by_node(record((0, 10, 0, "load"), ranks_per_node=4))
    assert (node.peak_bytes, node.pinned_bytes, node.proven_bytes) == (40, 20, 10)
    saved = record((0, 30, 4, "save"), ranks_per_node=4)
    saved.ranks[0].host = HostMemory(30, 0, "save", 1, {}, steady_peak_bytes=4, load_peak_bytes=9)
    (node,) = host_memory_by_node(saved)
    assert node.peak_bytes == 30 + 3 * 9


def test_the_first_rank_alone_reads_where_the_library_says_so() -> None:
    loaded = record((0, 30, 10, "load"))
    loaded.ranks[0].events.append(FIRST_RANK_READS_ASSUMPTION)
    (node,) = host_memory_by_node(loaded)
    assert node.peak_bytes == 30 + 7 * 10


def test_the_first_rank_alone_holds_the_weights_until_fsdp_shards_them() -> None:
    phases: tuple[Phase, ...] = ("load", "init", "save")
    for phase in phases:
        prepared = record((0, 30, 2, phase))
        prepared.ranks[0].events += [FIRST_RANK_READS_ASSUMPTION, FIRST_RANK_HOLDS_ASSUMPTION]
        (node,) = host_memory_by_node(prepared)
        assert (node.peak_bytes, node.proven_bytes) == (30 + 7 * 2, 30)


def test_another_rank_speaks_for_those_not_run() -> None:
    (node,) = host_memory_by_node(record((0, 30, 5, "save"), (1, 10, 5, "save")))
    assert (node.peak_bytes, node.proven_bytes) == (30 + 7 * 10, 30 + 7 * 10)


def test_peaks_in_different_phases_are_not_proven_together() -> None:
    (node,) = host_memory_by_node(record((0, 30, 8, "save"), (1, 10, 10, "step"), ranks_per_node=2))
    assert (node.peak_bytes, node.proven_bytes) == (40, 30)


def test_nodes_are_apart() -> None:
    nodes = host_memory_by_node(record((0, 30, 30, "step"), (9, 10, 10, "step"), nodes=2))
    assert [node.peak_bytes for node in nodes] == [30 + 7 * 10, 8 * 10]


def test_nothing_measured() -> None:
    assert host_memory_by_node(record()) == []
