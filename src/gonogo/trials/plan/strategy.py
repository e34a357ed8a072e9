"""The space of strategies: ZeRO stage or FSDP2, offload, gradient checkpointing, micro-batch and accumulation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from gonogo.finding import Text, translated
from gonogo.finding.text import join_texts
from gonogo.trials.plan.task.kinds import Reference
from gonogo.trials.plan.task.rollout import RolloutChoice

Place = Literal["gpu", "cpu", "nvme"]
TuningMethod = Literal["full", "lora", "qlora", "freeze-vision"]
TUNING_METHODS: tuple[TuningMethod, ...] = ("full", "lora", "qlora", "freeze-vision")

Sharding = Literal["any", "zero", "fsdp2"]
SHARDINGS: tuple[Sharding, ...] = ("any", "zero", "fsdp2")

_MAX_MICRO_BATCH = 64
BUCKET_ELEMENTS = 500_000_000
"""DeepSpeed's default reduce_bucket_size and allgather_bucket_size, in elements."""
MAX_LIVE_PARAMETERS = 1_000_000_000
"""DeepSpeed's default stage3_max_live_parameters and stage3_max_reuse_distance."""
_SMALL_BUCKET_DIVISOR = 10
"""Divisor for small buckets: with even smaller ones, messages would be too short to saturate the links."""


_CPU_OR_GPU: tuple[Place, ...] = ("gpu", "cpu")
_OFFLOAD_DEVICE_LABELS = {"cpu": "CPU", "nvme": "NVMe"}
_BOTH_OFFLOADED = translated("optimizer + parameters on {place}")
_OPTIMIZER_OFFLOADED = translated("optimizer on {place}")
_PARAMETERS_OFFLOADED = translated("parameters on {place}")
_CHECKPOINTING = translated("checkpointing")
_NO_RESHARD = translated("no reshard after forward")
_REPLICAS = translated("{count} replicas (HSDP)")
_CONTEXT = translated("sequences split over {count} GPUs")
_ULYSSES = translated("Ulysses over {count} GPUs")
_TENSOR = translated("every layer split over {count} GPUs (TP)")
_EXPERTS = translated("experts spread over {count} GPUs (EP)")
_PRECOMPUTED = translated("reference precomputed")


