"""Why a strategy stands where it stands, in words for someone who has not read the ZeRO paper."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.finding import Text
from gonogo.trials.plan.choice import Choice
from gonogo.trials.plan.request import PlanRequest
from gonogo.trials.plan.roofline import ALIKE
from gonogo.trials.plan.task_notes import task_notes

GIB = 1 << 30

_SPREAD = {
    0: Text(
        "Every GPU holds the full model, gradients and optimizer states.", "每张卡都保存完整的模型、梯度和优化器状态。"
    ),
    1: Text(
        "Every GPU holds all weights and gradients; optimizer states are sharded over {n} GPUs.",
        "每张卡保存全部权重和梯度；优化器状态切分到 {n} 张卡上。",
    ),
    2: Text(
        "Every GPU holds all weights, so none need to be gathered; gradients and optimizer states are "
        "sharded over {n} GPUs.",
        "每张卡保存全部权重，计算时不必从别的卡取；梯度和优化器状态切分到 {n} 张卡上。",
    ),
    3: Text(
        "Weights, gradients and optimizer states are sharded over {n} GPUs; a layer's weights are gathered "
        "just before it runs.",
        "权重、梯度和优化器状态都切分到 {n} 张卡上；每一层计算之前，才从其他卡取来它的权重。",
    ),
}
_ALONE = Text("With one GPU there is nothing to shard.", "只有一张卡，没有可切分的对象。")
_HOST_OPTIMIZER = Text(
    "Optimizer states are offloaded to host memory ({size:.0f} GiB per node) and updated by the CPU: "
    "less GPU memory, slower steps.",
    "优化器状态留在主机内存（每节点 {size:.0f} GiB），由 CPU 更新：省显存，但每步更慢。",
)
_HOST_WEIGHTS = Text(
    "Weights and optimizer states are offloaded to host memory ({size:.0f} GiB per node); weights are "
    "copied to the GPU when a layer needs them.",
    "权重和优化器状态放在主机内存（每节点 {size:.0f} GiB），某一层用到时才把权重拷贝到显存。",
)
_NVME = Text(
    "Optimizer states are offloaded to NVMe ({size:.0f} GiB per node), and read and written every step.",
    "优化器状态放在 NVMe 上（每节点 {size:.0f} GiB），每一步都要读写一次。",
)
_LOADING = Text(
    "Nothing is offloaded, but the model is loaded through host memory: up to {size:.0f} GiB per node.",
    "没有卸载到主机，但加载模型要经过主机内存：每节点最多 {size:.0f} GiB。",
)
_SMALL_BUCKETS = Text(
    "It does not fit with DeepSpeed's default communication buffers, but does with a tenth of them, at "
    "the cost of more and smaller messages.",
    "按 DeepSpeed 默认的通信缓冲区放不下，缩小到十分之一就放得下；代价是消息更多、更小。",
)
_RECOMPUTED = Text(
    "Gradient checkpointing: activations are recomputed in the backward pass, which costs about a third "
    "more compute for far less memory.",
    "梯度检查点：反向时重新计算激活；计算量约多三分之一，显存大幅减少。",
)
_KEPT = Text(
    "All activations fit, so nothing is recomputed (no gradient checkpointing).",
    "显存放得下全部激活，无需重复计算（不开梯度检查点）。",
)
_LARGEST_PART = Text(
    "Each GPU uses {used:.1f} of {all:.1f} GiB, most of it for {what} ({most:.1f} GiB).",
    "每张卡占用 {used:.1f} / {all:.1f} GiB，其中{what}最多（{most:.1f} GiB）。",
)
_FASTEST = Text(
    "No strategy that fits is clearly faster; the bottleneck is {limit}.",
    "放得下的方案里没有明显更快的；瓶颈：{limit}。",
)
_AS_FAST = Text(
    "As fast as the first, within the uncertainty; the bottleneck is {limit}.",
    "在误差范围内与第一个一样快；瓶颈：{limit}。",
)
_SLOWER = Text(
    "{percent:.0%} slower than the first; the bottleneck is {limit}.", "比第一个慢 {percent:.0%}；瓶颈：{limit}。"
)
_LIMITS = {
    "compute": Text("compute", "计算"),
    "communication": Text("communication", "卡间通信"),
    "host_link": Text("PCIe copies", "PCIe 拷贝"),
    "host_optimizer": Text("CPU optimizer", "CPU 优化器"),
    "nvme": Text("NVMe", "NVMe"),
    "generation": Text("generating", "生成"),
}
_LIMITS_SAID = {
    **_LIMITS,
    "communication": Text("communication between GPUs", "卡间通信"),
    "host_link": Text("copies between GPU and host (PCIe)", "显存与内存之间的拷贝（PCIe）"),
    "host_optimizer": Text("the optimizer on the CPU", "CPU 上的优化器"),
    "generation": Text("generation of completions", "生成回答"),
}
_CATEGORIES = {
    "parameters": Text("weights", "权重"),
    "gradients": Text("gradients", "梯度"),
    "optimizer": Text("optimizer states", "优化器状态"),
    "activations": Text("activations", "激活"),
    "communication": Text("communication buffers", "通信缓冲区"),
    "temporary": Text("temporary tensors", "临时张量"),
    "workspace": Text("cuBLAS's workspace", "cuBLAS 工作区"),
    "rollout": Text("the rollout engine", "rollout 引擎"),
}
_NOTABLE = 4 * GIB
"""Host memory of a node that is worth a sentence."""
_HARDWARE = {
    "accelerator": Text("GPU memory", "显存"),
    "host": Text("host memory", "主机内存"),
    "nvme": Text("NVMe", "NVMe"),
}


def limit(choice: Choice) -> Text:
    """What a step of it waits for longest, in a word or two."""
    return _LIMITS[choice.time.limit]


def why(choice: Choice, request: PlanRequest, fastest: Choice | None) -> tuple[Text, ...]:
    """The reasons of a strategy, one sentence each; ``fastest``: the first of those that fit, if they are compared."""
    said = [*_spread(choice, request), _RECOMPUTED if choice.strategy.checkpointing else _KEPT]
    said += task_notes(choice, request)
    said += _memory(choice, request)
    return (*said, _speed(choice, fastest)) if fastest is not None else tuple(said)


def _spread(choice: Choice, request: PlanRequest) -> Iterator[Text]:
    family, count = choice.strategy.family, request.machine.count
    yield _SPREAD[family.zero].format(n=request.world_size) if request.world_size > 1 else _ALONE
    host = choice.host * count
    if family.small_buckets:
        yield _SMALL_BUCKETS
    if "nvme" in (family.optimizer, family.parameters):
        yield _NVME.format(size=choice.nvme * count / GIB)
    if family.parameters == "cpu":
        yield _HOST_WEIGHTS.format(size=host / GIB)
    elif family.optimizer == "cpu":
        yield _HOST_OPTIMIZER.format(size=host / GIB)
    elif family.optimizer == "gpu" and host > _NOTABLE:
        yield _LOADING.format(size=host / GIB)


def _memory(choice: Choice, request: PlanRequest) -> Iterator[Text]:
    """What takes most: known only where the parts were told apart by a rehearsal."""
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


def _speed(choice: Choice, fastest: Choice) -> Text:
    slower = 1 - choice.tokens_per_second / fastest.tokens_per_second if fastest.tokens_per_second else 0.0
    said = _FASTEST if choice is fastest else _AS_FAST if slower < ALIKE else _SLOWER
    return said.format(limit=_LIMITS_SAID[choice.time.limit], percent=slower)


def shortfall(choice: Choice, request: PlanRequest) -> Text:
    """By how much a strategy does not fit."""
    name = choice.room.short_of
    assert name is not None
    missing = -getattr(choice.room, name) / GIB
    if name == "engine":
        return Text(
            "the rollout engine is {missing:.1f} GiB short of starting reliably next to the trainer",
            "rollout 引擎要在训练器旁可靠启动，还缺 {missing:.1f} GiB",
        ).format(missing=missing)
    if name == "accelerator":
        accelerator = request.machine.accelerator
        return Text(
            "needs {needs:.1f} GiB per GPU at the smallest micro-batch, but has {has:.1f} GiB",
            "最小 micro-batch 下每张卡需要 {needs:.1f} GiB，只有 {has:.1f} GiB",
        ).format(
            needs=choice.reserved * (1 + choice.band if choice.source != "formula" else 1) / GIB,
            has=(accelerator.total_bytes - accelerator.allowance_bytes) / GIB,
        )
    return Text("{what}: {missing:.0f} GiB short per node", "{what}：每节点缺 {missing:.0f} GiB").format(
        what=_HARDWARE[name], missing=missing
    )
