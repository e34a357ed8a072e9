"""What vLLM derives from a model: its context length, heads, weight names, and the cache size per token.

Sources, in vLLM: ``ModelConfig.verify_with_parallel_config`` and ``_get_and_verify_max_len`` (vllm/config), for the
checks and their messages; ``AttentionSpec.page_size_bytes`` and ``MLAAttentionSpec`` (vllm/v1/kv_cache_interface.py),
for the cache; ``BitsAndBytesLinearMethod`` and ``BitsAndBytesModelLoader`` (vllm/model_executor), for 4-bit weights.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from typing import Any

import torch

from gonogo.finding import Text, translated
from gonogo.virtual.weights import skeleton
from gonogo.virtual.weights.model_folders import find_model_folder, missing_model_error

_CONTEXT_LENGTH_KEYS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length", "max_target_positions",
    "max_sequence_length", "max_seq_length", "seq_len",
)  # fmt: skip
_WITHOUT_KV_CACHE = ("linear_attention", "mamba", "conv")
"""Layer types whose state does not grow with the number of tokens."""
_BYTES_PER_4BIT_WEIGHT = 0.5 + 4 / 64
"""Bytes of a 4-bit weight and its share of the block's float32 scale, which the loader dequantizes if necessary."""
_NAMES_UNKNOWN = translated("gonogo does not know the names that vLLM uses for the parts of a multimodal model")
_WEIGHTS_UNKNOWN = translated("gonogo does not know how much memory the model's weights take")


