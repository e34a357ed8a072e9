"""Models as ``gonogo plan`` knows them, without torch, and a machine to plan for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gonogo.evidence.environment.hardware import parse_machine
from gonogo.trials.plan.request import PlanRequest
from gonogo.virtual.measuring.jobs import EngineFacts, ModelFacts

SEVEN_BILLION = ModelFacts(
    model_class="Qwen2ForCausalLM", parameters=7_615_616_512, trainable=7_615_616_512, layer_parameters=233_057_792,
    depth=28, period=1, hidden_size=3584, vocabulary=152_064, largest_parameter=544_997_376,
    weight_bytes=15_231_233_024, ulysses_sizes=(2, 4),
)  # fmt: skip
ENGINES = tuple(
    EngineFacts(
        tp=tp, weights=15_231_233_024 // tp, cache_of_token=57_344 // tp, forward=1 << 29,
        sampler_of_sequence=3_345_408, graphs=480 << 20, graphs_in_share=True,
    )
    for tp in (1, 2, 4)
)  # fmt: skip
TINY: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 1024,
    "max_position_embeddings": 512, "tie_word_embeddings": False,
}  # fmt: skip


def model_in(folder: Path, **changes: Any) -> Path:
    """A folder with a tiny model's config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**TINY, **changes}), encoding="utf-8")
    return folder


def request(model: Path, gpus: str = "8xA100-80G", nodes: int = 1, **settings: Any) -> PlanRequest:
    """A request for a machine with 1 TiB of host memory."""
    settings = {"seq_len": 4096, **settings}
    return PlanRequest(model=model, name=str(model), machine=parse_machine(gpus, nodes, "1T", 1), **settings)


def gonogo_plan(folder: Path, *words: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """The command, in a folder, with a cache of its own."""
    return subprocess.run(
        [sys.executable, "-m", "gonogo", "plan", *words], cwd=folder, capture_output=True, text=True, timeout=timeout,
        env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "LANG": "C"},
    )  # fmt: skip
