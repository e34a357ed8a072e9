"""Words that findings, reports and progress share: sizes, the phases of a run, what memory holds."""

from __future__ import annotations

from gonogo.finding import Text

_GIB = 1 << 30
_MIB = 1 << 20

PHASE_NAMES = {
    "load": Text("load", "加载"),
    "init": Text("init", "初始化"),
    "generate": Text("generate", "生成"),
    "reward": Text("reward", "奖励"),
    "score": Text("log-probabilities", "对数概率"),
    "sync": Text("weight sync", "权重同步"),
    "forward": Text("forward", "前向"),
    "backward": Text("backward", "反向"),
    "step": Text("optimizer step", "参数更新"),
    "evaluate": Text("evaluate", "评估"),
    "save": Text("save", "保存"),
    "exit": Text("exit", "退出"),
}
"""The phases of a run as a table names them."""

PHASES = {
    "load": Text("loading", "加载"),
    "init": Text("initialization", "初始化"),
    "generate": Text("generation", "生成"),
    "reward": Text("the rewards", "计算奖励"),
    "score": Text("the log-probabilities", "计算对数概率"),
    "sync": Text("the weight synchronisation", "权重同步"),
    "forward": Text("the forward pass", "前向传播"),
    "backward": Text("the backward pass", "反向传播"),
    "step": Text("the optimizer step", "优化器更新"),
    "evaluate": Text("evaluation", "评估"),
    "save": Text("saving", "保存"),
    "exit": Text("exit", "退出"),
    "between": Text("the program's own code between steps", "两步之间程序自身的代码"),
}
"""What a rank was doing, in a sentence; ``between`` is of guarded runs only."""

CATEGORIES = {
    "parameters": Text("parameters", "参数"),
    "gradients": Text("gradients", "梯度"),
    "optimizer": Text("optimizer", "优化器"),
    "activations": Text("activations", "激活"),
    "communication": Text("communication", "通信"),
    "temporary": Text("temporary", "临时"),
    "workspace": Text("cuBLAS workspace", "cuBLAS 工作区"),
    "rollout": Text("rollout engine", "rollout 引擎"),
}
"""What memory holds."""
ONLY_WHERE_HELD = ("workspace", "rollout")
"""Categories that a table names only where they hold something."""


def size(count: float) -> str:
    """Bytes: GiB with one decimal; below one, MiB."""
    if count >= _GIB:
        return f"{count / _GIB:,.1f} GiB"
    if count >= 10 * _MIB:
        return f"{count / _MIB:.0f} MiB"
    if count >= 0.1 * _MIB:
        return f"{count / _MIB:.1f} MiB"
    return "< 0.1 MiB" if count else "0"


def sizes(by_category: dict[str, int]) -> Text:
    """``parameters 18.2 GiB, optimizer 101.5 GiB``, what is nothing left out; ``?`` for no category at all."""
    held = [(CATEGORIES.get(name, Text(name, name)), size(count)) for name, count in by_category.items() if count]
    return Text(
        ", ".join(f"{name.en} {count}" for name, count in held) or "?",
        "、".join(f"{name.zh} {count}" for name, count in held) or "?",
    )
