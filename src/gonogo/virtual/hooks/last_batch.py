"""Failures that occur only at a later batch, rehearsed if that batch is near.

The last batch may have a single row, which BatchNorm rejects and of which ``squeeze()`` removes a dimension; a
learning rate schedule may end before the data does. A rehearsal that ends the data after its steps would miss both.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

from gonogo.virtual.patching.patches import Patches

MAX_EXTRA_BATCHES = 32
"""At most this many additional batches are read."""


class OneCycleSchedule:
    """A OneCycleLR that the program steps: it raises when stepped beyond its last step."""

    def __init__(self, scheduler: Any, batches_before: int, *, covers_all_data: bool) -> None:
        self.scheduler = weakref.ref(scheduler)
        self.batches_before = batches_before
        self.of_all_data = covers_all_data
        """Whether no data had been ended early when it was made, of which its length may have been counted."""
        self.steps = 0

    def batches_until_overrun(self, batches_read: int) -> int:
        """How many more batches it takes to step it once too often, at the current pace; 0: unknown."""
        scheduler = self.scheduler()
        read = batches_read - self.batches_before
        if scheduler is None or not self.steps or read <= 0:
            return 0
        steps: int = scheduler.total_steps - scheduler.last_epoch + 1
        return math.ceil(steps * read / self.steps)


class LastBatchTracker:
    """Tracks the end of the training data."""

    def __init__(self) -> None:
        self.is_made = False
        """Whether data was made by gonogo for want of the run's: how many rows there are says nothing."""
        self.batches = 0
        """How many of training have been read."""
        self.schedule: OneCycleSchedule | None = None
        self.was_ended = False
        """Whether the rehearsal has ended data before its end."""
        self.overstepped = False
        """Whether the schedule has just been stepped once too often, which more data would only have brought sooner."""
        self._was_read = False
        """Whether the data was read up to a last batch of one row, of which one is enough."""

    def record_batch_read(self) -> None:
        """Note that a training batch has been read."""
        self.batches += 1
        self.overstepped = False

    def extra_batches_to_read(self, loader: Any, left: int) -> int:
        """How many of the ``left`` batches to read after the requested steps; usually none."""
        if self.is_made:
            return 0
        if not self._was_read and 0 < left <= MAX_EXTRA_BATCHES and has_single_row_last_batch(loader):
            self._was_read = True
            return left
        more = self.schedule.batches_until_overrun(self.batches) if self.schedule is not None else 0
        return more if 0 < more <= min(left, MAX_EXTRA_BATCHES) else 0

    def track_schedulers(self, patches: Patches) -> None:
        """Track the OneCycleLR that the program stepped last."""
        from torch.optim.lr_scheduler import OneCycleLR

        step = OneCycleLR.step

        def step_and_track(scheduler: Any, *args: Any, **kwargs: Any) -> None:
            if self.schedule is None or self.schedule.scheduler() is not scheduler:
                # the initial step of its constructor
                self.schedule = OneCycleSchedule(scheduler, self.batches, covers_all_data=not self.was_ended)
            else:
                self.schedule.steps += 1
            self.overstepped = self.schedule.of_all_data
            step(scheduler, *args, **kwargs)
            self.overstepped = False

        patches.set(OneCycleLR, "step", step_and_track)


def has_single_row_last_batch(loader: Any) -> bool:
    """Whether a loader's last batch has a single row, and the others have more."""
    from torch.utils.data import BatchSampler

    batches = getattr(loader, "batch_sampler", None)
    if type(batches) is not BatchSampler or batches.drop_last or batches.batch_size < 2:
        return False
    try:
        rows = len(batches.sampler)  # type: ignore[arg-type]
    except TypeError:
        return False
    return rows > 1 and rows % batches.batch_size == 1
