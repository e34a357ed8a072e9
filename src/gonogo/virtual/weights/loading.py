"""Tracks ``from_pretrained``: when it runs, its ``device_map``, the weights that it did not load, and its caller."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from gonogo.virtual.hooks.lifecycle import Lifecycle
from gonogo.virtual.hooks.modules import ModuleTracker
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.stack import frames_of_call
from gonogo.virtual.weights.random_weights import RandomWeights
from gonogo.virtual.weights.safetensors_files import SafeOpen


def install(lifecycle: Lifecycle, modules: ModuleTracker, facts: dict[str, Any]) -> Callable[[], None]:
    """Patch transformers' loading and saving; records the device map and the missing weights in ``facts``."""
    patches = Patches()
    patches.on_undo(
        after_import(
            "transformers.modeling_utils",
            lambda module: _patch_pretrained_model(patches, module.PreTrainedModel, lifecycle, modules, facts),
        )
    )
    return patches.undo


def _patch_pretrained_model(
    patches: Patches, model_class: Any, lifecycle: Lifecycle, modules: ModuleTracker, facts: dict[str, Any]
) -> None:
    original = model_class.from_pretrained.__func__
    save = model_class.save_pretrained
    drawn = facts["drawn_weights"] = RandomWeights(patches, torch.nn.Module)  # read when the record is created

    @functools.wraps(original)
    def from_pretrained(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device_map") is not None:
            facts.setdefault("device_map_frames", list(frames_of_call()))
        requested = bool(kwargs.pop("output_loading_info", False))
        before = len(SafeOpen.opened)
        with lifecycle.during("load", f"{cls.__name__}.from_pretrained"):
            made = original(cls, *args, output_loading_info=True, **kwargs)
        loaded, info = made if isinstance(made, tuple) else (made, {})
        if info.get("missing_keys"):
            source = args[0] if args else kwargs.get("pretrained_model_name_or_path", "")
            drawn.record_missing(loaded, sorted(map(str, info["missing_keys"])), str(source), SafeOpen.opened[before:])
        spread = getattr(loaded, "hf_device_map", None)
        if spread:
            facts["device_map"] = {str(name): str(device) for name, device in spread.items()}
        modules.add_root(loaded)
        return (loaded, info) if requested else loaded

    @functools.wraps(save)
    def save_pretrained(self: Any, *args: Any, **kwargs: Any) -> Any:
        with lifecycle.during("save", f"{type(self).__name__}.save_pretrained"):
            return save(self, *args, **kwargs)

    patches.set(model_class, "from_pretrained", classmethod(from_pretrained))
    patches.set(model_class, "save_pretrained", save_pretrained)
