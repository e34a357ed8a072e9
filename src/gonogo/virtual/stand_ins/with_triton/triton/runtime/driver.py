"""The device's driver, which gonogo answers for (``virtual/kernels/triton.py``)."""

from __future__ import annotations

from typing import Any


class DriverConfig:
    """Holds the driver in use."""

    def __init__(self) -> None:
        self._active: Any = None

    @property
    def active(self) -> Any:
        """It."""
        return self._active


driver = DriverConfig()
