"""What agents believed at some moments: maps of a task, or beliefs along the best episode of a seed.

Values and uncertainties of methods differ in scale. Uncertainty may count the noise of all steps that are left, so
that it is large at the start however often the start has been seen; what is left to explore shows when a cell is set
against the others of its row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.image import AxesImage

from explore._analysis.report import style
from explore._analysis.report.data import ReportData, Result
from explore._analysis.report.drawing import Picture, Section
from explore._storage.run_folder import Run
from explore.errors import UserError
from explore.tasks import Trace

SEEDS = 5  # that are drawn, all but one of them folded away
MOMENTS = 6  # of which maps are drawn, and beliefs along an episode as long as it is the same
ROOM = 5.2  # inches across, for all maps of a row
RATIO = 2  # to which the colours of a ratio reach, up and down
OUTLIERS = 1  # percent of the numbers, below and above, that colours need not tell apart
BELIEFS = {"mean": "mean value", "uncertainty": "uncertainty"}
STAR: dict[str, Any] = {
    "linestyle": "", "marker": "*", "markersize": 5, "color": "white", "markeredgecolor": style.INK,
    "markeredgewidth": 0.5, "clip_on": False,
}  # fmt: skip
MAPS_TEXT = (
    "Each panel is the map of a task. Columns are moments of learning. Cells that cannot be reached are grey; in the "
    "first row cells that have not been visited are blank. Value and uncertainty are those of the action that has most "
    "of it; the last row is uncertainty divided by the median of its row of the map: bright is where the agent knows "
    "less than it does elsewhere in that row. Up to four other seeds are folded away."
)
BEST_EPISODE_TEXT = (
    "The best episode of a seed so far, and what the agent believed of it at the last recorded moment: mean "
    "value and uncertainty of the action taken at each step."
)

Snapshots = Mapping[int, Mapping[str, np.ndarray]]
"""The arrays of snapshots, by the episode after which they were taken."""


@dataclass(frozen=True)
class Seed:
    """What a picture is of: a seed of a run, one of those that are folded away or the one shown first."""

    result: Result
    run: Run
    lane: int
    folded: bool = False

    @property
    def name(self) -> str:
        return f"Seed {self.run.info['seeds'][self.lane]}: {self.result.setting}, {self.result.method}"

    def describe(self, median_in: str) -> str:
        """Which seed it is; the one shown first is the median of all in something."""
        seed, seeds = self.run.info["seeds"][self.lane], len(self.run.info["seeds"])
        runs = self.result.configuration.runs
        which = [f"seed {seed}, one of {seeds} seeds" if seeds > 1 else f"seed {seed}, the only one"]
        which += [f"of the first of {len(runs)} runs"] if len(runs) > 1 else []
        which += [f"the median of them in {median_in}"] if median_in and seeds > 1 and not self.folded else []
        return f"{self.result.setting}, {self.result.method}: {', '.join(which)}"


def choose_seeds(result: Result, run: Run, middle: int) -> list[Seed]:
    """The seeds that are drawn, the middle one first, and the others folded away."""
    others = [lane for lane in range(len(run.info["seeds"])) if lane != middle]
    return [Seed(result, run, middle), *(Seed(result, run, lane, folded=True) for lane in others)][:SEEDS]


def find_middle(numbers: Sequence[float] | np.ndarray) -> int:
    """The place of the median, the lower one of two."""
    return int(np.argsort(numbers, kind="stable")[(len(numbers) - 1) // 2])


def find_median_seed(result: Result, run: Run) -> int:
    """The place of the seed that took the median of episodes to solve the task; the first while nothing says so."""
    if not result.judged:
        return 0
    seeds = result.configuration.seeds
    return find_middle([seeds[str(seed)].get("solved_at") or math.inf for seed in run.info["seeds"]])


def read_snapshots(run: Run, episodes: Sequence[int]) -> Snapshots:
    """The snapshots after these episodes; raises `UserError` if they are not of the kind that the run records."""
    shape = run.description.map_shape
    expected = None if shape is None else (len(run.info["seeds"]), *shape)
    found = {episode: run.snapshots.read(episode) for episode in episodes}
    for episode, snapshot in found.items():
        if (snapshot["visits"].shape if "visits" in snapshot else None) != expected:
            raise UserError(f"{run.snapshots.folder} is damaged: the map after episode {episode} is not of this task")
    return found


def _draw_section(
    data: ReportData, title: str, text: Sequence[str], have_map: bool, draw: Callable[[Result, Run], list[Picture]]
) -> Section | None:
    """Pictures of the first run of each configuration that has snapshots of this kind."""
    pictures, left_out = [], []
    for result in data.results:
        run = result.configuration.runs[0]
        try:
            if (run.description.map_shape is not None) == have_map and run.snapshots.episodes():
                pictures += draw(result, run)
        except UserError as error:
            left_out.append(f"{title} left out: {error}.")
    paragraphs = [*left_out, *(text if pictures else [])]
    return Section(title, paragraphs, [], pictures) if paragraphs else None


# Maps


@dataclass
class Row:
    """Maps of one kind: `[rows, columns]` at each moment, and of the prior if it has one."""

    title: str
    ends: tuple[float, float]  # of the colours
    moments: list[np.ndarray]
    prior: np.ndarray | None = None
    logarithmic: bool = True

    @property
    def maps(self) -> list[np.ndarray]:
        return [*self.moments, *([] if self.prior is None else [self.prior])]

    @property
    def extend(self) -> str:
        """At which ends of the colours there are numbers beyond, as matplotlib says it."""
        low, high = _find_limits(self.maps)
        return ("neither", "min", "max", "both")[(low < self.ends[0]) + 2 * (high > self.ends[1])]


def draw_maps(data: ReportData) -> Section | None:
    """Maps of the first run of each configuration that has some."""
    tasks = [result.configuration.description for result in data.results]
    markers = dict.fromkeys(marker.name for task in tasks for marker in task.markers)
    stars = [f"A star marks: {', '.join(markers)}."] if markers else []
    notes = dict.fromkeys(task.map_note for task in tasks if task.map_note)
    return _draw_section(data, "Maps", [MAPS_TEXT, *stars, *notes], True, _draw_maps_of_run)


def _draw_maps_of_run(result: Result, run: Run) -> list[Picture]:
    snapshots = read_snapshots(run, run.snapshots.episodes())
    *_, last = snapshots.values()
    for episode, snapshot in snapshots.items():
        if snapshot.keys() != last.keys() or not snapshot["visits"].size:
            raise UserError(f"{run.snapshots.folder} is damaged: the map after episode {episode} is unlike the last")
    shown = {episode: snapshots[episode] for episode in choose_moments(snapshots)}
    return [_draw_maps_of_seed(seed, shown) for seed in choose_seeds(result, run, find_median_seed(result, run))]


def choose_moments(snapshots: Snapshots) -> list[int]:
    """The episodes that are shown: from the last before beliefs changed to the latest, evenly among the recorded."""
    episodes = sorted(snapshots)
    beliefs = [snapshots[at].get("uncertainty", snapshots[at].get("mean", np.zeros(0))) for at in episodes]
    same = [np.array_equal(one, beliefs[0], equal_nan=True) for one in beliefs]
    begin = 0 if all(same) else same.index(False) - 1
    return [episodes[i] for i in np.unique(np.linspace(begin, len(episodes) - 1, MOMENTS).round().astype(int))]


def rows(snapshots: Snapshots, lane: int) -> list[Row]:
    """What is drawn of a seed; scales are common to all moments, those of beliefs to all seeds too."""
    every = list(snapshots.values())

    def highest(name: str) -> tuple[list[np.ndarray], np.ndarray | None]:
        """Of all actions, at each moment and in the prior."""
        prior = every[-1].get(f"prior_{name}")
        return [one[name][lane].max(-1) for one in every], None if prior is None else prior[lane].max(-1)

    visits = [np.where(snapshot["visits"][lane] > 0, snapshot["visits"][lane], np.nan) for snapshot in every]
    found = [Row("visits", (1, max(2, _find_limits(visits)[1])), visits)]
    if "mean" in every[0]:
        low, high = _find_limits([every[-1]["mean"].max(-1)])
        found.append(Row("mean value", (min(low, 0), max(high, 1e-6)), *highest("mean"), logarithmic=False))
    if any((snapshot.get("uncertainty", np.zeros(1)) > 0).any() for snapshot in every):
        moments, prior = highest("uncertainty")
        low, high = _find_limits(
            [np.where(one["uncertainty"] > 0, one["uncertainty"], np.nan) for one in every], OUTLIERS
        )
        found.append(Row("uncertainty", (low, max(high, 2 * low)), moments, prior))
        found.append(Row("against its row", (1 / RATIO, RATIO), [against_row(one) for one in moments]))
    return found


def against_row(uncertainty: np.ndarray) -> np.ndarray:
    """Uncertainty `[rows, columns]` as a multiple of the median of its row; NaN where that is 0."""
    medians = np.array([np.median(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan for row in uncertainty])
    return uncertainty / np.where(medians > 0, medians, np.nan)[:, None]


def _find_limits(arrays: Sequence[np.ndarray], percent: float = 0) -> tuple[float, float]:
    """The lowest and the highest number in some arrays, but for some percent; 1 and 1 if there are no numbers."""
    numbers = np.concatenate([array[np.isfinite(array)] for array in arrays])
    low, high = np.percentile(numbers, (percent, 100 - percent)) if numbers.size else (1, 1)
    return float(low), float(high)


def _draw_maps_of_seed(seed: Seed, snapshots: Snapshots) -> Picture:
    drawn = rows(snapshots, seed.lane)
    unreachable = next(iter(snapshots.values()))["visits"][seed.lane] < 0
    height, width = unreachable.shape
    names = [f"{episode:,}" for episode in snapshots] + ["prior"] * any(row.prior is not None for row in drawn)
    starts = np.arange(max(len(names), MOMENTS)) * (width + max(1, width // 8))  # the column at which a map begins
    figure, axes = style.new_figure(
        len(drawn), height=len(drawn) * (ROOM / len(starts) * height / width + 0.16) + 0.5, squeeze=False
    )
    for panel, row in zip(axes[:, 0], drawn):
        image = _draw_row(panel, row, unreachable, starts)
        bar = figure.colorbar(image, ax=panel, extend=row.extend, fraction=0.02, pad=0.01, aspect=12)
        bar.minorticks_off()
        if row.logarithmic:
            ticks = np.geomspace(*row.ends, 3).tolist()
            bar.set_ticks(ticks, labels=[f"{tick:,.0f}" if tick >= 100 else f"{tick:.2g}" for tick in ticks])
        panel.set_ylabel(row.title)
        for marker in seed.run.description.markers:
            panel.plot(starts[: len(row.maps)] + marker.column, [marker.row] * len(row.maps), **STAR)
    axes[0, 0].set_xticks(starts[: len(names)] + (width - 1) / 2, names)
    axes[0, 0].set_xlabel("after episode")
    caption = seed.describe("episodes to solve" if seed.result.judged else "")
    if seed.result.judged:
        solved_at = seed.result.configuration.seeds[str(seed.run.info["seeds"][seed.lane])].get("solved_at")
        caption += f", solved at episode {solved_at:,.0f}" if solved_at else ", unsolved"
    return Picture(figure, f"{caption}.", seed.folded, seed.name)


def _draw_row(axes: Axes, row: Row, unreachable: np.ndarray, starts: np.ndarray) -> AxesImage:
    """The maps of a row beside each other, as one image."""
    height, width = unreachable.shape
    together = np.full((height, starts[-1] + width), np.nan)
    shade = np.zeros((*together.shape, 4))
    for start, one in zip(starts, row.maps):
        together[:, start : start + width] = one
        shade[:, start : start + width][unreachable] = (0.5, 0.5, 0.5, 0.2)
    axes.imshow(shade)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.tick_params(length=0)
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    axes.spines[:].set_visible(False)
    norm = LogNorm(*row.ends) if row.logarithmic else Normalize(*row.ends)
    return axes.imshow(np.ma.masked_invalid(together), norm=norm)


# Best episodes


def draw_best_episodes(data: ReportData) -> Section | None:
    """Those of the first run of each configuration that has recorded some."""
    return _draw_section(data, "Best episode", [BEST_EPISODE_TEXT], False, _draw_best_episodes_of_run)


def _draw_best_episodes_of_run(result: Result, run: Run) -> list[Picture]:
    snapshots = read_snapshots(run, run.snapshots.episodes()[-MOMENTS:])
    *_, last = snapshots.values()
    seeds = choose_seeds(result, run, find_middle(last["best_return"]))
    return [_draw_best_episode_of_seed(seed, snapshots) for seed in seeds if last["lengths"][seed.lane]]


def of_one_episode(snapshots: Snapshots, lane: int) -> Snapshots:
    """The moments, up to the last, at which the best episode of a seed was the same as in the end."""
    *_, last = snapshots.values()

    def is_same(snapshot: Mapping[str, np.ndarray]) -> bool:
        same_kind = snapshot.keys() == last.keys()
        return same_kind and all(snapshot[name][lane] == last[name][lane] for name in ("best_episode", "lengths"))

    return {moment: snapshot for moment, snapshot in snapshots.items() if snapshot is last or is_same(snapshot)}


def list_lines(snapshot: Mapping[str, np.ndarray], lane: int, traces: Sequence[Trace]) -> dict[str, np.ndarray]:
    """What is drawn, each `[steps]`: the task's traces, rewards, and beliefs."""
    steps = int(snapshot["lengths"][lane])
    actions = snapshot["actions"][lane, :steps].astype(int)
    observations = snapshot["observations"][lane, :steps].reshape(steps, -1)  # [steps, numbers]
    found = {trace.name: observations[:, trace.index] for trace in traces if trace.index < observations.shape[1]}
    found["reward"] = snapshot["rewards"][lane, :steps]
    for name, title in BELIEFS.items():
        beliefs = snapshot.get(name)
        if beliefs is not None and (actions >= 0).all() and (actions < beliefs.shape[-1]).all():
            found[title] = beliefs[lane, np.arange(steps), actions]
    return found


