"""The progress of a sweep: a live table of all cells in a terminal, elsewhere a line when a cell begins or ends."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from rich.console import Console
from rich.live import Live
from rich.table import Table

from explore._storage import files
from explore._storage.run_folder import Run
from explore.errors import UserError
from explore.interfaces import News

TAIL = 2**18
"""Bytes at the end of `episodes.csv` that are read: the last 100 episodes of some 30 seeds."""
BY_URGENCY = ("running", "failed", "killed", "interrupted", "waiting", "done")
"""The states of a cell; the first ones are shown if there are more cells than lines."""


class Progress(NamedTuple):
    episode: int
    mean_return: float  # of the last 100 episodes of each seed
    seconds: float


@dataclass
class CellState:
    """What is known of a cell, kept up to date by the sweep."""

    name: str
    folder: Path
    state: str = "waiting"
    reason: str = ""
    episodes: int = 0  # that it will have; 0: not known yet
    progress: Progress | None = None
    size: int = field(default=-1, repr=False)  # of `episodes.csv` when it was read last

    def __post_init__(self) -> None:
        with suppress(UserError):  # not begun, or damaged, which the cell itself reports
            if Run.open(self.folder).status == "done":
                self.state = "done"
                self.refresh()

    def refresh(self) -> None:
        """Reads how far the run has come, if that has changed."""
        with suppress(OSError, UserError, ValueError):  # not begun yet, or a row is half written
            size = (self.folder / "episodes.csv").stat().st_size
            if size != self.size:
                self.episodes = Run.open(self.folder).info["episodes"]
                self.progress, self.size = read_progress(self.folder / "episodes.csv"), size

    def update(self, news: News, stopping: bool) -> None:
        """Takes over what the launcher tells of the cell; `stopping` if it was asked to stop."""
        self.reason = ""
        if news.code is None:
            self.state, self.reason = "running", news.text
            return
        self.refresh()
        if news.code == 0:
            self.state = "done"
        elif stopping and (news.code < 0 or news.code > 128):
            self.state = "interrupted"
        elif news.code < 0:
            name = next((one.name for one in signal.Signals if one == -news.code), f"signal {-news.code}")
            self.state, self.reason = "killed", f"killed by {name}, again and again"
        else:
            lines = [line for line in news.text.splitlines() if line.strip()] or [f"exit code {news.code}"]
            told = [line for line in lines if line.startswith("explore: ")] or lines
            self.state, self.reason = "failed", told[-1].removeprefix("explore: ").removeprefix("error: ")

    def figures(self) -> tuple[str, str, str]:
        """Episodes, mean return and time, as they are shown."""
        if self.progress is None:
            return "", "", ""
        episode, mean, seconds = self.progress
        return f"{episode}/{self.episodes}", f"{mean:.4g}", str(timedelta(seconds=round(seconds)))


def read_progress(path: Path) -> Progress | None:
    """How far a run has come, from the end of its `episodes.csv`; None: no episode is over."""
    with files.open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - TAIL))
        text = file.read().decode()
    _, *lines = text[: text.rfind("\n") + 1].splitlines()  # the first is the header, or torn
    if not lines:
        return None
    latest = int(lines[-1].split(",")[1])
    rows = (line.split(",", 3) for line in lines)
    returns = [float(row[2]) for row in rows if int(row[1]) > latest - 100]
    return Progress(latest, fmean(returns), float(lines[-1].rpartition(",")[2]))


@contextmanager
def show_progress(cells: Sequence[CellState], quiet: bool) -> Iterator[Callable[[CellState], None]]:
    """Shows how the cells are doing; call what is given with each one that has begun or ended."""
    console = Console(highlight=False, markup=False, emoji=False)
    console.on_broken_pipe = lambda: setattr(console, "quiet", True)  # type: ignore[method-assign]

    def print_line(cell: CellState) -> None:
        over = sum(other.state not in ("waiting", "running") for other in cells)
        episodes, mean, time = cell.figures()
        figures = f": {episodes} episodes, mean return of the last 100 {mean}, {time}" if episodes else ""
        tail = f" ({cell.reason})" if cell.reason else figures
        console.print(f"[{over}/{len(cells)}] {cell.name}: {cell.state}{tail}", soft_wrap=True)

    if quiet:
        yield lambda cell: None
    elif console.is_interactive and console.file.isatty():
        # Drawn by a thread of its own, while the sweep waits for its cells.
        with Live(get_renderable=lambda: draw_table(cells, console.height), console=console,
                  refresh_per_second=2, transient=True):  # fmt: skip
            yield lambda cell: None
    else:
        yield print_line


def draw_table(cells: Sequence[CellState], height: int) -> Table:
    for cell in cells:
        if cell.state == "running":
            cell.refresh()
    counts = Counter(cell.state for cell in cells)
    caption = ", ".join(f"{counts[state]} {state}" for state in BY_URGENCY if counts[state])
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", caption=caption, caption_justify="left")
    table.add_column("cell", no_wrap=True, overflow="ellipsis")
    table.add_column("state", no_wrap=True)
    for name in ("episode", "mean of 100", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    room = max(3, height - 4)
    shown = cells if len(cells) <= room else sorted(cells, key=lambda cell: BY_URGENCY.index(cell.state))[:room]
    for cell in shown:
        table.add_row(cell.name, cell.state, *cell.figures())
    return table
