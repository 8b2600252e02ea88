"""Tables on the terminal, as wide as it is; elsewhere lines are not broken."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table


def make_console() -> Console:
    """Prints text as it is; lines are broken to fit a terminal only."""
    width = None if sys.stdout.isatty() else 100_000
    return Console(width=width, markup=False, highlight=False, emoji=False)


def make_table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=not sys.stdout.isatty())
    return table


def print_rows(rows: Sequence[Sequence[str]], split_at: int | None = None) -> None:
    """Prints a table, the header first; one that is too wide as two, the second from column `split_at` on."""
    console = make_console()
    tables = [_fill(rows)]
    if split_at is not None and _measure(tables[0], console) > console.width:
        tables = [_fill([row[:split_at] for row in rows]), _fill([[row[0], *row[split_at:]] for row in rows])]
    for table in tables:
        if split_at is not None:
            _break_between_words(table, console)
        console.print(table)


def _fill(rows: Sequence[Sequence[str]]) -> Table:
    header, *lines = rows
    table = make_table(*header)
    for line in lines:
        table.add_row(*line)
    return table


def _measure(table: Table, console: Console) -> int:
    """The width of a table whose lines are not broken."""
    return console.measure(table, options=console.options.update(width=100_000)).maximum


def _break_between_words(table: Table, console: Console) -> None:
    """Makes the widest columns as narrow as they need to be, but none narrower than its longest word."""
    texts = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    widths = [max(map(len, cells)) for cells in texts]
    words = [max(len(word) for cell in cells for word in cell.split()) for cells in texts]
    excess = _measure(table, console) - console.width
    if 0 < excess <= sum(widths) - sum(words):
        for _ in range(excess):
            widest = max((k for k in range(len(widths)) if widths[k] > words[k]), key=widths.__getitem__)
            widths[widest] -= 1
        for column, width in zip(table.columns, widths):
            column.width = width
