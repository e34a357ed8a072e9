"""A model's parameter counts and sizes, found by building it on the meta device."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from typing import Any

import torch
from accelerate.utils import dataclasses as accelerate_settings
from transformers import modeling_utils
from transformers.integrations import deepspeed as hf_deepspeed

from gonogo.finding import UserError, translated
from gonogo.virtual.fsdp_loading import first_rank_alone_reads
from gonogo.virtual.measuring.depth import layer_count, layer_period
from gonogo.virtual.measuring.jobs import EngineFacts, ModelFacts
from gonogo.virtual.measuring.program import parse
from gonogo.virtual.measuring.tuning import bytes_of_weights, freeze_untuned
from gonogo.virtual.rollout.engine import GRAPHS_IN_BUDGET_SINCE, cuda_graph_bytes, forward_bytes, sampler_bytes
from gonogo.virtual.rollout.model import EngineModel
from gonogo.virtual.rollout.package import stand_in_version
from gonogo.virtual.synthetic.model import LocatedModel, read_model
from gonogo.virtual.synthetic.tokens import computes_positions, stated_positions
from gonogo.virtual.unsupported import UnsupportedOperator

MAX_BATCHED_TOKENS = 4096
"""TRL's ``max_num_batched_tokens`` for an engine colocated with the trainer (trl/generation/vllm_generation.py)."""
_TENSOR_PARALLEL_SIZES = (1, 2, 4, 8)
_SEQUENCE_PARALLEL_SIZES = (2, 4, 8)

_LAYER_PATTERN = re.compile(r"(.*?\.(?:layers|h|blocks|block|layer))\.(\d+)\.(.*)")


def collect_model_facts(arguments: tuple[str, ...]) -> ModelFacts:
    """Facts about the model that ``gonogo.virtual.measuring.program`` would train with these arguments."""
    given = parse(list(arguments))
    stored = read_model(given.model)
    found = _adapt_to_task(stored, given.task)
    with torch.device("meta"):
        model: Any = found.model_class(found.config)
    weight_bytes = bytes_of_weights(model, given.tune)
    model = freeze_untuned(model, given.tune, given.lora_rank)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    experts = _dispatched_experts(model)
    config = found.config.to_dict()
    depth = layer_count(config)
    text = found.config.get_text_config() if hasattr(found.config, "get_text_config") else found.config
    return ModelFacts(
        model_class=found.model_class.__name__,
        parameters=sum(sizes.values()),
        trainable=sum(p.numel() for p in model.parameters() if p.requires_grad),
        layer_parameters=_last_layer_parameters(sizes, depth),
        depth=depth,
        period=layer_period(config),
        hidden_size=int(getattr(text, "hidden_size", None) or getattr(text, "d_model", None) or 0),
        vocabulary=int(getattr(text, "vocab_size", None) or 0),
        largest_parameter=max(sizes.values(), default=0),
        weight_bytes=weight_bytes,
        engine=measure_engine(given.model, "bfloat16", hasattr(found.config, "auto_map")) if given.engine else (),
        stored_class=stored.model_class.__name__,
        beside_parameters=0 if given.beside is None else _count_parameters(given.beside),
        positions=stated_positions(found.config) or 0,
        computes_positions=computes_positions(found.config),
        ulysses_sizes=_ulysses_sizes(text),
        tensor_sizes=_tensor_sizes(model, text),
        expert_sizes=_expert_sizes(experts),
        expert_parameters=sum(parameter.numel() for one in experts for parameter in one.parameters()),
        experts_of_token=int(getattr(text, "num_experts_per_tok", None) or 0),
        first_rank_reads=first_rank_alone_reads(modeling_utils),
    )


def _ulysses_sizes(text_config: Any) -> tuple[int, ...]:
    """Numbers of ranks that Ulysses can split attention heads over, by the rules of DeepSpeed's UlyssesSPAttentionHF.

    Trainer, accelerate and DeepSpeed each have to know about it.
    """
    heads, shared = (getattr(text_config, f"num_{kind}_heads", None) for kind in ("attention", "key_value"))
    known = (
        hasattr(hf_deepspeed, "deepspeed_sp_compute_loss")
        and hasattr(accelerate_settings, "DeepSpeedSequenceParallelConfig")
        and importlib.util.find_spec("deepspeed.runtime.sequence_parallel") is not None
    )
    if not known or not isinstance(heads, int) or not isinstance(shared, int):
        return ()
    return tuple(n for n in _SEQUENCE_PARALLEL_SIZES if heads % n == 0 and (shared % n == 0 or n % shared == 0))


def _has_distributed_config() -> bool:
    """Whether transformers has a ``DistributedConfig`` with FSDP2 and expert parallelism, and its Trainer knows it."""
    try:
        from transformers.distributed import DistributedConfig
    except ImportError:
        return False
    known = getattr(DistributedConfig, "__dataclass_fields__", {})
    return {"tp_size", "ep_size", "fsdp_size", "fsdp_mixed_precision"} <= known.keys()


