"""Tracks every storage of the program by device, category and module, both live and at the peak."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gonogo.evidence.rehearsal.modules import largest_modules, memory_by_modules
from gonogo.evidence.rehearsal.record import (
    CATEGORIES,
    ROLLOUT_PHASES,
    DeviceMemory,
    HostMemory,
    MemoryShortage,
    MemoryTimeline,
    Phase,
    PhaseMemory,
    bytes_by_category,
)
from gonogo.virtual.memory.deferred import DeferredStorages
from gonogo.virtual.memory.owners import Owner, OwnerRanges, divide_among_modules
from gonogo.virtual.memory.timeline import Moment, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gonogo.virtual.memory.caching_allocator import CachingAllocator

Here = Any
_CATEGORY_INDEX = {name: index for index, name in enumerate(CATEGORIES)}


class Holding:
    """Bytes of one category that one owner holds on a device: live, and at the most recent peak.

    Noting a peak only increments a number. The first change after that saves the previous value (``keep``), so the
    complete breakdown of each peak is known without copying it at every new peak.
    """

    __slots__ = ("category", "kept", "kept_of", "live", "owner")

    def __init__(self, category: int, owner: Owner, peak_count: int) -> None:
        self.category = category
        self.owner = owner
        self.live = 0
        self.kept = 0
        """Bytes at peak number ``kept_of``."""
        self.kept_of = peak_count

    def save_before_change(self, peak_count: int) -> None:
        """Save the live bytes before a change; ``peak_count`` is the number of peaks so far."""
        if self.kept_of != peak_count:
            self.kept, self.kept_of = self.live, peak_count

    def bytes_at_peak(self, peak_count: int) -> int:
        """Bytes at the last of ``peak_count`` peaks."""
        return self.kept if self.kept_of == peak_count else self.live


class Cell:
    """The storage behind virtual tensors: counts its bytes until it is deleted."""

    __slots__ = (
        "__weakref__",
        "address",
        "at_peak",
        "born",
        "chosen",
        "freed_by",
        "holding",
        "nbytes",
        "nonnegative",
        "origins",
        "pinned",
        "values",
    )  # fmt: skip

    def __init__(self, device_record: DeviceRecord, nbytes: int, category: int, owner: Owner) -> None:
        self.freed_by = device_record
        self.nbytes = nbytes
        self.holding = device_record.holding(category, owner)
        self.born = 0
        """Number of peaks noted before it was allocated; it is part of all later ones."""
        self.at_peak: tuple[int, Holding] | None = None
        """(a peak's number, the holding under which it was counted there), if it has been moved since."""
        self.pinned = False
        self.values: Any = None
        """The real bytes if they are known (see ``contents.py``), else None."""
        self.nonnegative = False
        """True if its unknown values are known to be nonnegative (see ``signs.py``)."""
        self.origins: list[tuple[int, int, tuple[str, ...]]] | None = None
        """Where its bytes come from (see ``origins.py``), if origins are tracked."""
        self.chosen = False
        """True if its known values depend on selections by unknown scores, which may differ on the accelerator."""
        self.address = device_record.count_allocation(self)

    def resize(self, nbytes: int) -> None:
        """Reallocate the storage with another size and unknown values."""
        self.freed_by.count_free(self)
        self.nbytes, self.values, self.pinned, self.origins = nbytes, None, False, None
        self.address = self.freed_by.count_allocation(self)

    def __del__(self) -> None:
        self.freed_by.count_free(self)


class DeviceRecord:
    """The storages of one device. ``allocator`` replays the caching allocator, and is None for the host."""

    def __init__(self, name: str, total_bytes: int, allowance_bytes: int, allocator: CachingAllocator | None) -> None:
        self.name = name
        self.total_bytes = total_bytes
        self.allowance_bytes = allowance_bytes
        self.allocator = allocator
        self.live = 0
        self.pinned = 0
        self.peak = 0
        self.peak_pinned = 0
        self.steady = False
        """True in a phase in which all ranks do the same; see ``HostMemory.steady_peak_bytes``."""
        self.steady_peak = 0
        self.load_peak: int | None = None
        """The peak up to the end of the first loading, or None before that."""
        self.window_peak = 0
        """The peak since :meth:`restart_window`."""
        self.by_category = [0] * len(CATEGORIES)
        self.peak_by_category = tuple(self.by_category)
        self.peaks = 0
        """Number of peaks noted so far."""
        self.peak_phase: Phase = "load"
        self.peak_step = 0
        self.shortage: MemoryShortage | None = None
        self.on_shortage: Callable[[DeviceRecord, int], MemoryShortage] | None = None
        self.deferred: DeferredStorages | None = None
        """Takes what is allocated while compiled code runs."""
        self.stream: Callable[[], int] = lambda: 0
        """Returns the current stream: each stream has its own pools in the caching allocator."""
        self.moment: Callable[[], tuple[Phase, int]] = lambda: ("load", 0)
        self.phase_peaks: dict[Phase, tuple[int, tuple[int, ...]]] = {}
        """For each phase that has ended: its peak, and the breakdown by category."""
        self._phase_high, self._phase_noted = 0, 0
        self._phase_categories = self.peak_by_category
        self._noted_peak = 0
        self._timeline = Timeline()
        self._left_of_stretch = 1
        self._high = 0
        """The peak of the current interval of the timeline."""
        self._high_by: Holding | None = None
        self.here: Callable[[], Here] = lambda: None
        """Returns what the program is doing, as input for :attr:`told`; called at each new maximum."""
        self.told: Callable[[Here], tuple[str, str]] = lambda here: ("", "")
        """Operator and code place of a result of ``here``."""
        self._high_at: Here = None
        self._noted_high = -1
        self._high_moment = Moment(0, self.peak_by_category, 0, "load", 0, _CATEGORY_INDEX["temporary"], None)
        self._holdings: tuple[dict[Owner, Holding], ...] = tuple({} for _ in CATEGORIES)
        self._next_address = 1 << 44

    def holding(self, category: int, owner: Owner) -> Holding:
        """The :class:`Holding` of a category and owner, created on first use."""
        holding = self._holdings[category].get(owner)
        if holding is None:
            holding = self._holdings[category][owner] = Holding(category, owner, self.peaks)
        return holding

    def count_allocation(self, cell: Cell) -> int:
        """Count a new storage as allocated; returns its address."""
        if self.deferred is not None:
            return self.deferred.allocate(cell)
        nbytes, holding = cell.nbytes, cell.holding
        self.live += nbytes
        self.by_category[holding.category] += nbytes
        if holding.kept_of != self.peaks:
            holding.save_before_change(self.peaks)
        holding.live += nbytes
        cell.born = self.peaks
        if self.live > self.peak:
            self.peak = self.live
        if self.live > self.window_peak:
            self.window_peak = self.live
        if self.live > self.steady_peak and self.steady:
            self.steady_peak = self.live
        if self.live > self._phase_high:
            self._phase_high = self.live
        if self.live > self._high:
            self._high, self._high_by, self._high_at = self.live, holding, self.here()
        self._left_of_stretch -= 1
        if not self._left_of_stretch:
            self._end_interval()
        allocator = self.allocator
        if allocator is None:
            address = self._next_address
            self._next_address += (nbytes + 511) & ~511 or 512
            return address
        address = allocator.malloc(nbytes, self.stream())
        if self.shortage is None and allocator.shortage is not None and self.on_shortage is not None:
            self.shortage = self.on_shortage(self, nbytes)
        return address

    def count_free(self, cell: Cell) -> None:
        """Count a storage as freed."""
        if cell.address < 0:
            if self.deferred is not None:
                self.deferred.free(cell)
            return
        if self.peak > self._noted_peak:
            self.save_peak()
        if self._high > self._noted_high:
            self._save_interval_maximum()
        if self._phase_high > self._phase_noted:
            self._phase_noted, self._phase_categories = self._phase_high, tuple(self.by_category)
        nbytes, holding = cell.nbytes, cell.holding
        self.live -= nbytes
        self.by_category[holding.category] -= nbytes
        if holding.kept_of != self.peaks:
            holding.save_before_change(self.peaks)
        holding.live -= nbytes
        if cell.pinned:
            self.pinned -= nbytes
        if self.allocator is not None:
            self.allocator.free(cell.address)

    def restart_window(self) -> None:
        """Restart the measurement of ``window_peak``."""
        self.window_peak = self.live

    def save_peak(self) -> None:
        """Save the live breakdown as the peak's: called before memory falls below a new peak."""
        if self.live < self.peak or self.peak == self._noted_peak:
            return
        self._noted_peak = self.peak
        self.peaks += 1
        self.peak_by_category = tuple(self.by_category)
        self.peak_phase, self.peak_step = self.moment()

    def end_phase(self, phase: Phase) -> None:
        """End a phase, and keep its peak if it is the highest of its kind so far."""
        if self._phase_high > self._phase_noted:
            self._phase_categories = tuple(self.by_category)
        if self._phase_high >= self.phase_peaks.get(phase, (0, ()))[0]:
            self.phase_peaks[phase] = self._phase_high, self._phase_categories
        self._phase_high = self._phase_noted = self.live
        self._phase_categories = tuple(self.by_category)

    def _save_interval_maximum(self) -> None:
        """Save the highest moment of this interval: called before memory falls below it."""
        self._noted_high = self._high
        by, reached = self._high_by, None
        if by is not None:
            reached = by.owner.ranges[0][1] if isinstance(by.owner, OwnerRanges) else by.owner
        self._high_moment = Moment(
            self._high,
            tuple(self.by_category),
            self.allocator.reserved if self.allocator is not None else 0,
            *self.moment(),
            by.category if by is not None else _CATEGORY_INDEX["temporary"],
            reached,
            *self.told(self._high_at),
        )

    def _end_interval(self) -> None:
        if self._high > self._noted_high:
            self._save_interval_maximum()
        self._timeline.add(self._high_moment)
        self._left_of_stretch = self._timeline.width
        self._high, self._high_by, self._high_at, self._noted_high = self.live, None, None, -1

    def as_timeline(self) -> MemoryTimeline:
        """Memory over time, up to now."""
        if self._high > self._noted_high:
            self._save_interval_maximum()
        return self._timeline.as_record(self.name, self._high_moment)

    def reassign(self, cell: Cell, category: int, owner: Owner) -> None:
        """Move a live storage to another category or owner.

        The owner also changes in the last peak, if the storage was part of it; the category there stays the same.
        """
        before, nbytes, peaks = cell.holding, cell.nbytes, self.peaks
        if category == before.category and owner == before.owner:
            return
        after = self.holding(category, owner)
        if cell.address < 0:  # it doesn't count yet
            cell.holding = after
            return
        before.save_before_change(peaks)
        after.save_before_change(peaks)
        before.live -= nbytes
        after.live += nbytes
        self.by_category[before.category] -= nbytes
        self.by_category[category] += nbytes
        cell.holding = after
        if cell.born < peaks:
            at = cell.at_peak[1] if cell.at_peak is not None and cell.at_peak[0] == peaks else before
            at.save_before_change(peaks)
            if at.owner != owner and at.kept >= nbytes:
                there = self.holding(at.category, owner)
                there.save_before_change(peaks)
                at.kept -= nbytes
                there.kept += nbytes
                at = there
            cell.at_peak = (peaks, at)

    @contextmanager
    def without_peak_update(self) -> Iterator[None]:
        """Leave the recorded peaks unaffected by what is allocated and freed inside."""
        names = [
            *("peak", "peak_pinned", "steady_peak", "peak_by_category", "peak_phase", "peak_step", "_noted_peak"),
            *("_left_of_stretch", "_high", "_high_by", "_high_at", "_noted_high", "_high_moment"),
            *("_phase_high", "_phase_noted", "_phase_categories"),
        ]
        before = {name: getattr(self, name) for name in names}
        noted = [(holding, holding.bytes_at_peak(self.peaks)) for held in self._holdings for holding in held.values()]
        self._left_of_stretch = -1  # no interval ends inside
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)
            for held in self._holdings:
                for holding in held.values():
                    holding.kept, holding.kept_of = 0, self.peaks
            for holding, nbytes in noted:
                holding.kept = nbytes
            self.peak = max(self.peak, self.live)

    def pin(self, cell: Cell) -> None:
        """Mark the storage as page-locked."""
        if not cell.pinned:
            cell.pinned = True
            self.pinned += cell.nbytes
            self.peak_pinned = max(self.peak_pinned, self.pinned)

    def state(self) -> tuple[object, ...]:
        """The bytes of each category and owner; on an accelerator, also the allocator's state."""
        held = {(one.category, owner): one.live for by in self._holdings for owner, one in by.items() if one.live}
        return (held, self.pinned, self.allocator.state() if self.allocator is not None else ())

    def bytes_by_category(self) -> dict[str, int]:
        """Bytes live now, by category."""
        return bytes_by_category(self.by_category)

    def peak_breakdown(self) -> list[tuple[str, str | None, int]]:
        """(category, module, bytes) at the peak; each category's entries add up to its total there."""
        return [
            (category, module, nbytes)
            for category, held in zip(CATEGORIES, self._holdings, strict=True)
            for holding in list(held.values())
            if (total := holding.bytes_at_peak(self.peaks))
            for module, nbytes in divide_among_modules(holding.owner, total)
        ]

    def as_device_memory(self) -> DeviceMemory:
        """The record of an accelerator."""
        self.save_peak()
        assert self.allocator is not None
        held = self.peak_breakdown()
        return DeviceMemory(
            device=self.name,
            peak_allocated_bytes=self.allocator.peak_allocated,
            peak_reserved_bytes=self.allocator.peak_reserved,
            allowance_bytes=self.allowance_bytes,
            total_bytes=self.total_bytes,
            peak_phase=self.peak_phase,
            peak_step=self.peak_step,
            by_category=bytes_by_category(self.peak_by_category),
            top_modules=largest_modules(held),
            modules=memory_by_modules(held),
            shortage=self.shortage,
            phases=self._phase_records(),
        )

    def _phase_records(self) -> tuple[PhaseMemory, ...]:
        """The peaks per phase, for training with rollouts; otherwise empty."""
        if self.phase_peaks.keys().isdisjoint(ROLLOUT_PHASES):
            return ()
        return tuple(
            PhaseMemory(phase, live, bytes_by_category(held)) for phase, (live, held) in self.phase_peaks.items()
        )

    def as_host_memory(self) -> HostMemory:
        """The record of the host."""
        self.save_peak()
        return HostMemory(
            peak_bytes=self.peak,
            peak_pinned_bytes=self.peak_pinned,
            peak_phase=self.peak_phase,
            peak_step=self.peak_step,
            by_category=bytes_by_category(self.peak_by_category),
            modules=memory_by_modules(self.peak_breakdown()),
            steady_peak_bytes=self.steady_peak,
            load_peak_bytes=self.peak if self.load_peak is None else self.load_peak,
        )


