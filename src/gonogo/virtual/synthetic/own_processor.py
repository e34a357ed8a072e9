"""Inputs from the model's own processor or tokenizer, if its folder has one."""

from __future__ import annotations

import os
from typing import Any

import torch

from gonogo.finding import translated
from gonogo.virtual.synthetic import notes
from gonogo.virtual.synthetic.media import make_image, make_sine_tone
from gonogo.virtual.synthetic.model import LocatedModel

_PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json")
_TEXT = "Say what there is to see and to hear. "


def build_processor_batch(located_model: LocatedModel, seq_len: int, rows: int) -> dict[str, Any] | None:
    """Inputs from the folder's processor, padded to ``seq_len``; None if there is none, or it can't be used."""
    folder = located_model.folder
    if folder is None or not any(os.path.isfile(os.path.join(folder, name)) for name in _PROCESSOR_FILES):
        return None
    from transformers import AutoProcessor

    try:
        processor = AutoProcessor.from_pretrained(folder, trust_remote_code=True)
        made = _run_processor(processor, located_model, rows)
    except Exception as error:  # a missing tokenizer or library: fall back to the config
        first = str(error).strip().partition("\n")[0][:160]
        notes.record_assumption(
            translated(
                "inputs are built from the model's configuration, because its processor fails with {first}"
            ).format(first=first)
        )
        return None
    if made is None:
        return None
    return {
        name: _fill_sequence(name, value, made, seq_len)
        for name, value in made.items()
        if name in located_model.forward_parameters
    }


def _run_processor(processor: Any, located_model: LocatedModel, rows: int) -> dict[str, Any] | None:
    image = make_image(336)
    takes = located_model.forward_parameters
    looks = "pixel_values" in takes
    listens = any(name in takes for name in ("input_features", "input_values"))
    rate = getattr(getattr(processor, "feature_extractor", processor), "sampling_rate", 16000)
    sound = make_sine_tone(2 * rate)
    if not hasattr(processor, "tokenizer"):
        given = [image] * rows if looks else [sound] * rows
        more = {} if looks else {"sampling_rate": rate}
        return dict(processor(given, return_tensors="pt", **more))
    prompt = _make_prompt(processor, looks, listens)
    arguments: dict[str, Any] = {"text": [prompt] * rows, "return_tensors": "pt", "padding": True}
    if looks:
        arguments["images"] = [[image] for _ in range(rows)]
    if listens:
        arguments["audio"] = [sound] * rows
    return dict(processor(**arguments))


def _make_prompt(processor: Any, has_images: bool, has_audio: bool) -> str:
    content: list[dict[str, str]] = []
    content += [{"type": "image"}] if has_images else []
    content += [{"type": "audio"}] if has_audio else []
    content.append({"type": "text", "text": _TEXT})
    if getattr(processor, "chat_template", None):
        return str(processor.apply_chat_template([{"role": "user", "content": content}], tokenize=False))
    marks = [getattr(processor, f"{kind['type']}_token", "") for kind in content[:-1]]
    return "".join(str(mark or "") for mark in marks) + _TEXT


def _fill_sequence(name: str, value: Any, processor_outputs: dict[str, Any], seq_len: int) -> Any:
    """Extend a per-token tensor to ``seq_len``; anything else is returned unchanged."""
    ids = processor_outputs.get("input_ids")
    if not isinstance(value, torch.Tensor) or ids is None or value.shape != ids.shape or ids.shape[1] >= seq_len:
        return value
    more = seq_len - ids.shape[1]
    last = value[:, -1:].expand(-1, more)
    return torch.cat([value, torch.zeros_like(last) if "type" in name else last], dim=1)
