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
from gonogo.virtual.weights.generated_weights import MadeWeights
from gonogo.virtual.weights.places import WEIGHTS, ModelNotHere, read_json
from gonogo.virtual.weights.pretrained import make_weights

_SAFETENSORS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")
_PICKLED = "pytorch_model.bin"
_making: set[str] = set()
"""Folders whose weights are being made: transformers' own code asks the hub's client meanwhile."""


def make(made: MadeWeights, name: str, folder: str, file: str) -> str:
    """Make a model's weights, if ``file`` is one of theirs and the class of its config is known.

    Returns the folder to look in: the model's own, or a copy of it. Where they can't be made, nothing is: the file is
    then not found, as before.
    """
    if not (_SAFETENSORS.fullmatch(file) or file == _PICKLED) or folder in _making:
        return folder
    model_class = _class_of(folder)
    if model_class is None:
        return folder
    _making.add(folder)
    try:
        what = os.path.join(folder, WEIGHTS[0])
        made.once(what, lambda: make_weights(model_class, name, folder, {}, made))
        place = made.place_of(folder)
        if file == _PICKLED:
            made.once(os.path.join(folder, file), functools.partial(_pickle, place))
        return place
    except (ModelNotHere, UserError, ImportError):
        return folder
    finally:
        _making.discard(folder)


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


def _pickle(folder: str) -> None:
    """The same tensors as one archive of torch, which older releases of a model have."""
    index = os.path.join(folder, WEIGHTS[1])
    files = [WEIGHTS[0]]
    if os.path.exists(index):
        with open(index, encoding="utf-8") as text:
            files = sorted(set(json.load(text)["weight_map"].values()))
    from safetensors.torch import load_file

    state: dict[str, torch.Tensor] = {}
    for file in files:
        state |= load_file(os.path.join(folder, file))
    with skeleton.own_build():
        torch.save(state, os.path.join(folder, _PICKLED))
