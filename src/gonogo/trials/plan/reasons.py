"""Explains the ranking of strategies to readers who have not read the ZeRO paper."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.finding import Text, translated
from gonogo.finding.trials.planned import SPEED_TOLERANCE
from gonogo.trials.plan.choice import Choice
from gonogo.trials.plan.request import PlanRequest
from gonogo.trials.plan.task_notes import task_notes

GIB = 1 << 30

_SHARDING_NOTES = {
    0: translated("Every GPU holds the full model, gradients and optimizer states."),
    1: translated("Every GPU holds all weights and gradients; optimizer states are sharded over {n} GPUs."),
    2: translated(
        "Every GPU holds all weights, so none need to be gathered; gradients and optimizer states are "
        "sharded over {n} GPUs."
    ),
    3: translated(
        "Weights, gradients and optimizer states are sharded over {n} GPUs; a layer's weights are gathered "
        "just before it runs."
    ),
}
_FSDP_SHARDING_NOTES = {
    True: translated(
        "FSDP2 shards fp32 weights, gradients and optimizer states over {n} GPUs; a layer's weights are gathered "
        "in bf16 just before it runs, in the forward and again in the backward pass."
    ),
    False: translated(
        "FSDP2 shards fp32 weights, gradients and optimizer states over {n} GPUs; gathered bf16 weights stay on "
        "every GPU until the backward pass, which saves gathering them twice."
    ),
}
_HYBRID_SHARDING = translated(
    "Hybrid sharding: each of {count} groups of GPUs holds all states, so that only gradients cross between them."
)
_CONTEXT_PARALLEL = translated(
    "Context parallelism: {count} GPUs share each sequence and pass keys and values round in a ring, so that each "
    "holds {count} times fewer activations."
)
_ULYSSES = translated(
    "Ulysses: {count} GPUs share each sequence and exchange attention heads for tokens around the attention, so that "
    "each holds {count} times fewer activations."
)
_TENSOR_PARALLEL = translated(
    "Tensor parallelism: {count} GPUs run a part of each layer on the same samples, so that each holds and gathers "
    "{count} times less of it, at the cost of two all-reduces a layer."
)
_EXPERT_PARALLEL = translated(
    "Expert parallelism: the experts are spread over {count} GPUs, which send each token to its experts instead of "
    "gathering the experts' weights."
)
_CANNOT_BE_RESUMED = translated(
    "transformers shards it as it is loaded (DistributedConfig), and saves no optimizer states then: a run that was "
    "interrupted starts from its weights again."
)
_SINGLE_GPU = translated("With one GPU there is nothing to shard.")
_HOST_OPTIMIZER = translated(
    "Optimizer states are offloaded to host memory ({size:.0f} GiB per node) and updated by the CPU: "
    "less GPU memory, slower steps."
)
_HOST_WEIGHTS = translated(
    "Weights and optimizer states are offloaded to host memory ({size:.0f} GiB per node); weights are "
    "copied to the GPU when a layer needs them."
)
_OFFLOADED_TO_NVME = translated(
    "Optimizer states are offloaded to NVMe ({size:.0f} GiB per node), and read and written every step."
)
_LOADED_THROUGH_HOST_MEMORY = translated(
    "Nothing is offloaded, but the model is loaded through host memory: up to {size:.0f} GiB per node."
)
_SMALL_BUCKETS = translated(
    "It does not fit with DeepSpeed's default communication buffers, but does with buffers a tenth of that size, "
    "at the cost of more and smaller messages."
)
_ACTIVATIONS_RECOMPUTED = translated(
    "Gradient checkpointing: activations are recomputed in the backward pass, which costs about a third "
    "more compute for far less memory."
)
_NOT_RECOMPUTED = translated("All activations fit, so nothing is recomputed (no gradient checkpointing).")
_LARGEST_PART = translated("Each GPU uses {used:.1f} of {all:.1f} GiB, most of it for {what} ({most:.1f} GiB).")
_FASTEST = translated("No strategy that fits is clearly faster; the bottleneck is {limit}.")
_EQUALLY_FAST = translated("As fast as the first, within the uncertainty; the bottleneck is {limit}.")
_SLOWER_THAN_FIRST = translated("{percent:.0%} slower than the first; the bottleneck is {limit}.")
_LIMITS = {
    "compute": translated("compute"),
    "communication": translated("communication"),
    "host_link": translated("PCIe copies"),
    "host_optimizer": translated("CPU optimizer"),
    "nvme": translated("NVMe"),
    "generation": translated("generating"),
}
_BOTTLENECK_NAMES = {
    **_LIMITS,
    "communication": translated("communication between GPUs"),
    "host_link": translated("copies between GPU and host (PCIe)"),
    "host_optimizer": translated("the optimizer on the CPU"),
    "generation": translated("generation of completions"),
}
_CATEGORIES = {
    "parameters": translated("weights"),
    "gradients": translated("gradients"),
    "optimizer": translated("optimizer states"),
    "activations": translated("activations"),
    "communication": translated("communication buffers"),
    "temporary": translated("temporary tensors"),
    "workspace": translated("cuBLAS's workspace"),
    "rollout": translated("the rollout engine"),
}
_MIN_NOTABLE_HOST_BYTES = 4 * GIB
"""Host memory per node from which it is worth a sentence."""
_MEMORY_KIND_NAMES = {
    "accelerator": translated("GPU memory"),
    "host": translated("host memory"),
    "nvme": translated("NVMe"),
}


def bottleneck_text(choice: Choice) -> Text:
    """The bottleneck of a step, in a word or two."""
    return _LIMITS[choice.time.limit]


def ranking_reasons(choice: Choice, request: PlanRequest, fastest: Choice | None) -> tuple[Text, ...]:
    """The reasons for a strategy's rank, one sentence each; ``fastest``: the best that fits, if they are compared."""
    said = [
        *_sharding_reasons(choice, request),
        _ACTIVATIONS_RECOMPUTED if choice.strategy.checkpointing else _NOT_RECOMPUTED,
    ]
    said += task_notes(choice, request)
    said += _memory_reasons(choice, request)
    return (*said, _speed_reason(choice, fastest)) if fastest is not None else tuple(said)


