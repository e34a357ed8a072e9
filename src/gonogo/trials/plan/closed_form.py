"""Memory and time by formula: a rough estimate that serves only to decide what is worth a rehearsal.

Model states by the ZeRO paper (https://arxiv.org/abs/1910.02054, §3.1 and §5): 2 bytes per parameter and gradient, 12
for Adam's fp32 master and two moments. Activations by Korthikanti et al. (https://arxiv.org/abs/2205.05198, §4),
without the attention scores, as with flash attention.
"""

from __future__ import annotations

import msgspec

from gonogo.evidence.environment.hardware import PeakSpeed
from gonogo.trials.plan.roofline import LINK_SHARE, StepTime, step_time
from gonogo.trials.plan.strategy import Family, Strategy
from gonogo.virtual.measuring.jobs import ModelFacts

_BYTES_PER_LOGIT = 14
"""Per token and vocabulary entry: 16-bit logits, fp32 logits, their softmax and its gradient."""


class Estimate(msgspec.Struct, frozen=True):
    """Bytes of one rank; ``host`` and ``nvme``: its share of host memory and NVMe."""

    by_category: dict[str, float]
    """On the accelerator, by the names of ``gonogo.evidence.rehearsal.record.CATEGORIES``."""
    host: float
    nvme: float

    @property
    def allocated(self) -> float:
        """Total bytes on the accelerator."""
        return sum(self.by_category.values())


class Calibration(msgspec.Struct, frozen=True):
    """Measurements of other strategies that hold for all; the keys say whether activations are checkpointed."""

    seconds: dict[bool, float] = {}
    """Seconds of the forward and backward of one sample, on one GPU."""
    activations: dict[bool, float] = {}
    """Bytes that one sample adds to the peak, over all GPUs that share it."""


NO_CALIBRATION = Calibration()


def estimate_memory(
    facts: ModelFacts,
    strategy: Strategy,
    *,
    world_size: int,
    seq_len: int,
    known: Calibration = NO_CALIBRATION,
    ranks_per_node: int = 8,
) -> Estimate:
    """Estimate the memory of a strategy. ``ranks_per_node``: they share weights that only a node's first rank loads."""
    family = strategy.family
    of_sample = known.activations.get(strategy.checkpointing)
    needed = _activation_bytes(facts, strategy, seq_len) if of_sample is None else strategy.micro_batch * of_sample
    needed /= family.sample_ranks
    if family.fsdp:
        held = fsdp_state_bytes(facts, family.sharding_ranks(world_size))
        host = _fsdp_loaded_bytes(facts) / (ranks_per_node if facts.first_rank_reads else 1)
        if family.is_native:
            host = 0.0  # each rank reads its part of the weights straight to its GPU
        if family.parameters == "cpu":
            held, host = dict.fromkeys(held, 0.0), host + sum(held.values())
        return Estimate(held | {"communication": buffer_bytes(facts, family), "activations": needed}, host, 0.0)
    optimizer_ranks = world_size if family.zero >= 1 else 1
    parameter_ranks = world_size if family.zero >= 3 else 1
    gradient_ranks = world_size if family.zero >= 2 else 1
    host = nvme = 0.0
    held = {"parameters": 0.0, "gradients": 0.0, "optimizer": 0.0}
    parameters = facts.weight_bytes / parameter_ranks
    if family.parameters == "gpu":
        held["parameters"] = parameters
    elif family.parameters == "cpu":
        host += parameters
    else:
        nvme += parameters
    moments, gradients = 12.0 * facts.trainable / optimizer_ranks, 2.0 * facts.trainable / gradient_ranks
    if family.optimizer == "gpu":
        held |= {"optimizer": moments, "gradients": gradients}
        if family.zero == 2 and strategy.accumulation > 1:
            held["gradients"] += 4.0 * facts.trainable / optimizer_ranks  # the partition's accumulated fp32 gradients
        elif family.zero == 0:
            held["gradients"] += 6.0 * facts.trainable  # fp32 gradients, and a 16-bit temporary copy
    elif family.optimizer == "cpu":
        host += moments + 3 * gradients  # fp32 gradients, and a 16-bit copy of the partition
    else:
        nvme += moments
        host += 3 * gradients
    return Estimate(held | {"communication": buffer_bytes(facts, family), "activations": needed}, host, nvme)


def fsdp_state_bytes(facts: ModelFacts, ranks: int) -> dict[str, float]:
    """Bytes of a rank's states sharded over ``ranks`` by FSDP2, by category, on the accelerator or offloaded.

    Accelerate keeps trained weights in fp32 (``fsdp2_prepare_model``); gradients and Adam's moments have that dtype.
    """
    trained = facts.trainable / ranks
    return {"parameters": _fsdp_loaded_bytes(facts) / ranks, "gradients": 4.0 * trained, "optimizer": 8.0 * trained}


def _fsdp_loaded_bytes(facts: ModelFacts) -> float:
    return 4.0 * facts.trainable + 2.0 * (facts.parameters - facts.trainable)


