"""A node's host memory, from the ranks of it that were rehearsed."""

from __future__ import annotations

import msgspec

from gonogo.evidence.rehearsal.record import FIRST_RANK_READS_ASSUMPTION, HostMemory, RankRecord, RehearsalRecord


class NodeHostMemory(msgspec.Struct, frozen=True):
    """One node: the ranks of it that were run, and what all its ranks come to."""

    run: tuple[tuple[RankRecord, HostMemory], ...]
    ranks: int
    """How many ranks the node has."""
    peak_bytes: int
    """The ranks' peaks added up, those that were not run estimated. An upper bound where peaks do not coincide."""
    pinned_bytes: int
    proven_bytes: int
    """What the ranks that were run prove: see :func:`host_memory_by_node`."""

    @property
    def estimated(self) -> bool:
        """True where some of its ranks were not run."""
        return len(self.run) < self.ranks

    @property
    def fullest(self) -> tuple[RankRecord, HostMemory]:
        """The rank that needs most."""
        return max(self.run, key=lambda pair: pair[1].peak_bytes)


def host_memory_by_node(record: RehearsalRecord) -> list[NodeHostMemory]:
    """The nodes of which a rank was run, in order.

    All ranks run the same program on their share, but libraries let a node's first rank gather the model when saving,
    and some, which say so, read the weights. So a rank that was not run is taken to need what the ranks that are not
    their node's first need on average, or else what the first needs outside that.

    Proven is what must be held at one time: each rank's peak alone; the steady peaks, which fall together since
    collectives keep ranks in step; and all peaks, where a rank that is not the first was run and they fall into the
    same phase. There, ranks that were not run count as the least of those that can speak for them.
    """
    size = max(record.ranks_per_node, 1)
    measured = [(rank, rank.host) for rank in record.ranks if rank.host is not None and rank.host.peak_bytes]
    if not measured:
        return []
    like_the_rest = [host for rank, host in measured if rank.local_rank != 0]
    for_others = [host.peak_bytes for host in like_the_rest] or [_alike(rank, host) for rank, host in measured]
    hosts = like_the_rest or [host for _, host in measured]
    each = sum(for_others) // len(for_others)
    pinned = min(each, sum(host.peak_pinned_bytes for host in hosts) // len(hosts))
    least_steady = min(_steady_peak_bytes(host) for host in hosts)
    nodes = []
    for node in sorted({rank.rank // size for rank, _ in measured}):
        run = tuple(pair for pair in measured if pair[0].rank // size == node)
        others = size - len(run)
        peaks = [host.peak_bytes for _, host in run]
        proven = max(max(peaks), sum(_steady_peak_bytes(host) for _, host in run) + others * least_steady)
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


def _alike(rank: RankRecord, host: HostMemory) -> int:
    """The most that a node's first rank needs in what all ranks do."""
    if host.peak_phase != "save" and not (host.peak_phase == "load" and FIRST_RANK_READS_ASSUMPTION in rank.events):
        return host.peak_bytes
    loading = 0 if FIRST_RANK_READS_ASSUMPTION in rank.events else host.load_peak_bytes
    return max(host.steady_peak_bytes, loading)


def _steady_peak_bytes(host: HostMemory) -> int:
    """The peak in the phases in which all ranks do the same."""
    return host.steady_peak_bytes if host.peak_phase in ("load", "save", "exit") else host.peak_bytes
