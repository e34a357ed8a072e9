"""What lies where: every storage of the program on its device, live and at the peak, by category and module."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gonogo.evidence.rehearsal.record import CATEGORIES, DeviceMemory, HostMemory, ModuleBytes, Phase, Shortage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gonogo.virtual.memory.caching_allocator import CachingAllocator

_INDEX = {name: index for index, name in enumerate(CATEGORIES)}
_MODULE_SNAPSHOT_STEP = 1.002
"""The ten largest modules are noted anew when the peak has grown by this factor since they last were."""


class Cell:
    """One storage. Lives as long as a tensor that uses it, and gives its bytes back when it goes."""

    __slots__ = ("address", "category", "freed_by", "module", "nbytes", "nonnegative", "pinned", "values")

    def __init__(self, device_record: DeviceRecord, nbytes: int, category: int, module: str | None) -> None:
        self.freed_by = device_record
        self.nbytes = nbytes
        self.category = category
        self.module = module
        self.pinned = False
        self.values: Any = None
        """The real bytes where they are known (see ``values.py``), else None."""
        self.nonnegative = False
        """Whether unknown values are known not to be negative (see ``signs.py``)."""
        self.address = device_record.take(self)

    def resize(self, nbytes: int) -> None:
        """The storage was given another size: one allocation goes, another comes, of unknown values."""
        self.freed_by.give_back(self)
        self.nbytes, self.values, self.pinned = nbytes, None, False
        self.address = self.freed_by.take(self)

    def __del__(self) -> None:
        self.freed_by.give_back(self)


class DeviceRecord:
    """The storages of one device. ``allocator`` replays the caching allocator; None for the host."""

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
        """Whether the program is in a phase in which all ranks do the same; see ``HostMemory.steady_peak_bytes``."""
        self.steady_peak = 0
        self.by_category = [0] * len(CATEGORIES)
        self.by_module: dict[str | None, int] = defaultdict(int)
        self.peak_by_category = tuple(self.by_category)
        self.peak_by_module: list[tuple[str | None, int]] = []
        self.peak_phase: Phase = "load"
        self.peak_step = 0
        self.shortage: Shortage | None = None
        self.on_shortage: Callable[[DeviceRecord, int], Shortage] | None = None
        self.stream: Callable[[], int] = lambda: 0
        """The stream that an allocation belongs to: each has its own pools in the caching allocator."""
        self.moment: Callable[[], tuple[Phase, int]] = lambda: ("load", 0)
        self._noted_peak = 0
        self._modules_noted_at = 0
        self._next_address = 1 << 44

    def take(self, cell: Cell) -> int:
        """Count a new storage; returns its address."""
        nbytes = cell.nbytes
        self.live += nbytes
        self.by_category[cell.category] += nbytes
        self.by_module[cell.module] += nbytes
        if self.live > self.peak:
            self.peak = self.live
        if self.live > self.steady_peak and self.steady:
            self.steady_peak = self.live
        allocator = self.allocator
        if allocator is None:
            address = self._next_address
            self._next_address += (nbytes + 511) & ~511 or 512
            return address
        address = allocator.malloc(nbytes, self.stream())
        if self.shortage is None and allocator.shortage is not None and self.on_shortage is not None:
            self.shortage = self.on_shortage(self, nbytes)
        return address

    def give_back(self, cell: Cell) -> None:
        """Count a storage off."""
        if self.peak > self._noted_peak:
            self.note_peak()
        nbytes = cell.nbytes
        self.live -= nbytes
        self.by_category[cell.category] -= nbytes
        self.by_module[cell.module] -= nbytes
        if cell.pinned:
            self.pinned -= nbytes
        if self.allocator is not None:
            self.allocator.free(cell.address)

    def note_peak(self) -> None:
        """Keep what is live now as the peak's division: called before memory falls below a new peak."""
        if self.live < self.peak or self.peak == self._noted_peak:
            return
        self._noted_peak = self.peak
        self.peak_by_category = tuple(self.by_category)
        self.peak_phase, self.peak_step = self.moment()
        if self.peak > self._modules_noted_at * _MODULE_SNAPSHOT_STEP:
            self._modules_noted_at = self.peak
            self.peak_by_module = sorted(self.by_module.items(), key=lambda item: -item[1])[:10]

    @contextmanager
    def peak_kept(self) -> Iterator[None]:
        """What is taken and given back meanwhile leaves no trace in the peak."""
        names = ("peak", "peak_pinned", "steady_peak", "peak_by_category", "peak_by_module", "peak_phase", "peak_step",
                 "_noted_peak", "_modules_noted_at")  # fmt: skip
        before = {name: getattr(self, name) for name in names}
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)
            self.peak = max(self.peak, self.live)

    def pin(self, cell: Cell) -> None:
        """The storage is page-locked from now on."""
        if not cell.pinned:
            cell.pinned = True
            self.pinned += cell.nbytes
            self.peak_pinned = max(self.peak_pinned, self.pinned)

    def categories(self) -> dict[str, int]:
        """Bytes live now, by category."""
        return dict(zip(CATEGORIES, self.by_category, strict=True))

    def modules(self) -> tuple[ModuleBytes, ...]:
        """The modules that held most at the peak, largest first."""
        return tuple(
            ModuleBytes(module or "(outside any module)", nbytes) for module, nbytes in self.peak_by_module if nbytes
        )

    def as_device(self) -> DeviceMemory:
        """The record of an accelerator."""
        self.note_peak()
        assert self.allocator is not None
        return DeviceMemory(
            device=self.name,
            peak_allocated_bytes=self.allocator.peak_allocated,
            peak_reserved_bytes=self.allocator.peak_reserved,
            allowance_bytes=self.allowance_bytes,
            total_bytes=self.total_bytes,
            peak_phase=self.peak_phase,
            peak_step=self.peak_step,
            by_category=dict(zip(CATEGORIES, self.peak_by_category, strict=True)),
            top_modules=self.modules(),
            shortage=self.shortage,
        )

    def as_host(self) -> HostMemory:
        """The record of the host."""
        self.note_peak()
        return HostMemory(
            peak_bytes=self.peak,
            peak_pinned_bytes=self.peak_pinned,
            peak_phase=self.peak_phase,
            peak_step=self.peak_step,
            by_category=dict(zip(CATEGORIES, self.peak_by_category, strict=True)),
            steady_peak_bytes=self.steady_peak,
        )


