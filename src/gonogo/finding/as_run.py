"""What a rank actually ran, as observed in its process: model, batch, precision, and how it was distributed."""

from __future__ import annotations

import msgspec


class ConfiguredSettings(msgspec.Struct, frozen=True):
    """The corresponding values in the user's settings; defaults if they aren't set or can't be read."""

    checkpointing: bool = False
    attention: str = ""
    """transformers' name for the implementation: ``flash_attention_2``, ``sdpa``, ``eager``."""
    quantization: str = ""
    """transformers' name for the method: ``bitsandbytes_4bit``, ``gptq`` …"""
    sequence_parallel: int = 1
    micro_batch: int | None = None
    accumulation: int | None = None
    precision: str = ""
    """``bfloat16`` or ``float16`` if mixed precision was configured."""


class Recomputed(msgspec.Struct, frozen=True):
    """Modules of one class whose forward was recomputed in backward."""

    module_class: str
    count: int
    of: int
    """How many modules of the class the model has."""


class Unquantized(msgspec.Struct, frozen=True):
    """Weights of a quantized model that were not quantized; ``module`` has ``*`` for list indices."""

    module: str
    dtype: str
    parameters: int


class Experts(msgspec.Struct, frozen=True):
    """A mixture of experts: how tokens are routed determines how much memory a rank needs."""

    count: int
    chosen: int
    """Experts chosen per token."""
    expert_parallel: int
    """Number of ranks that share the experts."""
    capacity_factor: float | None = None
    """An expert's maximum number of tokens as a multiple of its even share; None: no limit."""

    @property
    def most(self) -> float:
        """The most tokens that a rank can get, as a multiple of its even share."""
        held = self.count // self.expert_parallel
        most = self.expert_parallel * min(self.chosen, held) / self.chosen
        return most if self.capacity_factor is None else min(most, self.capacity_factor)


class MegatronGroups(msgspec.Struct, frozen=True):
    """Ranks in each kind of Megatron-Core's process groups; 1 if that kind of parallelism is not used."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    distributed_optimizer: bool = False


class AsRun(msgspec.Struct, frozen=True):
    """What a rehearsed rank did. Ranges are (least, most); None, empty or 0 if nothing of the kind was observed."""

    model: str = ""
    """The class of the model that was trained, without wrappers."""
    adapter: str = ""
    """The class of peft's wrapper."""
    parameters: int = 0
    trainable: int = 0
    quantized: int = 0
    """Number of parameters stored in fewer than 16 bits."""
    weights: tuple[str, ...] = ()
    """The dtypes of the parameters, the most frequent first."""
    weights_on: tuple[str, ...] = ()
    """Devices on which a rank keeps its shard between uses, in the same order: ``cuda``, ``cpu``, ``nvme``."""
    samples: tuple[int, int] | None = None
    """Samples per forward."""
    tokens: tuple[int, int] | None = None
    """Tokens per sample, including padding, as seen by the embedding; of ranks that share samples, a rank's part."""
    sequence_ranks: int = 1
    """Number of ranks that share each sample: Ulysses, or context parallelism."""
    tensor_ranks: int = 1
    """Number of ranks that each run a part of every layer, on the same samples."""
    accumulation: tuple[int, int] | None = None
    """Backward passes for one optimizer step."""
    products: str = ""
    """The dtype of the largest matrix product."""
    attention: tuple[str, ...] = ()
    """The implementations that ran: ``flash_attention_2``, ``sdpa``, ``eager``, ``npu_fusion_attention``, ``cudnn``
    (Transformer Engine's)."""
    recomputed: tuple[Recomputed, ...] = ()
    """Modules for which activation checkpointing took place."""
    strategy: str = ""
    """``DeepSpeed ZeRO-3``, ``FSDP2``, ``DDP 2 × TP 2`` …; empty: each process trains its own model."""
    stage: int | None = None
    optimizer: str = ""
    masters: str = ""
    """The dtype of the master weights that the optimizer updates."""
    idle: bool = False
    """Whether no optimizer had a parameter with a gradient in any step, although there was a backward."""
    states_on: tuple[str, ...] = ()
    """Devices of the optimizer's states, the one with the most first."""
    unquantized: tuple[Unquantized, ...] = ()
    """In a quantized model: weights neither quantized, nor trained, nor an embedding, the most numerous first."""
    asked: ConfiguredSettings = ConfiguredSettings()
    experts: Experts | msgspec.UnsetType = msgspec.UNSET
    """The experts, if the model has any."""
    megatron: MegatronGroups | msgspec.UnsetType = msgspec.UNSET
    """Megatron-Core's groups, if its DDP or FSDP wraps the model."""

    @property
    def sample_tokens(self) -> tuple[int, int] | None:
        """Tokens per sample, of all ranks that share it."""
        return self.tokens and (self.tokens[0] * self.sequence_ranks, self.tokens[1] * self.sequence_ranks)
