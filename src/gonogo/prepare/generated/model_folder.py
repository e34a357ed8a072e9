"""A model's folder without weights: the published config, a generated tokenizer, the processor's files."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from gonogo.evidence.published.models import PublishedModel, full_config, processor_files, tokenizer_layout
from gonogo.prepare.generated.tokenizer import tokenizer_files


def model_files(model: PublishedModel) -> dict[str, bytes]:
    """The files of the folder, by name."""
    files = {"config.json": _json_bytes(full_config(model))}
    processors = _processors(model)
    whole = next((one["processor_class"] for one in processors.values() if "processor_class" in one), None)
    if model.tokenizer is not None:
        layout = tokenizer_layout(model.tokenizer)
        if layout.templated is not None and not re.search(layout.templated, model.name):
            layout = msgspec.structs.replace(layout, template=None)
        files |= tokenizer_files(layout, whole)
        if layout.chat_template is not None and processors:
            files["chat_template.json"] = _json_bytes({"chat_template": layout.chat_template.rstrip("\n")})
    ids = {key: model.config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id") if key in model.config}
    if any(name.endswith(("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")) for name in _architectures(model)):
        files["generation_config.json"] = _json_bytes({"_from_model_config": True, **ids})
    return files | {name: _json_bytes(content) for name, content in processors.items()}


def _architectures(model: PublishedModel) -> list[str]:
    return list(model.config.get("architectures", []))


def _processors(model: PublishedModel) -> dict[str, dict[str, Any]]:
    """The processor's files, adapted to the sizes in the model's config."""
    files = processor_files(model.model_type)
    for content in files.values():
        if "num_mel_bins" in model.config and "feature_size" in content:
            content["feature_size"] = model.config["num_mel_bins"]
        size = model.config.get("vision_config", {}).get("image_size")
        if size and model.model_type == "clip":
            content |= {"size": {"shortest_edge": size}, "crop_size": {"height": size, "width": size}}
        if size and model.model_type == "siglip":
            content["size"] = {"height": size, "width": size}
        if (edge := model.config.get("image_size")) and model.model_type == "vit":
            content["size"] = {"height": edge, "width": edge}
        if "return_attention_mask" in content and model.config.get("feat_extract_norm") == "layer":
            content["return_attention_mask"] = True
    return files


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()