class Family(msgspec.Struct, frozen=True, order=True):
    """How model states are sharded and offloaded, which decides the memory that doesn't grow with the batch."""

    zero: int
    """The ZeRO stage; 0 is plain data parallelism. 3 for FSDP2, which shards the same states."""
    optimizer: Place = "gpu"
    parameters: Place = "gpu"
    small_buckets: bool = False
    """Use a tenth of DeepSpeed's default bucket sizes, or under ZeRO-3 of its limit of live parameters."""
    fsdp: bool = False
    """Use PyTorch's FSDP2 (``fully_shard``) instead of DeepSpeed."""
    reshard: bool = True
    """FSDP2's ``reshard_after_forward``: False keeps a layer's gathered weights until its backward."""
    replicas: int = 1
    """FSDP2 with hybrid sharding (HSDP): this many groups of ranks, each with all states, sharded within the group."""
    context: int = 1
    """This many ranks share each sequence: with FSDP2 by ring attention, with DeepSpeed by Ulysses."""
    tensor: int = 1
    """Every layer is split over this many ranks, which are given the same samples (tensor parallelism)."""
    experts: int = 1
    """The experts are spread over this many ranks, which exchange tokens (expert parallelism)."""

    @property
    def is_native(self) -> bool:
        """Whether transformers shards the model itself while it loads it (``DistributedConfig``), not accelerate."""
        return self.tensor > 1 or self.experts > 1

    @property
    def bucket(self) -> int:
        """Elements of a gradient or weight bucket under ZeRO-1 and 2."""
        return BUCKET_ELEMENTS // _SMALL_BUCKET_DIVISOR if self.small_buckets else BUCKET_ELEMENTS

    @property
    def live_parameters(self) -> int:
        """At most this many elements are kept gathered by ZeRO-3."""
        return MAX_LIVE_PARAMETERS // _SMALL_BUCKET_DIVISOR if self.small_buckets else MAX_LIVE_PARAMETERS

    @property
    def sharding(self) -> str:
        """``zero``, ``fsdp2`` or ``fsdp2-no-reshard``."""
        return ("fsdp2" if self.reshard else "fsdp2-no-reshard") if self.fsdp else "zero"

    def sharding_ranks(self, world_size: int) -> int:
        """Ranks over which the states are sharded; that share a sequence or a layer are among them."""
        return world_size // self.replicas

    def data_ranks(self, world_size: int) -> int:
        """Ranks that are given samples of their own."""
        return world_size // self.sample_ranks

    @property
    def sample_ranks(self) -> int:
        """Ranks that work on each sample together."""
        return self.context * self.tensor

    @property
    def label(self) -> Text:
        """The name in reports, such as ``ZeRO-3, optimizer on CPU``."""
        stage = "FSDP2" if self.fsdp else f"ZeRO-{self.zero}"
        words = [Text(stage, stage), *([] if self.reshard else [_NO_RESHARD])]
        words += [_REPLICAS.format(count=self.replicas)] if self.replicas > 1 else []
        if self.context > 1:
            words.append((_CONTEXT if self.fsdp else _ULYSSES).format(count=self.context))
        words += [_TENSOR.format(count=self.tensor)] if self.tensor > 1 else []
        words += [_EXPERTS.format(count=self.experts)] if self.experts > 1 else []
        if self.optimizer == self.parameters != "gpu":
            words.append(_BOTH_OFFLOADED.format(place=_OFFLOAD_DEVICE_LABELS[self.optimizer]))
        else:
            if self.optimizer != "gpu":
                words.append(_OPTIMIZER_OFFLOADED.format(place=_OFFLOAD_DEVICE_LABELS[self.optimizer]))
            if self.parameters != "gpu":
                words.append(_PARAMETERS_OFFLOADED.format(place=_OFFLOAD_DEVICE_LABELS[self.parameters]))
        if self.small_buckets:
            words.append(translated("reduced buckets"))
        return join_texts(words)


class Strategy(msgspec.Struct, frozen=True):
    """One complete choice of all settings."""

    family: Family
    checkpointing: bool
    micro_batch: int
    accumulation: int
    reference: Reference = ""
    rollout: RolloutChoice = RolloutChoice()

    @property
    def label(self) -> Text:
        """The name in reports."""
        words = [self.family.label, *([_CHECKPOINTING] if self.checkpointing else []), self.rollout.label]
        words += [_PRECOMPUTED] if self.reference == "precomputed" else []
        return join_texts(word for word in words if word.en)


