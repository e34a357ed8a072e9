"""Words that findings, reports and progress share: sizes, the phases of a run, what memory holds."""

from __future__ import annotations

from gonogo.finding import Text, translated

_GIB = 1 << 30
_MIB = 1 << 20

PHASE_NAMES = {
    "load": translated("load"),
    "init": translated("init"),
    "generate": translated("generate"),
    "reward": translated("reward"),
    "score": translated("log-probabilities"),
    "sync": translated("weight sync"),
    "forward": translated("forward"),
    "backward": translated("backward"),
    "step": translated("optimizer step"),
    "evaluate": translated("evaluate"),
    "save": translated("save"),
    "exit": translated("exit"),
}
"""The phases of a run as a table names them."""

PHASES = {
    "load": translated("loading"),
    "init": translated("initialization"),
    "generate": translated("generation"),
    "reward": translated("the rewards"),
    "score": translated("the log-probabilities"),
    "sync": translated("the weight synchronisation"),
    "forward": translated("the forward pass"),
    "backward": translated("the backward pass"),
    "step": translated("the optimizer step"),
    "evaluate": translated("evaluation"),
    "save": translated("saving"),
    "exit": translated("exit"),
    "between": translated("the program's own code between steps"),
}
"""What a rank was doing, in a sentence; ``between`` is of guarded runs only."""

CATEGORIES = {
    "parameters": translated("parameters"),
    "gradients": translated("gradients"),
    "optimizer": translated("optimizer"),
    "activations": translated("activations"),
    "communication": translated("communication"),
    "temporary": translated("temporary"),
    "workspace": translated("cuBLAS workspace"),
    "rollout": translated("rollout engine"),
}
"""What memory holds."""
OPTIONAL_CATEGORIES = ("workspace", "rollout")
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
