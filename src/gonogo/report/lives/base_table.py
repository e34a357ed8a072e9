"""The table of frozen weights that a later program takes from elsewhere than the training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gonogo.finding.lives.life_report import BaseRow
from gonogo.report.table import Table
from gonogo.report.untrusted import clean_line

_MAX_NAMES_SHOWN = 3
_WORDS: dict[str, dict[str, Any]] = {
    "en": {
        "title": "Frozen weights, and the base that they come from",
        "columns": ("count", "in", "beside the training", "then", "now", "which"),
        "resume": "resume",
        "convert": "convert",
        "merge": "merge",
        "serve": "load",
        "same": "the same",
        "rounded": "rounded differently",
        "other": "OTHER weights",
        "perhaps": "perhaps OTHER weights",
        "applied-before": "ALREADY with the adapter",
        "drawn": "DRAWN at random",
        "random": "(random)",
    },
    "zh": {
        "title": "冻结的权重及其来源的基座",
        "columns": ("个数", "所在", "与训练时相比", "当时", "现在", "哪些"),
        "resume": "恢复",
        "convert": "转换",
        "merge": "合并",
        "serve": "加载",
        "same": "相同",
        "rounded": "舍入不同",
        "other": "不同的权重",
        "perhaps": "可能是不同的权重",
        "applied-before": "已含该 adapter",
        "drawn": "随机初始化",
        "random": "（随机）",
    },
}


def base_table(bases: Sequence[BaseRow], language: str) -> list[Table]:
    """The table; none if all frozen weights are those of the training."""
    if all(row.status == "same" for row in bases):
        return []
    words = _WORDS["zh" if language == "zh" else "en"]
    rows = []
    for row in bases:
        status = "perhaps" if row.status == "other" and not row.is_certain else row.status
        names = ", ".join(map(clean_line, row.names[:_MAX_NAMES_SHOWN])) if row.status != "same" else ""
        names += ", …" if names and len(row.names) > _MAX_NAMES_SHOWN else ""
        places = [_folders_text(row.before, words), _folders_text(row.after, words)]
        rows.append((f"{len(row.names):,}", words[row.stage], words[status], *places, names))
    return [Table(words["title"], words["columns"], tuple(rows), frozenset({0}))]


def _folders_text(folders: Sequence[str], words: dict[str, Any]) -> str:
    return " + ".join(clean_line("/".join(folder.split("/")[-2:])) for folder in folders) or words["random"]
