"""Other versions of packages, laid over the user's Python from a cache; the user's environment stays as it is.

What is laid over stands first on ``PYTHONPATH``. torch, CUDA and what is compiled against them can't be laid over: the
rehearsal runs with those installed, and says so.
"""

from __future__ import annotations

from gonogo.rehearse.packages.laying import PackageOverlay, installed_version, lay_over

__all__ = ["PackageOverlay", "installed_version", "lay_over"]
