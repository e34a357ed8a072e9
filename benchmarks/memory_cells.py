"""The cells of ``memory.py``: which model, trained how. Small enough to be trained for real on a CPU."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gonogo.trials.plan.strategy import Family, Place, Strategy, TuningMethod, deepspeed_config
from gonogo.virtual.measuring.depth import layer_count, with_depth

STEPS = 2
"""Optimizer steps of a cell: in the second all states are there."""
_SMALL = {
    "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 6, "num_attention_heads": 8,
    "num_key_value_heads": 4, "vocab_size": 12000, "max_position_embeddings": 4096, "use_cache": False,
}  # fmt: skip

MODELS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **_SMALL},
    "qwen2-tied": {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **_SMALL, "num_hidden_layers": 8,
        "vocab_size": 24000, "tie_word_embeddings": True,
    },
    "gemma-wide-vocabulary": {
        "model_type": "gemma", "architectures": ["GemmaForCausalLM"], **_SMALL, "num_hidden_layers": 3, "head_dim": 64,
        "vocab_size": 40000, "hidden_activation": "gelu_pytorch_tanh",
    },
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], **_SMALL, "head_dim": 64},
    "gpt2": {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 512, "n_layer": 6, "n_head": 8,
        "n_positions": 2048, "vocab_size": 12000, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
        "use_cache": False,
    },
    "qwen2-vl": {
        "model_type": "qwen2_vl", "architectures": ["Qwen2VLForConditionalGeneration"],
        "text_config": {
            "model_type": "qwen2_vl_text", **_SMALL, "num_hidden_layers": 4, "vocab_size": 16384,
            "rope_parameters": {"rope_type": "default", "mrope_section": [8, 12, 12], "rope_theta": 1e6},
        },
        "vision_config": {"depth": 4, "embed_dim": 384, "hidden_size": 512, "num_heads": 6, "mlp_ratio": 4},
        "image_token_id": 16000, "video_token_id": 16001, "vision_start_token_id": 16002, "vision_end_token_id": 16003,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """A model trained in one way on ``world`` accelerators."""

    model: str
    zero: int
    optimizer: Place = "gpu"
    parameters: Place = "gpu"
    checkpointing: bool = False
    micro_batch: int = 1
    seq_len: int = 256
    accumulation: int = 1
    tune: TuningMethod = "full"
    world: int = 1
    bucket: int = 8_000_000
    """Elements of ``reduce_bucket_size`` (and of ZeRO-1's and 2's ``allgather_bucket_size``)."""

    @property
    def name(self) -> str:
        """It names the cell in the results, and nothing else does."""
        parts = [self.model, f"zero{self.zero}"]
        if self.optimizer != "gpu":
            parts.append(f"optimizer-{self.optimizer}")
        if self.parameters != "gpu":
            parts.append(f"parameters-{self.parameters}")
        if self.checkpointing:
            parts.append("checkpointing")
        parts += [self.tune, f"{self.micro_batch}x{self.accumulation}x{self.seq_len}"]
        if self.bucket != Cell.bucket:
            parts.append(f"bucket{self.bucket // 1_000_000}M")
        return "-".join([*parts, f"world{self.world}"])

    @property
    def layers(self) -> int:
        """Of the model's language part."""
        return layer_count(MODELS[self.model])

    @property
    def depths(self) -> tuple[int, int] | None:
        """Two numbers of layers to extend from; None where there are too few."""
        return (1, 2) if self.layers > 2 else None

    def written(self, folder: Path, depth: int = 0) -> list[str]:
        """Write the model's and DeepSpeed's configurations; the arguments of ``gonogo.virtual.measuring.program``."""
        config = MODELS[self.model] if not depth else with_depth(MODELS[self.model], depth)
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        strategy = Strategy(Family(self.zero, self.optimizer, self.parameters), self.checkpointing, self.micro_batch,
                            self.accumulation)  # fmt: skip
        settings = deepspeed_config(strategy, world_size=self.world)
        if self.zero in (1, 2):
            settings["zero_optimization"] |= {"reduce_bucket_size": self.bucket, "allgather_bucket_size": self.bucket}
        elif self.zero == 3:
            settings["zero_optimization"] |= {"reduce_bucket_size": self.bucket}
        (folder / "deepspeed.json").write_text(json.dumps(settings), encoding="utf-8")
        arguments = [
            "--model", str(folder), "--deepspeed", str(folder / "deepspeed.json"), "--steps", str(STEPS),
            "--seq-len", str(self.seq_len), "--micro-batch", str(self.micro_batch), "--tune", self.tune,
        ]  # fmt: skip
        return [*arguments, *(["--gradient-checkpointing"] if self.checkpointing else [])]


def all_cells() -> list[Cell]:
    """Every cell: model states spread in every way, activations kept and not, adapters, shares of several ranks."""
    spread = [
        Cell("llama", zero, optimizer, parameters, checkpointing, micro_batch=2)
        for zero, optimizer, parameters in _SPREADS
        for checkpointing in (False, True)
    ]
    batches = [
        Cell("llama", 2, micro_batch=4, seq_len=512),
        Cell("llama", 2, micro_batch=4, seq_len=512, checkpointing=True),
        Cell("llama", 3, micro_batch=1, seq_len=1024),
        Cell("llama", 2, accumulation=2, micro_batch=2),
        Cell("llama", 3, "cpu", accumulation=2, micro_batch=2),
        Cell("llama", 2, micro_batch=2, bucket=500_000_000),
    ]
    families = [
        Cell("qwen2-tied", 2, micro_batch=2),
        Cell("qwen2-tied", 3, "cpu", "cpu", checkpointing=True, micro_batch=2),
        Cell("gemma-wide-vocabulary", 2, micro_batch=2),
        Cell("gemma-wide-vocabulary", 3, "cpu", checkpointing=True),
        Cell("qwen3", 2, "cpu", micro_batch=2, checkpointing=True),
        Cell("qwen3", 3, micro_batch=2),
        Cell("gpt2", 2, micro_batch=2),
        Cell("gpt2", 3, checkpointing=True, micro_batch=4),
        Cell("qwen2-vl", 2, tune="freeze-vision"),
        Cell("qwen2-vl", 3, checkpointing=True),
    ]
    adapters = [
        Cell("llama", 2, tune="lora", micro_batch=2),
        Cell("llama", 2, tune="lora", micro_batch=4, checkpointing=True),
        Cell("llama", 3, tune="lora", micro_batch=2),
        Cell("qwen2-tied", 3, "cpu", "cpu", tune="lora", micro_batch=2, checkpointing=True),
        Cell("qwen3", 2, "cpu", tune="lora", micro_batch=2),
    ]
    ranks = [
        Cell("llama", 2, micro_batch=2, world=2),
        Cell("llama", 3, micro_batch=2, world=2),
        Cell("llama", 3, "cpu", "cpu", checkpointing=True, world=2),
        Cell("qwen3", 2, "cpu", world=2),
        Cell("qwen2-tied", 3, tune="lora", world=4),
    ]
    return [*spread, *batches, *families, *adapters, *ranks]


_SPREADS: tuple[tuple[int, Place, Place], ...] = (
    (0, "gpu", "gpu"), (1, "gpu", "gpu"), (2, "gpu", "gpu"), (2, "cpu", "gpu"), (3, "gpu", "gpu"), (3, "cpu", "gpu"),
    (3, "cpu", "cpu"),
)  # fmt: skip
