"""The tables and the memory picture of a plan, made from :attr:`Report.plan`; a renderer only draws them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from gonogo.finding import Text, translated
from gonogo.finding.trials.planned import SPEED_TOLERANCE, Cost, MemoryAtLength, Plan, SolutionSummary, StrategySummary
from gonogo.finding.words import CATEGORIES, OPTIONAL_CATEGORIES, size
from gonogo.report.table import Table
from gonogo.report.untrusted import clean_line
from gonogo.report.words import word

MAX_EXPLAINED_STRATEGIES = 3
"""How many strategies are explained."""
_BAR_WIDTH = 48
"""Characters of a bar that represents the whole memory of an accelerator."""
_LETTER_BY_CATEGORY = {
    "parameters": "P",
    "gradients": "G",
    "optimizer": "O",
    "activations": "A",
    "communication": "C",
    "temporary": "T",
    "workspace": "W",
    "rollout": "R",
    "reserve": "·",
    "free": " ",
}
_TITLES = {
    "fitting": translated("Fits, fastest first"),
    "too_large": translated("Does not fit"),
    "why": translated("Why"),
    "lengths": translated("GPU memory at other sequence lengths, with the same micro-batch"),
    "costs": translated("Hours and cost for {tokens} tokens"),
}
_COLUMNS = (
    Text("", ""),
    translated("strategy"),
    translated("batch"),
    translated("GPU memory"),
    translated("tokens/s/GPU"),
    translated("limited by"),
)
_SOLVE_TEXTS = {
    "seq-len": (translated("The longest sequences that fit"), translated("tokens")),
    "micro-batch": (translated("The largest micro-batches that fit"), translated("samples")),
    "generations": (
        translated("The largest number of completions per prompt that fit and run concurrently"),
        translated("completions"),
    ),
    "gpus": (translated("The fewest GPUs on which it fits"), translated("GPUs", "number")),
}
"""Per quantity solved for: the titles of the table and of its column."""
_BAND_LEGENDS = {
    "rehearsed": translated("± {band:.0%}: rehearsed at full depth"),
    "extended": translated("± {band:.0%}: extrapolated from short rehearsals"),
    "formula": translated("± {band:.0%}: by formula; slower strategies were not rehearsed"),
}
_BATCH_LEGEND = translated("batch: micro-batch x gradient accumulation steps")
_SAME_SPEED_LEGEND = translated(
    "strategies whose estimated speeds differ by less than {share:.0%} are listed simplest first"
)


def _to_line(text: Text, language: str) -> str:
    return clean_line(text.in_language(language))


def plan_summary(plan: Plan, language: str) -> str:
    """One line on what was planned: ``Qwen2ForCausalLM, 7.6 B parameters, on 8 x H100-80G, 4096 tokens``."""
    model, chinese = plan.model, language == "zh"
    trained = model.trainable / model.parameters if model.parameters else 0.0
    count = f"{plan.gpus} x {plan.accelerator}"
    if plan.nodes > 1:
        count = f"{plan.nodes} x {count}"
    comma = "，" if chinese else ", "
    lines = [f"{clean_line(model.model_class)}{comma}{_format_parameter_count(model.parameters, language)}"]
    if trained < 1:
        lines[0] += f"，训练其中 {trained:.2%}" if chinese else f" ({trained:.2%} trained)"
    lines.append(count if plan.solve != "gpus" else plan.accelerator)
    if plan.task:
        lines.append(plan.task)
    if plan.generations > 1:
        lines.append(
            f"每个提示 {plan.generations} 个回答" if chinese else f"{plan.generations} completions of a prompt"
        )
    if plan.solve != "seq-len":
        lines.append(f"序列长度 {plan.seq_len}" if chinese else f"sequences of {plan.seq_len}")
    if not plan.solve:
        lines.append(f"每步 {plan.global_batch} 个样本" if chinese else f"{plan.global_batch} samples per step")
    return ("；" if chinese else "; ").join(lines)


def _format_parameter_count(count: int, language: str) -> str:
    figure = f"{count / 1e9:.1f} B" if count >= 5e7 else f"{count / 1e6:.1f} M"
    return translated("{figure} parameters").format(figure=figure).in_language(language)


def plan_tables(plan: Plan, language: str) -> list[Table]:
    """The ranking, the costs, and the strategies that do not fit."""
    return [
        table
        for table in (
            _fitting_table(plan, language),
            _lengths_table(plan, language),
            _costs_table(plan, language),
            _too_large_table(plan, language),
        )
        if table.rows
    ]


def strategy_name(strategy: StrategySummary | Cost | MemoryAtLength, language: str) -> str:
    """The display name of a strategy."""
    return clean_line(Text(strategy.strategy, strategy.strategy_zh or strategy.strategy).in_language(language))


def _fitting_table(plan: Plan, language: str) -> Table:
    unknown = plan.solve
    rows = tuple(
        (
            str(number),
            strategy_name(choice, language),
            *([_solution_text(choice, language)] if isinstance(choice, SolutionSummary) else []),
            f"{choice.micro_batch} x {choice.gradient_accumulation}",
            f"{size(choice.reserved_bytes)} ± {choice.band:.0%}",
            f"{choice.tokens_per_second_per_gpu:,.0f}",
            _to_line(choice.limit_said, language),
        )
        for number, choice in enumerate(plan.fitting, 1)
    )
    columns = [column.in_language(language) for column in _COLUMNS]
    title, numeric = _TITLES["fitting"], {0, 2, 3, 4}
    if unknown:
        title, column = _SOLVE_TEXTS[unknown]
        columns.insert(2, column.in_language(language))
        numeric.add(5)
    return Table(
        title.in_language(language), tuple(columns), rows, frozenset(numeric), note=_reading_note(plan, language)
    )


def _solution_text(choice: SolutionSummary, language: str) -> str:
    value = f"{choice.solved:,}"
    if choice.at_limit:
        return translated("{value} (larger not tried)").format(value=value).in_language(language)
    return value


def solution_text(plan: Plan, choice: StrategySummary, language: str) -> str:
    """What ``--solve`` found for a strategy, with its name; empty without ``--solve``."""
    if not isinstance(choice, SolutionSummary):
        return ""
    return f"{_SOLVE_TEXTS[plan.solve][1].in_language(language)} {_solution_text(choice, language)}"


def _reading_note(plan: Plan, language: str) -> str:
    """How to read the table: why a faster strategy is below a slower one, what a batch and each error band is."""
    bands = {choice.source: choice.band for choice in plan.fitting}
    speeds = [choice.tokens_per_second_per_gpu for choice in plan.fitting]
    lines = [
        *([_SAME_SPEED_LEGEND.format(share=SPEED_TOLERANCE)] if not plan.solve and _has_faster_below(speeds) else []),
        _BATCH_LEGEND,
        *(text.format(band=bands[source]) for source, text in _BAND_LEGENDS.items() if source in bands),
    ]
    return ("；" if language == "zh" else "; ").join(text.in_language(language) for text in lines)


def _has_faster_below(speeds: Sequence[float]) -> bool:
    """Whether some speed is above the one listed before it."""
    return any(after > before for before, after in pairwise(speeds))


def _too_large_table(plan: Plan, language: str) -> Table:
    rows = tuple(
        (
            strategy_name(choice, language),
            _to_line(choice.shortfall, language),
            ("；" if language == "zh" else "; ").join(_to_line(text, language) for text in choice.would_fit),
        )
        for choice in plan.too_large
    )
    columns = (
        _COLUMNS[1].in_language(language),
        translated("missing").in_language(language),
        translated("what would make it fit").in_language(language),
    )
    return Table(_TITLES["too_large"].in_language(language), columns, rows)


def _lengths_table(plan: Plan, language: str) -> Table:
    """The memory at other lengths; a strategy's name stands in its first row only."""
    rows = []
    for number, at in enumerate(plan.memory_at):
        again = number > 0 and plan.memory_at[number - 1].strategy == at.strategy
        name = "" if again else strategy_name(at, language)
        fits = translated("yes") if at.fits else translated("no")
        figure = f"{size(at.reserved_bytes)} ± {at.band:.0%}"
        rows.append((name, str(at.micro_batch), f"{at.seq_len:,}", figure, fits.in_language(language)))
    columns = (_COLUMNS[1], translated("micro-batch"), _SOLVE_TEXTS["seq-len"][1], _COLUMNS[3], translated("fits"))
    title = _TITLES["lengths"].in_language(language)
    return Table(title, tuple(column.in_language(language) for column in columns), tuple(rows), frozenset({1, 2, 3}))


