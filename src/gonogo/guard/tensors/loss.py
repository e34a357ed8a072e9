"""A loss that is not finite, noticed without waiting for the GPU."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

_EVERY = 0.5  # seconds: on a GPU the loss is looked at no more often


class PendingLoss:
    """One loss: known at once on the CPU, else on its way over from the GPU."""

    def __init__(self, loss: Any, step: int) -> None:
        self.step = step
        self._taken = time.monotonic()
        self._value: Any = None
        self._event: Any = None
        self._wait = 0.0
        torch = sys.modules["torch"]
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            return
        loss = loss.detach()
        if loss.device.type == "cpu":
            self._value = float(loss)
        elif loss.device.type == "cuda" and not torch.cuda.is_current_stream_capturing():
            self._wait = _EVERY
            self._value = torch.empty((), dtype=torch.float32, pin_memory=True)
            self._value.copy_(loss.reshape(()), non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()

    def due(self) -> bool:
        """Whether it is time to look at another one."""
        return time.monotonic() - self._taken >= self._wait

    def not_finite(self) -> str | None:
        """``nan`` or ``inf``, where the loss is known by now and is such."""
        if self._value is None or (self._event is not None and not self._event.query()):
            return None
        value = float(self._value)
        return None if math.isfinite(value) else str(value)
