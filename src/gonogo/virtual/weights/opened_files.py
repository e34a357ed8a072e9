"""A model's weights that the program opens itself, by the hub's client, where only its configuration was made.

``hf_hub_download(name, "model.safetensors")`` and reading on by safetensors: what ``from_pretrained`` would have found
there is made before it is looked for.
"""

from __future__ import annotations

import functools
import json
import os
import re
from typing import Any

import torch

from gonogo.finding.errors import UserError
from gonogo.virtual.weights import skeleton
from gonogo.virtual.weights.generated_weights import GeneratedWeights
from gonogo.virtual.weights.model_folders import WEIGHT_FILE_NAMES, MissingModelError, read_json
from gonogo.virtual.weights.pretrained import make_weights

_SAFETENSORS_PATTERN = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")
_PICKLED_FILE_NAME = "pytorch_model.bin"
_folders_in_progress: set[str] = set()
"""Folders whose weights are being made: transformers' own code asks the hub's client meanwhile."""


def make(generated_weights: GeneratedWeights, name: str, folder: str, file: str) -> str:
    """Make a model's weights, if ``file`` is one of theirs and the class of its config is known.

    Returns the folder to look in: the model's own, or a copy of it. Where they can't be made, nothing is: the file is
    then not found, as before.
    """
    if not (_SAFETENSORS_PATTERN.fullmatch(file) or file == _PICKLED_FILE_NAME) or folder in _folders_in_progress:
        return folder
    model_class = _class_of(folder)
    if model_class is None:
        return folder
    _folders_in_progress.add(folder)
    try:
        what = os.path.join(folder, WEIGHT_FILE_NAMES[0])
        generated_weights.once(what, lambda: make_weights(model_class, name, folder, {}, generated_weights))
        place = generated_weights.place_of(folder)
        if file == _PICKLED_FILE_NAME:
            generated_weights.once(os.path.join(folder, file), functools.partial(_write_pickled, place))
        return place
    except (MissingModelError, UserError, ImportError):
        return folder
    finally:
        _folders_in_progress.discard(folder)


def _class_of(folder: str) -> Any:
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
    """The same tensors as one archive of torch, which older releases of a model have."""
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
