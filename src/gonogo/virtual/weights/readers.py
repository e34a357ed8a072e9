"""Weights without weights: the program's own loading code runs, and no weight's bytes are read."""

from __future__ import annotations

from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.weights import adapters, device_index, diffusers_models, pretrained, safetensors_files, torch_files
from gonogo.virtual.weights.generated_weights import MadeWeights


def install(made: MadeWeights) -> Patches:
    """Have all readers of weights read names and shapes only, and make checkpoints that are not there."""
    patches = Patches()
    opened: set[str] = set()
    device_index.install(patches)
    safetensors_files.install(patches, opened.add)
    torch_files.install(patches, opened.add)
    pretrained.install(patches, made, opened)
    adapters.install(patches, made)
    diffusers_models.install(patches, made.tell)
    return patches
