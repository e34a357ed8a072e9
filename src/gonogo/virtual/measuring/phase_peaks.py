"""The peak of each phase of a program: of loading, of making the optimizer, of forward, backward and step."""

from __future__ import annotations

from typing import Any

from gonogo.evidence.rehearsal.record import categories_of
from gonogo.virtual.measuring.jobs import PhasePeak


class PhasePeaks:
    """Follows one device; ``device`` is a ``tracking.DeviceRecord``, ``life`` tells the phase."""

    def __init__(self, device: Any, life: Any) -> None:
        self._device = device
        self._life = life
        self._peaks: dict[str, tuple[int, tuple[int, ...]]] = {}
        self._take = device.take
        device.take = self._taken

    def _taken(self, cell: Any) -> Any:
        address = self._take(cell)
        live, phase = self._device.live, self._life.phase
        known = self._peaks.get(phase)
        if known is None or live > known[0]:
            self._peaks[phase] = live, tuple(self._device.by_category)
        return address

    def by_phase(self) -> dict[str, PhasePeak]:
        """The peaks so far."""
        return {
            phase: PhasePeak(live, {name: float(nbytes) for name, nbytes in categories_of(parts).items()})
            for phase, (live, parts) in self._peaks.items()
        }
