"""``evaluate.load("accuracy")``, offline: its code would be fetched from the hub, so a stand-in metric is returned.

Its results are no measurements: every score is one half, which the report says.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from gonogo.finding import translated
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.values.assumptions import Assume

_METRIC_ASSUMPTION = translated(
    "the metric {name} is fetched from the hub where there is a network, and its dependencies are "
    "installed; its scores here are 0.5"
)
_PLACEHOLDER_SCORE = 0.5
_SCALAR_METRICS = frozenset({"wer", "cer", "mauve"})
"""Metrics whose ``compute`` returns a number, or an object with attributes, instead of a dict."""
_SCORE_NAMES_BY_METRIC = {
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


def install(assume: Assume) -> Callable[[], None]:
    """Replace known metrics of the hub that aren't cached; unknown ones fail to load as before."""
    patches = Patches()
    patches.on_undo(after_import("evaluate.loading", functools.partial(_patch_load, patches, assume)))
    return patches.undo


def _patch_load(patches: Patches, assume: Assume, module: ModuleType) -> None:
    load = vars(module)["load"]

    @functools.wraps(load)
    def load_metric(path: Any, *args: Any, **kwargs: Any) -> Any:
        name = str(path).removeprefix("evaluate-metric/")
        if os.path.exists(str(path)) or not (name in _SCORE_NAMES_BY_METRIC or name in _SCALAR_METRICS):
            return load(path, *args, **kwargs)
        try:
            return load(path, *args, **kwargs)  # from the user's cache
        except Exception:
            assume(_METRIC_ASSUMPTION.format(name=name), "number")
            return _Metric(name)

    patches.set(module, "load", load_metric)


class _Metric:
    """Stand-in for an ``evaluate.EvaluationModule``."""

    def __init__(self, name: str) -> None:
        self.name = name

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Accept one prediction."""

    def add_batch(self, *args: Any, **kwargs: Any) -> None:
        """Accept a batch of predictions."""

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        """A dict of scores, or a single score."""
        return (
            _PLACEHOLDER_SCORE
            if self.name in _SCALAR_METRICS
            else _Scores(dict.fromkeys(_SCORE_NAMES_BY_METRIC[self.name], _PLACEHOLDER_SCORE))
        )


class _Scores(dict[str, Any]):
    """Scores that include any requested key, since some keys depend on the task."""

    def __missing__(self, key: str) -> float:
        return _PLACEHOLDER_SCORE
