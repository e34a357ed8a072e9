"""``docs/architectures.md`` and its Chinese twin, made from the rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from architecture_notes import is_proven, noted, shown
from architecture_rows import Rows

__all__ = ["Rows", "is_proven", "page", "reason", "write_tables"]

_DOCS = Path(__file__).resolve().parent.parent / "docs"
_SETS = ("published", "default")
_TEXTS: dict[str, dict[str, str]] = {
    "en": {
        "title": "# Architectures rehearsed",
        "twin": "[中文](architectures.zh-CN.md)",
        "how": (
            "Made by `benchmarks/architectures.py` from `benchmarks/architectures.jsonl`; not written by hand. Each "
            "row is a rehearsal of `gonogo rehearse --synthetic-batch`: the model at its full size from its "
            "configuration, transformers' Trainer, the real DeepSpeed engine, one optimizer step on a batch built for "
            "the model (bf16, micro-batch 1). {versions}."
        ),
        "sum": "{count} rehearsals of {architectures} architectures: {verdicts}.",
        "columns": (
            "*Peak* is what the caching allocator reserves on a GPU, *host* what one rank's tensors take of the host's "
            "memory. *Seconds* are processor seconds of the rehearsal, on one core. *Assumptions* counts the places "
            "where a value was taken that only real weights give; the report of a rehearsal lists them. "
            "\\*: with gradient checkpointing, since without it the activations do not fit. "
            "†: on text alone, since how many tokens an image or a sound takes could not be asked of the model."
        ),
        "published": "## Published models, at their published sizes",
        "default": "## Default configurations of transformers",
        "published-how": (
            "{gpus} GPUs, chosen so that memory is no verdict on the architecture. The configurations are in "
            "`benchmarks/published_models.json`."
        ),
        "default-how": (
            "{gpus} GPUs, ZeRO-3 with optimizer and parameters offloaded to the host, {seq_len} tokens per sample "
            "(or as many as an image or a sound takes). Every causal-LM, image-text-to-text, audio and "
            "sequence-to-sequence class of transformers' auto mappings whose configuration has defaults; models that "
            "are put together of two others have none."
        ),
        "head": "| model | class | strategy | verdict | parameters | peak | host | seconds | assumptions |",
        "why": "### What is no GO, and why",
        "why-how": "`{name}` ({class}, {strategy}), {verdict}: {why}",
    },
    "zh": {
        "title": "# 排练过的模型架构",
        "twin": "[English](architectures.md)",
        "how": (
            "由 `benchmarks/architectures.py` 根据 `benchmarks/architectures.jsonl` 生成，请勿手工修改。每一行都是一次 "
            "`gonogo rehearse --synthetic-batch` 排练：按配置构建的完整尺寸模型、transformers 的 Trainer、"
            "真实的 DeepSpeed 引擎，在为该模型构造的 batch 上执行一次参数更新（bf16，micro-batch 为 1）。{versions}。"
        ),
        "sum": "共 {count} 次排练，{architectures} 种架构：{verdicts}。",
        "columns": (
            "“显存峰值”是缓存分配器在单张 GPU 上保留的显存；“主机内存”是单个 rank 的张量占用的主机内存；"
            "“秒”是排练所用的单核 CPU 时间；“假设”是只有真实权重才能给出取值的位置数，排练报告会逐条列出。"
            "\\*：启用了 gradient checkpointing，否则激活值放不下。"
            "†：只用文本，因为无法从模型得知图像或音频占多少 token。"
        ),
        "published": "## 已发布模型（原始尺寸）",
        "default": "## transformers 的默认配置",
        "published-how": (
            "GPU 为 {gpus}，数量充足，使显存不左右对架构的结论。配置见 `benchmarks/published_models.json`。"
        ),
        "default-how": (
            "GPU 为 {gpus}，ZeRO-3 并将优化器和参数 offload 到主机，每条样本 {seq_len} 个 token"
            "（图像或音频需要更多时按其所需）。覆盖 transformers 自动映射表中所有配置带默认值的 causal-LM、"
            "image-text-to-text、音频和 sequence-to-sequence 类；由另外两个模型拼成的模型没有默认配置。"
        ),
        "head": "| 模型 | 类 | 策略 | 结论 | 参数量 | 显存峰值 | 主机内存 | 秒 | 假设 |",
        "why": "### 非 GO 的行及原因",
        "why-how": "`{name}`（{class}，{strategy}），{verdict}：{why}",
    },
}
_STRATEGIES = {"zero2": "ZeRO-2", "zero3": "ZeRO-3", "zero3-offload": "ZeRO-3 offload"}


def write_tables(rows: Rows) -> None:
    """Write both pages."""
    for language, name in (("en", "architectures.md"), ("zh", "architectures.zh-CN.md")):
        (_DOCS / name).write_text(page(list(rows.by_case.values()), language), encoding="utf-8")


def page(rows: list[dict[str, Any]], language: str) -> str:
    """The page in one language."""
    text = _TEXTS[language]
    versions = ", ".join(sorted({f"{name} {version}" for row in rows for name, version in row["versions"].items()}))
    verdicts = Counter(row["verdict"] for row in rows)
    architectures = len({(row["model_type"], row["class"]) for row in rows})
    lines = [text["title"], "", text["twin"], "", text["how"].format(versions=versions), ""]
    counted = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    lines += [text["sum"].format(count=len(rows), architectures=architectures, verdicts=counted), ""]
    lines += [text["columns"], ""]
    for kind in _SETS:
        chosen = sorted((r for r in rows if r["set"] == kind), key=_order)
        if not chosen:
            continue
        gpus, seq_len = chosen[0]["gpus"], chosen[0]["seq_len"]
        lines += [text[kind], "", text[f"{kind}-how"].format(gpus=gpus, seq_len=seq_len), ""]
        lines += [text["head"], "| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"]
        lines += [_line(row) for row in chosen]
        lines.append("")
        failing = [row for row in chosen if row["verdict"] != "GO"]
        if failing:
            lines += [text["why"], ""]
            lines += [f"- {text['why-how'].format(**{**row, 'why': reason(row, language)})}" for row in failing]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _order(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["name"].lower(), row["class"], list(_STRATEGIES).index(row["strategy"])


def _line(row: dict[str, Any]) -> str:
    cells = [
        row["name"],
        row["class"],
        _STRATEGIES[row["strategy"]]
        + ("\\*" if row.get("checkpointing") else "")
        + (" †" if row.get("text_only") else ""),
        row["verdict"],
        _count(row["parameters"]),
        _bytes(row["peak_bytes"]),
        _bytes(row["host_peak_bytes"]),
        f"{row['seconds']:.0f}",
        str(row["assumptions"]),
    ]
    return f"| {' | '.join(cells)} |"


def reason(row: dict[str, Any], language: str) -> str:
    """A row's hazard and error, and what was found out about it."""
    told = [*row["why"][:1], row.get("error", "").partition("\n")[0]] if row.get("error") else row["why"][:2]
    short = " ".join("; ".join(filter(None, told)).replace("|", "\\|").split())[:400]
    return " ".join(filter(None, [f"`{short}`.", shown(row, language), noted(row, language)]))


def _count(number: int) -> str:
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if number >= 0.95 * size:
            return f"{number / size:,.1f}{unit}"
    return "-" if not number else str(number)


def _bytes(number: int) -> str:
    return f"{number / 2**30:.1f} GiB" if number else "-"