def buffer_bytes(facts: ModelFacts, family: Family) -> float:
    """Bytes of communication buckets, and of parameters that ZeRO-3 has gathered."""
    if family.fsdp:
        layers = 2 * facts.layer_parameters + 2 * facts.largest_parameter  # the next layer is prefetched
        gathered = min(layers, facts.parameters) if family.reshard else facts.parameters
        return 2.0 * gathered * _gathered_share(facts, family)
    if family.zero == 3:
        live = max(facts.largest_parameter, min(family.live_parameters, facts.parameters))
        return 2.0 * live + 4.0 * facts.largest_parameter
    return 2 * 2.0 * min(family.bucket, facts.trainable) if family.zero else 0.0


def _gathered_share(facts: ModelFacts, family: Family) -> float:
    """The share of a layer that FSDP2 gathers on a rank: its own experts, and its part of what TP splits."""
    of_experts = facts.expert_parameters / facts.parameters if facts.parameters else 0.0
    return ((1 - of_experts) + of_experts / family.experts) / family.tensor


def _activation_bytes(facts: ModelFacts, strategy: Strategy, seq_len: int) -> float:
    tokens = strategy.micro_batch * seq_len
    of_inputs = 2.0 * tokens * facts.hidden_size
    of_layer = 17.0 * of_inputs
    layers = max(facts.depth, 1)
    kept = layers * of_inputs + of_layer if strategy.checkpointing else layers * of_layer
    return kept + float(_BYTES_PER_LOGIT) * tokens * facts.vocabulary


def estimate_step_time(
    facts: ModelFacts, strategy: Strategy, *, world_size: int, ranks_per_node: int, seq_len: int, speed: PeakSpeed,
    bandwidth: float, nvme_drives: int, known: Calibration = NO_CALIBRATION, generation: float = 0.0,
) -> StepTime:  # fmt: skip
    """Estimate the time of a step. ``bandwidth``: bytes/s of a rank's slowest link; ``generation``: in seconds.

    A replica of HSDP is within a node where a node has that many ranks: only gradients cross to the others. Ring
    attention passes keys and values round its ranks: forward, backward, and with their gradients; at most the
    hidden size each.
    """
    family = strategy.family
    samples = strategy.micro_batch * strategy.accumulation
    of_sample = known.seconds.get(strategy.checkpointing)
    if of_sample is None:
        passes = (2 if facts.trainable < facts.parameters / 2 else 3) + (1 if strategy.checkpointing else 0)
        of_sample = 2.0 * passes * facts.parameters * seq_len / (speed.matmul_flops * speed.matmul_share)
    compute = of_sample * samples / family.sample_ranks
    gradients = 2.0 * facts.trainable
    gathers = facts.weight_bytes * (2 + (1 if strategy.checkpointing else 0)) if family.zero == 3 else 0.0
    sent = gathers + 2 * gradients
    if family.fsdp:  # recomputed layers find their weights gathered; gradients are reduce-scattered
        sent = facts.weight_bytes * (2 if family.reshard else 1) + gradients
        sent *= _gathered_share(facts, family)
    within = family.sharding_ranks(world_size) <= ranks_per_node
    seconds = sent / (speed.link_bytes if within else bandwidth)
    if family.replicas > 1:
        seconds += 2 * (2 * gradients) / family.sharding_ranks(world_size) / bandwidth  # all-reduce of fp32 shards
    if family.context > 1:
        of_tensor = 2.0 * strategy.micro_batch * seq_len * facts.hidden_size * facts.depth
        times = 3 if strategy.checkpointing else 2
        exchanged = times * 4 * of_tensor / family.context  # queries, keys, values, and what comes of them
        sent_by_rank = 3 * 2 * of_tensor if family.fsdp else exchanged
        seconds += sent_by_rank / (speed.link_bytes if family.context <= ranks_per_node else bandwidth)
    if family.is_native:  # two all-reduces of a layer's output in each pass, or its tokens to their experts and back
        of_tensor = 2.0 * strategy.micro_batch * seq_len * facts.hidden_size * facts.depth
        copies = 2.0 if family.tensor > 1 else max(facts.experts_of_token, 1)
        exchanged = (3 if strategy.checkpointing else 2) * 2 * copies * of_tensor
        seconds += exchanged / speed.link_bytes
    communication = strategy.accumulation * seconds / LINK_SHARE if world_size > 1 else 0.0
    share = 1.0 / world_size
    offloaded = facts.trainable * share if family.optimizer != "gpu" else 0.0
    fetched = facts.weight_bytes * share * strategy.accumulation * 2 if family.parameters != "gpu" else 0.0
    return step_time(
        compute=compute,
        communication=communication,
        to_host_bytes=4 * offloaded,
        from_host_bytes=2 * offloaded + fetched,
        host_parameters=offloaded,
        nvme_parameters=offloaded if family.optimizer == "nvme" else 0.0,
        ranks_per_node=ranks_per_node,
        nvme_drive_count=nvme_drives,
        speed=speed,
        generation_seconds=generation,
    )


def min_state_bytes(facts: ModelFacts, family: Family, world_size: int) -> float:
    """Bytes of the model states alone, the minimum for any micro-batch."""
    smallest = Strategy(family, checkpointing=True, micro_batch=1, accumulation=1)
    held = estimate_memory(facts, smallest, world_size=world_size, seq_len=0).by_category
    return held["parameters"] + held["gradients"] + held["optimizer"]
