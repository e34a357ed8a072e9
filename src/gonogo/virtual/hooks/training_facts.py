"""Observations of a training run: its batches, recomputation and optimizer, and its model at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from math import prod
from typing import Any

import torch
from msgspec import UNSET
from torch import nn

from gonogo.evidence.rehearsal.modules import generalize_indices
from gonogo.finding.as_run import AsRun, ConfiguredSettings, Recomputed, Unquantized
from gonogo.virtual.hooks.experts import moe_settings
from gonogo.virtual.hooks.strategy import (
    describe_strategy,
    expert_parallel_ranks,
    megatron_groups,
    sequence_ranks,
    tensor_ranks,
)
from gonogo.virtual.mode import VirtualMode
from gonogo.virtual.tensor import local_tensors

_MATMUL_OPERANDS = {"mm": (0, 1), "addmm": (1, 2), "bmm": (0, 1), "baddbmm": (1, 2)}
"""Matrix products, and the indices of their factors."""
_MAX_UNQUANTIZED_SHOWN = 5


class TrainingFacts:
    """What was observed of a training; filled by the hooks."""

    def __init__(self) -> None:
        self.samples: set[int] = set()
        self.tokens: set[int] = set()
        self.accumulation: set[int] = set()
        self.recomputed: dict[int, str] = {}
        """The class of each module whose forward ran in backward, by its identity."""
        self.optimizer = ""
        self.masters: Counter[str] = Counter()
        self.states: Counter[str] = Counter()
        self.weights_on: Counter[str] = Counter()
        """Bytes of parameters by kind of device when they were first stepped."""
        self.backwards = 0
        self.with_gradient = 0
        """Optimizer steps some parameter of which has a gradient, or had one before."""
        self.without_gradient = 0
        self.stage: int | None = None
        """ZeRO's, of DeepSpeed's engine; None without one."""
        self.engine_config: Mapping[str, Any] = {}
        """DeepSpeed's, as the engine resolved it."""
        self.arguments: Any = None
        """transformers' TrainingArguments."""
        self.processing: Any = None
        """The Trainer's tokenizer or processor."""
        self._vocabulary = 0

    def record_embedding(self, module: nn.Embedding, inputs: Any) -> None:
        """Record the shape of token ids; of several embeddings, the one with the largest vocabulary is the text's."""
        ids = inputs[0] if inputs else None
        if not isinstance(ids, torch.Tensor) or not ids.dim() or ids.is_floating_point():
            return
        if module.num_embeddings > self._vocabulary:
            self._vocabulary = module.num_embeddings
            self.samples, self.tokens = set(), set()
        if module.num_embeddings == self._vocabulary:
            self.samples.add(ids.shape[0] if ids.dim() > 1 else 1)
            self.tokens.add(ids.shape[-1])

    def record_batch(self, batch: Any) -> None:
        """Record the number of samples, for models without token embeddings."""
        if not self._vocabulary:
            tensors = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
            first = next((value for value in tensors if isinstance(value, torch.Tensor) and value.dim()), None)
            if first is not None:
                self.samples.add(first.shape[0])

    def record_recompute(self, module: nn.Module) -> None:
        """Record that a module's forward was recomputed in backward."""
        self.recomputed[id(module)] = _class_name(module)

    def record_step(self, root: nn.Module | None) -> None:
        """Record a completed optimizer step of the model."""
        if root is not None and not self.weights_on:
            self.weights_on = _weight_statistics(root)[1]
        if self.backwards:
            self.accumulation.add(self.backwards)
        self.backwards = 0

    def record_stepping_optimizer(self, optimizer: Any, *, has_gradients: bool) -> None:
        """Record an optimizer that is about to step; of nested optimizers, the inner one is recorded last."""
        if has_gradients:
            self.with_gradient += 1
        elif self.backwards:
            self.without_gradient += 1
        self.optimizer = type(optimizer).__name__
        self.masters = Counter()
        for tensor in _optimizer_tensors(optimizer):
            self.masters[_dtype_name(tensor)] += tensor.numel()

    def record_optimizer_states(self, optimizer: Any) -> None:
        """Record the devices of an optimizer's states. ZeRO steps its sub-groups one by one."""
        for state in optimizer.state.values():
            if isinstance(state, Mapping):
                for value in state.values():
                    for tensor in local_tensors(value):
                        if tensor.dim():
                            self.states[tensor.device.type] += tensor.numel() * tensor.element_size()


