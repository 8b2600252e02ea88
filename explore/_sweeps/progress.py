"""The progress of a sweep: a live table of all cells in a terminal, a line when a cell begins or ends elsewhere."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table

from explore._storage import files
from explore._storage.run_folder import Run
from explore.errors import UserError

TAIL = 2**18
"""Bytes at the end of `episodes.csv` that are looked at: the last 100 episodes of some 30 seeds."""
FIRST = ("running", "failed", "killed", "interrupted", "waiting", "done")
"""What is shown if there are more cells than lines."""


class Progress(NamedTuple):
    episode: int
    mean_return: float  # of the last 100 episodes of each seed
    seconds: float


@dataclass
class State:
    """What is known of a cell, kept up to date by the sweep."""

    name: str
    folder: Path
    state: str = "waiting"
    reason: str = ""
    episodes: int = 0  # that it is to have; 0: not known yet
    progress: Progress | None = None
    size: int = field(default=-1, repr=False)  # of `episodes.csv` when it was read last

    def look(self) -> None:
        """Reads how far the run has come, if that has changed."""
        with suppress(OSError, UserError, ValueError):  # not begun yet, or a row is on its way
            size = (self.folder / "episodes.csv").stat().st_size
            if size != self.size:
                self.episodes = Run.open(self.folder).info["episodes"]
                self.progress, self.size = progress(self.folder / "episodes.csv"), size

    def cells(self) -> tuple[str, str, str, str, str]:
        """Its line in the table."""
        if self.progress is None:
            return self.name, self.state, "", "", ""
        episode, mean, seconds = self.progress
        return self.name, self.state, f"{episode}/{self.episodes}", f"{mean:.4g}", clock(seconds)

    def __str__(self) -> str:
        if self.progress is None:
            return ""
        episode, mean, seconds = self.progress
        return f": {episode}/{self.episodes} episodes, mean return of the last 100 {mean:.4g}, {clock(seconds)}"


def progress(path: Path) -> Progress | None:
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


def clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


class Silent:
    """Shows nothing."""

    def __init__(self, states: Sequence[State], console: Console):
        self.states, self.console = states, console

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, state: State) -> None:
        """A cell has begun or ended."""


class Lines(Silent):
    def show(self, state: State) -> None:
        over = sum(other.state not in ("waiting", "running") for other in self.states)
        head = f"[{over}/{len(self.states)}] {state.name}: {state.state}"
        tail = f" ({state.reason})" if state.reason else str(state)
        self.console.print(head + tail, soft_wrap=True)


class LiveTable(Silent):
    """Redrawn twice a second by a thread of its own, while the sweep waits for its cells."""

    def __enter__(self) -> LiveTable:
        self.live = Live(get_renderable=self.table, console=self.console, refresh_per_second=2, transient=True)
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def table(self) -> RenderableType:
        for state in self.states:
            if state.state == "running":
                state.look()
        room = max(3, self.console.height - 4)
        shown = list(self.states)
        if len(shown) > room:
            shown = sorted(shown, key=lambda state: FIRST.index(state.state))[:room]
        counts = Counter(state.state for state in self.states)
        caption = ", ".join(f"{counts[state]} {state}" for state in FIRST if counts[state])
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", caption=caption, caption_justify="left")
        table.add_column("cell", no_wrap=True, overflow="ellipsis")
        table.add_column("state", no_wrap=True)
        for name in ("episode", "mean of 100", "time"):
            table.add_column(name, justify="right", no_wrap=True)
        for state in shown:
            table.add_row(*state.cells())
        return table


def display(states: Sequence[State], quiet: bool) -> Silent:
    console = Console(highlight=False, markup=False, emoji=False)
    console.on_broken_pipe = lambda: setattr(console, "quiet", True)  # type: ignore[method-assign]
    if quiet:
        return Silent(states, console)
    live = console.is_interactive and console.file.isatty()
    return (LiveTable if live else Lines)(states, console)
