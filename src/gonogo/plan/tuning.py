"""Ways of tuning a model: everything, adapters, or all but what sees and hears."""

from __future__ import annotations

from typing import Any

_PERCEIVING = ("visual", "vision", "image", "audio", "speech")
"""Words in the names of modules that turn images and sounds into embeddings."""
_CONNECTING = ("merger", "project", "connector", "adapter")
"""Words in the names of modules between those and the language model, which freeze-vision leaves trained."""


def tuned(model: Any, tune: str, lora_rank: int) -> Any:
    """The model with what ``tune`` trains left trainable: ``full``, ``lora``, ``qlora`` or ``freeze-vision``."""
    if tune in ("lora", "qlora"):
        from peft import LoraConfig, get_peft_model

        settings = LoraConfig(r=lora_rank, lora_alpha=2 * lora_rank, target_modules="all-linear", lora_dropout=0.0)
        return get_peft_model(model, settings)
    if tune == "freeze-vision":
        for name, parameter in model.named_parameters():
            parts = name.lower()
            if any(word in parts for word in _PERCEIVING) and not any(word in parts for word in _CONNECTING):
                parameter.requires_grad_(False)
    return model
