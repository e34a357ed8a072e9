"""``from_pretrained``, followed: that it runs, with which ``device_map``, what it left out, and who called it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gonogo.after_import import after_import
from gonogo.evidence.rehearsal import LoadedWeights
from gonogo.virtual.lifecycle import Lifecycle
from gonogo.virtual.modules import ModuleTracker
from gonogo.virtual.patching import Patches
from gonogo.virtual.stack import frames_of_call
from gonogo.virtual.weights.safetensors_files import SafeOpen, names_in


def install(life: Lifecycle, modules: ModuleTracker, facts: dict[str, Any]) -> Callable[[], None]:
    """Follow transformers' loading and saving; the device map and the weights it did not load are left in ``facts``."""
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
        asked = bool(kwargs.pop("output_loading_info", False))
        before = len(SafeOpen.opened)
        with life.during("load", f"{cls.__name__}.from_pretrained"):
            made = original(cls, *args, output_loading_info=True, **kwargs)
        loaded, info = made if isinstance(made, tuple) else (made, {})
        if info.get("missing_keys"):
            source = args[0] if args else kwargs.get("pretrained_model_name_or_path", "")
            drawn = _drawn_weights(
                loaded, sorted(map(str, info["missing_keys"])), str(source), SafeOpen.opened[before:]
            )
            facts.setdefault("drawn_weights", []).append(drawn)
        spread = getattr(loaded, "hf_device_map", None)
        if spread:
            facts["device_map"] = {str(name): str(device) for name, device in spread.items()}
        modules.add_root(loaded)
        return (loaded, info) if asked else loaded

    @functools.wraps(save)
    def save_pretrained(self: Any, *args: Any, **kwargs: Any) -> Any:
        with life.during("save", f"{type(self).__name__}.save_pretrained"):
            return save(self, *args, **kwargs)

    patches.set(model_class, "from_pretrained", classmethod(from_pretrained))
    patches.set(model_class, "save_pretrained", save_pretrained)


def _drawn_weights(model: Any, missing: list[str], source: str, files: list[Any]) -> LoadedWeights:
    """What ``from_pretrained`` said that it had to draw at random, held against the files that it read."""
    stored = names_in(files)
    sizes = {name: _elements(parameter) for name, parameter in model.named_parameters()}
    return LoadedWeights(
        model=type(model).__name__,
        source=source,
        parameters=sum(sizes.values()),
        missing_parameters=sum(sizes.get(name, 0) for name in missing),
        missing=tuple(missing),
        held=tuple(name for name in missing if name in stored),
        named_instead=next((name for name in sorted(stored) if name.endswith(f".{missing[0]}")), None),
        under_zero3=any(hasattr(parameter, "ds_id") for parameter in model.parameters()),
        frames=tuple(frames_of_call()),
    )


def _elements(parameter: Any) -> int:
    return int(getattr(parameter, "ds_numel", None) or parameter.numel())
