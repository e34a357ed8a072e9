"""Token ids: ordinary text, with placeholders for images and audio."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

import torch

from gonogo.finding import translated
from gonogo.virtual.synthetic import notes
from gonogo.virtual.synthetic.model import LocatedModel

_PLACEHOLDERS = {
    "image": ("image_token_id", "image_token_index", "img_token_id", "media_placeholder_token_id",
              "image_soft_token_id", "vision_token_id", "im_patch_id", "image_patch_id"),
    "audio": ("audio_token_id", "audio_token_index", "speech_token_id", "audio_soft_token_id"),
}  # fmt: skip
_START_END_TOKENS = {
    "image": (("vision_start_token_id", "vision_end_token_id"), ("image_start_token_id", "image_end_token_id"),
              ("boi_token_id", "eoi_token_id"), ("boi_token_index", "eoi_token_index")),
    "audio": (("audio_start_token_id", "audio_end_token_id"), ("audio_bos_token_id", "audio_eos_token_id"),
              ("boa_token_id", "eoa_token_id")),
}  # fmt: skip
_TOKEN_TYPE_IDS = {"image": 1, "audio": 3}
"""Values of ``mm_token_type_ids`` by modality."""
MASK = "image_embeds_position_mask"
"""The argument with the positions of the images, for models without an image token."""
_EXTRA_TEXT_TOKENS = 16
"""Minimum number of text tokens in a sample, in addition to its images and audio."""


def text_config(config: Any) -> Any:
    """The language model's part of a config; for an encoder-decoder, the encoder's text part."""
    found = config.get_text_config() if hasattr(config, "get_text_config") else config
    if hasattr(found, "vocab_size"):
        return found
    for part in nested_configs(config):
        if hasattr(part, "vocab_size"):
            return part
    return found


def nested_configs(config: Any) -> list[Any]:
    """The nested configs, outermost first."""
    found: list[Any] = []
    for name in getattr(config, "sub_configs", None) or [n for n in vars(config) if n.endswith("_config")]:
        part = getattr(config, name, None)
        if part is not None and hasattr(part, "to_dict"):
            found += [part, *nested_configs(part)]
    return found


def stated_positions(config: Any) -> int | None:
    """The number of positions that the config states."""
    text = text_config(config)
    limits = [getattr(text, name, None) for name in ("max_position_embeddings", "n_positions", "max_seq_len")]
    return min((limit for limit in limits if isinstance(limit, int) and limit > 0), default=None)


def computes_positions(config: Any) -> bool:
    """Whether positions are rotary, so that a sequence longer than stated runs, if worse."""
    text = text_config(config)
    return any(getattr(text, name, None) is not None for name in ("rope_parameters", "rope_theta"))


def max_positions(config: Any) -> int:
    """The longest sequence that the model takes."""
    stated = stated_positions(config)
    if stated is None or computes_positions(config):
        return 1 << 30
    return stated - 2  # RoBERTa's positions start after that of its padding token


def _axial_sequence_length(config: Any) -> int | None:
    """The only sequence length that a model with axial positions can be trained on."""
    shape = getattr(config, "axial_pos_shape", None)
    return math.prod(shape) if getattr(config, "axial_pos_embds", False) and shape else None


def max_target_length(config: Any) -> int:
    """The maximum number of positions of an encoder-decoder's decoder."""
    limit = getattr(config, "max_target_positions", None)
    return limit - 2 if isinstance(limit, int) and limit > 2 else max_positions(config)


def placeholder_token_id(config: Any, kind: str) -> int | None:
    """The placeholder token for a piece of an image or audio clip, or None if the model has none."""
    for name in _PLACEHOLDERS[kind]:
        token = getattr(config, name, None)
        if isinstance(token, int) and token >= 0:
            return token
    return None


