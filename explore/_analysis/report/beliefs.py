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
from explore.tasks import Marker, Trace

SEEDS = 5  # that are drawn, all but one of them folded away
MOMENTS = 6  # of which maps are drawn, and beliefs along an episode as long as it is the same
ROOM = 5.2  # inches across, for all maps of a row
RATIO = 2  # to which the colours of a ratio reach, up and down
OUTLIERS = 1  # percent of the numbers, below and above, that colours need not tell apart
BELIEFS = {"mean": "mean value", "uncertainty": "uncertainty"}
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

Snapshot = Mapping[str, np.ndarray]


@dataclass
class Row:
    """Maps of one kind: `[rows, columns]` at each moment, and of the prior if it has one."""

    title: str
    ends: tuple[float, float]  # of the colours
    moments: list[np.ndarray]
    prior: np.ndarray | None = None
    logarithmic: bool = True

    @property
    def all(self) -> list[np.ndarray]:
        return [*self.moments, *([] if self.prior is None else [self.prior])]


def maps(data: ReportData) -> Section | None:
    """Maps of the first run of each configuration that has some."""
    told = [result.configuration.runs[0].description for result in data.results]
    markers = dict.fromkeys(marker.name for one in told for marker in one.markers)
    stars = [f"A star marks: {', '.join(markers)}."] if markers else []
    notes = dict.fromkeys(one.map_note for one in told if one.map_note)
    return section_of_snapshots(data, "Maps", True, _map_pictures, [MAPS_TEXT, *stars, *notes])


def _map_pictures(result: Result, run: Run) -> list[Picture]:
    """A picture of the median seed, and of some others on demand."""
    snapshots = read_snapshots(run, run.snapshots.episodes())
    *_, last = snapshots.values()
    for episode, snapshot in snapshots.items():
        if snapshot.keys() != last.keys() or not snapshot["visits"].size:
            raise UserError(f"{run.snapshots.folder} is damaged: the map after episode {episode} is unlike the last")
    shown = {episode: snapshots[episode] for episode in choose_moments(snapshots)}
    middle = median_seed(result, run)
    return [_draw_maps(result, run, shown, lane, folded=lane != middle) for lane in drawn_seeds(run, middle)]


def choose_moments(snapshots: Mapping[int, Snapshot]) -> list[int]:
    """The episodes that are shown: from the last before beliefs changed to the latest, evenly among the recorded."""
    episodes = sorted(snapshots)
    first = _beliefs(snapshots[episodes[0]])
    same = [np.array_equal(_beliefs(snapshots[episode]), first, equal_nan=True) for episode in episodes]
    begin = 0 if all(same) else same.index(False) - 1
    return [episodes[i] for i in np.unique(np.linspace(begin, len(episodes) - 1, MOMENTS).round().astype(int))]


def _beliefs(snapshot: Snapshot) -> np.ndarray:
    return snapshot.get("uncertainty", snapshot.get("mean", np.zeros(0)))


def rows(snapshots: Mapping[int, Snapshot], lane: int) -> list[Row]:
    """What is drawn of a seed; scales are common to all moments, those of beliefs to all seeds too."""
    every = list(snapshots.values())
    visits = [np.where(snapshot["visits"][lane] > 0, snapshot["visits"][lane], np.nan) for snapshot in every]
    found = [Row("visits", (1, max(2, _ends(visits)[1])), visits)]
    if "mean" in every[0]:
        low, high = _ends([_highest(every[-1]["mean"])])
        ends = (min(low, 0), max(high, 1e-6))
        found.append(Row("mean value", ends, *_beliefs_of(every, "mean", lane), logarithmic=False))
    if any((snapshot.get("uncertainty", np.zeros(1)) > 0).any() for snapshot in every):
        moments, prior = _beliefs_of(every, "uncertainty", lane)
        low, high = _ends([np.where(one["uncertainty"] > 0, one["uncertainty"], np.nan) for one in every], OUTLIERS)
        found.append(Row("uncertainty", (low, max(high, 2 * low)), moments, prior))
        found.append(Row("against its row", (1 / RATIO, RATIO), [against_row(one) for one in moments]))
    return found


