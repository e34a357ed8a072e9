"""Weights without weights: the program's own loading code runs, and no weight's bytes are read."""

from __future__ import annotations

from collections.abc import Callable

from gonogo.virtual.hooks.patching import Patches
from gonogo.virtual.sandbox.overlay import Overlay
from gonogo.virtual.weights import adapters, device_index, diffusers_models, pretrained, safetensors_files, torch_files


def install(overlay: Overlay | None, tell: Callable[[str], None] = lambda event: None) -> Patches:
    """Have all readers of weights read names and shapes only, and make checkpoints of models whose weights are absent.

    ``tell`` gets a sentence for each thing worth telling. Without an ``overlay`` nothing is made that isn't there.
    """
    patches = Patches()
    opened: set[str] = set()
    device_index.install(patches)
    safetensors_files.install(patches, overlay, opened.add)
    torch_files.install(patches, overlay, opened.add)
    if overlay is not None:
        pretrained.install(patches, overlay, opened, tell)
        adapters.install(patches, overlay, tell)
        diffusers_models.install(patches, tell)
    return patches
