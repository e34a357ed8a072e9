"""What was found out about rows that are no GO: each is shown true with real DeepSpeed, or its reason named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_TRUTH = Path(__file__).resolve().with_name("architecture_truth.json")

NOTES: dict[tuple[str, str], tuple[str, str]] = {}
"""By model type and class: the note in English and in Chinese."""


def noted(row: dict[str, Any], language: str) -> str:
    """The note on a row, or nothing."""
    english, chinese = NOTES.get((row["model_type"], row["class"]), ("", ""))
    return english if language == "en" else chinese


def is_proven(row: dict[str, Any]) -> bool:
    """Whether the same model, with few layers, fails in the same way for real, or a note says how it was shown."""
    if (row["model_type"], row["class"]) in NOTES:
        return True
    truth = json.loads(_TRUTH.read_text(encoding="utf-8")) if _TRUTH.exists() else {}
    entry = truth.get(f"{row['model_type']}/{row['class']}")
    return bool(row["outcome"] == "raised" and entry is not None and entry["same"])


def shown(row: dict[str, Any], language: str) -> str:
    """The sentence on a row that was shown true by a real training."""
    if (row["model_type"], row["class"]) in NOTES or not is_proven(row):
        return ""
    if language == "en":
        return "Shown true: with two layers, real DeepSpeed on the CPU with gloo ends in the same error."
    return "已验证：缩到两层后，用真实的 DeepSpeed 在 CPU + gloo 上训练，以同样的错误结束。"
