"""The versions of the training stack in a rank's process."""

from __future__ import annotations

import contextlib
import sys
from importlib import metadata

from gonogo.evidence.environment.package_name import canonical

STACK = ("torch", "deepspeed", "transformers", "accelerate", "peft", "trl", "ms-swift", "safetensors", "tokenizers",
         "huggingface_hub", "datasets", "numpy", "bitsandbytes", "flash-attn")  # fmt: skip
"""Packages whose versions the record names."""


def versions() -> dict[str, str]:
    """Versions of the stack as this process sees them; a package that isn't installed is left out."""
    found = {}
    for name in STACK:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    found["python"] = sys.version.split()[0]
    return found


def imported_distributions() -> dict[str, str]:
    """The distributions that modules of this process are of, by canonical name, with their versions."""
    tops = {name.partition(".")[0] for name in list(sys.modules)} - set(sys.stdlib_module_names)
    found = {}
    for module, names in metadata.packages_distributions().items():
        for name in names if module in tops else ():
            with contextlib.suppress(metadata.PackageNotFoundError):
                found[canonical(name)] = metadata.version(name)
    return found
