"""Apex for programs that train with its mixed precision, data parallelism and optimizers, where it isn't installed.

Apex is on no package index (the ``apex`` there is another project), and is compiled where it is installed.
"""

from __future__ import annotations

from apex import _rest

_rest.install()
__getattr__ = _rest.module_getattr(__name__)

from apex import amp, normalization, optimizers, parallel  # noqa: E402  found only now

__all__ = ["amp", "normalization", "optimizers", "parallel"]