def describe_run(
    training_facts: TrainingFacts, root: nn.Module | None, mode: VirtualMode, argv: Iterable[str], *, nvme: bool
) -> AsRun | None:
    """All observations, and the model as it is now; None if nothing was trained."""
    if root is None:
        return None
    wrappers, model = _unwrap_model(root)
    adapter = _class_name(model) if _is_peft_model(model) else ""
    inner = _base_model(model) if adapter else model
    weights, where, total, trainable, quantized = _weight_statistics(root)
    on_nvme = _offloaded_to_nvme(training_facts.engine_config) if nvme else ()
    return AsRun(
        model=_class_name(inner),
        adapter=adapter,
        parameters=total,
        trainable=trainable,
        quantized=quantized,
        weights=_names_by_frequency(weights),
        weights_on=("nvme",) if "offload_param" in on_nvme else _names_by_frequency(training_facts.weights_on or where),
        samples=_min_and_max(training_facts.samples),
        tokens=_min_and_max(training_facts.tokens),
        sequence_ranks=sequence_ranks(root, wrappers),
        tensor_ranks=tensor_ranks(root, wrappers),
        accumulation=_min_and_max(training_facts.accumulation),
        products=_largest_matmul(mode),
        attention=tuple(_attention_kinds(mode)),
        recomputed=_recomputed_modules(training_facts, root),
        strategy=describe_strategy(training_facts.stage, root, wrappers),
        stage=training_facts.stage,
        optimizer=training_facts.optimizer,
        masters=next(iter(_names_by_frequency(training_facts.masters)), ""),
        idle=training_facts.without_gradient > 0 and not training_facts.with_gradient and training_facts.stage is None,
        states_on=("nvme",) if "offload_optimizer" in on_nvme else _names_by_frequency(training_facts.states),
        unquantized=_unquantized_modules(root, inner) if quantized else (),
        asked=_configured_settings(training_facts, root, inner, list(argv)),
        experts=moe_settings(inner, expert_parallel_ranks(root)) or UNSET,
        megatron=megatron_groups(root, wrappers) or UNSET,
    )


def _min_and_max(numbers: set[int]) -> tuple[int, int] | None:
    return (min(numbers), max(numbers)) if numbers else None


def _names_by_frequency(counts: Counter[str]) -> tuple[str, ...]:
    return tuple(name for name, count in counts.most_common() if count)


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _optimizer_tensors(optimizer: Any) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _class_name(module: nn.Module) -> str:
    """The name of a module's class; FSDP2 inserts a class of its own before it."""
    kind = type(module)
    if kind.__bases__[0].__name__ == "FSDPModule" and len(kind.__bases__) > 1:
        kind = kind.__bases__[1]
    return kind.__name__


def _unwrap_model(root: nn.Module) -> tuple[list[nn.Module], nn.Module]:
    """The wrappers around a model, and the model."""
    wrappers: list[nn.Module] = []
    while True:
        inner = next((root._modules[name] for name in ("module", "_fsdp_wrapped_module", "_orig_mod")
                      if name in root._modules and len(root._modules) == 1), None)  # fmt: skip
        if inner is None:
            return wrappers, root
        wrappers.append(root)
        root = inner


def _full_numel(parameter: Any) -> int:
    """The number of parameters of a weight: full size if partitioned, unpacked size if 4-bit."""
    shape = getattr(getattr(parameter, "quant_state", None), "shape", None)
    return prod(shape) if shape is not None else int(getattr(parameter, "ds_numel", parameter.numel()))


def _flat_parameter_counts(root: nn.Module) -> dict[int, int]:
    """The sizes of parameters that FSDP1 has flattened, by the identity of the flat parameter and of its views."""
    wholes = {}
    for module in root.modules():
        flat = getattr(getattr(module, "_handle", None), "flat_param", None)
        shapes = getattr(flat, "_shapes", ())
        wholes[id(flat)] = sum(prod(shape) for shape in shapes)
        wholes |= {id(p): prod(shape) for p, shape in zip(getattr(flat, "_params", None) or (), shapes, strict=False)}
    return wholes


