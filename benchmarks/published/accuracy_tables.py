"""docs/accuracy.md in both languages, and its picture, made of the rows and their results."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from recipe_hash import is_stale

DOCS = Path(__file__).resolve().parents[2] / "docs"
PICTURE = DOCS / "pictures" / "accuracy.svg"
PAGES = {"en": DOCS / "accuracy.md", "zh": DOCS / "accuracy.zh-CN.md"}
MARKS = ("<!-- benchmarks/published/run.py --write: {part} -->", "<!-- end of {part} -->")
_STEP, _STEP_NEAR = 1, 25
"""Percent of the row: the least step of a pair whose sign is looked at. Percent of the step: as near as is stated."""
_NEAR = (3, 8)
"""Percent: how many rows are as near as that is stated."""
_COLOURS = ("#4269d0", "#ff725c", "#3ca951", "#efb118", "#a463f2", "#9c6b4e", "#6cc5b0")
_SIZE, _MARGIN = 460, 56

_WORDS = {
    "en": {
        "of": "of", "rows": "rows", "median": "median \\|error\\|", "worst": "worst", "near": "within {0} % / {1} %",
        "framework": "framework", "strategy": "strategy", "completeness": "completeness", "all": "all",
        "row": "row", "published": "published", "predicted": "predicted", "error": "error", "read": "read",
        "verdict": "verdict", "source": "source", "why": "why not", "where": "published by",
        "none": "not rehearsed yet", "link": "source", "count": "rows", "said": "gonogo", "ended": "rehearsal ended",
        "out-of-memory": "out of GPU memory", "completed": "completed", "first": "first",
        "flag": "what differs", "sign": "sign right", "size": "size within {0} %",
        "changed": "a published step of {0} % or more", "unchanged": "no step, or a smaller one",
        "unchanged_too": "{0} of {1} predicted without a step",
        "day": "rehearsed on", "commits": "commits of gonogo", "stale": "of an earlier recipe",
    },
    "zh": {
        "of": "按", "rows": "行数", "median": "误差绝对值的中位数", "worst": "最大误差", "near": "{0} % / {1} % 以内",
        "framework": "框架", "strategy": "策略", "completeness": "完整程度", "all": "全部",
        "row": "配方", "published": "公布值", "predicted": "预测值", "error": "误差", "read": "读取方式",
        "verdict": "结论", "source": "来源", "why": "原因", "where": "公布者",
        "none": "尚未排练", "link": "来源", "count": "行数", "said": "gonogo", "ended": "排练结束于",
        "out-of-memory": "GPU 显存不足", "completed": "完成", "first": "首次",
        "flag": "不同之处", "sign": "方向正确", "size": "幅度误差在 {0} % 以内",
        "changed": "公布的变化不小于 {0} %", "unchanged": "没有变化或变化更小",
        "unchanged_too": "{1} 对中有 {0} 对也预测为没有变化",
        "day": "排练日期", "commits": "gonogo 的提交数", "stale": "对应旧配方",
    },
}  # fmt: skip


OUT_OF_MEMORY = "out of memory"
"""Published of a run that has no figure because the GPU's memory did not suffice."""


class Compared(NamedTuple):
    """A row whose figure was predicted."""

    row: dict[str, Any]
    result: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.row['framework']}: {self.row['name']}"

    @property
    def predicted(self) -> float:
        return float(self.result[self.row["means"]])

    @property
    def error(self) -> float:
        """Percent; above zero where gonogo says more."""
        return self._error_of(self.predicted)

    @property
    def first_error(self) -> float | None:
        """Of the first answer; None if there was no other, or none with a figure."""
        first = self.result.get("first", {}).get(self.row["means"])
        return None if first is None else self._error_of(float(first))

    def _error_of(self, predicted: float) -> float:
        return 100 * (predicted / float(self.row["published"]) - 1)


