"""Packages from a cache for rehearsals: some laid over this Python's own, or a whole environment beside it.

Overlaid packages come first on ``PYTHONPATH``. torch, CUDA and whatever is compiled against them can't be overlaid:
the rehearsal uses the installed ones and says so. The user's environment is never changed.
"""

from __future__ import annotations

import functools
from pathlib import Path

from gonogo.prepare.packages.installed import installed_version
from gonogo.prepare.packages.overlay import PackageOverlay, build_overlay
from gonogo.prepare.packages.places import ReportProgress

__all__ = ["PackageOverlay", "installed_version", "packages_for"]


def packages_for(
    file: Path | None,
    with_packages: tuple[str, ...],
    as_of: str | None,
    report_progress: ReportProgress,
    *,
    yes: bool = False,
    unconfined: bool = False,
) -> PackageOverlay:
    """The packages of a rehearsal: the whole environment of a file, or this Python's with some laid over.

    ``yes`` allows the installation of what the file requires; otherwise the user is asked once for each project.
    ``unconfined`` builds packages that have no wheel without confinement. Raises UserError for what can't be read,
    found or installed, and if the user doesn't agree.
    """
    if file is None:
        return build_overlay(with_packages, report_progress, unconfined=unconfined)
    from gonogo.prepare.packages.consent import require_consent
    from gonogo.prepare.packages.full_environment import build_full_environment

    consent = functools.partial(require_consent, yes=yes)
    return build_full_environment(file, with_packages, as_of, report_progress, consent=consent, unconfined=unconfined)
