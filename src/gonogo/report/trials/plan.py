"""The tables and the memory picture of a plan, made from :attr:`Report.plan`; a renderer only draws them."""

from __future__ import annotations

from gonogo.finding import Text
from gonogo.finding.planned import Cost, Plan, SolutionSummary, StrategySummary
from gonogo.finding.words import CATEGORIES, size
from gonogo.report.table import Table
from gonogo.report.untrusted import clean_line
from gonogo.report.words import word

REASONED = 3
"""Strategies whose reasons are told."""
_BAR = 48
"""Characters of a bar that stands for the whole accelerator."""
_LETTERS = {
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
    "fitting": Text("Fits, fastest first", "可行方案（从快到慢）"),
    "too_large": Text("Does not fit", "放不下"),
    "why": Text("Why", "理由"),
    "costs": Text("Hours and cost of {tokens} tokens", "训练 {tokens} token 的耗时与费用"),
}
_COLUMNS = (
    Text("", ""),
    Text("strategy", "方案"),
    Text("batch", "batch"),
    Text("GPU memory", "显存"),
    Text("tokens/s/GPU", "token/s/卡"),
    Text("limited by", "瓶颈"),
)
_SOLVED = {
    "seq-len": (Text("The longest sequences that fit", "能放下的最长序列"), Text("tokens", "token")),
    "micro-batch": (Text("The largest micro-batches that fit", "能放下的最大 micro-batch"), Text("samples", "样本")),
    "generations": (
        Text("The most completions per prompt that fit and run at once", "放得下且能同时生成的最多回答数"),
        Text("completions", "回答数"),
    ),
    "gpus": (Text("The fewest GPUs that hold it", "所需的最少 GPU 数"), Text("GPUs", "GPU 数")),
}
"""By what was asked for: the table's title, and the column's."""
_SOURCES = {
    "rehearsed": Text("± {band:.0%}: rehearsed at full depth", "± {band:.0%}：以完整深度排练"),
    "extended": Text("± {band:.0%}: extrapolated from short rehearsals", "± {band:.0%}：由短排练外推"),
    "formula": Text(
        "± {band:.0%}: by formula; slower strategies were not rehearsed",
        "± {band:.0%}：仅按公式估算；较慢的方案没有排练",
    ),
}
_BATCH = Text("batch: micro-batch x gradient accumulation steps", "batch：micro-batch x 梯度累积步数")


def _say(text: Text, language: str) -> str:
    return clean_line(text.in_language(language))


def plan_summary(plan: Plan, language: str) -> str:
    """One line on what was planned: ``Qwen2ForCausalLM, 7.6 B parameters, on 8 x H100-80G, 4096 tokens``."""
    model, chinese = plan.model, language == "zh"
    trained = model.trainable / model.parameters if model.parameters else 0.0
    count = f"{plan.gpus} x {plan.accelerator}"
    if plan.nodes > 1:
        count = f"{plan.nodes} x {count}"
    said = [f"{clean_line(model.model_class)}{'，' if chinese else ', '}{_parameters(model.parameters, language)}"]
    if trained < 1:
        said[0] += f"，训练其中 {trained:.2%}" if chinese else f" ({trained:.2%} trained)"
    said.append(count if plan.solve != "gpus" else plan.accelerator)
    if plan.task:
        said.append(plan.task)
    if plan.generations > 1:
        said.append(f"每个提示 {plan.generations} 个回答" if chinese else f"{plan.generations} completions of a prompt")
    if plan.solve != "seq-len":
        said.append(f"序列长度 {plan.seq_len}" if chinese else f"sequences of {plan.seq_len}")
    if not plan.solve:
        said.append(f"每步 {plan.global_batch} 个样本" if chinese else f"{plan.global_batch} samples per step")
    return ("；" if chinese else "; ").join(said)


def _parameters(count: int, language: str) -> str:
    figure = f"{count / 1e9:.1f} B" if count >= 5e7 else f"{count / 1e6:.1f} M"
    return Text("{figure} parameters", "{figure} 参数").format(figure=figure).in_language(language)


def plan_tables(plan: Plan, language: str) -> list[Table]:
    """The ranking, what it costs, and what does not fit."""
    return [
        table for table in (_fitting(plan, language), _costs(plan, language), _too_large(plan, language)) if table.rows
    ]


def strategy_name(strategy: StrategySummary | Cost, language: str) -> str:
    """What a strategy is called."""
    return clean_line(Text(strategy.strategy, strategy.strategy_zh or strategy.strategy).in_language(language))


def _fitting(plan: Plan, language: str) -> Table:
    unknown = plan.solve
    rows = tuple(
        (
            str(number),
            strategy_name(choice, language),
            *([_solved(choice, language)] if isinstance(choice, SolutionSummary) else []),
            f"{choice.micro_batch} x {choice.gradient_accumulation}",
            f"{size(choice.reserved_bytes)} ± {choice.band:.0%}",
            f"{choice.tokens_per_second_per_gpu:,.0f}",
            _say(choice.limit_said, language),
        )
        for number, choice in enumerate(plan.fitting, 1)
    )
    columns = [column.in_language(language) for column in _COLUMNS]
    title, numeric = _TITLES["fitting"], {0, 2, 3, 4}
    if unknown:
        title, column = _SOLVED[unknown]
        columns.insert(2, column.in_language(language))
        numeric.add(5)
    note = _note(plan.fitting, language)
    return Table(title.in_language(language), tuple(columns), rows, frozenset(numeric), note=note)


