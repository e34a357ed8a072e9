"""Loading weights without their bytes: the program's own loading code runs, but no weight data are read."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.values.assumptions import Assume
from gonogo.virtual.weights import adapters, device_index, pretrained, safetensors_files, torch_files
from gonogo.virtual.weights.generated_state import GeneratedStates
from gonogo.virtual.weights.generated_weights import GeneratedWeights

_CONFIG_ARGUMENTS = ("subfolder", "revision", "cache_dir", "local_files_only", "token", "use_auth_token")


def install(generated_weights: GeneratedWeights, assume: Assume) -> Patches:
    """Make all readers of weights read only names and shapes, and generate checkpoints that are missing."""
    patches = Patches()
    opened: set[str] = set()
    device_index.install(patches)
    safetensors_files.install(patches, opened.add)
    torch_files.install(patches, opened.add, GeneratedStates(patches, assume))
    pretrained.install(patches, generated_weights, opened)
    adapters.install(patches, generated_weights)
    _patch_diffusers(patches, generated_weights.tell)
    return patches


_NO_WEIGHTS_FILE = ("no file named", "does not appear to have a file named diffusion_pytorch_model")
"""What diffusers says of a folder without a file of weights, and of a repository of the hub without one."""


def _patch_diffusers(patches: Patches, notify: Callable[[str], None]) -> None:
    """Generate diffusers models from their config if the weights are missing.

    Their ``from_pretrained`` looks for a single weight file, and fails if there is none.
    """
    for module in ("diffusers.models.modeling_utils", "diffusers.modeling_utils"):
        patches.on_undo(after_import(module, functools.partial(_patch_from_pretrained, patches, notify)))


def _patch_from_pretrained(patches: Patches, notify: Callable[[str], None], module: ModuleType) -> None:
    owner: Any = getattr(module, "ModelMixin", None)
    if owner is None or "from_pretrained" not in vars(owner):
        return
    original = vars(owner)["from_pretrained"].__func__

    @functools.wraps(original)
    def from_pretrained(cls: Any, path: Any, **kwargs: Any) -> Any:
        try:
            return original(cls, path, **kwargs)
        except OSError as error:
            if not any(words in str(error) for words in _NO_WEIGHTS_FILE):
                raise
        config = cls.load_config(path, **{name: kwargs[name] for name in _CONFIG_ARGUMENTS if name in kwargs})
        model = cls.from_config(config)
        if isinstance(kwargs.get("torch_dtype"), torch.dtype):
            model = model.to(kwargs["torch_dtype"])
        notify(f"the weights of {path} are not here: the model is made of its configuration")
        return model.eval()

    followed: Any = from_pretrained
    patches.set(owner, "from_pretrained", classmethod(followed))