def strategy_families(
    world_size: int,
    *,
    nvme: bool,
    host: bool = True,
    sharding: Sharding = "zero",
    nodes: int = 1,
    context_sizes: Sequence[int] = (),
    ulysses_sizes: Sequence[int] = (),
    tensor_sizes: Sequence[int] = (),
    expert_sizes: Sequence[int] = (),
) -> Iterator[Family]:
    """The sharding and offload options, from the fastest to the one with the least GPU memory.

    ``nvme``: the nodes have NVMe storage; ``host``: they have host memory for an offload; ``context_sizes`` and
    ``ulysses_sizes``: over how many ranks FSDP2 and DeepSpeed may split a sequence, smallest first; ``tensor_sizes``
    and ``expert_sizes``: over how many transformers may split a layer and spread the experts. Stages are omitted if a
    higher one is as fast (ZeRO-1 has the communication volume of ZeRO-0, ZeRO-2 that of ZeRO-1; see the ZeRO paper,
    §7.2.1, https://arxiv.org/abs/1910.02054) and takes less memory; with a single rank nothing can be partitioned.
    """
    usual = [Family(0)] if world_size == 1 else [Family(2), Family(3)]
    for replicas in (count for count in range(nodes, 1, -1) if nodes % count == 0):
        usual += [Family(3, fsdp=True, reshard=reshard, replicas=replicas) for reshard in (False, True)]
    usual += [Family(3, fsdp=True), Family(3, fsdp=True, reshard=False)]
    for replicas in sorted({1, nodes}, reverse=True):
        usual += [Family(3, fsdp=True, replicas=replicas, experts=size) for size in expert_sizes]
    # Layers are cast to bf16 by FSDP2 alone, for which two parts at least have to be left.
    usual += [Family(3, fsdp=True, tensor=size) for size in tensor_sizes if size < world_size]
    usual += [Family(3, fsdp=True, context=size) for size in context_sizes]
    usual += [Family(zero, context=size) for size in ulysses_sizes for zero in (2, 3)]
    if host:
        usual += [Family(3, "cpu", place, context=size) for size in ulysses_sizes for place in _CPU_OR_GPU]
        usual += [Family(2, "cpu"), Family(3, "cpu"), Family(3, "cpu", "cpu"), Family(3, "cpu", "cpu", fsdp=True)]
    if nvme:
        usual += [Family(3, "nvme", "cpu" if host else "gpu"), Family(3, "nvme", "nvme")]
    for family in usual:
        excluded = sharding != "any" and family.fsdp != (sharding == "fsdp2")
        if excluded or (family.fsdp and world_size == 1):
            continue
        yield family
        if family.zero and not family.fsdp:
            yield msgspec.structs.replace(family, small_buckets=True)


def micro_batches(global_batch: int, world_size: int, min_micro_batch: int = 1) -> tuple[int, ...]:
    """Divisors of a rank's share of the global batch, smallest first: powers of two, and the share itself.

    Empty if the world size does not divide the global batch. ``min_micro_batch``: the minimum that the trainer
    accepts.
    """
    if global_batch % world_size:
        return ()
    share = global_batch // world_size
    sizes = {size for size in (1 << n for n in range(16)) if share % size == 0 and size <= _MAX_MICRO_BATCH}
    if share <= _MAX_MICRO_BATCH:
        sizes.add(share)
    return tuple(sorted(size for size in sizes if size >= min_micro_batch))


def parallelism_config(strategy: Strategy, world_size: int) -> dict[str, int | str]:
    """accelerate's ``ParallelismConfig``; empty where the states are simply sharded over all ranks."""
    family = strategy.family
    if family.is_native or family.replicas == family.context == 1:
        return {}
    shards = world_size // (family.replicas * family.context)
    if not family.fsdp:
        return {
            "dp_shard_size": shards,
            "sp_size": family.context,
            "sp_backend": "deepspeed",
            "sp_attn_implementation": "sdpa",  # accelerate's default is none, which DeepSpeed refuses
        }
    sizes = {"dp_replicate_size": family.replicas, "cp_size": family.context}
    mesh: dict[str, int | str] = {name: size for name, size in sizes.items() if size > 1}
    return mesh | {"dp_shard_size": shards}


def distributed_config(strategy: Strategy, world_size: int) -> dict[str, int | bool]:
    """transformers' ``DistributedConfig``; empty where accelerate or DeepSpeed shard the model.

    The model is loaded in fp32, as accelerate keeps trained weights, and its layers compute in bf16.
    """
    family = strategy.family
    if not family.is_native:
        return {}
    sizes = {"dp_replicate_size": family.replicas, "tp_size": family.tensor, "ep_size": family.experts}
    found: dict[str, int | bool] = {name: size for name, size in sizes.items() if size > 1}
    found["fsdp_size"] = world_size // (family.replicas * family.tensor)
    return found | {"fsdp_mixed_precision": True}


