"""The cost of a pass without training, such as an evaluation, which decides whether all its batches are read."""

from __future__ import annotations

import time

from gonogo.virtual.hooks.lifecycle import Lifecycle, affordable_repetitions


class PassCosts:
    """Measures the seconds per batch of passes without training; all of them share one time budget."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._life = lifecycle
        self._first: tuple[float, float] | None = None
        """When the first batch had been read, in processor time and by the clock."""

    def record_batch_read(self) -> None:
        """Note that a batch has been read."""
        if self._first is None:
            self._first = time.process_time(), time.monotonic()

    def is_affordable(self, batch_count: int, left: int) -> bool:
        """Whether ``left`` more batches fit the budget, judging by the first ``batch_count``."""
        if self._first is None or batch_count < 2:
            return False
        processor, clock = self._first
        each = (time.process_time() - processor) / (batch_count - 1), (time.monotonic() - clock) / (batch_count - 1)
        if left > affordable_repetitions(*each, self._life.spent_on_passes):
            return False
        spent = self._life.spent_on_passes
        self._life.spent_on_passes = spent[0] + each[0] * left, spent[1] + each[1] * left
        return True
