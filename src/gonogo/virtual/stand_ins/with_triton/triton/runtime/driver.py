"""The device's driver, which gonogo answers for (``virtual/kernels/triton.py``)."""

from __future__ import annotations

from typing import Any

from triton import _rest

__getattr__ = _rest.module_getattr(__name__)


class DriverConfig:
    """Holds Triton's active driver."""

    def __init__(self) -> None:
        self._active: Any = None

    @property
    def active(self) -> Any:
        """The active driver."""
        return self._active


driver = DriverConfig()
