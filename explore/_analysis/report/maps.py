"""Maps of the places of a task: where a seed has been, and what it believed there as it learned.

Values and uncertainties of methods differ in scale. Uncertainty may count the noise of all steps that are left, so
that it is large at the start however often the start has been seen; what is left to explore shows when a cell is set
against the others of its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.image import AxesImage

from explore._analysis.report import style
from explore._analysis.report.data import Material, Result
from explore._analysis.report.section import Picture, Section
from explore._analysis.report.seeds import (
    Snapshot,
    drawn_seeds,
    median_seed,
    name_seed,
    read_snapshots,
    say_seed,
    section_of_snapshots,
)
from explore._storage.run_folder import Run
from explore.errors import UserError
from explore.tasks import Marker

MOMENTS = 6
ROOM = 5.2  # inches across, for all maps of a row
RATIO = 2  # to which the colours of a ratio reach, up and down
OUTLIERS = 1  # percent of the numbers, below and above, that colours need not tell apart
READING = (
    "Each panel is the map of a task. Columns are moments of learning. Cells that cannot be reached are grey; in the "
    "first row cells that have not been visited are blank. Value and uncertainty are those of the action that has most "
    "of it; the last row is uncertainty divided by the median of its row of the map: bright is where the agent knows "
    "less than it does elsewhere in that row. Up to four other seeds are folded away."
)


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


def maps(material: Material) -> Section | None:
    """Maps of the first run of each configuration that has some."""
    told = [result.configuration.runs[0].description for result in material.results]
    markers = dict.fromkeys(marker.name for one in told for marker in one.markers)
    stars = [f"A star marks: {', '.join(markers)}."] if markers else []
    notes = dict.fromkeys(one.map_note for one in told if one.map_note)
    return section_of_snapshots(material, "Maps", True, _pictures, [READING, *stars, *notes])


def _pictures(result: Result, run: Run) -> list[Picture]:
    """A picture of the median seed, and of some others on demand."""
    snapshots = read_snapshots(run, run.snapshots.episodes())
    *_, last = snapshots.values()
    for episode, snapshot in snapshots.items():
        if snapshot.keys() != last.keys() or not snapshot["visits"].size:
            raise UserError(f"{run.snapshots.folder} is damaged: the map after episode {episode} is unlike the last")
    shown = {episode: snapshots[episode] for episode in choose_moments(snapshots)}
    middle = median_seed(result, run)
    return [_picture(result, run, shown, lane, folded=lane != middle) for lane in drawn_seeds(run, middle)]


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


@style.styled()
def _picture(result: Result, run: Run, snapshots: Mapping[int, Snapshot], lane: int, folded: bool) -> Picture:
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
