"""Small models that tests save for real, and how they are loaded again."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import torch

TINY = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 128, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 128}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "Qwen2ForCausalLM": ("Qwen2Config", TINY),
    "LlamaForCausalLM": ("LlamaConfig", {**TINY, "tie_word_embeddings": True}),
    "MixtralForCausalLM": ("MixtralConfig", {**TINY, "num_local_experts": 4}),
    "Qwen3MoeForCausalLM": ("Qwen3MoeConfig", {**TINY, "num_experts": 4, "moe_intermediate_size": 16, "head_dim": 8}),
    "GptOssForCausalLM": ("GptOssConfig", {**TINY, "num_local_experts": 4, "head_dim": 8}),
    "Gemma3ForCausalLM": ("Gemma3TextConfig", {**TINY, "head_dim": 8}),
    "T5ForConditionalGeneration": (
        "T5Config", {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 128},
    ),
    "GPT2LMHeadModel": (
        "GPT2Config",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 128, "n_positions": 64},
    ),
    "BertForMaskedLM": ("BertConfig", BERT),
    "Qwen2_5_VLForConditionalGeneration": (
        "Qwen2_5_VLConfig",
        {"text_config": {**TINY, "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2], "rope_type": "default"}},
         "vision_config": {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2,
                           "out_hidden_size": 32, "fullatt_block_indexes": [1]}},
    ),
}  # fmt: skip

LOAD = """
import transformers
def loaded(cls, folder, **kwargs):
    model, info = getattr(transformers, cls).from_pretrained(folder, output_loading_info=True, **kwargs)
    return {"state": described(model.state_dict().items()), "buffers": described(model.named_buffers()),
            "training": model.training, **{key: sorted(map(str, value)) for key, value in info.items()}}
"""


def really(program: str, *arguments: str) -> str:
    """What a program prints, run without gonogo.

    In a process of its own: transformers maps weight files into memory and reads them in threads, and in a process in
    which other tests had patched torch this has crashed.
    """
    command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended.stdout


def real_loads(cases: list[tuple[str, Path, dict[str, Any]]]) -> list[dict[str, Any]]:
    """What :data:`LOAD` says of the real models (class, folder, keywords)."""
    program = f"""
import json, sys
{LOAD}
def described(tensors):
    return {{name: [list(t.shape), str(t.dtype), str(t.device)] for name, t in tensors}}
print(json.dumps([loaded(cls, folder, **kw) for cls, folder, kw in json.loads(sys.argv[1])]))
"""
    printed = really(program, json.dumps([(cls, str(folder), kw) for cls, folder, kw in cases]))
    found: list[dict[str, Any]] = json.loads(printed.splitlines()[-1])
    return found


def header(path: Path) -> dict[str, Any]:
    """A safetensors file's names, dtypes and shapes."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        described = json.loads(file.read(length))
    described.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"]) for name, entry in described.items()}


def save(cls: str, folder: Path, **changes: Any) -> None:
    """A tiny model saved for real in ``folder/full``, and its config alone in ``folder/config``."""
    import transformers

    config_class, arguments = MODELS[cls]
    config = getattr(transformers, config_class)(**{**arguments, **changes})
    torch.manual_seed(0)
    getattr(transformers, cls)(config).to(torch.bfloat16).save_pretrained(folder / "full")
    (folder / "config").mkdir()
    shutil.copy(folder / "full" / "config.json", folder / "config")
