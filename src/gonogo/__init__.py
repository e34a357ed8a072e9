"""Will this multi-GPU fine-tune run? GO, NO-GO or CANNOT-TELL, before a GPU is rented."""

from __future__ import annotations

from gonogo._version import __version__

TYPE_CHECKING = False  # like typing.TYPE_CHECKING, without importing typing at the start of every guarded process
if TYPE_CHECKING:
    from gonogo.api import check_files, diagnose_logs, rehearse_command
    from gonogo.finding import (
        Applicability,
        Certainty,
        Finding,
        Fix,
        Report,
        Severity,
        Skipped,
        Span,
        Text,
        UserError,
        Verdict,
    )
    from gonogo.guard.device_guard import DeviceGuard
    from gonogo.guard.rank.callback import GonogoCallback
    from gonogo.guard.rank.comparing import compare_ranks
    from gonogo.guard.tensors.devices import MixedDevicesError, check_devices

__all__ = [
    "Applicability",
    "Certainty",
    "DeviceGuard",
    "Finding",
    "Fix",
    "GonogoCallback",
    "MixedDevicesError",
    "Report",
    "Severity",
    "Skipped",
    "Span",
    "Text",
    "UserError",
    "Verdict",
    "__version__",
    "check_devices",
    "check_files",
    "compare_ranks",
    "diagnose_logs",
    "load_ipython_extension",
    "rehearse_command",
]

_LAZY_EXPORTS = {
    "DeviceGuard": "gonogo.guard.device_guard",
    "GonogoCallback": "gonogo.guard.rank.callback",
    "MixedDevicesError": "gonogo.guard.tensors.devices",
    "UserError": "gonogo.finding",
    "check_devices": "gonogo.guard.tensors.devices",
    "check_files": "gonogo.api",
    "compare_ranks": "gonogo.guard.rank.comparing",
    "diagnose_logs": "gonogo.api",
    "rehearse_command": "gonogo.api",
}


def load_ipython_extension(shell: object) -> None:
    """``%load_ext gonogo``: the magics ``%gonogo`` and ``%%gonogo``."""
    from gonogo.cli.notebook import load

    load(shell)


def __getattr__(name: str) -> object:
    """Import an attribute on first use, since ``import gonogo`` is part of the start of every guarded process."""
    if name.startswith("_") or name not in __all__:
        raise AttributeError(f"module 'gonogo' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LAZY_EXPORTS.get(name, "gonogo.finding")), name)
    globals()[name] = value
    return value