def _draw_best_episode_of_seed(seed: Seed, snapshots: Snapshots) -> Picture:
    moments, traces = of_one_episode(snapshots, seed.lane), seed.run.description.traces
    lines = {moment: list_lines(snapshot, seed.lane, traces) for moment, snapshot in moments.items()}
    *earlier, moment = lines
    titles = list(lines[moment])
    figure, axes = style.new_figure(len(titles), height=0.95 * len(titles) + 0.5, sharex=True, squeeze=False)
    ends = {trace.name: (trace.low, trace.high) for trace in traces}
    for panel, title in zip(axes[:, 0], titles):
        for age, then in enumerate(reversed(lines)):
            look = {"linewidth": 1.2} if then == moment else {"linewidth": 0.8, "alpha": 0.5 * 0.75**age}
            if then == moment or (title in BELIEFS.values() and title in lines[then]):
                values = lines[then][title]
                panel.plot(np.arange(1, len(values) + 1), values, color=style.series(0)["color"], **look)
        panel.set_title(title)
        low, high = ends.get(title, (None, None))
        room = 0.05 * (high - low) if low is not None and high is not None else 0
        panel.set_ylim(None if low is None else low - room, None if high is None else high + room)
    axes[-1, 0].set_xlabel("step")
    number, best = (moments[moment][name][seed.lane] for name in ("best_episode", "best_return"))
    caption = (
        f"{seed.describe('best returns')}. Its best episode, {number:,.0f} with a return of {best:.4g}, and beliefs of "
        f"it after episode {moment:,}."
    )
    if earlier:
        caption += f" Fainter: beliefs after episodes {', '.join(f'{then:,}' for then in earlier)}, of the same steps."
    return Picture(figure, f"{caption} Nothing is smoothed.", seed.folded, seed.name)
