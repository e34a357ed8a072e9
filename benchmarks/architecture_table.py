"""The tables of ``docs/architectures.md`` and its Chinese twin, made from the rows; the site has them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from architecture_notes import is_proven, noted, shown
from architecture_rows import Rows

__all__ = ["Rows", "is_proven", "reason", "summary", "table"]

_TEXTS: dict[str, dict[str, str]] = {
    "en": {
        "sum": "{count} rehearsals of {architectures} architectures: {verdicts}.",
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
        "sum": "共 {count} 次排练，{architectures} 种架构：{verdicts}。",
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


def summary(rows: list[dict[str, Any]], language: str) -> str:
    """How many there are, by verdict."""
    verdicts = Counter(row["verdict"] for row in rows)
    architectures = len({(row["model_type"], row["class"]) for row in rows})
    counted = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    return _TEXTS[language]["sum"].format(count=len(rows), architectures=architectures, verdicts=counted)


def table(rows: list[dict[str, Any]], which: str, language: str) -> str:
    """The rows of a set (``published`` or ``default``) in Markdown, and why some are not GO."""
    text = _TEXTS[language]
    chosen = sorted((row for row in rows if row["set"] == which), key=_order)
    gpus, seq_len = chosen[0]["gpus"], chosen[0]["seq_len"]
    lines = [text[f"{which}-how"].format(gpus=gpus, seq_len=seq_len), ""]
    lines += [text["head"], "| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    lines += [_line(row) for row in chosen]
    failing = [row for row in chosen if row["verdict"] != "GO"]
    if failing:
        lines += ["", text["why"], ""]
        lines += [f"- {text['why-how'].format(**{**row, 'why': reason(row, language)})}" for row in failing]
    return "\n".join(lines)


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