def against_row(uncertainty: np.ndarray) -> np.ndarray:
    """Uncertainty `[rows, columns]` as a multiple of the median of its row; NaN where that is 0."""
    medians = np.array([np.median(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan for row in uncertainty])
    return uncertainty / np.where(medians > 0, medians, np.nan)[:, None]


def _beliefs_of(snapshots: Sequence[Snapshot], name: str, lane: int) -> tuple[list[np.ndarray], np.ndarray | None]:
    prior = snapshots[-1].get(f"prior_{name}")
    return [_highest(one[name][lane]) for one in snapshots], None if prior is None else _highest(prior[lane])


def _highest(values: np.ndarray) -> np.ndarray:
    """Over actions, the last axis."""
    return values.max(-1)


def _ends(arrays: Sequence[np.ndarray], percent: float = 0) -> tuple[float, float]:
    """The lowest and the highest number in some arrays, but for some percent; 1 and 1 if there are no numbers."""
    numbers = np.concatenate([array[np.isfinite(array)] for array in arrays])
    if not numbers.size:
        return 1.0, 1.0
    low, high = np.percentile(numbers, (percent, 100 - percent))
    return float(low), float(high)


def _draw_maps(result: Result, run: Run, snapshots: Mapping[int, Snapshot], lane: int, folded: bool) -> Picture:
    drawn = rows(snapshots, lane)
    unreachable = next(iter(snapshots.values()))["visits"][lane] < 0
    names = [f"{episode:,}" for episode in snapshots]
    names += ["prior"] if any(row.prior is not None for row in drawn) else []
    places = max(len(names), MOMENTS)
    height = len(drawn) * (ROOM / places * unreachable.shape[0] / unreachable.shape[1] + 0.16) + 0.5
    figure, axes = style.new_figure(len(drawn), height=height, squeeze=False)
    for panel, row in zip(axes[:, 0], drawn):
        image = _draw(panel, row, unreachable, places)
        bar = figure.colorbar(image, ax=panel, extend=_extend(row), fraction=0.02, pad=0.01, aspect=12)
        bar.minorticks_off()
        if row.logarithmic:
            ticks = np.geomspace(*row.ends, 3).tolist()
            bar.set_ticks(ticks, labels=[f"{tick:,.0f}" if tick >= 100 else f"{tick:.2g}" for tick in ticks])
        panel.set_ylabel(row.title)
        _mark(panel, run.description.markers, unreachable.shape[1], len(row.all))
    middles = [_offset(number, unreachable.shape[1]) + (unreachable.shape[1] - 1) / 2 for number in range(len(names))]
    axes[0, 0].set_xticks(middles, names)
    axes[0, 0].set_xlabel("after episode")
    return Picture(figure, _caption(result, run, lane, folded), folded, name_seed(result, run, lane))


def _draw(axes: Axes, row: Row, unreachable: np.ndarray, places: int) -> AxesImage:
    """The maps of a row beside each other, as one image."""
    height, width = unreachable.shape
    together = np.full((height, _offset(places - 1, width) + width), np.nan)
    shade = np.zeros((*together.shape, 4))
    for number, one in enumerate(row.all):
        own = slice(_offset(number, width), _offset(number, width) + width)
        together[:, own] = one
        shade[:, own][unreachable] = (0.5, 0.5, 0.5, 0.2)
    axes.imshow(shade)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.tick_params(length=0)
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    axes.spines[:].set_visible(False)
    norm = LogNorm(*row.ends) if row.logarithmic else Normalize(*row.ends)
    return axes.imshow(np.ma.masked_invalid(together), norm=norm)


def _offset(number: int, width: int) -> int:
    """The column at which a map begins."""
    return number * (width + max(1, width // 8))


def _mark(axes: Axes, markers: Sequence[Marker], width: int, count: int) -> None:
    """Stars on the first so many maps of a row."""
    look: dict[str, Any] = {"color": "white", "markeredgecolor": style.INK, "markeredgewidth": 0.5, "markersize": 5}
    for marker in markers:
        places = [_offset(number, width) + marker.column for number in range(count)]
        axes.plot(places, [marker.row] * count, linestyle="", marker="*", clip_on=False, **look)


def _extend(row: Row) -> str:
    """At which ends of the colours there are numbers beyond."""
    low, high = _ends(row.all)
    beyond = (low < row.ends[0], high > row.ends[1])
    return {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}[beyond]


def _caption(result: Result, run: Run, lane: int, folded: bool) -> str:
    said = say_seed(result, run, lane, "episodes to solve" if result.judged and not folded else "")
    if not result.judged:
        return f"{said}."
    solved_at = result.configuration.seeds[str(run.info["seeds"][lane])].get("solved_at")
    return f"{said}, {f'solved at episode {solved_at:,.0f}' if solved_at else 'unsolved'}."


def best_episodes(data: ReportData) -> Section | None:
    """Those of the first run of each configuration that has recorded some."""
    return section_of_snapshots(data, "Best episode", False, _best_episode_pictures, [BEST_EPISODE_TEXT])


def _best_episode_pictures(result: Result, run: Run) -> list[Picture]:
    snapshots = read_snapshots(run, run.snapshots.episodes()[-MOMENTS:])
    *_, last = snapshots.values()
    middle = middle_of(last["best_return"])
    drawn = [lane for lane in drawn_seeds(run, middle) if last["lengths"][lane]]
    return [_draw_best_episode(result, run, snapshots, lane, folded=lane != middle) for lane in drawn]


def of_one_episode(snapshots: Mapping[int, Snapshot], lane: int) -> dict[int, Snapshot]:
    """The moments, up to the last, at which the best episode of a seed was the same as in the end."""
    *_, last = snapshots.values()
    return {
        moment: snapshot
        for moment, snapshot in snapshots.items()
        if snapshot is last
        or (
            snapshot.keys() == last.keys()
            and all(snapshot[name][lane] == last[name][lane] for name in ("best_episode", "lengths"))
        )
    }


def along(snapshot: Snapshot, lane: int, traces: Sequence[Trace]) -> dict[str, np.ndarray]:
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


def _draw_best_episode(result: Result, run: Run, snapshots: Mapping[int, Snapshot], lane: int, folded: bool) -> Picture:
    moments, traces = of_one_episode(snapshots, lane), run.description.traces
    lines = {moment: along(snapshot, lane, traces) for moment, snapshot in moments.items()}
    *earlier, moment = lines
    titles = list(lines[moment])
    figure, axes = style.new_figure(len(titles), height=0.95 * len(titles) + 0.5, sharex=True, squeeze=False)
    ends = {trace.name: style.widen(trace.low, trace.high) for trace in traces}
    for panel, title in zip(axes[:, 0], titles):
        for age, then in enumerate(reversed(lines)):
            look = {"linewidth": 1.2} if then == moment else {"linewidth": 0.8, "alpha": 0.5 * 0.75**age}
            if then == moment or (title in BELIEFS.values() and title in lines[then]):
                values = lines[then][title]
                panel.plot(np.arange(1, len(values) + 1), values, color=style.series(0)["color"], **look)
        panel.set_title(title)
        if title in ends:
            panel.set_ylim(*ends[title])
    axes[-1, 0].set_xlabel("step")
    last = moments[moment]
    best = f"{last['best_episode'][lane]:,.0f} with a return of {last['best_return'][lane]:.4g}"
    said = say_seed(result, run, lane, "" if folded else "best returns")
    told = [f"{said}. Its best episode, {best}, and beliefs of it after episode {moment:,}."]
    if earlier:
        told.append(f"Fainter: beliefs after episodes {', '.join(f'{then:,}' for then in earlier)}, of the same steps.")
    return Picture(figure, " ".join([*told, "Nothing is smoothed."]), folded, name_seed(result, run, lane))


def section_of_snapshots(
    data: ReportData, title: str, maps: bool, draw: Callable[[Result, Run], list[Picture]], text: Sequence[str]
) -> Section | None:
    """Pictures of the first run of each configuration that has snapshots of this kind."""
    pictures, left_out = [], []
    for result in data.results:
        run = result.configuration.runs[0]
        try:
            if (run.description.map_shape is not None) == maps and run.snapshots.episodes():
                pictures += draw(result, run)
        except UserError as error:
            left_out.append(f"{title} left out: {error}.")
    told = [*left_out, *(text if pictures else [])]
    return Section(title, told, [], pictures) if told else None


def read_snapshots(run: Run, episodes: Sequence[int]) -> dict[int, Snapshot]:
    """The snapshots after these episodes; raises `UserError` if they are not of the kind that the run records."""
    shape = run.description.map_shape
    expected = None if shape is None else (len(run.info["seeds"]), *shape)
    found: dict[int, Snapshot] = {episode: run.snapshots.read(episode) for episode in episodes}
    for episode, snapshot in found.items():
        if (snapshot["visits"].shape if "visits" in snapshot else None) != expected:
            raise UserError(f"{run.snapshots.folder} is damaged: the map after episode {episode} is not of this task")
    return found


def drawn_seeds(run: Run, middle: int) -> list[int]:
    """The places of the seeds that are drawn, the middle one first."""
    return [middle, *(lane for lane in range(len(run.info["seeds"])) if lane != middle)][:SEEDS]


def median_seed(result: Result, run: Run) -> int:
    """The place of the seed that took the median of episodes to solve the task; the first while nothing says so."""
    if not result.judged:
        return 0
    seeds = result.configuration.seeds
    return middle_of([seeds[str(seed)].get("solved_at") or math.inf for seed in run.info["seeds"]])


def middle_of(numbers: Sequence[float] | np.ndarray) -> int:
    """The place of the median, the lower one of two."""
    return int(np.argsort(numbers, kind="stable")[(len(numbers) - 1) // 2])


def say_seed(result: Result, run: Run, lane: int, median_in: str) -> str:
    """Which seed a picture is of; it may be the median of all in something."""
    seed, seeds = run.info["seeds"][lane], len(run.info["seeds"])
    which = [f"seed {seed}, one of {seeds} seeds" if seeds > 1 else f"seed {seed}, the only one"]
    if len(result.configuration.runs) > 1:
        which.append(f"of the first of {len(result.configuration.runs)} runs")
    if median_in and seeds > 1:
        which.append(f"the median of them in {median_in}")
    return f"{result.setting}, {result.method}: {', '.join(which)}"


def name_seed(result: Result, run: Run, lane: int) -> str:
    return f"Seed {run.info['seeds'][lane]}: {result.setting}, {result.method}"
