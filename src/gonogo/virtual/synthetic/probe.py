"""Determines how many tokens an image or audio clip takes, by running the model's own encoder.

The model is built only for this, with few text layers, and freed before the one for training is built.
"""

from __future__ import annotations

import copy
import inspect
from contextlib import ExitStack
from typing import Any

import torch

from gonogo.finding import translated
from gonogo.virtual.synthetic import notes
from gonogo.virtual.synthetic.media import Modality
from gonogo.virtual.synthetic.model import LocatedModel
from gonogo.virtual.synthetic.tokens import text_config


def count_features(located_model: LocatedModel, kind: Modality, inputs: dict[str, Any]) -> int | None:
    """The number of features that the inputs yield, each with a token in the text; None if it can't be determined."""
    with notes.ignoring_host_peak():
        return _count_feature_rows(located_model, kind, inputs)


def _count_feature_rows(located_model: LocatedModel, kind: Modality, inputs: dict[str, Any]) -> int | None:
    model: Any = None
    for config in _shortened_configs(located_model.config):
        try:
            model = _build_model(located_model, config)
            break
        except Exception:  # a config that can't be shortened
            continue
    if model is None:
        return None
    encode = next(filter(None, (_find_encoder(owner, kind) for owner in (model, getattr(model, "model", None)))), None)
    if encode is None:
        return None
    takes = inspect.signature(encode).parameters
    given = {name: value for name, value in inputs.items() if name in takes}
    try:
        with torch.no_grad():
            return _count_feature_vectors(encode(**given))
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError) as error:
        first = str(error).strip().partition("\n")[0][:200]
        notes.record_assumption(
            translated("{encoder} could not be run to count the tokens of its inputs: {first}").format(
                encoder=kind.encoders[0], first=first
            )
        )
        return None


def _find_encoder(owner: Any, kind: Modality) -> Any:
    """The owner's method that encodes this modality and has an explicit signature."""
    for name in kind.encoders:
        method = getattr(owner, name, None)
        if callable(method) and any(
            p.kind is p.POSITIONAL_OR_KEYWORD for p in inspect.signature(method).parameters.values()
        ):
            return method
    return None


def _shortened_configs(config: Any) -> list[Any]:
    short = copy.deepcopy(config)
    text = text_config(short)
    if isinstance(getattr(text, "num_hidden_layers", None), int):
        try:
            text.num_hidden_layers = min(text.num_hidden_layers, 4)
            for name, value in list(vars(text).items()):
                if isinstance(value, list) and len(value) > 4 and "layer" in name:
                    setattr(text, name, value[:4])
        except (AttributeError, ValueError, TypeError):
            return [config]
        return [short, copy.deepcopy(config)]
    return [copy.deepcopy(config)]


def _build_model(located_model: LocatedModel, config: Any) -> Any:
    with ExitStack() as stack:
        try:
            from transformers.initialization import no_init_weights
        except ImportError:
            from transformers.modeling_utils import no_init_weights
        stack.enter_context(no_init_weights())
        return located_model.model_class._from_config(config, torch_dtype=torch.float32).eval()


def _count_feature_vectors(features: Any) -> int | None:
    """The number of feature vectors in an encoder's output, whatever its structure."""
    for name in ("pooler_output", "last_hidden_state"):
        inner = getattr(features, name, None)
        if inner is not None:
            return _count_feature_vectors(inner)
    if isinstance(features, torch.Tensor):
        return features.numel() // features.shape[-1] if features.dim() > 1 else None
    if isinstance(features, list | tuple) and features:
        if len(features) == 2 and isinstance(features[1], list | tuple):  # (features, deep-stack features)
            return _count_feature_vectors(features[0])
        counted = [_count_feature_vectors(item) for item in features]
        return sum(c for c in counted if c is not None) if all(c is not None for c in counted) else None
    return None