def _tensor_sizes(model: torch.nn.Module, text_config: Any) -> tuple[int, ...]:
    """Numbers of ranks that divide the attention heads, and all dimensions that the model's own plan splits."""
    plan: dict[str, str] = getattr(model, "_tp_plan", None) or {}
    if not _has_distributed_config() or not plan:
        return ()
    heads = (getattr(text_config, f"num_{kind}_heads", None) for kind in ("attention", "key_value"))
    split = {size for size in heads if isinstance(size, int)}
    for name, parameter in model.named_parameters():
        key = _any_layer(name)
        style = plan.get(key) or plan.get(key.rpartition(".")[0], "")
        if parameter.dim() > 1 and style.endswith("rowwise"):
            split.add(parameter.shape[-2 if style.startswith("embedding") else -1])
        elif parameter.dim() > 1 and "colwise" in style:
            split.add(parameter.shape[-2])
    return tuple(n for n in _SEQUENCE_PARALLEL_SIZES if all(size % n == 0 for size in split))


def _dispatched_experts(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The modules of experts, one a layer, between whose parts on several ranks transformers exchanges tokens."""
    plan: dict[str, str] = getattr(model, "_ep_plan", None) or {}
    if not _has_distributed_config():
        return []
    return [one for name, one in model.named_modules() if plan.get(_any_layer(name)) == "ep_dispatch_experts"]


def _expert_sizes(experts: list[torch.nn.Module]) -> tuple[int, ...]:
    """Numbers of ranks that divide the experts, which are the first dimension of their weights."""
    counts = {parameter.shape[0] for one in experts for parameter in one.parameters(recurse=False)}
    return tuple(n for n in _SEQUENCE_PARALLEL_SIZES if counts and all(count % n == 0 for count in counts))


def _any_layer(name: str) -> str:
    """A dotted name with ``*`` for the numbers of layers, as plans have it."""
    return ".".join("*" if part.isdecimal() else part for part in name.split("."))


def _adapt_to_task(located_model: LocatedModel, task: str) -> LocatedModel:
    """For a reward model, replace the class by the one for sequence classification."""
    if task != "rm":
        return located_model
    from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING as SCORING

    if type(located_model.config) not in SCORING:
        raise UserError(
            translated(
                "--task rm: transformers has no scoring model for {kind} (AutoModelForSequenceClassification)"
            ).format(kind=located_model.config.model_type)
        )
    located_model.config.num_labels = 1
    return LocatedModel(located_model.config, SCORING[type(located_model.config)], located_model.folder)


def _count_parameters(folder: str) -> int:
    found = read_model(folder)
    with torch.device("meta"):
        model = found.model_class(found.config)
    return sum(parameter.numel() for parameter in model.parameters())


def _last_layer_parameters(sizes: dict[str, int], depth: int) -> int:
    """Parameters of the last layer of the stack with ``depth`` layers, or 0 if there is no such stack."""
    stacks: dict[str, Counter[int]] = {}
    for name, size in sizes.items():
        match = _LAYER_PATTERN.match(name)
        if match is not None:
            stacks.setdefault(match[1], Counter())[int(match[2])] += size
    fitting = [layers for layers in stacks.values() if len(layers) == depth]
    return max((layers[depth - 1] for layers in fitting), default=0)


def measure_engine(folder: str, dtype: str, trust_remote_code: bool) -> tuple[EngineFacts, ...]:
    """The engine's memory for each tensor-parallel size that divides the heads; empty if the engine can't load the
    model.

    Key and value heads have to be divisible by the size, or replicated evenly across ranks (vllm/config/model.py,
    ``get_num_kv_heads``).
    """
    numbers = stand_in_version()[0].split(".")
    release = tuple(int(part) for part in numbers[:2] if part.isdecimal())
    found = []
    for tp in _TENSOR_PARALLEL_SIZES:
        try:
            model = EngineModel(folder, dtype, tp, None, trust_remote_code, UnsupportedOperator)
        except (ValueError, UnsupportedOperator):
            continue
        if not _divides_shared_heads(model.text, tp):
            continue
        found.append(
            EngineFacts(
                tp=tp,
                weights=model.weights,
                cache_of_token=model.cache_bytes_per_token(),
                forward=forward_bytes(model, MAX_BATCHED_TOKENS),
                sampler_of_sequence=sampler_bytes(model),
                graphs=cuda_graph_bytes(model),
                graphs_in_share=release >= GRAPHS_IN_BUDGET_SINCE,
            )
        )
    return tuple(found)


def _divides_shared_heads(text: Any, tp: int) -> bool:
    shared = getattr(text, "num_key_value_heads", None) or tp
    return shared % tp == 0 or tp % shared == 0
