"""A table on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text as Styled

from gonogo.report.rehearsal import Table


def print_table(table: Table, console: Console) -> None:
    """Draw a table, under its title."""
    console.print(Rule(Styled(table.title, style="bold"), align="left", style="dim"))
    drawn = Grid(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for number, column in enumerate(table.columns):
        numeric = number in table.numeric
        drawn.add_column(Styled(column), justify="right" if numeric else "left", no_wrap=numeric, overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Styled(cell) for cell in row))
    console.print(drawn)
    if table.note:
        console.print(Styled(table.note, style="dim"))
