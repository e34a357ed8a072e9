"""A node's host memory, from the ranks of it that were rehearsed."""

from __future__ import annotations

from dataclasses import dataclass

from gonogo.evidence.rehearsal import HostMemory, RankRecord, RehearsalRecord


@dataclass(frozen=True)
class NodeHostMemory:
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

    A rank that was not run is taken to need what the ranks that are not their node's first need on average, else what
    the first needs outside loading and saving: all run the same program on their share, but libraries let the first
    read the weights when loading and gather the model when saving. Peaks are only added up as proven where all fall
    into the same phase.
    """
    size = max(record.ranks_per_node, 1)
    measured = [(rank, rank.host) for rank in record.ranks if rank.host is not None and rank.host.peak_bytes]
    if not measured:
        return []
    alike = [pair for pair in measured if pair[0].local_rank != 0] or measured
    typical = sum(_common_peak(rank, host) for rank, host in alike) // len(alike)
    pinned = sum(host.peak_pinned_bytes for _, host in alike) // len(alike)
    least = min(_common_peak(rank, host) for rank, host in measured)
    nodes = []
    for node in sorted({rank.rank // size for rank, _ in measured}):
        run = tuple(pair for pair in measured if pair[0].rank // size == node)
        others = size - len(run)
        peaks = [host.peak_bytes for _, host in run]
        together = len({host.peak_phase for _, host in run}) == 1
        nodes.append(
            NodeHostMemory(
                run=run,
                ranks=size,
                peak_bytes=sum(peaks) + others * typical,
                pinned_bytes=sum(host.peak_pinned_bytes for _, host in run) + others * pinned,
                proven_bytes=(sum(peaks) + others * least) if together else max(peaks),
            )
        )
    return nodes


def _common_peak(rank: RankRecord, host: HostMemory) -> int:
    """What the other ranks of a node reach as well, as far as this one shows it."""
    peaks_alone = rank.local_rank == 0 and host.peak_phase in ("load", "save", "exit")
    return host.steady_peak_bytes if peaks_alone else host.peak_bytes
