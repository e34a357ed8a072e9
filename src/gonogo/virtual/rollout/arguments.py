"""vLLM's arguments, of an engine and of one generation, with vLLM's own checks and messages.

Names from vllm/sampling_params.py and vllm/engine/arg_utils.py, releases 0.8 to 0.31, as far as trainers pass them.
An argument that is missing here can't be rehearsed (CANNOT-TELL), since some release may have it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from gonogo.finding import translated
from gonogo.virtual.unsupported import Unsupported

_SAMPLING: dict[str, Any] = {
    "n": 1, "best_of": None, "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0,
    "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "seed": None, "stop": None, "stop_token_ids": None,
    "bad_words": None, "ignore_eos": False, "max_tokens": 16, "min_tokens": 0, "logprobs": None,
    "prompt_logprobs": None, "flat_logprobs": False, "logprob_token_ids": None, "detokenize": True,
    "skip_special_tokens": True, "spaces_between_special_tokens": True, "include_stop_str_in_output": False,
    "logits_processors": None, "truncate_prompt_tokens": None, "output_kind": 0, "guided_decoding": None,
    "structured_outputs": None, "logit_bias": None, "allowed_token_ids": None, "extra_args": None,
    "skip_clone": False, "skip_reading_prefix_cache": None, "thinking_token_budget": None,
    "repetition_detection": None,
}  # fmt: skip

ENGINE = frozenset(
    [
        "model",
        "task",
        "runner",
        "convert",
        "tokenizer",
        "tokenizer_mode",
        "skip_tokenizer_init",
        "trust_remote_code",
        "allowed_local_media_path",
        "allowed_media_domains",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "enable_expert_parallel",
        "dtype",
        "quantization",
        "revision",
        "tokenizer_revision",
        "code_revision",
        "seed",
        "gpu_memory_utilization",
        "swap_space",
        "cpu_offload_gb",
        "enforce_eager",
        "max_seq_len_to_capture",
        "disable_custom_all_reduce",
        "disable_async_output_proc",
        "hf_token",
        "hf_overrides",
        "mm_processor_kwargs",
        "override_pooler_config",
        "pooler_config",
        "compilation_config",
        "structured_outputs_config",
        "kv_cache_memory_bytes",
        "attention_config",
        "load_format",
        "device",
        "distributed_executor_backend",
        "max_model_len",
        "max_num_seqs",
        "max_num_batched_tokens",
        "enable_prefix_caching",
        "enable_chunked_prefill",
        "enable_sleep_mode",
        "model_impl",
        "logprobs_mode",
        "max_logprobs",
        "kv_cache_dtype",
        "block_size",
        "limit_mm_per_prompt",
        "disable_mm_preprocessor_cache",
        "mm_processor_cache_gb",
        "disable_log_stats",
        "worker_cls",
        "worker_extension_cls",
        "enable_lora",
        "max_loras",
        "max_lora_rank",
        "lora_extra_vocab_size",
        "num_gpu_blocks_override",
        "speculative_config",
        "additional_config",
        "override_generation_config",
        "generation_config",
        "scheduling_policy",
        "async_scheduling",
        "logits_processors",
        "weight_transfer_config",
        "profiler_config",
        "cudagraph_capture_sizes",
        "served_model_name",
        "use_v2_block_manager",
        "num_scheduler_steps",
        "guided_decoding_backend",
        "reasoning_parser",
        "enable_return_routed_experts",
        "language_model_only",
        "disable_cascade_attn",
    ]
)
"""Arguments of ``LLM`` and ``EngineArgs``."""


def _keyword_signature(names: Iterable[str]) -> inspect.Signature:
    """The signature of a class with these fields, which programs inspect to find out what a release supports."""
    return inspect.Signature([inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in sorted(names)])


class EngineArgs:
    """``EngineArgs`` and its variant for engines that start processes: the arguments as given."""

    refuse: Unsupported
    __signature__ = _keyword_signature(ENGINE)

    def __init__(self, **given: Any) -> None:
        for name in given:
            if name not in ENGINE:
                raise self.refuse(
                    f"vllm.EngineArgs({name}=…)", translated("no vLLM release known to gonogo has this argument")
                )
        vars(self).update(given)


class SamplingParamsStandIn:
    """``SamplingParams`` and its renamed fields: an object with vLLM's fields, defaults and checks."""

    refuse: Unsupported
    __signature__ = _keyword_signature(_SAMPLING)

    def __init__(self, **given: Any) -> None:
        for name in given:
            if name not in _SAMPLING:
                raise self.refuse(
                    f"vllm.SamplingParams({name}=…)", translated("no vLLM release known to gonogo has this argument")
                )
        vars(self).update(_SAMPLING | given)
        self.n = 1 if self.n is None else self.n
        self._verify()

    n: Any
    max_tokens: Any
    logprobs: Any
    temperature: Any
    min_tokens: Any

    def _verify(self) -> None:
        """``SamplingParams._verify_args``."""
        values = vars(self)
        top_p, top_k, min_p = values["top_p"], values["top_k"], values["min_p"]
        repetition = values["repetition_penalty"]
        if not isinstance(self.n, int):
            raise ValueError(f"n must be an int, but is of type {type(self.n)}")
        _require(self.n >= 1, f"n must be at least 1, got {self.n}.")
        for name in ("presence_penalty", "frequency_penalty"):
            _require(-2.0 <= values[name] <= 2.0, f"{name} must be in [-2, 2], got {values[name]}.")
        _require(repetition > 0.0, f"repetition_penalty must be greater than zero, got {repetition}.")
        _require(self.temperature >= 0.0, f"temperature must be non-negative, got {self.temperature}.")
        _require(0.0 < top_p <= 1.0, f"top_p must be in (0, 1], got {top_p}.")
        _require(top_k >= -1, f"top_k must be 0 (disable), or at least 1, got {top_k}.")
        _require(0.0 <= min_p <= 1.0, f"min_p must be in [0, 1], got {min_p}.")
        most = self.max_tokens
        _require(most is None or most >= 1, f"max_tokens must be at least 1, got {most}.")
        _require(
            most is None or self.min_tokens <= most,
            f"min_tokens must be less than or equal to max_tokens={most}, got {self.min_tokens}.",
        )

    def clone(self) -> SamplingParamsStandIn:
        """``SamplingParams.clone``."""
        return type(self)(**{name: value for name, value in vars(self).items() if name in _SAMPLING})

    @classmethod
    def from_optional(cls, **given: Any) -> SamplingParamsStandIn:
        """``SamplingParams.from_optional``: None means the default."""
        return cls(**{name: value for name, value in given.items() if value is not None or _SAMPLING.get(name) is None})


def _require(right: bool, message: str) -> None:
    if not right:
        raise ValueError(message)


for _name, _default in _SAMPLING.items():
    setattr(SamplingParamsStandIn, _name, _default)  # programs look up a release's fields on the class
