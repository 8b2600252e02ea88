"""The progress of a run: a live table in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from numbers import Real
from statistics import fmean
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from explore import hookimpl, printable
from explore.tasks import Column

if TYPE_CHECKING:
    from explore import Run

SEEDS_SHOWN = 12
RETURN = Column("return", "return")
displays: dict[Run, Display] = {}


@hookimpl
def explore_run_started(run: Run) -> None:
    if not run.quiet:
        console = Console(highlight=False, markup=False)
        # A reader that has gone, such as `head`, is no reason to end a run.
        console.on_broken_pipe = lambda: setattr(console, "quiet", True)  # type: ignore[method-assign]
        # FORCE_COLOR makes rich take a pipe for a terminal, but a live table in a log file is of no use.
        live = console.is_interactive and console.file.isatty()
        with suppress(OSError):
            displays[run] = (LiveTable if live else Lines)(run, console)


@hookimpl
def explore_episode_finished(run: Run, rows: Sequence[dict[str, Any]]) -> None:
    if run in displays:
        try:
            displays[run].add(rows)
        except OSError:  # the terminal is gone, or the disk of a log full: no reason to end a run
            del displays[run]


@hookimpl(tryfirst=True)  # to give the terminal back even if another plugin fails
def explore_run_finished(run: Run, summary: dict[str, Any]) -> None:
    if run in displays:
        with suppress(OSError):
            displays.pop(run).finish(summary)


class Total:
    """A column summed up over the episodes of a seed, see `Column.summary`."""

    def __init__(self, column: Column):
        self.column = column
        self.latest: float | None = None
        self.sum = 0.0
        self.best: float | None = None
        self.first: int | None = None
        self.recent: deque[float] = deque(maxlen=100)

    @property
    def mean(self) -> float | None:
        return fmean(self.recent) if self.recent else None

    def add(self, value: Any, episode: int) -> None:
        if not isinstance(value, Real) or math.isnan(value):
            self.latest = None
            return
        self.latest = float(value)
        self.sum += self.latest
        self.best = self.latest if self.best is None else max(self.best, self.latest)
        self.first = episode if self.first is None and value else self.first
        self.recent.append(self.latest)

    def __str__(self) -> str:
        return number(getattr(self, self.column.summary))


class Seed:
    """What is shown of one seed. Adding an episode costs next to nothing: episodes may take 1 ms."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.row: dict[str, Any] = {}  # of the latest episode
        self.returns = Total(RETURN)
        self.totals = [Total(column) for column in columns]  # of the task's own columns

    def add(self, row: dict[str, Any]) -> None:
        self.row = row
        for total in (self.returns, *self.totals):
            total.add(row.get(total.column.name), int(row["episode"]))

    def cells(self) -> dict[str, str]:
        """Its line in the table, by column; what matters less comes later."""
        cells = {
            "return": number(self.returns.latest),
            "mean\nof 100": number(self.returns.mean),
            "best": number(self.returns.best),
        }
        cells |= {two_lines(printable(total.column.title)): str(total) for total in self.totals}
        if not self.totals:
            cells["best\nof 100"] = number(max(self.returns.recent, default=None))
        cells |= {name.replace("_", "\n"): number(self.row[name]) for name in losses(self.row)}
        return cells | {name: number(self.row[name]) for name in ("uncertainty", "index") if name in self.row}


class Display(ABC):
    """How far a run has come, shown when `add` finds it due."""

    def __init__(self, run: Run, console: Console):
        self.run = run
        self.console = console
        if run.execution:
            console.print(printable(f"{run.info['name']} runs with {run.execution}"), soft_wrap=True)
        self.episodes = run.info["episodes"]
        self.columns = run.description.columns
        self.seeds = {seed: Seed(self.columns) for seed in run.info["seeds"]}
        self.episode = self.first = run.resumed_after
        self.due = 0.0
        earlier = run.episodes if self.first else {}
        for cells in zip(*earlier.values()):
            row = dict(zip(earlier, cells))
            self.seeds[int(row["seed"])].add(row)
        self.steps_before = self.steps()
        self.seconds_before = max(earlier.get("seconds", [0.0]))
        self.began = perf_counter()

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            self.seeds[row["seed"]].add(row)
            self.episode = row["episode"]
        if perf_counter() >= self.due or self.is_milestone():
            self.show()

    def is_milestone(self) -> bool:
        """Whether this episode is to be shown though it is not time yet."""
        return False

    @abstractmethod
    def show(self) -> None:
        """Shows it, and sets when the next time is due."""

    def finish(self, summary: dict[str, Any]) -> None:
        """Says how the run ended."""
        overall, seeds = summary["overall"], summary["seeds"]
        progress = f"{self.episode} of {self.episodes} episodes in {self.elapsed()}"
        lines = [f"{self.run.status} after {progress}: {self.run.folder}"]
        if overall["share_solved"] is not None:
            lines += [f"{round(overall['share_solved'] * len(seeds))} of {len(seeds)} seeds solved the task"]
        if median := overall["median_solved_at"]:
            lines[-1] += f", the median seed at episode {number(median)}"
        for seed, entries in list(seeds.items())[:SEEDS_SHOWN]:
            best = f"best of the last 100 {number(entries.get('best_of_last_100'))}"
            firsts = [total for total in self.seeds[int(seed)].totals if total.column.summary == "first"]
            at = {"solved": entries.get("solved_at")} | {printable(one.column.title): one.first for one in firsts}
            lines.append(", ".join([f"  seed {seed}: {best}", *(f"{k} at {v}" for k, v in at.items() if v)]))
        lines += ["  " + more] if (more := self.more(SEEDS_SHOWN)) else []
        self.console.print(*lines, sep="\n", soft_wrap=True)

    def more(self, shown: int) -> str:
        return f"and {len(self.seeds) - shown} more" if len(self.seeds) > shown else ""

    def elapsed(self) -> str:
        return clock(self.seconds_before + perf_counter() - self.began)

    def left(self) -> str:
        pace = (perf_counter() - self.began) / (self.episode - self.first)
        return clock(pace * (self.episodes - self.episode))

    def steps(self) -> int:
        return sum(seed.row.get("steps", 0) for seed in self.seeds.values())

    def steps_per_second(self) -> float:
        return (self.steps() - self.steps_before) / (perf_counter() - self.began)