_COST_NOTE = translated(
    "range: from the hardware's peak to half the estimated speed, at the lowest and highest price; excluding "
    "loading, checkpoints and restarts"
)


def _costs_table(plan: Plan, language: str) -> Table:
    currency = clean_line(plan.currency)
    columns = (Text("", ""), _COLUMNS[1], translated("hours"), translated("cost"))
    rows = tuple(
        (
            str(number),
            strategy_name(cost, language),
            _format_range(cost.hours_at_least, cost.hours_at_most),
            f"{_format_range(cost.cost_at_least, cost.cost_at_most)} {currency}".rstrip(),
        )
        for number, cost in enumerate(plan.costs, 1)
    )
    title = _TITLES["costs"].format(tokens=f"{plan.tokens / 1e9:,.9g} B" if plan.tokens >= 1e8 else f"{plan.tokens:,}")
    text = tuple(column.in_language(language) for column in columns)
    return Table(title.in_language(language), text, rows, frozenset({0, 2, 3}), note=_COST_NOTE.in_language(language))


def _format_range(low: float, high: float) -> str:
    return " - ".join(f"{figure:,.0f}" if figure >= 100 else f"{figure:,.2g}" for figure in (low, high))


def strategy_reasons(plan: Plan, language: str) -> list[tuple[str, tuple[str, ...]]]:
    """The best strategies' names, and the sentences that explain each."""
    return [
        (f"{number}. {strategy_name(choice, language)}", tuple(_to_line(text, language) for text in choice.why))
        for number, choice in enumerate(plan.fitting[:MAX_EXPLAINED_STRATEGIES], 1)
    ]


