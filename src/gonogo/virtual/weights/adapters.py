"""PEFT adapters with a config but without weights: generated from the model to which they are added."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

from gonogo.evidence.rehearsal.attached_adapter import AttachedAdapter
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.values import real
from gonogo.virtual.weights.base_samples import have_same_weights
from gonogo.virtual.weights.generated_weights import GeneratedWeights
from gonogo.virtual.weights.model_folders import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHT_FILE_NAMES,
    find_model_folder,
    is_weight_file_present,
    read_json,
)
from gonogo.virtual.weights.skeleton import isolated_model_build

_loading: list[tuple[Any, str]] = []
"""Models into which adapters are being loaded, with the adapters' names, innermost last."""


attached: list[AttachedAdapter] = []
"""Adapters that were loaded on a base of another name than their config has."""


def install(patches: Patches, generated_weights: GeneratedWeights) -> None:
    """Patch the loading of adapters in peft and in transformers."""

    def patch_peft(module: ModuleType) -> None:
        owner: Any = module.PeftModel
        if not (hasattr(owner, "load_adapter") and hasattr(module, "load_peft_weights")):
            return  # peft 0.2, which only loads adapters in from_pretrained
        load_adapter, load_weights = owner.load_adapter, module.load_peft_weights

        @functools.wraps(load_adapter)
        def load_adapter_and_track(self: Any, model_id: Any, adapter_name: str, *args: Any, **kwargs: Any) -> Any:
            with _loading_adapter(self, adapter_name):
                loaded = load_adapter(self, model_id, adapter_name, *args, **kwargs)
            if (found := _attached_adapter(self, os.fspath(model_id), kwargs)) is not None:
                attached.append(found)
            return loaded

        @functools.wraps(load_weights)
        def load_peft_weights(model_id: Any, *args: Any, **kwargs: Any) -> Any:
            if _loading:
                elsewhere = _ensure_weights(os.fspath(model_id), kwargs, generated_weights)
                if elsewhere is not None:
                    model_id = elsewhere
                    kwargs.pop("subfolder", None)
            return load_weights(model_id, *args, **kwargs)

        patches.set(owner, "load_adapter", load_adapter_and_track)
        patches.set(module, "load_peft_weights", load_peft_weights)

    def patch_transformers(module: ModuleType) -> None:
        owner: Any = module.PeftAdapterMixin
        load_adapter = owner.load_adapter

        @functools.wraps(load_adapter)
        def load_prepared_adapter(
            self: Any, peft_model_id: Any = None, adapter_name: Any = None, *args: Any, **kwargs: Any
        ) -> Any:
            if peft_model_id is None or kwargs.get("adapter_state_dict") is not None:
                return load_adapter(self, peft_model_id, adapter_name, *args, **kwargs)
            name, where = str(peft_model_id), kwargs.get("adapter_kwargs") or {}
            folder = _folder_without_weights(name, where)
            if folder is not None and (writable := generated_weights.writable_folder(folder)) != folder:
                peft_model_id = writable  # the weights are generated there before they are searched for
                kwargs["adapter_kwargs"] = {key: value for key, value in where.items() if key != "subfolder"}
            with (
                _loading_adapter(self, adapter_name or "default"),
                _preparing_after_injection(name, where, generated_weights),
            ):
                return load_adapter(self, peft_model_id, adapter_name, *args, **kwargs)

        patches.set(owner, "load_adapter", load_prepared_adapter)

    patches.on_undo(after_import("peft.peft_model", patch_peft))
    patches.on_undo(after_import("transformers.integrations.peft", patch_transformers))


def _attached_adapter(model: Any, adapter: str, load_kwargs: dict[str, Any]) -> AttachedAdapter | None:
    """The adapter and both bases, if the model was loaded under another name than the adapter's config has."""
    folder = _folder_of(adapter, load_kwargs)
    stated = read_json(os.path.join(folder, ADAPTER_CONFIG)).get("base_model_name_or_path") if folder else None
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    opened = getattr(getattr(base, "config", None), "_name_or_path", "")
    if not isinstance(stated, str) or not stated or not isinstance(opened, str) or not opened or stated == opened:
        return None
    if not os.path.isdir(stated) or not os.path.isdir(opened):
        return AttachedAdapter(adapter, stated, opened)
    if os.path.realpath(stated) == os.path.realpath(opened):
        return None
    return AttachedAdapter(adapter, stated, opened, have_same_weights(stated, opened))