def _solved(choice: SolutionSummary, language: str) -> str:
    value = f"{choice.solved:,}"
    if choice.at_limit:
        return Text("{value} (larger not tried)", "{value}（未尝试更大的值）").format(value=value).in_language(language)
    return value


def solution(plan: Plan, choice: StrategySummary, language: str) -> str:
    """What ``--solve`` found for a strategy, with its name; empty where nothing was asked."""
    if not isinstance(choice, SolutionSummary):
        return ""
    return f"{_SOLVED[plan.solve][1].in_language(language)} {_solved(choice, language)}"


def _note(choices: tuple[StrategySummary, ...], language: str) -> str:
    """How the table is read: what a batch is, and what each band rests on."""
    bands = {choice.source: choice.band for choice in choices}
    said = [_BATCH, *(text.format(band=bands[source]) for source, text in _SOURCES.items() if source in bands)]
    return ("；" if language == "zh" else "; ").join(text.in_language(language) for text in said)


def _too_large(plan: Plan, language: str) -> Table:
    rows = tuple(
        (
            strategy_name(choice, language),
            _say(choice.shortfall, language),
            ("；" if language == "zh" else "; ").join(_say(text, language) for text in choice.would_fit),
        )
        for choice in plan.too_large
    )
    columns = (
        _COLUMNS[1].in_language(language),
        Text("missing", "缺口").in_language(language),
        Text("what would make it fit", "怎样能放下").in_language(language),
    )
    return Table(_TITLES["too_large"].in_language(language), columns, rows)


_COST_NOTE = Text(
    "range: from the hardware's peak to half the estimated speed, at the lowest and highest price; "
    "without loading, checkpoints and restarts",
    "范围：从硬件标称速度到估计速度的一半，按最低与最高价格；不含加载、checkpoint 和重启的时间",
)


def _costs(plan: Plan, language: str) -> Table:
    currency = clean_line(plan.currency)
    columns = (Text("", ""), _COLUMNS[1], Text("hours", "小时"), Text("cost", "费用"))
    rows = tuple(
        (
            str(number),
            strategy_name(cost, language),
            _from_to(cost.hours_at_least, cost.hours_at_most),
            f"{_from_to(cost.cost_at_least, cost.cost_at_most)} {currency}".rstrip(),
        )
        for number, cost in enumerate(plan.costs, 1)
    )
    title = _TITLES["costs"].format(tokens=f"{plan.tokens / 1e9:,.9g} B" if plan.tokens >= 1e8 else f"{plan.tokens:,}")
    said = tuple(column.in_language(language) for column in columns)
    return Table(title.in_language(language), said, rows, frozenset({0, 2, 3}), note=_COST_NOTE.in_language(language))


def _from_to(low: float, high: float) -> str:
    return " - ".join(f"{figure:,.0f}" if figure >= 100 else f"{figure:,.2g}" for figure in (low, high))


def reasons(plan: Plan, language: str) -> list[tuple[str, tuple[str, ...]]]:
    """Of the best strategies: name, and why, sentence by sentence."""
    return [
        (f"{number}. {strategy_name(choice, language)}", tuple(_say(text, language) for text in choice.why))
        for number, choice in enumerate(plan.fitting[:REASONED], 1)
    ]


def shares(choice: StrategySummary, capacity: int) -> dict[str, float]:
    """What holds the accelerator's memory, as shares of what there is, in the order of the picture."""
    found = {name: choice.by_category.get(name, 0) / capacity for name in CATEGORIES if name in _LETTERS}
    found["reserve"] = max(0.0, (choice.reserved_bytes - choice.allocated_bytes) / capacity)
    found["free"] = max(0.0, 1 - sum(found.values()))
    return found


def bar(choice: StrategySummary, capacity: int) -> list[tuple[str, str]]:
    """The picture of one accelerator: (category, its part of the bar as letters)."""
    drawn: list[tuple[str, str]] = []
    reached = 0.0
    for name, share in shares(choice, capacity).items():
        start, reached = round(reached * _BAR), reached + share
        drawn.append((name, _LETTERS[name] * (min(round(reached * _BAR), _BAR) - min(start, _BAR))))
    return drawn


def legend(language: str, *, engine: bool) -> str:
    """What the letters of a bar stand for."""
    return "  ".join(f"{_LETTERS[name]} {said}" for name, said in _legend(language, engine) if name != "free")


def generates(plan: Plan) -> bool:
    """Whether an engine is part of any picture."""
    return any(choice.by_category.get("rollout") for choice in (*plan.fitting, *plan.too_large))


def _legend(language: str, engine: bool) -> list[tuple[str, str]]:
    return [(name, said) for name, said in legend_names(language).items() if engine or name != "rollout"]


def legend_names(language: str) -> dict[str, str]:
    """What the parts of a bar are called, in the picture's order."""
    names = {name: word(name, language) for name in CATEGORIES if name in _LETTERS}
    names["reserve"] = Text("reserved, unused", "已保留未使用").in_language(language)
    names["free"] = Text("free", "空闲").in_language(language)
    return names