def _is_quantized(parameter: Any) -> bool:
    if getattr(parameter, "quant_state", None) is not None or type(parameter).__name__ in ("Params4bit", "Int8Params"):
        return True
    return not parameter.is_floating_point() and not parameter.is_complex()


def _weight_statistics(root: nn.Module) -> tuple[Counter[str], Counter[str], int, int, int]:
    """Parameters by dtype; bytes per device kind on this rank; total, trainable and quantized parameters."""
    dtypes: Counter[str] = Counter()
    where: Counter[str] = Counter()
    trainable = quantized = 0
    flattened = _flat_parameter_counts(root)
    for parameter in root.parameters():
        whole = flattened.get(id(parameter)) or _full_numel(parameter)
        dtypes[_dtype_name(parameter)] += whole
        trainable += whole if parameter.requires_grad else 0
        quantized += whole if _is_quantized(parameter) else 0
        kept = getattr(parameter, "ds_tensor", None)
        for tensor in local_tensors(parameter if kept is None else kept):
            where[tensor.device.type] += tensor.numel() * tensor.element_size()
    return dtypes, where, sum(dtypes.values()), trainable, quantized


def _offloaded_to_nvme(engine_config: Mapping[str, Any]) -> tuple[str, ...]:
    section = engine_config.get("zero_optimization") or {}
    return tuple(
        name for name in ("offload_param", "offload_optimizer") if (section.get(name) or {}).get("device") == "nvme"
    )


def _largest_matmul(mode: VirtualMode) -> str:
    largest, dtype = 0, ""
    for operator, specs in mode.cached_specs():
        factors = _MATMUL_OPERANDS.get(operator.name)
        if factors is None or len(specs) <= factors[1]:
            continue
        left, right = specs[factors[0]], specs[factors[1]]
        work = prod(left.shape) * right.shape[-1]
        if work > largest:
            largest, dtype = work, str(left.dtype).removeprefix("torch.")
    return dtype


def _attention_kinds(mode: VirtualMode) -> Iterator[str]:
    """The attention implementations, judging by the operators that were called."""
    names = {operator.name for operator in mode.known_operators()}
    assumed = {assumption.kind for assumption in mode.ledger.entries()}
    if "flash_attention" in assumed:
        yield "flash_attention_2"
    if "cudnn_attention" in assumed:
        yield "cudnn"
    if any(name.startswith("_scaled_dot_product") or name == "_safe_softmax" for name in names):
        yield "sdpa"
    if any("fusion_attention" in name for name in names):
        yield "npu_fusion_attention"
    softmaxes = (specs[0] for operator, specs in mode.cached_specs() if operator.name == "_softmax" and specs)
    # Attention scores: samples, heads, queries, keys. SDPA's own fallback uses another softmax operator.
    if any(len(spec.shape) == 4 and spec.shape[-1] > 1 and spec.device.type != "cpu" for spec in softmaxes):
        yield "eager"


def _recomputed_modules(training_facts: TrainingFacts, root: nn.Module) -> tuple[Recomputed, ...]:
    """The recomputed modules by class; if several children of a module were recomputed, the module itself was."""
    left = dict(training_facts.recomputed)
    counts: Counter[str] = Counter()
    there = Counter(_class_name(module) for module in root.modules())
    for module in root.modules():
        children = [id(child) for child in module.children() if id(child) in left]
        if len(children) > 1 and module is not root and not isinstance(module, nn.ModuleList):
            counts[_class_name(module)] += 1
            for child in children:
                del left[child]
    counts.update(left.values())
    return tuple(Recomputed(name, count, max(there[name], count)) for name, count in counts.most_common())


