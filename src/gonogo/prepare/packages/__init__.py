"""Other packages than this Python's, from a cache: one or two laid over it, or a whole environment beside it.

What is laid over stands first on ``PYTHONPATH``. torch, CUDA and what is compiled against them can't be laid over: the
rehearsal runs with those installed, and says so. The user's environment stays as it is.
"""

from __future__ import annotations

import functools
from pathlib import Path

from gonogo.prepare.packages.installed import installed_version
from gonogo.prepare.packages.overlay import PackageOverlay, build_overlay
from gonogo.prepare.packages.places import Say

__all__ = ["PackageOverlay", "installed_version", "packages_for"]


def packages_for(
    file: Path | None,
    with_packages: tuple[str, ...],
    as_of: str | None,
    report_progress: Say,
    *,
    yes: bool = False,
    unconfined: bool = False,
) -> PackageOverlay:
    """The packages that a rehearsal is to have: a file's whole environment, or this Python's with some laid over.

    ``yes``: what the file asks for may be installed; else the user is asked, once for a project. ``unconfined``: builds
    of packages that have no wheel are not confined. Raises UserError for what can't be read, found or installed, and
    where the user doesn't agree.
    """
    if file is None:
        return build_overlay(with_packages, report_progress, unconfined=unconfined)
    from gonogo.prepare.packages.consent import agree
    from gonogo.prepare.packages.full_environment import build_full_environment

    consent = functools.partial(agree, yes=yes)
    return build_full_environment(file, with_packages, as_of, report_progress, consent=consent, unconfined=unconfined)
