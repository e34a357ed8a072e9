"""What was run, as seen in the process: the model, the batch, the precision, how it was distributed. A rank's view."""

from __future__ import annotations

import msgspec


class ConfiguredSettings(msgspec.Struct, frozen=True):
    """What the user's settings say of the same; a default where they say nothing, or where that can't be read."""

    checkpointing: bool = False
    attention: str = ""
    """transformers' name of the implementation: ``flash_attention_2``, ``sdpa``, ``eager``."""
    quantization: str = ""
    """transformers' name of the method: ``bitsandbytes_4bit``, ``gptq`` …"""
    sequence_parallel: int = 1
    micro_batch: int | None = None
    accumulation: int | None = None
    precision: str = ""
    """``bfloat16`` or ``float16`` where mixed precision was asked for."""


class Recomputed(msgspec.Struct, frozen=True):
    """Modules of one class whose forward ran again in backward."""

    module_class: str
    count: int
    of: int
    """How many modules of the class the model has."""


class Unquantized(msgspec.Struct, frozen=True):
    """Weights of a quantized model that stayed as they were; ``module`` has ``*`` for the numbers of lists."""

    module: str
    dtype: str
    parameters: int


class Experts(msgspec.Struct, frozen=True):
    """A mixture of experts: which of them a token takes decides how much memory a rank needs."""

    count: int
    chosen: int
    """For each token."""
    expert_parallel: int
    """Ranks that share them."""
    capacity_factor: float | None = None
    """How many times its even share an expert takes at most; None: any."""

    @property
    def most(self) -> float:
        """How many times its even share of the tokens a rank can get."""
        held = self.count // self.expert_parallel
        most = self.expert_parallel * min(self.chosen, held) / self.chosen
        return most if self.capacity_factor is None else min(most, self.capacity_factor)


class AsRun(msgspec.Struct, frozen=True):
    """The facts. Ranges are (least, most); None, empty or 0 where nothing of the kind was seen."""

    model: str = ""
    """The class of the model that was trained, without wrappers."""
    adapter: str = ""
    """The class of peft's wrapper."""
    parameters: int = 0
    trainable: int = 0
    quantized: int = 0
    """How many of the parameters are held in fewer bits than 16."""
    weights: tuple[str, ...] = ()
    """The dtypes of the parameters, the one of the most first."""
    weights_on: tuple[str, ...] = ()
    """Where a rank keeps its part of them between uses, likewise: ``cuda``, ``cpu``, ``nvme``."""
    samples: tuple[int, int] | None = None
    """Samples that one forward took."""
    tokens: tuple[int, int] | None = None
    """Tokens of a sample, padding included, as the embedding took them."""
    accumulation: tuple[int, int] | None = None
    """Backward passes for one optimizer step."""
    products: str = ""
    """The dtype of the largest matrix product."""
    attention: tuple[str, ...] = ()
    """The implementations that ran: ``flash_attention_2``, ``sdpa``, ``eager``, ``npu_fusion_attention``, ``cudnn``
    (Transformer Engine's)."""
    recomputed: tuple[Recomputed, ...] = ()
    """Activation checkpointing that took place."""
    strategy: str = ""
    """``DeepSpeed ZeRO-3``, ``FSDP2``, ``DDP 2 × TP 2`` …; empty: each process trains a model of its own."""
    stage: int | None = None
    optimizer: str = ""
    masters: str = ""
    """The dtype of what the optimizer steps."""
    idle: bool = False
    """Whether no optimizer's parameters had a gradient in any step, with a backward before."""
    states_on: tuple[str, ...] = ()
    """Where its states are, where most are first."""
    unquantized: tuple[Unquantized, ...] = ()
    """Of a quantized model: what is neither quantized, nor trained, nor an embedding, most first."""
    asked: ConfiguredSettings = ConfiguredSettings()
    experts: Experts | msgspec.UnsetType = msgspec.UNSET
    """Of a model that has some."""
