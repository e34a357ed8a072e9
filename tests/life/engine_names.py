"""Checkpoints under names as training runs leave them, and what vLLM's loader does with them.

What is said here was argued from vLLM's source; ``benchmarks/engine_names.py --really`` writes what its own classes did
on the CPU to ``engine_names.json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

TRUTH = Path(__file__).parent / "engine_names.json"
MAX_RANK = 16
Weights = dict[str, torch.Tensor]


@dataclass(frozen=True)
class NamesCell:
    """A model's checkpoint with other names, or an adapter for it; ``raises`` are words of vLLM's message."""

    name: str
    change: Callable[[Weights], Weights] = dict
    model: str = "qwen2"
    raises: str = ""
    silent: tuple[str, ...] = ()
    """Weights that the engine goes without, and doesn't say so."""
    adapter: dict[str, Any] | None = None
    """Entries of an ``adapter_config.json``: the adapter is served, and the base as it is."""
    more: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Further tensors of the adapter."""


def _prefixed(prefix: str) -> Callable[[Weights], Weights]:
    return lambda weights: {f"{prefix}{name}": value for name, value in weights.items()}


def _renamed(old: str, new: str) -> Callable[[Weights], Weights]:
    return lambda weights: {name.replace(old, new, 1): value for name, value in weights.items()}


def _without(*words: str) -> Callable[[Weights], Weights]:
    return lambda weights: {n: value for n, value in weights.items() if not any(word in n for word in words)}


def _with(name: str, *shape: int) -> Callable[[Weights], Weights]:
    return lambda weights: {**weights, name: torch.zeros(shape)}


def _unmerged(weights: Weights) -> Weights:
    own = {n.replace("q_proj.weight", "q_proj.base_layer.weight"): value for n, value in weights.items()}
    return own | {"model.layers.0.self_attn.q_proj.lora_A.default.weight": torch.zeros(8, 64)}


def _resized(weights: Weights) -> Weights:
    return weights | {name: torch.zeros(203, 64) for name in weights if "embed_tokens" in name or "lm_head" in name}


def _fused(weights: Weights) -> Weights:
    own = dict(weights)
    for number in range(2):
        at = f"model.layers.{number}.self_attn."
        for kind in ("weight", "bias"):
            parts = [own.pop(f"{at}{one}_proj.{kind}") for one in "qkv"]
            own[f"{at}qkv_proj.{kind}"] = torch.cat(parts)
    return own


_NO_MODULE = "There is no module or parameter named "
_Q = tuple(f"model.layers.{number}.self_attn.q_proj.weight" for number in range(2))
_LORA = {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"], "bias": "none", "peft_type": "LORA"}
_TOO_LARGE = "is greater than max_lora_rank"

CELLS = [
    NamesCell("as transformers saves it"),
    NamesCell("PEFT's prefix", _prefixed("base_model.model."), raises=f"{_NO_MODULE}'base_model' in Qwen2ForCausalLM"),
    NamesCell("DDP's prefix", _prefixed("module."), raises=f"{_NO_MODULE}'module' in Qwen2ForCausalLM"),
    NamesCell("torch.compile's prefix", _prefixed("_orig_mod."), raises=f"{_NO_MODULE}'_orig_mod'"),
    NamesCell("of the inner model", _renamed("model.", ""), raises=_NO_MODULE),
    NamesCell(
        "of a model with vision",
        _renamed("model.", "model.language_model."),
        raises=f"{_NO_MODULE}'language_model' in Qwen2Model",
    ),
    # Argued to be refused by name: stacked layers load their parts themselves.
    NamesCell("an adapter that was not merged", _unmerged, raises="has no attribute `base_layer`"),
    NamesCell("without a norm", _without("model.norm"), raises="not initialized from checkpoint"),
    NamesCell("without q_proj", _without("q_proj.weight"), silent=_Q),
    NamesCell("without lm_head", _without("lm_head"), silent=("lm_head.weight",)),
    NamesCell("with lm_head, and tied", model="qwen2-tied", change=_with("lm_head.weight", 200, 64)),
    # Argued to be refused: since 0.33 a head of its own is read, whatever the config says.
    NamesCell(
        "tied, with lm_head alone",
        _renamed("model.embed_tokens", "lm_head"),
        "qwen2-tied",
        silent=("model.embed_tokens.weight",),
    ),
    NamesCell("three tokens more", _resized, raises="AssertionError"),
    NamesCell("a value head", _with("v_head.summary.weight", 1, 64), raises=f"{_NO_MODULE}'v_head'"),
    NamesCell("a classifier's head", _with("score.weight", 2, 64), raises=f"{_NO_MODULE}'score'"),
    NamesCell("a bias that the model has not", _with("model.layers.0.mlp.down_proj.bias", 64)),
    NamesCell("rotary frequencies", _with("model.layers.0.self_attn.rotary_emb.inv_freq", 8)),
    NamesCell("q, k and v in one", _fused),
    NamesCell("Llama's", model="llama"),
    NamesCell("Llama's, with biases", _with("model.layers.0.self_attn.q_proj.bias", 64), "llama"),
    NamesCell("Llama's, of DDP", _prefixed("module."), "llama", raises=f"{_NO_MODULE}'module' in LlamaForCausalLM"),
    NamesCell("Mistral's", model="mistral"),
    NamesCell(
        "Mistral's, without v_proj",
        _without("v_proj"),
        "mistral",
        silent=tuple(f"model.layers.{n}.self_attn.v_proj.weight" for n in range(2)),
    ),
    NamesCell("Qwen3's", model="qwen3"),
    NamesCell("Qwen3's, without a head's norm", _without("q_norm"), "qwen3", raises="not initialized from checkpoint"),
    NamesCell("Gemma 2's, of torch.compile", _prefixed("_orig_mod."), "gemma2", raises=f"{_NO_MODULE}'_orig_mod'"),
    NamesCell("Gemma 2's", model="gemma2"),
    NamesCell("Phi-3's", model="phi3"),
    NamesCell(
        "Phi-3's, without the fused layer",
        _without("gate_up_proj"),
        "phi3",
        silent=tuple(f"model.layers.{n}.mlp.gate_up_proj.weight" for n in range(2)),
    ),
    NamesCell("an adapter", adapter={}),
    NamesCell("rank 32", adapter={"r": 32}, raises=_TOO_LARGE),
    NamesCell("rank 64 of one layer", adapter={"rank_pattern": {"v_proj": 64}}, raises=_TOO_LARGE),
    NamesCell(
        "modules_to_save",
        adapter={"modules_to_save": ["lm_head"]},
        more={"base_model.model.lm_head.weight": (200, 64)},
        raises="vLLM only supports modules_to_save",
    ),
    NamesCell("DoRA", adapter={"use_dora": True}, raises="vLLM does not yet support DoRA"),
    NamesCell("trained biases", adapter={"bias": "lora_only"}, raises="Adapter bias is not supported"),
    NamesCell("PiSSA", adapter={"init_lora_weights": "pissa"}, raises="does not support init_lora_weights='pissa'"),
    NamesCell("Gaussian", adapter={"init_lora_weights": "gaussian"}),
    NamesCell(
        "embeddings that were resized",
        more={"base_model.model.model.embed_tokens.weight": (203, 64)},
        adapter={},
        raises="is unsupported LoRA weight",
    ),
    NamesCell(
        "LoRA of the embedding",
        more={
            "base_model.model.model.embed_tokens.lora_embedding_A": (8, 200),
            "base_model.model.model.embed_tokens.lora_embedding_B": (64, 8),
        },
        adapter={},
        raises="expected target modules in",
    ),
    NamesCell(
        "layers that the engine has not",
        more={
            "base_model.model.model.layers.0.own_proj.lora_A.weight": (8, 64),
            "base_model.model.model.layers.0.own_proj.lora_B.weight": (64, 8),
        },
        adapter={},
        raises="expected target modules in",
    ),
    NamesCell(
        "an adapter of a model with vision",
        _renamed("model.model.layers", "model.model.language_model.layers"),
        adapter={},
        silent=tuple(
            f"base_model.model.model.language_model.layers.{n}.self_attn.{one}_proj.lora_{part}.weight"
            for n in range(2)
            for one in "qv"
            for part in "AB"
        ),
    ),
]

_SIZES = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 200, "tie_word_embeddings": False, "head_dim": 16, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 64,
}  # fmt: skip
_KINDS = {"qwen2": "Qwen2", "qwen2-tied": "Qwen2", "llama": "Llama", "mistral": "Mistral", "qwen3": "Qwen3",
          "gemma2": "Gemma2", "phi3": "Phi3"}  # fmt: skip


def plain_names(cell: NamesCell) -> list[tuple[str, torch.nn.Parameter]]:
    """The weights of the cell's model, in transformers."""
    return list(_model(cell).named_parameters())