def _sharding_reasons(choice: Choice, request: PlanRequest) -> Iterator[Text]:
    family, count = choice.strategy.family, request.machine.count
    note = _FSDP_SHARDING_NOTES[family.reshard] if family.fsdp else _SHARDING_NOTES[family.zero]
    ranks = family.sharding_ranks(request.world_size)
    yield note.format(n=ranks) if request.world_size > 1 else _SINGLE_GPU
    if family.replicas > 1:
        yield _HYBRID_SHARDING.format(count=family.replicas)
    if family.context > 1:
        yield (_CONTEXT_PARALLEL if family.fsdp else _ULYSSES).format(count=family.context)
    if family.tensor > 1:
        yield _TENSOR_PARALLEL.format(count=family.tensor)
    if family.experts > 1:
        yield _EXPERT_PARALLEL.format(count=family.experts)
    if family.is_native:
        yield _CANNOT_BE_RESUMED
    host = choice.host * count
    if family.small_buckets:
        yield _SMALL_BUCKETS
    if "nvme" in (family.optimizer, family.parameters):
        yield _OFFLOADED_TO_NVME.format(size=choice.nvme * count / GIB)
    if family.parameters == "cpu":
        yield _HOST_WEIGHTS.format(size=host / GIB)
    elif family.optimizer == "cpu":
        yield _HOST_OPTIMIZER.format(size=host / GIB)
    elif family.optimizer == "gpu" and host > _MIN_NOTABLE_HOST_BYTES:
        yield _LOADED_THROUGH_HOST_MEMORY.format(size=host / GIB)


def _memory_reasons(choice: Choice, request: PlanRequest) -> Iterator[Text]:
    """What takes the most memory, if a rehearsal has measured the parts."""
    if choice.source == "formula" or not choice.by_category:
        return
    name = max(choice.by_category, key=lambda category: choice.by_category[category])
    accelerator = request.machine.accelerator
    yield _LARGEST_PART.format(
        what=_CATEGORIES[name],
        used=choice.reserved / GIB,
        all=(accelerator.total_bytes - accelerator.allowance_bytes) / GIB,
        most=choice.by_category[name] / GIB,
    )


def _speed_reason(choice: Choice, fastest: Choice) -> Text:
    slower = 1 - choice.tokens_per_second / fastest.tokens_per_second if fastest.tokens_per_second else 0.0
    said = _FASTEST if choice is fastest else _EQUALLY_FAST if slower < SPEED_TOLERANCE else _SLOWER_THAN_FIRST
    return said.format(limit=_BOTTLENECK_NAMES[choice.time.limit], percent=slower)


def shortfall(choice: Choice, request: PlanRequest) -> Text:
    """How much memory a strategy lacks."""
    name = choice.room.insufficient_memory
    assert name is not None
    missing = -getattr(choice.room, name) / GIB
    if name == "engine":
        return translated(
            "the rollout engine is {missing:.1f} GiB short of starting reliably next to the trainer"
        ).format(missing=missing)
    if name == "accelerator":
        accelerator = request.machine.accelerator
        return translated("needs {needs:.1f} GiB per GPU at the smallest micro-batch, but has {has:.1f} GiB").format(
            needs=choice.reserved * (1 + choice.band if choice.source != "formula" else 1) / GIB,
            has=(accelerator.total_bytes - accelerator.allowance_bytes) / GIB,
        )
    return translated("{what}: {missing:.0f} GiB short per node").format(what=_MEMORY_KIND_NAMES[name], missing=missing)