@contextmanager
def _loading_adapter(model: Any, adapter_name: str) -> Iterator[None]:
    _loading.append((model, adapter_name))
    try:
        yield
    finally:
        _loading.pop()


@contextmanager
def _preparing_after_injection(
    name: str, load_kwargs: dict[str, Any], generated_weights: GeneratedWeights
) -> Iterator[None]:
    """Generate the weights after transformers has injected the adapter's modules, before it searches for the
    weights."""
    import peft

    inject = peft.inject_adapter_in_model

    @functools.wraps(inject)
    def inject_and_ensure_weights(*args: Any, **rest: Any) -> Any:
        result = inject(*args, **rest)
        _ensure_weights(name, load_kwargs, generated_weights)
        return result

    with patched_attribute(peft, "inject_adapter_in_model", inject_and_ensure_weights):
        yield


@contextmanager
def patched_attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute temporarily."""
    patches = Patches()
    patches.set(owner, name, value)
    try:
        yield
    finally:
        patches.undo()


def _folder_of(name: str, load_kwargs: dict[str, Any]) -> str | None:
    """The folder of an adapter that has a config, or None."""
    folder = find_model_folder(name, **{key: load_kwargs.get(key) for key in ("subfolder", "cache_dir", "revision")})
    return folder if folder is not None and os.path.isfile(os.path.join(folder, ADAPTER_CONFIG)) else None


def _has_weights(folder: str) -> bool:
    return any(is_weight_file_present(os.path.join(folder, file)) for file in ADAPTER_WEIGHT_FILE_NAMES)


def _folder_without_weights(name: str, load_kwargs: dict[str, Any]) -> str | None:
    folder = _folder_of(name, load_kwargs)
    return None if folder is None or _has_weights(folder) else folder


def _ensure_weights(name: str, load_kwargs: dict[str, Any], generated_weights: GeneratedWeights) -> str | None:
    """Generate an adapter's weights if they are missing; returns the folder to load from if it is not the adapter's
    own."""
    folder = _folder_of(name, load_kwargs)
    if folder is None:
        return None
    generated_weights.run_once(
        os.path.join(folder, ADAPTER_WEIGHT_FILE_NAMES[0]), lambda: _generate_adapter(name, folder, generated_weights)
    )
    place = generated_weights.current_folder(folder)
    return None if place == folder else place


def _generate_adapter(name: str, folder: str, generated_weights: GeneratedWeights) -> str | None:
    """Generate an adapter's weights if its folder has none; returns a sentence about it, or None."""
    if _has_weights(folder):
        return None
    from peft.utils import get_peft_model_state_dict
    from safetensors.torch import save_file

    model, adapter_name = _loading[-1]
    with isolated_model_build():
        shapes = {
            key: real.meta(tuple(getattr(tensor, "ds_shape", tensor.shape)), dtype=tensor.dtype)
            for key, tensor in model.state_dict(keep_vars=True).items()
            if isinstance(tensor, torch.Tensor)
        }
        state = get_peft_model_state_dict(model, state_dict=shapes, adapter_name=adapter_name)
        if not hasattr(model, "get_base_model"):  # loaded by transformers: peft's names have an additional prefix
            state = {f"base_model.model.{key}": tensor for key, tensor in state.items()}
        save_file(
            {key: tensor.contiguous() for key, tensor in state.items()},
            os.path.join(generated_weights.writable_folder(folder), ADAPTER_WEIGHT_FILE_NAMES[0]),
            metadata={"format": "pt"},
        )
    return f"the adapter {name} has no weights here; they are taken to be those of its config ({len(state)} tensors)"