def _model(cell: NamesCell) -> Any:
    import transformers

    kind = _KINDS[cell.model]
    sizes = _SIZES | {"tie_word_embeddings": True} if cell.model in ("qwen2-tied", "gemma2") else _SIZES
    torch.manual_seed(0)
    return getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(**sizes))


def write(cell: NamesCell, folder: Path) -> None:
    """``base/``, and ``adapter/`` if the cell has one."""
    model = _model(cell)
    base = folder / "base"
    model.save_pretrained(base)
    if cell.adapter is None:
        own = load_file(base / "model.safetensors")
        save_file(
            {n: v.contiguous() for n, v in cell.change(own).items()}, base / "model.safetensors", {"format": "pt"}
        )
        return
    adapter = folder / "adapter"
    adapter.mkdir()
    settings = _LORA | {"base_model_name_or_path": "base", "task_type": "CAUSAL_LM"} | cell.adapter
    (adapter / "adapter_config.json").write_text(json.dumps(settings), encoding="utf-8")
    weights: Weights = {}
    for number in range(2):
        for one, size in (("q", 64), ("v", 32)):
            at = f"base_model.model.model.layers.{number}.self_attn.{one}_proj"
            weights |= {f"{at}.lora_A.weight": torch.zeros(8, 64), f"{at}.lora_B.weight": torch.zeros(size, 8)}
    weights |= {name: torch.zeros(shape) for name, shape in cell.more.items()}
    save_file(cell.change(weights), adapter / "adapter_model.safetensors", {"format": "pt"})


