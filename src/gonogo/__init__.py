"""Will this multi-GPU fine-tune run? GO, NO-GO or CANNOT-TELL, before a GPU is rented."""

from __future__ import annotations

TYPE_CHECKING = False  # as typing's, which would be one more import at the start of every guarded process
if TYPE_CHECKING:
    from gonogo.errors import UserError
    from gonogo.finding import Applicability, Certainty, Finding, Fix, Report, Severity, Skipped, Span, Text, Verdict
    from gonogo.guard.callback import GonogoCallback
    from gonogo.guard.comparing import compare_ranks
    from gonogo.guard.device_guard import DeviceGuard
    from gonogo.guard.devices import MixedDevicesError, check_devices

__version__ = "0.1.0"

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
    "compare_ranks",
]

_PLACES = {
    "DeviceGuard": "gonogo.guard.device_guard",
    "GonogoCallback": "gonogo.guard.callback",
    "MixedDevicesError": "gonogo.guard.devices",
    "UserError": "gonogo.errors",
    "check_devices": "gonogo.guard.devices",
    "compare_ranks": "gonogo.guard.comparing",
}


def __getattr__(name: str) -> object:
    """Import what is asked for only then: `import gonogo` is part of the start of every guarded process."""
    if name.startswith("_") or name not in __all__:
        raise AttributeError(f"module 'gonogo' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_PLACES.get(name, "gonogo.finding")), name)
    globals()[name] = value
    return value
