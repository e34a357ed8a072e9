"""The module in which Apex defines its data parallelism."""

from __future__ import annotations

from apex import _rest
from apex.parallel import DistributedDataParallel, Reducer

__all__ = ["DistributedDataParallel", "Reducer"]
__getattr__ = _rest.module_getattr(__name__)