def _unquantized_modules(root: nn.Module, model: Any) -> tuple[Unquantized, ...]:
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    skipped = {id(p) for m in root.modules() if isinstance(m, nn.Embedding) or m is head for p in m.parameters()}
    spared = _skipped_by_quantization(getattr(model, "config", None))
    sizes: Counter[tuple[str, str]] = Counter()
    for name, parameter in root.named_parameters():
        left = parameter.dim() > 1 and parameter.is_floating_point() and not parameter.requires_grad
        meant = id(parameter) in skipped or any(part in name for part in spared)
        if left and not meant and not _is_quantized(parameter):
            sizes[(generalize_indices(name.removeprefix("module.")), _dtype_name(parameter))] += _full_numel(parameter)
    return tuple(Unquantized(*key, count) for key, count in sizes.most_common(_MAX_UNQUANTIZED_SHOWN))


def _skipped_by_quantization(config: Any) -> list[str]:
    """Name parts of the modules that the user excluded from quantization."""
    section = getattr(config, "quantization_config", None)
    values = section if isinstance(section, dict) else getattr(section, "__dict__", {})
    named = [*(values.get("llm_int8_skip_modules") or ()), *(values.get("modules_to_not_convert") or ())]
    return [name for name in named if isinstance(name, str)]


_SEQUENCE_PARALLEL_OPTIONS = ("sequence_parallel_size", "sp_size", "ulysses_size", "ulysses_sequence_parallel_size")


def _configured_settings(
    training_facts: TrainingFacts, root: nn.Module, model: Any, argv: list[str]
) -> ConfiguredSettings:
    arguments, config = training_facts.arguments, getattr(model, "config", None)
    engine_config = training_facts.engine_config
    quantization = getattr(config, "quantization_config", None)
    method = quantization.get("quant_method") if isinstance(quantization, dict) else _quantization_method(quantization)
    marked = any(getattr(module, "gradient_checkpointing", False) is True for module in root.modules())
    precision = (
        "bfloat16" if getattr(arguments, "bf16", False) is True or _is_enabled(engine_config, "bf16")
        else "float16" if getattr(arguments, "fp16", False) is True or _is_enabled(engine_config, "fp16")
        else ""
    )  # fmt: skip
    return ConfiguredSettings(
        checkpointing=marked or getattr(arguments, "gradient_checkpointing", False) is True,
        attention=str(getattr(config, "_attn_implementation", None) or ""),
        quantization=str(getattr(method, "value", method) or ""),
        sequence_parallel=_sequence_parallel_size(arguments, engine_config, argv),
        micro_batch=_integer_or_none(getattr(arguments, "per_device_train_batch_size", None)
                            or engine_config.get("train_micro_batch_size_per_gpu")),
        accumulation=_integer_or_none(getattr(arguments, "gradient_accumulation_steps", None)
                             or engine_config.get("gradient_accumulation_steps")),
        precision=precision,
    )  # fmt: skip


def _quantization_method(quantization: Any) -> Any:
    if getattr(quantization, "load_in_4bit", False):
        return "bitsandbytes_4bit"
    if getattr(quantization, "load_in_8bit", False):
        return "bitsandbytes_8bit"
    return getattr(quantization, "quant_method", None)


def _is_enabled(config: Mapping[str, Any], name: str) -> bool:
    section = config.get(name)
    return isinstance(section, dict) and section.get("enabled") is True


def _integer_or_none(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _sequence_parallel_size(arguments: Any, engine_config: Mapping[str, Any], argv: list[str]) -> int:
    given = [_integer_or_none(getattr(arguments, name, None)) for name in _SEQUENCE_PARALLEL_OPTIONS]
    given.append(_integer_or_none(engine_config.get("sequence_parallel_size")))
    given.append(_integer_or_none(getattr(getattr(arguments, "parallelism_config", None), "sp_size", None)))
    for word, following in pairwise([*argv, ""]):
        name, _, value = word.partition("=")
        if name.startswith("--") and name[2:].replace("-", "_") in _SEQUENCE_PARALLEL_OPTIONS:
            text = value or following
            given.append(int(text) if text.isdecimal() and len(text) < 6 else None)
    return max((number for number in given if number), default=1)


def _is_peft_model(model: nn.Module) -> bool:
    return type(model).__module__.partition(".")[0] == "peft"


def _base_model(peft_model: Any) -> Any:
    return peft_model.get_base_model() if hasattr(peft_model, "get_base_model") else peft_model