class Pair(NamedTuple):
    """Two rows whose recipes differ in one setting, which the row calls ``differs``; ``against`` names the other."""

    one: Compared
    other: Compared

    @property
    def published(self) -> float:
        return float(self.one.row["published"]) - float(self.other.row["published"])

    @property
    def predicted(self) -> float:
        return self.one.predicted - self.other.predicted

    def is_step(self, gib: float) -> bool:
        return abs(gib) >= _STEP / 100 * float(self.other.row["published"])

    @property
    def sign_right(self) -> bool:
        return self.published * self.predicted > 0

    @property
    def size_right(self) -> bool:
        return abs(self.predicted - self.published) <= _STEP_NEAR / 100 * abs(self.published)


def pairs_of(found: list[Compared]) -> list[Pair]:
    """The pairs of which both rows have a predicted figure."""
    by_name = {one.name: one for one in found}
    named = [(one, by_name.get(f"{one.row['framework']}: {one.row.get('against')}")) for one in found]
    return [Pair(one, other) for one, other in named if other is not None]


def pair_summary(found: list[Compared], language: str) -> str:
    """How many steps have the right sign and about the right size: of all, by framework."""
    words = _WORDS[language]
    head = ("", words["changed"].format(_STEP), words["sign"], words["size"].format(_STEP_NEAR), words["unchanged"])
    every = pairs_of(found)
    groups = [(f"**{words['all']}**", every)]
    groups += [
        (f"{words['framework']}: {name}", [pair for pair in every if pair.one.row["framework"] == name])
        for name in sorted({pair.one.row["framework"] for pair in every})
    ]
    rows = []
    for name, pairs in groups:
        steps = [pair for pair in pairs if pair.is_step(pair.published)]
        others = [pair for pair in pairs if not pair.is_step(pair.published)]
        shares = [_share([pair.sign_right for pair in steps]), _share([pair.size_right for pair in steps])]
        alike = words["unchanged_too"].format(sum(not pair.is_step(pair.predicted) for pair in others), len(others))
        rows.append((name, str(len(steps)), *shares, alike if others else ""))
    return _table(head, rows, (1, 2, 3))


def _share(right: list[bool]) -> str:
    return f"{100 * sum(right) / len(right):.0f} %" if right else ""


def every_pair(found: list[Compared], language: str) -> str:
    """Each pair with a step: what differs, the published step and the predicted one."""
    words = _WORDS[language]
    head = [words[name] for name in ("row", "flag", "published", "predicted")]
    rows = [
        (pair.one.name, pair.one.row["differs"], f"{pair.published:+.2f}", f"{pair.predicted:+.2f}")
        for pair in pairs_of(found)
        if pair.is_step(pair.published)
    ]
    return _table(head, rows, (2, 3))


def line(row: dict[str, Any], result: dict[str, Any]) -> str:
    """What the runner prints of one row."""
    if row["published"] == OUT_OF_MEMORY and "verdict" in result:
        return f"{result['row']}: out of memory; {result['verdict']}, {result.get('outcome', result.get('told', ''))}"
    if row["means"] not in result:
        return f"{result['row']}: {result['verdict']}: {result.get('told', '')}"
    one = Compared(row, result)
    figures = f"published {row['published']:.2f} GiB, predicted {one.predicted:.2f} ({one.error:+.1f} %)"
    return f"{one.name}: {figures}, {result['verdict']}, {result['seconds']} s"


def compared(rows: Iterable[dict[str, Any]], results: dict[str, dict[str, Any]]) -> list[Compared]:
    """The rows that have a predicted figure, in their order."""
    pairs = [(row, results.get(f"{row['framework']}: {row['name']}", {})) for row in rows]
    return [
        Compared(row, result)
        for row, result in pairs
        if row.get("means") in result and row["published"] != OUT_OF_MEMORY
    ]


