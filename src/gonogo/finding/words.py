"""Vocabulary shared by findings, reports and progress: sizes, the phases of a run, categories of memory."""

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
"""The phases of a run, as named in tables."""

PHASES = {
    "load": translated("loading"),
    "init": translated("initialization"),
    "generate": translated("generation"),
    "reward": translated("the computation of rewards"),
    "score": translated("the log-probabilities"),
    "sync": translated("the weight synchronization"),
    "forward": translated("the forward pass"),
    "backward": translated("the backward pass"),
    "step": translated("the optimizer step"),
    "evaluate": translated("evaluation"),
    "save": translated("saving"),
    "exit": translated("exit"),
    "between": translated("the program's own code between steps"),
}
"""What a rank was doing, as used in sentences; ``between`` only occurs in guarded runs."""

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
"""What memory is used for."""
OPTIONAL_CATEGORIES = ("workspace", "rollout")
"""Categories that a table only shows if they hold anything."""


def size(count: float) -> str:
    """A number of bytes as text: in GiB with one decimal, or in MiB if less than one GiB."""
    if count >= _GIB:
        return f"{count / _GIB:,.1f} GiB"
    if count >= 10 * _MIB:
        return f"{count / _MIB:.0f} MiB"
    if count >= 0.1 * _MIB:
        return f"{count / _MIB:.1f} MiB"
    return "< 0.1 MiB" if count else "0"


def sizes(by_category: dict[str, int]) -> Text:
    """``parameters 18.2 GiB, optimizer 101.5 GiB``, without empty categories; ``?`` if there are no categories."""
    held = [(CATEGORIES.get(name, Text(name, name)), size(count)) for name, count in by_category.items() if count]
    return Text(
        ", ".join(f"{name.en} {count}" for name, count in held) or "?",
        "、".join(f"{name.zh} {count}" for name, count in held) or "?",
    )
