"""A node's host memory, computed from its rehearsed ranks."""

from __future__ import annotations

import msgspec

from gonogo.evidence.rehearsal.record import (
    FIRST_RANK_HOLDS_ASSUMPTION,
    FIRST_RANK_READS_ASSUMPTION,
    HostMemory,
    RankRecord,
    RehearsalRecord,
)


class NodeHostMemory(msgspec.Struct, frozen=True):
    """Host memory of one node: its rehearsed ranks, and the totals over all its ranks."""

    run: tuple[tuple[RankRecord, HostMemory], ...]
    ranks: int
    """How many ranks the node has."""
    peak_bytes: int
    """Sum of the ranks' peaks; those not rehearsed are estimated. An upper bound, since peaks may not coincide."""
    pinned_bytes: int
    proven_bytes: int
    """A lower bound that the rehearsed ranks prove: see :func:`host_memory_by_node`."""

    @property
    def is_estimated(self) -> bool:
        """True if some of its ranks were not rehearsed."""
        return len(self.run) < self.ranks

    @property
    def rank_with_highest_peak(self) -> tuple[RankRecord, HostMemory]:
        """The rank that needs the most host memory, and its record."""
        return max(self.run, key=lambda pair: pair[1].peak_bytes)


def host_memory_by_node(record: RehearsalRecord) -> list[NodeHostMemory]:
    """The nodes with at least one rehearsed rank, in order.

    All ranks run the same program on their share, but libraries let a node's first rank gather the model for saving,
    and some (as their events tell) let it read the weights. So a rank that was not rehearsed is assumed to need the
    average of the ranks that aren't their node's first; without such ranks, what the first needs apart from that.

    Proven is what must be held simultaneously: each rank's peak alone; the steady peaks, which coincide since
    collectives keep ranks in step; and all peaks, if a rank other than the first was rehearsed and all of them are in
    one phase. In that sum, a rank that was not rehearsed counts as the smallest of the ranks that represent it.
    """
    size = max(record.ranks_per_node, 1)
    measured = [(rank, rank.host) for rank in record.ranks if rank.host is not None and rank.host.peak_bytes]
    if not measured:
        return []
    like_the_rest = [host for rank, host in measured if rank.local_rank != 0]
    for_others = [host.peak_bytes for host in like_the_rest] or [
        _peak_of_other_ranks(rank, host) for rank, host in measured
    ]
    represented = [pair for pair in measured if pair[0].local_rank != 0] or measured
    hosts = [host for _, host in represented]
    each = sum(for_others) // len(for_others)
    pinned = min(each, sum(host.peak_pinned_bytes for host in hosts) // len(hosts))
    least_steady = min(_steady_peak_bytes(rank, host) for rank, host in represented)
    nodes = []
    for node in sorted({rank.rank // size for rank, _ in measured}):
        run = tuple(pair for pair in measured if pair[0].rank // size == node)
        others = size - len(run)
        peaks = [host.peak_bytes for _, host in run]
        proven = max(max(peaks), sum(_steady_peak_bytes(rank, host) for rank, host in run) + others * least_steady)
        if like_the_rest and len({host.peak_phase for _, host in measured}) == 1:
            proven = max(proven, sum(peaks) + others * min(for_others))
        nodes.append(
            NodeHostMemory(
                run=run,
                ranks=size,
                peak_bytes=sum(peaks) + others * each,
                pinned_bytes=sum(host.peak_pinned_bytes for _, host in run) + others * pinned,
                proven_bytes=proven,
            )
        )
    return nodes


def _peak_of_other_ranks(rank: RankRecord, host: HostMemory) -> int:
    """The peak of a node's first rank, without what only first ranks do."""
    reads, holds = (name in rank.events for name in (FIRST_RANK_READS_ASSUMPTION, FIRST_RANK_HOLDS_ASSUMPTION))
    alone = ("save", *(("load",) if reads else ()), *(("init",) if holds else ()))
    if host.peak_phase not in alone:
        return host.peak_bytes
    return max(host.steady_peak_bytes, 0 if reads else host.load_peak_bytes)


def _steady_peak_bytes(rank: RankRecord, host: HostMemory) -> int:
    """The peak within the phases in which all ranks do the same."""
    starts = ("init",) if FIRST_RANK_HOLDS_ASSUMPTION in rank.events else ()
    return host.steady_peak_bytes if host.peak_phase in ("load", "save", "exit", *starts) else host.peak_bytes