class MemoryRecord:
    """All devices of one process, and the category and module that a new storage is counted under."""

    def __init__(self, make_device: Callable[[str], DeviceRecord]) -> None:
        self._make_device = make_device
        self.devices: dict[Any, DeviceRecord] = {}
        self.category = _INDEX["temporary"]
        self.module: str | None = None
        self.makes_states = False
        """Whether tensors made by a factory now are an optimizer's states (an optimizer step is running)."""

    def device(self, device: Any) -> DeviceRecord:
        """The record of a ``torch.device``, made when first asked for."""
        record = self.devices.get(device)
        if record is None:
            record = self.devices[device] = self._make_device(str(device))
        return record

    def new_cell(self, device: Any, nbytes: int) -> Cell:
        """Count a new storage of ``nbytes`` on ``device``."""
        record = self.devices.get(device)
        return Cell(record if record is not None else self.device(device), nbytes, self.category, self.module)

    @contextmanager
    def counting_as(self, category: str) -> Iterator[None]:
        """New storages count as ``category`` (one of ``CATEGORIES``) meanwhile."""
        before, self.category = self.category, _INDEX[category]
        try:
            yield
        finally:
            self.category = before

    def set_category(self, category: str) -> None:
        """New storages count as ``category`` from now on."""
        self.category = _INDEX[category]

    def recategorise(self, cell: Cell, category: str, module: str | None = None) -> None:
        """Count a live storage under another category (and module), e.g. once it proves to be a gradient."""
        index, record = _INDEX[category], cell.freed_by
        if cell.category != index:
            record.by_category[cell.category] -= cell.nbytes
            record.by_category[index] += cell.nbytes
            cell.category = index
        if module is not None and cell.module != module:
            record.by_module[cell.module] -= cell.nbytes
            record.by_module[module] += cell.nbytes
            cell.module = module