def verdicts(rows: Iterable[dict[str, Any]], results: dict[str, dict[str, Any]], language: str) -> str:
    """Runs that are published as out of memory, with gonogo's verdict and how their rehearsal ended."""
    words = _WORDS[language]
    said = []
    for row in rows:
        name = f"{row['framework']}: {row['name']}"
        if row.get("published") == OUT_OF_MEMORY:
            result = results.get(name, {"verdict": "", "outcome": "none"})
            ended = words.get(result.get("outcome", ""), words["completed"] if row["means"] in result else "")
            ended = ended or str(result.get("told", "")).replace("|", "\\|")
            said.append((f"{name} ({row['gpus']})", result["verdict"], ended, f"[{row['date']}]({row['source']})"))
    return _table((words["row"], words["said"], words["ended"], words["link"]), said)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]], numeric: Iterable[int] = ()) -> str:
    heads, right = list(head), set(numeric)
    rule = ["---:" if index in right else "---" for index in range(len(heads))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, rule, *map(list, rows)))


def summary(found: list[Compared], language: str) -> str:
    """Median and worst error: of all, by framework, by strategy, by completeness."""
    words = _WORDS[language]
    head = ("", words["rows"], words["median"], words["near"].format(*_NEAR), words["worst"])
    groups: list[tuple[str, list[Compared]]] = [(f"**{words['all']}**", found)]
    by: tuple[tuple[str, Callable[[Compared], str]], ...] = (
        ("framework", lambda one: one.row["framework"]),
        ("strategy", lambda one: f"{one.row['framework']}, {one.row['strategy']}"),
        ("completeness", lambda one: one.row["completeness"]),
    )
    for what, key in by:
        named = sorted({key(one) for one in found})
        groups += [(f"{words[what]}: {name}", [one for one in found if key(one) == name]) for name in named]
    rows = []
    for name, ones in groups:
        if not ones:
            continue
        errors = [abs(one.error) for one in ones]
        worst = max(ones, key=lambda one: abs(one.error))
        shares = " / ".join(f"{100 * sum(error <= most for error in errors) / len(errors):.0f} %" for most in _NEAR)
        told = f"{worst.error:+.1f} % ({worst.row['name']})"
        rows.append((name, str(len(ones)), f"{statistics.median(errors):.1f} %", shares, told))
    return _table(head, rows, (1, 2, 3))


def days(found: list[Compared], language: str) -> str:
    """How many figures are of which day, and of how many commits of gonogo."""
    words = _WORDS[language]
    by_day: dict[str, list[str]] = {}
    for one in found:
        by_day.setdefault(one.result["day"], []).append(one.result["gonogo"])
    rows = [(day, str(len(commits)), str(len(set(commits)))) for day, commits in sorted(by_day.items(), reverse=True)]
    return _table((words["day"], words["rows"], words["commits"]), rows, (1, 2))


def every_row(found: list[Compared], language: str) -> str:
    """Each row: published, predicted, error, what was read, where it is published."""
    words = _WORDS[language]
    head = [words[name] for name in ("row", "completeness", "published", "predicted", "error", "read", "source")]
    rows = [
        (
            f"{one.name} ({one.row['gpus']})",
            one.row["completeness"],
            f"{one.row['published']:.2f}",
            f"{one.predicted:.2f}",
            _errors(one, words["first"]) + (f" ({words['stale']})" if is_stale(one.row, one.result) else ""),
            one.row["said"],
            f"[{one.row['date']}]({one.row['source']})",
        )
        for one in found
    ]
    return _table(head, rows, (2, 3, 4))


def _errors(one: Compared, word: str) -> str:
    """A row's error, and that of its first answer if it was another."""
    error, first = f"{one.error:+.1f} %", one.first_error
    before = "" if first is None else f"{first:+.1f} %"
    return error if before in ("", error) else f"{error} ({word} {before})"


def not_rehearsed(rows: list[dict[str, Any]], results: dict[str, dict[str, Any]], language: str) -> str:
    """Rows without a predicted figure: what stands in the way, and how many it is."""
    words = _WORDS[language]
    there = {one.name for one in compared(rows, results)}
    there |= {f"{row['framework']}: {row['name']}" for row in rows if row.get("published") == OUT_OF_MEMORY}
    said = []
    for row in rows:
        name = f"{row['framework']}: {row['name']}"
        if name in there:
            continue
        why = row.get("not_rehearsed", {}).get(language)
        if why is None:
            result = results.get(name)
            why = words["none"] if result is None else f"{result['verdict']}: {result.get('told', '')}"
        said.append((name, str(row.get("count", 1)), why.replace("|", "\\|"), f"[{row['date']}]({row['source']})"))
    return _table((words["row"], words["count"], words["why"], words["source"]), said, (1,))


