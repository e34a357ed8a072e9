"""What is tuned: all parameters, adapters, or all but the vision and audio encoders."""

from __future__ import annotations

from typing import Any

_BYTES_PER_4BIT_PARAMETER = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Bytes per parameter: the 4-bit weight, an 8-bit scale per block of 64, and a 32-bit scale per 256 of those."""
_ENCODER_NAME_PARTS = ("visual", "vision", "image", "audio", "speech")
"""Parts of the names of modules that encode images or audio."""
_CONNECTOR_NAME_PARTS = ("merger", "project", "connector", "adapter")
"""Parts of the names of modules between the encoder and the language model, which freeze-vision keeps trainable."""


def quantize_to_4bit(located_model: Any, arguments: Any) -> Any:
    """The model with 4-bit linear layers, loaded by ``from_pretrained`` as the generated script loads it."""
    import torch
    from transformers import BitsAndBytesConfig

    dtype = torch.bfloat16 if arguments.bf16 else torch.float16
    settings = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
        bnb_4bit_quant_storage=dtype,
    )
    made = located_model.model_class.from_pretrained(
        located_model.folder, config=located_model.config, dtype=dtype, quantization_config=settings
    )
    return made.train()


def bytes_of_weights(model: Any, tune: str) -> int:
    """Bytes of the weights in 16 bits; for ``qlora``, linear layers except the output head count as 4-bit."""
    from torch import nn

    whole: int = 2 * sum(parameter.numel() for parameter in model.parameters())
    if tune != "qlora":
        return whole
    head = model.get_output_embeddings()
    linear: int = sum(
        module.weight.numel() for module in model.modules() if isinstance(module, nn.Linear) and module is not head
    )
    return whole - 2 * linear + int(linear * _BYTES_PER_4BIT_PARAMETER)


def freeze_untuned(model: Any, tune: str, lora_rank: int) -> Any:
    """The model with only those parameters trainable that ``tune`` trains: ``full``, ``lora``, ``qlora``,
    ``freeze-vision``."""
    if tune in ("lora", "qlora"):
        from peft import LoraConfig, get_peft_model

        settings = LoraConfig(r=lora_rank, lora_alpha=2 * lora_rank, target_modules="all-linear", lora_dropout=0.0)
        return get_peft_model(model, settings)
    if tune == "freeze-vision":
        for name, parameter in model.named_parameters():
            parts = name.lower()
            if any(word in parts for word in _ENCODER_NAME_PARTS) and not any(
                word in parts for word in _CONNECTOR_NAME_PARTS
            ):
                parameter.requires_grad_(False)
    return model
