"""Why a strategy stands where it stands, in words for someone who has not read the ZeRO paper."""

from __future__ import annotations

from gonogo.finding import Text
from gonogo.plan.choice import Choice
from gonogo.plan.request import PlanRequest
from gonogo.plan.strategy import Family

GIB = 1 << 30

_SPREAD = {
    0: Text(
        "the whole model and its optimizer on each GPU: nothing is divided", "每张卡都有完整的模型和优化器，不做切分"
    ),
    1: Text("the optimizer's states divided among {n} GPUs", "优化器状态切分到 {n} 张卡"),
    2: Text(
        "gradients and the optimizer's states divided among {n} GPUs, the weights whole on each: nothing to gather",
        "梯度和优化器状态切分到 {n} 张卡，每张卡保留完整权重，无需收集参数",
    ),
    3: Text(
        "weights, gradients and the optimizer's states divided among {n} GPUs; weights are gathered layer by layer",
        "权重、梯度和优化器状态都切分到 {n} 张卡，计算时逐层收集权重",
    ),
}
_HOST_OPTIMIZER = Text(
    "the optimizer runs on the CPU, its states in host memory ({size:.0f} GiB a node)",
    "优化器在 CPU 上运行，其状态放在主机内存（每节点 {size:.0f} GiB）",
)
_HOST_WEIGHTS = Text(
    "weights and the optimizer's states wait in host memory ({size:.0f} GiB a node) and are copied when needed",
    "权重和优化器状态放在主机内存（每节点 {size:.0f} GiB），用到时再拷贝",
)
_NVME = Text(
    "the optimizer's states lie on NVMe ({size:.0f} GiB a node) and are read and written each step",
    "优化器状态放在 NVMe（每节点 {size:.0f} GiB），每步读写一次",
)
_RECOMPUTED = Text(
    "activations are computed again in backward: a third more computing for far less memory",
    "反向时重算激活：计算量多三分之一，显存大幅减少",
)
_KEPT = Text("activations are kept: nothing is computed twice", "保留激活，不重复计算")
_LIMITS = {
    "compute": Text("computing", "计算"),
    "communication": Text("communication between GPUs", "卡间通信"),
    "host_link": Text("copies between GPU and host (PCIe)", "显存与内存之间的拷贝（PCIe）"),
    "host_optimizer": Text("the optimizer on the CPU (host memory bandwidth)", "CPU 优化器（内存带宽）"),
    "nvme": Text("NVMe", "NVMe"),
}
_HARDWARE = {
    "accelerator": Text("GPU memory", "显存"),
    "host": Text("host memory", "主机内存"),
    "nvme": Text("NVMe", "NVMe"),
}


def limit(choice: Choice) -> Text:
    """What a step of it waits for longest."""
    return _LIMITS[choice.time.limit]


def why(choice: Choice, request: PlanRequest) -> tuple[Text, ...]:
    """The reasons of a strategy that fits, one sentence each."""
    family = choice.strategy.family
    count = request.machine.count
    said = [_SPREAD[family.zero].format(n=request.world_size)]
    if "nvme" in (family.optimizer, family.parameters):
        said.append(_NVME.format(size=choice.nvme * count / GIB))
    if family.parameters == "cpu":
        said.append(_HOST_WEIGHTS.format(size=choice.host * count / GIB))
    elif family.optimizer == "cpu":
        said.append(_HOST_OPTIMIZER.format(size=choice.host * count / GIB))
    said.append(_RECOMPUTED if choice.strategy.checkpointing else _KEPT)
    return tuple(said)


def shortfall(choice: Choice, request: PlanRequest) -> Text:
    """By how much a strategy does not fit."""
    name = choice.room.short_of
    assert name is not None
    missing = -getattr(choice.room, name) / GIB
    if name == "accelerator":
        accelerator = request.machine.accelerator
        return Text(
            "needs {needs:.1f} GiB a GPU at the smallest micro-batch, {has:.1f} GiB are there",
            "最小 micro-batch 下每张卡需要 {needs:.1f} GiB，只有 {has:.1f} GiB",
        ).format(
            needs=choice.reserved * (1 + choice.band if choice.source != "formula" else 1) / GIB,
            has=(accelerator.total_bytes - accelerator.allowance_bytes) / GIB,
        )
    return Text("{what}: {missing:.0f} GiB too little a node", "{what}：每节点缺 {missing:.0f} GiB").format(
        what=_HARDWARE[name], missing=missing
    )


def divides(family: Family) -> Text:
    """What ZeRO's stage of a family divides."""
    return _SPREAD[family.zero]