class MemoryRecord:
    """The devices of one process, and the category and module under which new storages are counted."""

    def __init__(self, make_device: Callable[[str], DeviceRecord]) -> None:
        self._make_device = make_device
        self.devices: dict[Any, DeviceRecord] = {}
        self.category = _CATEGORY_INDEX["temporary"]
        self.module: str | None = None
        self.makes_states = False
        """True during an optimizer step, in which tensors created by a factory are the optimizer's states."""

    def device(self, device: Any) -> DeviceRecord:
        """The record of a ``torch.device``, created on first use."""
        record = self.devices.get(device)
        if record is None:
            record = self.devices[device] = self._make_device(str(device))
        return record

    def new_cell(self, device: Any, nbytes: int) -> Cell:
        """Create a storage of ``nbytes`` on ``device`` under the current category and module."""
        record = self.devices.get(device)
        return Cell(record if record is not None else self.device(device), nbytes, self.category, self.module)

    @contextmanager
    def with_category(self, category: str) -> Iterator[None]:
        """Count new storages under ``category`` (one of ``CATEGORIES``) within the context."""
        before, self.category = self.category, _CATEGORY_INDEX[category]
        try:
            yield
        finally:
            self.category = before

    def set_category(self, category: str) -> None:
        """Count new storages under ``category`` from now on."""
        self.category = _CATEGORY_INDEX[category]

    def recategorise(self, cell: Cell, category: str, owner: Owner = None) -> None:
        """Move a live storage to another category (and owner), e.g. once it turns out to be a gradient."""
        cell.freed_by.reassign(cell, _CATEGORY_INDEX[category], cell.holding.owner if owner is None else owner)

    def set_owner(self, cell: Cell, owner: Owner) -> None:
        """Set the owner of a live storage."""
        cell.freed_by.reassign(cell, cell.holding.category, owner)