class LiveTable(Display):
    """A progress bar and a table with a row per seed, redrawn in place."""

    def __init__(self, run: Run, console: Console):
        super().__init__(run, console)
        self.live = Live(console=console, auto_refresh=False, transient=True)
        self.live.start()
        self.show()

    def show(self) -> None:
        before = perf_counter()
        self.live.update(Group(self.bar(), *([self.table()] if self.episode else [])), refresh=True)
        after = perf_counter()
        # Four times a second, or less often where drawing would take more than 2 % of the time.
        self.due = after + max(0.25, 50 * (after - before))

    def finish(self, summary: dict[str, Any]) -> None:
        self.live.stop()
        super().finish(summary)

    def bar(self) -> RenderableType:
        bar = Table.grid(padding=(0, 2), expand=True)
        bar.add_column(no_wrap=True, max_width=24)
        bar.add_column(ratio=1)
        bar.add_column(no_wrap=True)
        state = f"{self.episode}/{self.episodes} episodes"
        if self.episode > self.first:
            state += f"  {self.elapsed()}, {self.left()} left  {self.steps_per_second():,.0f} steps/s"
        bar.add_row(printable(self.run.info["name"]), ProgressBar(total=self.episodes, completed=self.episode), state)
        return bar

    def table(self) -> RenderableType:
        """As many seeds and columns as fit."""
        shown = max(1, min(SEEDS_SHOWN, self.console.height - 6))
        lines = [{"seed": str(name)} | seed.cells() for name, seed in list(self.seeds.items())[:shown]]
        columns = {name: [line[name] for line in lines] for name in lines[0]}
        columns = {name: cells for name, cells in columns.items() if any(cells)}
        width = {name: max(map(len, [*name.split("\n"), *cells])) for name, cells in columns.items()}
        while sum(width[name] + 2 for name in columns) > self.console.width and len(columns) > 2:
            columns.popitem()
        table = Table(box=None, padding=(0, 0, 0, 2), pad_edge=True, header_style="bold")
        for name in columns:
            table.add_column(name, justify="right", vertical="bottom", no_wrap=True)
        for cells in zip(*columns.values()):
            table.add_row(*cells)
        return Group("", table, "  " + self.more(shown))


class Lines(Display):
    """A line at the first episode, at every tenth of the run, and every ten seconds."""

    def is_milestone(self) -> bool:
        return self.episode * 10 // self.episodes > (self.episode - 1) * 10 // self.episodes

    def show(self) -> None:
        seeds = list(self.seeds.values())
        parts = {
            "mean of last 100": self.join(number(seed.returns.mean) for seed in seeds),
            "best": self.join(number(seed.returns.best) for seed in seeds),
        }
        for place, column in enumerate(self.columns):
            parts[printable(column.title)] = self.join(str(seed.totals[place]) for seed in seeds)
        for name in losses(seeds[0].row):
            known = [seed.row[name] for seed in seeds if seed.row[name] is not None]
            parts[name.replace("_", " ")] = number(fmean(known) if known else None)
        progress = f"episode {self.episode}/{self.episodes} ({self.episode / self.episodes:.0%})"
        line = [f"{progress} {self.elapsed()}, {self.left()} left", *map(" ".join, parts.items())]
        self.console.print(*line, sep=" | ", soft_wrap=True)
        self.due = perf_counter() + 10

    def join(self, values: Iterable[str]) -> str:
        return " ".join([*islice(values, SEEDS_SHOWN), *(["..."] if self.more(SEEDS_SHOWN) else [])])


def losses(row: dict[str, Any]) -> list[str]:
    return [name for name in row if name.endswith("loss")]


def two_lines(title: str) -> str:
    """Broken at its first space, so that the column stays narrow."""
    return title.replace(" ", "\n", 1)


def number(value: float | str | None) -> str:
    """A number in three digits or more; "-" for one that is not there."""
    if isinstance(value, str):
        return printable(value)
    if value is None or math.isnan(value):
        return "-"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def clock(seconds: float) -> str:
    """12 s, 6:10 or 1:02:03"""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{seconds:02}"
    return f"{minutes}:{seconds:02}" if minutes else f"{seconds} s"
