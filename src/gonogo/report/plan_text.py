"""A plan on a terminal: the ranking, a picture of each accelerator's memory, the reasons."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text as Styled

from gonogo.finding import Text
from gonogo.report.plan import REASONED, bar, legend, reasons, tables
from gonogo.report.table import print_table
from gonogo.report.words import size

_COLOURS = {
    "parameters": "blue",
    "gradients": "cyan",
    "optimizer": "magenta",
    "activations": "green",
    "communication": "yellow",
    "temporary": "red",
    "reserve": "dim",
    "free": "dim",
}
_MEMORY = Text("Memory of one GPU", "单卡显存")
_WHY = Text("Why", "理由")


def print_plan(plan: dict[str, Any], console: Console, language: str) -> None:
    """Print all of a plan but its verdict and coverage."""
    fitting, *rest = [*tables(plan, language), None]
    if fitting is not None:
        console.print()
        print_table(fitting, console)
    if plan["fitting"]:
        _print_memory(plan, console, language)
        _print_reasons(plan, console, language)
    for table in rest:
        if table is not None:
            console.print()
            print_table(table, console)


def _print_memory(plan: dict[str, Any], console: Console, language: str) -> None:
    console.print()
    console.print(Rule(Styled(_MEMORY.in_language(language), style="bold"), align="left", style="dim"))
    capacity = plan["capacity_bytes"]
    for number, choice in enumerate(plan["fitting"][:REASONED], 1):
        drawn = Styled(f"{number} |")
        for name, letters in bar(choice, capacity):
            drawn.append(letters, style=_COLOURS[name])
        drawn.append(f"| {size(choice['reserved_bytes'])} / {size(capacity)}")
        console.print(drawn, soft_wrap=True)
    console.print(Styled(legend(language), style="dim"))


def _print_reasons(plan: dict[str, Any], console: Console, language: str) -> None:
    console.print()
    console.print(Rule(Styled(_WHY.in_language(language), style="bold"), align="left", style="dim"))
    for name, said in reasons(plan, language):
        console.print(Styled(name, style="bold"))
        for sentence in said:
            console.print(Padding(Styled(sentence), (0, 0, 0, 3)))
