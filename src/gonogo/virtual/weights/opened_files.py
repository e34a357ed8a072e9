"""Weights that the program opens itself through the hub client, for a model of which only the config was prepared.

For ``hf_hub_download(name, "model.safetensors")`` followed by reading with safetensors: the files that
``from_pretrained`` would find are generated before they are looked up.
"""

from __future__ import annotations

import functools
import json
import os
import re
from typing import Any

import torch

from gonogo.finding import UserError
from gonogo.virtual.weights import skeleton
from gonogo.virtual.weights.generated_weights import GeneratedWeights
from gonogo.virtual.weights.model_folders import WEIGHT_FILE_NAMES, MissingModelError, read_json
from gonogo.virtual.weights.pretrained import make_weights

_SAFETENSORS_PATTERN = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")
_PICKLED_FILE_NAME = "pytorch_model.bin"
_folders_in_progress: set[str] = set()
"""Folders whose weights are being generated, during which transformers' own code calls the hub client."""


def generate_if_weights_file(generated_weights: GeneratedWeights, name: str, folder: str, file: str) -> str:
    """Generate a model's weights if ``file`` is one of its weight files.

    Returns the folder to look in: the model's own, or a copy of it. If they can't be generated, the file is not
    found, as before.
    """
    if not (_SAFETENSORS_PATTERN.fullmatch(file) or file == _PICKLED_FILE_NAME) or folder in _folders_in_progress:
        return folder
    model_class = _model_class(folder)
    if model_class is None:
        return folder
    _folders_in_progress.add(folder)
    try:
        what = os.path.join(folder, WEIGHT_FILE_NAMES[0])
        generated_weights.run_once(what, lambda: make_weights(model_class, name, folder, {}, generated_weights))
        place = generated_weights.current_folder(folder)
        if file == _PICKLED_FILE_NAME:
            generated_weights.run_once(os.path.join(folder, file), functools.partial(_write_pickled, place))
        return place
    except (MissingModelError, UserError, ImportError):
        return folder
    finally:
        _folders_in_progress.discard(folder)


def _model_class(folder: str) -> Any:
    config = os.path.join(folder, "config.json")
    if not os.path.isfile(config):
        return None
    try:
        import transformers
    except ImportError:
        return None
    names = read_json(config).get("architectures") or [None]
    return getattr(transformers, str(names[0]), None)


def _write_pickled(folder: str) -> None:
    """Write the same tensors as a ``torch.save`` archive, the format of older repositories."""
    index = os.path.join(folder, WEIGHT_FILE_NAMES[1])
    files = [WEIGHT_FILE_NAMES[0]]
    if os.path.exists(index):
        with open(index, encoding="utf-8") as text:
            files = sorted(set(json.load(text)["weight_map"].values()))
    from safetensors.torch import load_file

    state: dict[str, torch.Tensor] = {}
    for file in files:
        state |= load_file(os.path.join(folder, file))
    with skeleton.isolated_model_build():
        torch.save(state, os.path.join(folder, _PICKLED_FILE_NAME))
