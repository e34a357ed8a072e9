"""The tables of what is made from a checkpoint: what became of the trained weights, and the figures of each stage."""

from __future__ import annotations

from typing import Any

from msgspec import UnsetType

from gonogo.finding.lives.life_report import StateRow
from gonogo.finding.lives.result_report import ResultReport
from gonogo.finding.rehearsal import Rehearsal
from gonogo.finding.words import size
from gonogo.report.lives.base_table import base_table
from gonogo.report.table import Table
from gonogo.report.untrusted import clean_line

_MAX_NAMES_SHOWN = 3
_WORDS: dict[str, dict[str, Any]] = {
    "en": {
        "loaded": "Weights, in the loaded result",
        "files": "Weights, in the result's files",
        "columns": ("weights", "count", "in the result", "read from", "which"),
        "stages": "Converting, merging, loading",
        "stage columns": ("stage", "GPU, peak", "host, peak", "files with weights", "on disk"),
        "parameter": "trained",
        "buffer": "buffers",
        "model": "of the loaded model",
        "restored": "yes",
        "partly": "in part",
        "not-read": "LOST: in a file, not loaded",
        "not-written": "LOST: in none of its files",
        "drawn-anew": "LOST: initialized anew",
        "unchanged": "as before the run",
        "unknown": "not known",
        "convert": "convert",
        "merge": "merge",
        "serve": "load",
    },
    "zh": {
        "loaded": "加载后的结果中的权重",
        "files": "结果文件中的权重",
        "columns": ("权重", "个数", "结果中", "读自", "哪些"),
        "stages": "转换、合并、加载",
        "stage columns": ("阶段", "GPU 峰值", "主机内存峰值", "含权重的文件", "磁盘"),
        "parameter": "训练过的",
        "buffer": "缓冲区",
        "model": "加载的模型的",
        "restored": "有",
        "partly": "只有一部分",
        "not-read": "丢失：在文件中，未加载",
        "not-written": "丢失：不在任何文件中",
        "drawn-anew": "丢失：重新初始化",
        "unchanged": "与运行之前相同",
        "unknown": "未知",
        "convert": "转换",
        "merge": "合并",
        "serve": "加载",
    },
}


def result_tables(rehearsal: Rehearsal, language: str) -> list[Table]:
    """The tables; none if nothing was made from a checkpoint."""
    result = rehearsal.result
    if isinstance(result, UnsetType):
        return []
    words = _WORDS[language]
    return [_states_table(result, words), *base_table(result.bases, language), _stages_table(result, words)]


def _states_table(result: ResultReport, words: dict[str, Any]) -> Table:
    kinds: dict[tuple[str, str], list[StateRow]] = {}
    for row in result.states:
        kinds.setdefault(("model" if row.status == "drawn-anew" else row.kind, row.status), []).append(row)
    rows = []
    for (kind, status), same in kinds.items():
        lost = status not in ("restored", "unchanged")
        names = ", ".join(clean_line(row.name) for row in same[:_MAX_NAMES_SHOWN]) if lost else ""
        files = dict.fromkeys(_short_path(file) for row in same for file in (row.read_from or row.written_to))
        rows.append(
            (
                words[kind],
                f"{len(same):,}",
                words[status],
                ", ".join([*files][:2]) + (f" +{len(files) - 2}" if len(files) > 2 else ""),
                names + (", …" if lost and len(same) > _MAX_NAMES_SHOWN else ""),
            )
        )
    title = words["loaded" if result.is_loaded else "files"]
    return Table(title, words["columns"], tuple(rows), frozenset({1}))


def _short_path(file: str) -> str:
    return clean_line("/".join(file.split("/")[-2:]))


def _stages_table(result: ResultReport, words: dict[str, Any]) -> Table:
    rows = tuple(
        (
            words[one.stage],
            size(one.gpu_bytes),
            size(one.host_bytes),
            f"{len(one.files):,}" if one.stage != "serve" else "",
            size(one.bytes_written) if one.stage != "serve" else "",
        )
        for one in result.stages
    )
    return Table(words["stages"], words["stage columns"], rows, frozenset({1, 2, 3, 4}))
