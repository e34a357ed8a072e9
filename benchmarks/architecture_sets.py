"""What is rehearsed: published models at their full sizes, and every architecture's default configuration."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

ACCELERATOR = "B200"
"""Large enough, so that memory is no verdict on an architecture."""
STRATEGIES = ("zero2", "zero3", "zero3-offload")
_MAPPINGS = (
    "MODEL_FOR_CAUSAL_LM_MAPPING",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING",
    "MODEL_FOR_CTC_MAPPING",
    "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING",
)


@dataclass(frozen=True)
class Case:
    """One rehearsal of the table."""

    set: str
    name: str
    model_class: str
    config: dict[str, Any] = field(hash=False)
    strategy: str
    seq_len: int
    world: int

    def written(self, folder: Path) -> list[str]:
        """The program's arguments; its files are written in ``folder``."""
        config = {**self.config, "architectures": [self.model_class]}
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        (folder / "ds.json").write_text(json.dumps(deepspeed_config(self.strategy)), encoding="utf-8")
        return ["--model", str(folder / "config.json"), "--deepspeed", str(folder / "ds.json"),
                "--seq-len", str(self.seq_len)]  # fmt: skip


def deepspeed_config(strategy: str) -> dict[str, Any]:
    """The DeepSpeed config of a strategy."""
    zero: dict[str, Any] = {"stage": 2 if strategy == "zero2" else 3, "overlap_comm": True,
                            "contiguous_gradients": True, "reduce_bucket_size": 50_000_000}  # fmt: skip
    if strategy != "zero2":
        zero |= {"stage3_prefetch_bucket_size": 50_000_000, "stage3_param_persistence_threshold": 100_000}
    if strategy == "zero3-offload":
        zero |= {"offload_optimizer": {"device": "cpu", "pin_memory": True},
                 "offload_param": {"device": "cpu", "pin_memory": True}}  # fmt: skip
    return {
        "bf16": {"enabled": "auto"},
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
                                                  "weight_decay": "auto"}},
        "zero_optimization": zero,
        "gradient_clipping": "auto",
        "gradient_accumulation_steps": "auto",
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
    }  # fmt: skip


@cache
def _default_config(model_type: str) -> str | None:
    """The default configuration as JSON; None where the type has none (it is put together of other models)."""
    from transformers import CONFIG_MAPPING

    try:
        config = CONFIG_MAPPING[model_type]()
        return str(config.to_json_string(use_diff=False))
    except Exception:  # it wants arguments, or a library of its own
        return None


def _completed(config: dict[str, Any], mapping: str) -> dict[str, Any]:
    """The configuration with what every published one of its kind states and the default leaves out."""
    if mapping == "MODEL_FOR_CAUSAL_LM_MAPPING" and config.get("is_decoder") is False:
        config["is_decoder"] = True
    text = config.get("text_config") if isinstance(config.get("text_config"), dict) else config
    if config.get("is_encoder_decoder"):
        padding = config.get("pad_token_id")
        config.setdefault("pad_token_id", 0)
        config["pad_token_id"] = 0 if padding is None else padding
        if config.get("decoder_start_token_id") is None:
            config["decoder_start_token_id"] = config["pad_token_id"]
    vision = config.get("vision_config")
    if isinstance(vision, dict) and "out_hidden_size" in vision and isinstance(text.get("hidden_size"), int):
        vision["out_hidden_size"] = text["hidden_size"]
    return config


def default_cases() -> list[Case]:
    """Every class of the mappings, each from its default configuration, those with few layers first."""
    from transformers.models.auto import modeling_auto

    cases: dict[str, Case] = {}
    for mapping in _MAPPINGS:
        names = getattr(modeling_auto, f"{mapping}_NAMES")
        for model_type, classes in names.items():
            config = _default_config(model_type)
            for model_class in [classes] if isinstance(classes, str) else classes[:1]:
                if config is not None and model_class not in cases:
                    stated = json.loads(config)
                    stated["model_type"] = model_type
                    case = Case(
                        "default", model_type, model_class, _completed(stated, mapping), "zero3-offload", 128, 8
                    )
                    cases[model_class] = case
    return sorted(cases.values(), key=lambda case: (_layers(case.config), case.model_class))


def _layers(config: dict[str, Any]) -> int:
    """Layers of all towers: what a rehearsal takes its time for."""
    names = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers", "depth",
             "num_decoder_layers", "num_encoder_layers")  # fmt: skip
    own = sum(value for name in names if isinstance(value := config.get(name), int))
    return own + sum(_layers(part) for part in config.values() if isinstance(part, dict))


def published_cases() -> list[Case]:
    """Published models under every strategy."""
    file = Path(__file__).resolve().with_name("published_models.json")
    entries = json.loads(file.read_text(encoding="utf-8"))
    return [
        Case("published", entry["name"], entry["class"], entry["config"], strategy, entry["seq_len"], 64)
        for strategy in STRATEGIES
        for entry in entries
    ]
