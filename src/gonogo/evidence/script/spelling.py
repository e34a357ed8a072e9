"""Canonical names for objects that libraries export from several modules."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

# Modules that define what these packages export at top level, and from which users import as well.
_FLAT_PACKAGES = frozenset({"transformers", "trl", "peft", "accelerate", "datasets", "bitsandbytes"})
_PREFIX_ALIASES = (
    ("deepspeed.runtime.zero.partition_parameters.", "deepspeed.zero."),
    ("deepspeed.runtime.zero.", "deepspeed.zero."),
    ("deepspeed.runtime.engine.", "deepspeed."),
    ("deepspeed.runtime.activation_checkpointing.", "deepspeed."),
    ("torch.nn.parallel.distributed.", "torch.nn.parallel."),
    ("torch.optim.adamw.", "torch.optim."),
    ("torch.optim.adam.", "torch.optim."),
    ("torch.utils.data.dataloader.", "torch.utils.data."),
    ("torch.utils.data.dataset.", "torch.utils.data."),
    ("torch.utils.data.distributed.", "torch.utils.data."),
    ("torch.nn.modules.", "torch.nn."),
    ("lightning.pytorch.", "pytorch_lightning."),
)


def canonical_api_name(name: str) -> str:
    """The canonical one of several names: ``transformers.trainer.Trainer`` is ``transformers.Trainer``."""
    top, dot, rest = name.partition(".")
    if not dot:
        return name
    if top in _FLAT_PACKAGES and rest[:1].islower():
        parts = rest.split(".")
        for i, part in enumerate(parts):
            if part[:1].isupper():
                return ".".join([top, *parts[i:]])
            if "*" in part:
                return name
        return name
    if top in ("deepspeed", "torch", "lightning"):
        for old, new in _PREFIX_ALIASES:
            if name.startswith(old):
                name = new + name.removeprefix(old)
                break
        if name.startswith("torch.nn."):
            parts = name.split(".")
            if (
                len(parts) > 3
                and parts[2].islower()
                and parts[3][:1].isupper()
                and parts[2] not in _TORCH_NN_SUBMODULES
            ):
                return ".".join(["torch", "nn", *parts[3:]])
    return name


_TORCH_NN_SUBMODULES = frozenset(
    {"functional", "init", "parallel", "utils", "attention", "parameter", "qat", "quantized"}
)


@cache
def _compile_pattern(pattern: str) -> Callable[[str], Any]:
    import fnmatch
    import re

    return re.compile(fnmatch.translate(canonical_api_name(pattern))).match


def matches_api_name(pattern: str, name: str) -> bool:
    """Whether a glob matches a qualified name, whichever alias the glob uses."""
    if pattern == name:
        return True
    if pattern.startswith("*.") and not any(each in pattern[1:] for each in "*?["):
        return name.endswith(pattern[1:])
    return _compile_pattern(pattern)(name) is not None
