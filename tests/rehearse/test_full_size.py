"""Published models at their full sizes, from their configurations alone; and what they showed, with real DeepSpeed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

PUBLISHED = Path(__file__).parents[2] / "benchmarks" / "published_models.json"
OFFLOAD = {
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "offload_param": {"device": "cpu", "pin_memory": True},
    },
    "gradient_clipping": "auto",
    "gradient_accumulation_steps": "auto",
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
}


def entry_of(name: str) -> dict[str, Any]:
    return next(entry for entry in json.loads(PUBLISHED.read_text()) if entry["name"] == name)


@pytest.mark.very_slow
@pytest.mark.parametrize("name", ["Qwen3-8B", "Qwen3-30B-A3B", "Qwen2.5-VL-7B", "Whisper-large-v3", "ViT-L/16"])
def test_a_published_model_is_rehearsed_at_its_size(tmp_path: Path, name: str) -> None:
    entry = entry_of(name)
    (tmp_path / "config.json").write_text(json.dumps({**entry["config"], "architectures": [entry["class"]]}))
    (tmp_path / "ds.json").write_text(json.dumps(OFFLOAD))
    done = subprocess.run(
        [sys.executable, "-m", "gonogo", "rehearse", "--synthetic-batch", "config.json", "--deepspeed", "ds.json",
         "--gpus", "8xB200", "--seq-len", "2048", "--gradient-checkpointing", "--format", "json"],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=850,
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert report["verdict"] == "GO", report
    (rank,) = report["rehearsal"]["ranks"]
    assert rank["parameter_count"] / 1e9 == pytest.approx(entry["parameters"], rel=0.01)


FUSED_EXPERTS = """
import gc, os, weakref
import deepspeed, torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.integrations import HfDeepSpeedConfig
settings = {
    "train_micro_batch_size_per_gpu": 1,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0, "stage3_max_live_parameters": 0,
                          "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
    "bf16": {"enabled": True},
}
kept = HfDeepSpeedConfig(settings)
config = Qwen3MoeConfig(hidden_size=64, intermediate_size=128, moe_intermediate_size=512, num_hidden_layers=6,
                        num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_experts=8,
                        num_experts_per_tok=2, vocab_size=128)
deepspeed.init_distributed("gloo")
model = Qwen3MoeForCausalLM._from_config(config, torch_dtype=torch.bfloat16)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)

class Storages(TorchDispatchMode):
    live = {}
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in self.live:
                storage = tensor.untyped_storage()
                self.live[storage._cdata] = storage.nbytes()
                weakref.finalize(storage, self.live.pop, storage._cdata, None)
        return out

ids = torch.arange(32).reshape(1, 32)
with Storages():
    loss = engine(input_ids=ids, labels=ids, use_cache=False).loss
gc.collect()
whole = 8 * 2 * 512 * 64 * 2  # gate_up_proj of all experts of a layer, in bytes
print("HELD", sum(size == whole for size in Storages.live.values()), flush=True)
os._exit(0)
"""


@pytest.mark.very_slow
def test_fused_experts_stay_gathered_until_backward_for_real(tmp_path: Path) -> None:
    """What a rehearsal shows of mixtures of experts under ZeRO-3: autograd keeps each layer's gathered experts.

    The grouped matrix product saves a view of the weight, so its memory outlives the partitioning after forward.
    """
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(FUSED_EXPERTS))
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "29613",
         str(program)],
        env={**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=600,
    )  # fmt: skip
    assert done.stdout.count("HELD 6") == 2, done.stdout + done.stderr[-3000:]
