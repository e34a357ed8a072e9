"""A plan on a terminal: the ranking, a memory bar per strategy, the reasons."""

from __future__ import annotations

from gonogo.finding import translated
from gonogo.finding.trials.planned import Plan
from gonogo.finding.words import size
from gonogo.report.page import Page, StyledText
from gonogo.report.trials.plan import MAX_EXPLAINED_STRATEGIES, bar_legend, memory_bar, plan_tables, strategy_reasons

_COLOURS = {
    "parameters": "blue",
    "gradients": "cyan",
    "optimizer": "magenta",
    "activations": "green",
    "communication": "yellow",
    "temporary": "red",
    "workspace": "cyan",
    "rollout": "blue",
    "reserve": "dim",
    "free": "dim",
}
_GPU_MEMORY_TITLE = translated("Memory of one GPU")
_WHY_TITLE = translated("Why")


def print_plan(plan: Plan, page: Page, language: str) -> None:
    """Print all of a plan except its verdict and coverage."""
    fitting, *rest = [*plan_tables(plan, language), None]
    if fitting is not None:
        page.line()
        page.table(fitting)
    if plan.fitting:
        _print_memory(plan, page, language)
        _print_reasons(plan, page, language)
    for table in rest:
        if table is not None:
            page.line()
            page.table(table)


def _print_memory(plan: Plan, page: Page, language: str) -> None:
    page.line()
    page.rule(_GPU_MEMORY_TITLE.in_language(language))
    capacity = plan.capacity_bytes
    for number, choice in enumerate(plan.fitting[:MAX_EXPLAINED_STRATEGIES], 1):
        drawn = StyledText(f"{number} |")
        for name, letters in memory_bar(choice, capacity):
            drawn.append(letters, _COLOURS[name])
        drawn.append(f"| {size(choice.reserved_bytes)} / {size(capacity)}")
        page.line(drawn, wrap=False)
    page.line(StyledText(bar_legend(language, plan), "dim"))


def _print_reasons(plan: Plan, page: Page, language: str) -> None:
    page.line()
    page.rule(_WHY_TITLE.in_language(language))
    for name, text in strategy_reasons(plan, language):
        page.line(StyledText(name, "bold"))
        for sentence in text:
            page.line(StyledText(sentence), indent=3)