class EngineModel:
    """A model as seen by one rank of the engine: ``tp`` ranks share its heads and weights. Sizes are in bytes.

    Raises vLLM's error if the model can't be served that way.
    """

    def __init__(
        self,
        name: str,
        dtype: Any,
        tp: int,
        max_model_len: int | None,
        trust_remote_code: bool,
        unsupported_error: Callable[[str, Text], BaseException],
        quantization: str | None = None,
    ) -> None:
        from transformers import AutoConfig

        self._unsupported = unsupported_error
        folder = name if os.path.isdir(name) else find_model_folder(name)
        if folder is None:
            raise missing_model_error(name)
        self.config = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
        self.text = self.config.get_text_config() if hasattr(self.config, "get_text_config") else self.config
        self.folder = folder
        self.tp = tp
        self._check_heads()
        self.dtype = _resolve_dtype(dtype, self.config, self.text)
        self.max_model_len = _context_length(self.text, max_model_len)
        self.shapes: dict[str, tuple[int, ...]] = {}
        """Shapes of the weights, by their names in transformers."""
        self.parts: set[str] = set()
        """The first components of these names."""
        self.architecture = ""
        self.quantization = quantization
        self.unpacked = 0
        """Bytes of the largest 4-bit matrix when dequantized, which a forward does one by one."""
        self.weights = self._weight_bytes()

    def _check_heads(self) -> None:
        heads = getattr(self.text, "num_attention_heads", 0) or 0
        if heads % self.tp:
            raise ValueError(
                f"Total number of attention heads ({heads}) must be divisible by tensor parallel size ({self.tp})."
            )

    def _weight_bytes(self) -> int:
        """Bytes of one rank's weights: matrices are divided among the ranks, vectors are replicated."""
        import transformers

        with skeleton.isolated_model_build():
            named = next(iter(getattr(self.config, "architectures", None) or ()), "")
            model_class: Any = getattr(transformers, named, None)
            if model_class is None and type(self.config) in transformers.AutoModelForCausalLM._model_mapping:
                model_class = transformers.AutoModelForCausalLM._model_mapping[type(self.config)]
            if model_class is None:
                raise self._unsupported(
                    f"vllm.LLM(model={self.folder!r})",
                    Text(f"transformers has no class {named!r}", f"transformers 没有 {named!r} 类"),
                )
            built = skeleton.build_on_meta(model_class, self.config, self.folder)
            self.architecture = model_class.__name__
            self.shapes = {name: tuple(weight.shape) for name, weight in built.state_dict().items()}
            self.parts = {name.partition(".")[0] for name in self.shapes}
            if self.text is not self.config:  # vLLM lays out a vision model as old transformers did
                self.parts |= {name.split(".")[1] for name in self.shapes if name.startswith("model.")}
            packed = self._quantized_weight_names(built)
            self.unpacked = max((math.prod(self.shapes[name]) for name in packed), default=0) * self.dtype.itemsize
            return sum(
                int(weight.numel() * _BYTES_PER_4BIT_WEIGHT) // self.tp
                if name in packed
                else self._bytes_of_weight(weight)
                for name, weight in built.named_parameters()
            )

    def _quantized_weight_names(self, model: torch.nn.Module) -> set[str]:
        """Names of the weights quantized during loading: those of linear layers except the output head.

        Only known for bitsandbytes and a language model with an unquantized checkpoint and without experts.
        """
        if not self.quantization:
            return set()
        whole = getattr(self.config, "quantization_config", None) is None and self.text is self.config
        experts = any(weight.dim() > 2 for weight in model.parameters())
        if self.quantization != "bitsandbytes" or not whole or experts:
            raise self._unsupported(f"vllm.LLM(quantization={self.quantization!r})", _WEIGHTS_UNKNOWN)
        head = model.get_output_embeddings()  # type: ignore[operator]
        linear = ((name, one) for name, one in model.named_modules() if isinstance(one, torch.nn.Linear))
        return {f"{name}.weight" for name, one in linear if one is not head}

    def _bytes_of_weight(self, weight: torch.Tensor) -> int:
        size = weight.element_size() if not weight.is_floating_point() else self.dtype.itemsize
        if weight.is_floating_point() and weight.element_size() == 1:  # from a quantized checkpoint
            size = 1
        whole = weight.numel() * size
        return whole // self.tp if weight.dim() > 1 else whole

    def cache_bytes_per_token(self) -> int:
        """Bytes per token of the keys and values on one rank, in all layers with a KV cache."""
        return self._layer_cache_bytes_per_token() * sum(self._cache_layer_counts())

    def cache_bytes_per_request(self, tokens: int, block: int, max_num_batched_tokens: int) -> int:
        """Bytes of cache that one request of ``tokens`` tokens needs; sliding-window layers only keep the window."""
        grows, slides = self._cache_layer_counts()
        window = getattr(self.text, "sliding_window", None) or tokens
        kept = min(window - 1 + max_num_batched_tokens, tokens)
        return (
            self._layer_cache_bytes_per_token()
            * (grows * _block_count(tokens, block) + slides * _block_count(kept, block))
            * block
        )

    def _layer_cache_bytes_per_token(self) -> int:
        text, size = self.text, self.dtype.itemsize
        compressed = getattr(text, "kv_lora_rank", None)
        if compressed:
            return int(compressed + (getattr(text, "qk_rope_head_dim", 0) or 0)) * size
        heads = getattr(text, "num_attention_heads", 1) or 1
        shared = getattr(text, "num_key_value_heads", None) or heads
        width = getattr(text, "head_dim", None) or getattr(text, "hidden_size", 0) // heads
        return int(2 * max(shared // self.tp, 1) * width * size)

    def _cache_layer_counts(self) -> tuple[int, int]:
        """Number of layers that cache all tokens, and number of sliding-window layers."""
        layers = getattr(self.text, "num_hidden_layers", None) or getattr(self.text, "n_layer", 0) or 0
        kinds = getattr(self.text, "layer_types", None)
        if not kinds:
            return int(layers), 0
        slides = sum(kind == "sliding_attention" for kind in kinds)
        return len(kinds) - slides - sum(kind in _WITHOUT_KV_CACHE for kind in kinds), slides

    def check_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> int:
        """``load_weights``: returns the number of weights. Raises as vLLM's AutoWeightsLoader and
        default_weight_loader do."""
        count = 0
        for name, weight in weights:
            count += 1
            shape = self.shapes.get(name)
            if shape is None and name.partition(".")[0] not in self.parts:
                if self.text is not self.config:
                    raise self._unsupported(f"vllm: load_weights of {name!r}", _NAMES_UNKNOWN)
                raise ValueError(
                    f"There is no module or parameter named {name.partition('.')[0]!r} in {self.architecture}"
                )
            if shape is not None and weight.numel() == 0 and 0 not in shape:
                raise AssertionError(f"Attempted to load weight ({weight.size()}) into parameter ({torch.Size(shape)})")
        return count


def _block_count(tokens: int, block: int) -> int:
    return -(-tokens // block)


def _resolve_dtype(requested: Any, config: Any, text: Any) -> torch.dtype:
    """The requested dtype; ``auto`` means the config's, or bfloat16 if that is float32."""
    if isinstance(requested, torch.dtype):
        return requested
    if isinstance(requested, str) and requested != "auto":
        named = {"half": "float16", "float": "float32"}.get(requested, requested)
        return getattr(torch, named)  # type: ignore[no-any-return]
    for one in (config, text):
        stored = getattr(one, "dtype", None) or getattr(one, "torch_dtype", None)
        if isinstance(stored, str):
            stored = getattr(torch, stored.removeprefix("torch."), None)
        if isinstance(stored, torch.dtype) and stored is not torch.float32:
            return stored
    return torch.bfloat16


def _context_length(text: Any, requested: int | None) -> int:
    """The engine's context length in tokens. Raises vLLM's ValueError if it exceeds the model's."""
    known = {key: value for key in _CONTEXT_LENGTH_KEYS if isinstance(value := getattr(text, key, None), int)}
    if not known:
        return requested or 2048
    key = min(known, key=lambda one: known[one])
    derived: float = known[key]
    scaling = getattr(text, "rope_scaling", None) or getattr(text, "rope_parameters", None) or {}
    kind = scaling.get("rope_type", scaling.get("type", "default")) if isinstance(scaling, dict) else "default"
    if kind not in ("default", "su", "longrope", "llama3", "mrope") and isinstance(scaling.get("factor"), int | float):
        if kind == "yarn":
            derived = scaling.get("original_max_position_embeddings", derived)
        derived *= scaling["factor"]
    if requested is None:
        return int(derived)
    own = getattr(text, "model_max_length", None)
    if (
        requested > derived
        and (own is None or requested > own)
        and os.environ.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") != "1"
    ):
        raise ValueError(
            f"User-specified max_model_len ({requested}) is greater than the derived max_model_len ({key}={derived} or "
            f"model_max_length={own} in model's config.json). To allow overriding this maximum, set the env var "
            "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1."
        )
    return requested