def launch_environment(strategy: Strategy, world_size: int) -> dict[str, str]:
    """The variables that ``accelerate launch`` sets, as TrainingArguments alone do not.

    With the first of FSDP, transformers loads the weights on a node's first rank only, and accelerate makes a process
    group for CPU tensors as well, which offloaded gradients need.
    """
    found: dict[str, str] = {}
    if strategy.family.is_native:
        return found
    if strategy.family.fsdp:
        found["ACCELERATE_USE_FSDP"] = "true"
    if strategy.family.fsdp and strategy.family.parameters == "cpu":
        found["FSDP_OFFLOAD_PARAMS"] = "true"
    settings = parallelism_config(strategy, world_size)
    if settings:
        found["ACCELERATE_USE_PARALLELISM_CONFIG"] = "true"
    return found | {f"PARALLELISM_CONFIG_{name.upper()}": str(value) for name, value in settings.items()}


def fsdp_config(strategy: Strategy) -> dict[str, Any]:
    """TrainingArguments' ``fsdp_config``. Only a node's first rank loads the weights into host memory."""
    return {
        "version": 2,
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "reshard_after_forward": strategy.family.reshard,
        "cpu_offload": strategy.family.parameters == "cpu",
        "cpu_ram_efficient_loading": True,
        "activation_checkpointing": strategy.checkpointing,
        "state_dict_type": "FULL_STATE_DICT",
    }


def deepspeed_config(strategy: Strategy, *, world_size: int, dtype: str = "bf16", nvme_path: str = "/local_nvme",
                     auto: bool = False) -> dict[str, Any]:  # fmt: skip
    """The DeepSpeed config of a strategy. ``auto``: write ``"auto"`` for sizes that the Trainer knows.

    ``dtype``: ``bf16`` or ``fp16``. Bucket sizes are DeepSpeed's defaults, except for ZeRO-3, whose prefetch bucket
    and persistence threshold follow the hidden size, as transformers sets them for ``"auto"``.
    """
    family = strategy.family
    zero: dict[str, Any] = {"stage": family.zero}
    if family.zero >= 1:
        zero |= {"overlap_comm": True, "contiguous_gradients": True}
    if family.zero in (1, 2):
        zero |= {"reduce_bucket_size": family.bucket, "allgather_bucket_size": family.bucket}
    if family.zero == 3:
        zero |= {
            "reduce_bucket_size": "auto",
            "stage3_prefetch_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto",
            "stage3_gather_16bit_weights_on_model_save": True,
        }
        if family.small_buckets:
            zero |= {
                "stage3_max_live_parameters": family.live_parameters,
                "stage3_max_reuse_distance": family.live_parameters,
            }
    if family.optimizer != "gpu":
        zero["offload_optimizer"] = _offload_config(family.optimizer, nvme_path)
    if family.parameters != "gpu":
        zero["offload_param"] = _offload_config(family.parameters, nvme_path)
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": "auto" if auto else strategy.micro_batch,
        "gradient_accumulation_steps": "auto" if auto else strategy.accumulation,
        "train_batch_size": "auto" if auto else strategy.micro_batch * strategy.accumulation * world_size,
        "gradient_clipping": "auto" if auto else 1.0,
        dtype: {"enabled": "auto" if auto else True},
        "zero_optimization": zero,
        "optimizer": {
            "type": "AdamW",
            "params": {
                "lr": "auto" if auto else 1e-5,
                "betas": "auto" if auto else [0.9, 0.999],
                "eps": "auto" if auto else 1e-8,
                "weight_decay": "auto" if auto else 0.0,
            },
        },
        "zero_allow_untested_optimizer": True,
    }
    if family.context > 1:
        del config["train_batch_size"]  # the Trainer counts all ranks, accelerate those with samples of their own
    if "nvme" in (family.optimizer, family.parameters):
        config["aio"] = {"block_size": 1 << 20, "queue_depth": 8, "single_submit": False, "overlap_events": True}
    return config


def _offload_config(place: Place, nvme_path: str) -> dict[str, Any]:
    if place == "cpu":
        return {"device": "cpu", "pin_memory": True}
    return {"device": "nvme", "nvme_path": nvme_path, "pin_memory": True}
