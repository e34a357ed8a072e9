"""``evaluate.load("accuracy")``, offline: its code is fetched from the hub, so a metric of the same interface answers.

What it answers is no measurement: every score is one half, which the report says.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from gonogo.finding import Text, translated
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches

_ASSUMED = translated(
    "the metric {name} is fetched from the hub where there is a network, and what it needs is installed; its scores "
    "here are one half"
)
_SCORE = 0.5
_NUMBERS = frozenset({"wer", "cer", "mauve"})
"""Metrics whose ``compute`` gives a number, or is asked for attributes, in place of a table."""
_KEYS = {
    "accuracy": ("accuracy",), "f1": ("f1",), "precision": ("precision",), "recall": ("recall",), "mse": ("mse",),
    "mae": ("mae",), "exact_match": ("exact_match",), "glue": ("accuracy", "f1"), "super_glue": ("accuracy", "f1"),
    "xnli": ("accuracy",), "squad": ("exact_match", "f1"), "squad_v2": ("exact", "f1"), "bleu": ("bleu", "precisions"),
    "sacrebleu": ("score",), "google_bleu": ("google_bleu",), "meteor": ("meteor",), "chrf": ("score",),
    "rouge": ("rouge1", "rouge2", "rougeL", "rougeLsum"), "perplexity": ("perplexities", "mean_perplexity"),
    "bertscore": ("precision", "recall", "f1"), "roc_auc": ("roc_auc",), "pearsonr": ("pearsonr",),
    "spearmanr": ("spearmanr",), "matthews_correlation": ("matthews_correlation",), "ter": ("score",),
    "seqeval": ("overall_precision", "overall_recall", "overall_f1", "overall_accuracy"),
    "mean_iou": ("mean_iou", "mean_accuracy", "overall_accuracy", "per_category_iou", "per_category_accuracy"),
}  # fmt: skip


def install(assume: Callable[[Text], object]) -> Callable[[], None]:
    """Answer for the metrics of the hub that are known by name; the others are asked for in vain, as before."""
    patches = Patches()
    patches.on_undo(after_import("evaluate.loading", functools.partial(_follow, patches, assume)))
    return patches.undo


def _follow(patches: Patches, assume: Callable[[Text], object], module: ModuleType) -> None:
    load = vars(module)["load"]

    @functools.wraps(load)
    def load_metric(path: Any, *args: Any, **kwargs: Any) -> Any:
        name = str(path).removeprefix("evaluate-metric/")
        if os.path.exists(str(path)) or not (name in _KEYS or name in _NUMBERS):
            return load(path, *args, **kwargs)
        try:
            return load(path, *args, **kwargs)  # in the user's cache
        except Exception:
            assume(_ASSUMED.format(name=name))
            return _Metric(name)

    patches.set(module, "load", load_metric)


class _Metric:
    """Stands for an ``evaluate.EvaluationModule``."""

    def __init__(self, name: str) -> None:
        self.name = name

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Takes one prediction."""

    def add_batch(self, *args: Any, **kwargs: Any) -> None:
        """Takes a batch of predictions."""

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        """Scores by their names, or one."""
        return _SCORE if self.name in _NUMBERS else _Scores(dict.fromkeys(_KEYS[self.name], _SCORE))


class _Scores(dict[str, Any]):
    """Any score that is asked for is there: some depend on the task."""

    def __missing__(self, key: str) -> float:
        return _SCORE