def answer(cell: NamesCell, folder: Path) -> dict[str, Any]:
    """What gonogo says of the cell's checkpoint, in the form of the truth."""
    from gonogo.virtual.rollout.engine_checkpoint import load_engine_weights

    write(cell, folder)
    adapters = {} if cell.adapter is None else {"own": str(folder / "adapter")}
    try:
        loaded = load_engine_weights(
            str(folder / "base"), adapters, MAX_RANK, lambda what, why: RuntimeError(f"{what}: {why.en}")
        )
    except Exception as error:
        return {"raises": f"{type(error).__name__}: {error}"}
    if cell.adapter is not None:
        with safe_open(folder / "adapter" / "adapter_model.safetensors", "pt") as file:
            return {"silent": sorted({*file.keys()} - {name for name, _ in loaded.named_parameters()})}
    return {"silent": sorted(name for name, value in loaded.named_parameters() if name in loaded.missing)}


def differs(cell: NamesCell, said: Mapping[str, Any], truth: Mapping[str, Any] | None) -> list[str]:
    """What is unlike what was argued, or unlike what vLLM did; each a line."""
    wrong = []
    if cell.raises not in said.get("raises", "") or bool(cell.raises) != ("raises" in said):
        wrong.append(f"not as argued: {cell.raises or 'it loads'}")
    elif not cell.raises and said["silent"] != sorted(cell.silent):
        wrong.append(f"not as argued: without {cell.silent}")
    if truth is not None and ("raises" in truth) != ("raises" in said):
        wrong.append(f"vLLM: {truth}")
    elif truth is not None and "raises" in truth:
        kinds = [one["raises"].partition(":")[0] for one in (said, truth)]
        if kinds[0] != kinds[1] or cell.raises not in truth["raises"]:
            wrong.append(f"vLLM: {truth}")
    elif truth is not None and truth["silent"] != said["silent"]:
        wrong.append(f"vLLM: {truth}")
    return wrong