def picture(found: list[Compared]) -> str:
    """Predicted against published, both logarithmic; the grey band is 8 % to either side."""
    figures = [figure for one in found for figure in (one.predicted, float(one.row["published"]))]
    low, high = math.log(min(figures) / 1.3), math.log(max(figures) * 1.3)

    def at(gib: float) -> float:
        return (math.log(gib) - low) / (high - low) * _SIZE

    def x(gib: float) -> float:
        return _MARGIN + at(gib)

    def y(gib: float) -> float:
        return _MARGIN / 2 + _SIZE - at(gib)

    frameworks = sorted({one.row["framework"] for one in found})
    colours = dict(zip(frameworks, _COLOURS, strict=False))
    least, most, band = math.exp(low), math.exp(high), 1 + _NEAR[1] / 100
    width, height = _SIZE + 2 * _MARGIN, _SIZE + 2 * _MARGIN
    corners = ((least, least * band), (most / band, most), (most, most), (most, most / band), (least * band, least))
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        '<polygon fill="#eef1f4" points="'
        + " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in ((least, least), *corners))
        + '"/>',
        f'<path d="M{x(least):.1f} {y(least):.1f}L{x(most):.1f} {y(most):.1f}" stroke="#57606a"/>',
    ]
    for tick in (0.5, 1, 2, 4, 8, 16, 32, 64, 128):
        if least <= tick <= most:
            drawn += [
                f'<text x="{x(tick):.1f}" y="{y(least) + 18:.1f}" text-anchor="middle">{tick}</text>',
                f'<text x="{_MARGIN - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick}</text>',
                f'<path d="M{x(tick):.1f} {y(least):.1f}v4M{_MARGIN} {y(tick):.1f}h-4" stroke="#57606a"/>',
            ]
    for one in found:
        title = f"{one.name}: published {one.row['published']:.2f}, predicted {one.predicted:.2f} GiB"
        drawn.append(
            f'<circle cx="{x(float(one.row["published"])):.1f}" cy="{y(one.predicted):.1f}" r="4" fill-opacity="0.7" '
            f'fill="{colours.get(one.row["framework"], "#57606a")}"><title>{escape(title)}</title></circle>'
        )
    for index, name in enumerate(frameworks):
        drawn += [
            f'<circle cx="{_MARGIN + 12}" cy="{_MARGIN / 2 + 12 + 18 * index}" r="4" fill="{colours.get(name)}"/>',
            f'<text x="{_MARGIN + 22}" y="{_MARGIN / 2 + 16 + 18 * index}">{escape(name)}</text>',
        ]
    drawn += [
        f'<text x="{_MARGIN + _SIZE / 2}" y="{height - 12}" text-anchor="middle">published, GiB</text>',
        f'<text transform="translate(16 {_MARGIN / 2 + _SIZE / 2}) rotate(-90)" text-anchor="middle">'
        "predicted, GiB</text>",
        "</svg>",
    ]
    return "\n".join(drawn) + "\n"


def write(rows: list[dict[str, Any]], results: dict[str, dict[str, Any]]) -> None:
    """Put tables and picture in their places."""
    found = compared(rows, results)
    PICTURE.write_text(picture(found), encoding="utf-8")
    for language, path in PAGES.items():
        text = path.read_text(encoding="utf-8")
        parts = {
            "summary": summary(found, language),
            "days": days(found, language),
            "rows": every_row(found, language),
            "pairs": f"{pair_summary(found, language)}\n\n{every_pair(found, language)}",
            "verdicts": verdicts(rows, results, language),
            "not rehearsed": not_rehearsed(rows, results, language),
        }
        for part, table in parts.items():
            begin, end = (mark.format(part=part) for mark in MARKS)
            before, _, rest = text.partition(begin)
            text = f"{before}{begin}\n\n{table}\n\n{end}{rest.partition(end)[2]}"
        path.write_text(text, encoding="utf-8")
