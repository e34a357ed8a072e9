"""The versions of the training stack in a rank's process."""

from __future__ import annotations

import contextlib
import sys
from importlib import metadata

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