def memory_bar_shares(choice: StrategySummary, capacity_bytes: int) -> dict[str, float]:
    """The parts of the accelerator's memory as shares of its capacity, in the picture's order."""
    found = {
        name: choice.by_category.get(name, 0) / capacity_bytes for name in CATEGORIES if name in _LETTER_BY_CATEGORY
    }
    found["reserve"] = max(0.0, (choice.reserved_bytes - choice.allocated_bytes) / capacity_bytes)
    found["free"] = max(0.0, 1 - sum(found.values()))
    return found


def memory_bar(choice: StrategySummary, capacity_bytes: int) -> list[tuple[str, str]]:
    """The memory picture of one accelerator: (category, its part of the bar as characters)."""
    drawn: list[tuple[str, str]] = []
    reached = 0.0
    for name, share in memory_bar_shares(choice, capacity_bytes).items():
        start, reached = round(reached * _BAR_WIDTH), reached + share
        drawn.append(
            (name, _LETTER_BY_CATEGORY[name] * (min(round(reached * _BAR_WIDTH), _BAR_WIDTH) - min(start, _BAR_WIDTH)))
        )
    return drawn


def bar_legend(language: str, plan: Plan) -> str:
    """The meaning of the letters in a bar."""
    named = category_labels(language, plan).items()
    return "  ".join(f"{_LETTER_BY_CATEGORY[name]} {text}" for name, text in named if name != "free")


def category_labels(language: str, plan: Plan) -> dict[str, str]:
    """The names of the categories that the plan's bars have."""
    held = {name for choice in (*plan.fitting, *plan.too_large) for name, count in choice.by_category.items() if count}
    names = bar_category_labels(language).items()
    return {name: text for name, text in names if name in held or name not in OPTIONAL_CATEGORIES}


def bar_category_labels(language: str) -> dict[str, str]:
    """The names of all categories of a bar, in the picture's order."""
    names = {name: word(name, language) for name in CATEGORIES if name in _LETTER_BY_CATEGORY}
    names["reserve"] = translated("reserved, unused").in_language(language)
    names["free"] = translated("free").in_language(language)
    return names
