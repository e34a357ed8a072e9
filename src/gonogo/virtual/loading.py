"""``from_pretrained``, followed: that it runs, with which ``device_map``, and from where it was called."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gonogo.after_import import after_import
from gonogo.virtual.lifecycle import Lifecycle
from gonogo.virtual.modules import ModuleTracker
from gonogo.virtual.patching import Patches
from gonogo.virtual.stack import frames_of_call


def install(life: Lifecycle, modules: ModuleTracker, facts: dict[str, Any], events: list[str]) -> Callable[[], None]:
    """Follow transformers' loading and saving; the device map is left in ``facts``."""
    patches = Patches()
    patches.on_undo(
        after_import(
            "transformers.modeling_utils", lambda module: _follow(patches, module.PreTrainedModel, life, modules, facts)
        )
    )
    return patches.undo


def _follow(patches: Patches, model_class: Any, life: Lifecycle, modules: ModuleTracker, facts: dict[str, Any]) -> None:
    original = model_class.from_pretrained.__func__
    save = model_class.save_pretrained

    @functools.wraps(original)
    def from_pretrained(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device_map") is not None:
            facts.setdefault("device_map_frames", list(frames_of_call()))
        with life.during("load", f"{cls.__name__}.from_pretrained"):
            model = original(cls, *args, **kwargs)
        loaded = model[0] if isinstance(model, tuple) else model
        spread = getattr(loaded, "hf_device_map", None)
        if spread:
            facts["device_map"] = {str(name): str(device) for name, device in spread.items()}
        modules.add_root(loaded)
        return model

    @functools.wraps(save)
    def save_pretrained(self: Any, *args: Any, **kwargs: Any) -> Any:
        with life.during("save", f"{type(self).__name__}.save_pretrained"):
            return save(self, *args, **kwargs)

    patches.set(model_class, "from_pretrained", classmethod(from_pretrained))
    patches.set(model_class, "save_pretrained", save_pretrained)