def has_own_decoder(located_model: LocatedModel) -> bool:
    """True if the model has a separate decoder, which is fed with the labels."""
    takes = inspect.signature(located_model.model_class.forward).parameters
    encodes = bool(getattr(located_model.config, "is_encoder_decoder", False))
    return encodes and ("decoder_input_ids" in takes or "input_features" in takes or "pixel_values" in takes)


def _special_token_ids(config: Any) -> set[int]:
    found: set[int] = set()
    for part in [config, *nested_configs(config)]:
        for name, value in vars(part).items():
            if name.endswith(("_token_id", "_token_index", "_token_ids", "_id")):
                found |= {v for v in (value if isinstance(value, list | tuple) else [value]) if isinstance(v, int)}
    return found


def ordinary_token_ids(config: Any) -> list[int]:
    """Token ids without special meaning to the model."""
    size = getattr(text_config(config), "vocab_size", None)
    size = size if isinstance(size, int) and size > 0 else 32
    special = _special_token_ids(config)
    usual = [token for token in range(min(size, 512)) if token not in special and token > 3]
    return usual or [size - 1]


def make_token_ids(config: Any, rows: int, length: int) -> torch.Tensor:
    """Ordinary tokens of shape ``(rows, length)``."""
    usual = torch.tensor(ordinary_token_ids(config))
    return usual[torch.arange(rows * length) % len(usual)].reshape(rows, length)


def make_text_inputs(
    located_model: LocatedModel, placeholder_counts: Mapping[str, int], seq_len: int, rows: int
) -> dict[str, Any]:
    """``input_ids`` with the given number of placeholders per modality, and the arguments that describe each
    token."""
    config = located_model.config
    needed = sum(placeholder_counts.values()) + (_EXTRA_TEXT_TOKENS if placeholder_counts else 0)
    limit = max_positions(config)
    length = _axial_sequence_length(config) or min(max(seq_len, needed), max(limit, needed))
    if length != seq_len:
        notes.record_assumption(
            translated(
                "a sample has {length} tokens, not {asked}: as many as the inputs need and the model allows"
            ).format(length=length, asked=seq_len)
        )
    row = make_token_ids(config, 1, length)[0]
    types = torch.zeros(length, dtype=torch.int64)
    at = 2
    for kind, count in placeholder_counts.items():
        token = placeholder_token_id(config, kind)
        start, end = _start_end_tokens(config, kind)
        if start is not None:
            row[at] = start
            at += 1
        if token is not None:  # otherwise only a mask marks the image's positions
            row[at : at + count] = token
        types[at : at + count] = _TOKEN_TYPE_IDS[kind]
        at += count
        if end is not None:
            row[at] = end
            at += 1
    batch: dict[str, Any] = {"input_ids": row.repeat(rows, 1)}
    takes = located_model.forward_parameters
    if "attention_mask" in takes:
        batch["attention_mask"] = torch.ones(rows, length, dtype=torch.int64)
    if "mm_token_type_ids" in takes:
        batch["mm_token_type_ids"] = types.repeat(rows, 1)
    if MASK in takes and placeholder_counts:
        batch[MASK] = (types == _TOKEN_TYPE_IDS["image"]).repeat(rows, 1)
    if "token_type_ids" in takes and placeholder_counts:
        batch["token_type_ids"] = (types > 0).long().repeat(rows, 1)
    return batch


def _start_end_tokens(config: Any, kind: str) -> tuple[int | None, int | None]:
    for names in _START_END_TOKENS[kind]:
        start, end = (getattr(config, name, None) for name in names)
        if isinstance(start, int):
            return start, end if isinstance(end, int) else None
    return None, None


def make_labels(input_ids: torch.Tensor, config: Any) -> torch.Tensor:
    """The same tokens, with placeholders and out-of-vocabulary ids replaced by -100."""
    labels = input_ids.clone()
    size = getattr(text_config(config), "vocab_size", None)
    for kind in _PLACEHOLDERS:
        token = placeholder_token_id(config, kind)
        if token is not None:
            labels[labels == token] = -100
    if isinstance(size, int):
        labels[labels >= size] = -100
    return labels
