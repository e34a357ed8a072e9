"""The state of the training that one rank's guard keeps; exceptions, comparisons and searches read it."""

from __future__ import annotations

import os
import sys
from typing import Any

from gonogo.evidence.guarded.records import Phase
from gonogo.guard.common.collectives import CollectiveRingBuffer
from gonogo.guard.common.writer import RecordWriter
from gonogo.guard.injection import GuardOptions


class RankState:
    """One rank's progress, as its guard has observed it."""

    def __init__(self, options: GuardOptions) -> None:
        self.options = options
        self.writer: RecordWriter | None = None
        """None until this process turns out to be a rank."""
        self.rank = int(os.environ.get("RANK", "0") or 0)
        self.local_rank = 0
        self.ring = CollectiveRingBuffer()
        self.phase: Phase = "load"
        self.step = 0
        self.models: list[Any] = []
        """Weak references to the engines, or else models, that are trained: the newest last."""
        self.trainer: Any = None
        """A weak reference to transformers' Trainer, or None."""
        self.data: dict[str, str] = {}
        """What is known of the data, as facts that ranks compare."""
        self.trainer_facts: dict[str, str] = {}
        self.search: Any = None
        """The search for the first value that is not finite, where it was asked for."""
        self.noted = 0
        """Exceptions that were written down on their way out; a program may catch them, and go on."""

    @property
    def reports_for_all(self) -> bool:
        """Whether this rank reports the training's metrics to a tracker: the first rank or the last one."""
        return self.rank in (0, int(os.environ.get("WORLD_SIZE", "1") or 1) - 1)

    @property
    def engine(self) -> Any:
        """The newest DeepSpeed engine, or None."""
        alive = (reference() for reference in reversed(self.models))
        return next((one for one in alive if one is not None and hasattr(one, "global_steps")), None)

    @property
    def model(self) -> Any:
        """The trained model without its wrappers, or None if it is unknown."""
        engine = self.engine
        if engine is not None:
            return engine.module
        alive = (reference() for reference in reversed(self.models))
        model = next((one for one in alive if one is not None), None)
        if model is None:
            model = getattr(self.trainer() if self.trainer is not None else None, "model", None)
        if model is None:  # then torch may not even be imported
            return None
        torch: Any = sys.modules["torch"]
        return model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model
