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
    console, whole_words = make_console(), split_at is not None
    tables = [_fill(rows, whole_words)]
    unbroken = console.options.update(width=100_000)
    if split_at is not None and console.measure(tables[0], options=unbroken).maximum > console.width:
        halves = [row[:split_at] for row in rows], [[row[0], *row[split_at:]] for row in rows]
        tables = [_fill(half, whole_words) for half in halves]
    for table in tables:
        console.print(table, crop=False)


def print_line(*cells: str) -> None:
    """Prints a line of a table that is not complete yet; its last cell may be long, the others have few letters."""
    table = Table.grid(padding=(0, 2), pad_edge=False)
    for _ in cells[1:]:
        table.add_column(width=9)
    table.add_column(overflow="fold", no_wrap=not sys.stdout.isatty())
    table.add_row(*cells)
    make_console().print(table, crop=False)


def _fill(rows: Sequence[Sequence[str]], whole_words: bool) -> Table:
    header, *lines = rows
    table = make_table(*header)
    for line in lines:
        table.add_row(*line)
    for column, *cells in zip(table.columns, *rows) if whole_words else ():
        column.min_width = max(len(word) for cell in cells for word in [*cell.split(), ""])
    return table
