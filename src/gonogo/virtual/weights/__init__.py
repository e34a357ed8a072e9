"""Weights without weights: the program's own loading code runs, and no weight's bytes are read."""

from __future__ import annotations

from collections.abc import Callable

from gonogo.virtual.hooks.patching import Patches
from gonogo.virtual.sandbox.overlay import Overlay
from gonogo.virtual.weights import adapters as _adapters
from gonogo.virtual.weights import device_index as _device_index
from gonogo.virtual.weights import pretrained as _pretrained
from gonogo.virtual.weights import safetensors_files as _safetensors_files
from gonogo.virtual.weights import torch_files as _torch_files


def install(overlay: Overlay | None, tell: Callable[[str], None] = lambda event: None) -> Patches:
    """Have all readers of weights read names and shapes only, and make checkpoints of models whose weights are absent.

    ``tell`` gets a sentence for each thing worth telling. Without an ``overlay`` nothing is made that isn't there.
    """
    patches = Patches()
    opened: set[str] = set()
    _device_index.install(patches)
    _safetensors_files.install(patches, overlay, opened.add)
    _torch_files.install(patches, overlay, opened.add)
    if overlay is not None:
        _pretrained.install(patches, overlay, opened, tell)
        _adapters.install(patches, overlay, tell)
    return patches
