"""What pictures of snapshots share: which seeds are drawn, and what captions say of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from explore._analysis.report.data import Material, Result
from explore._analysis.report.section import Picture, Section
from explore._storage.run_folder import Run
from explore.errors import UserError

SEEDS = 5  # that are drawn, all but one of them folded away

Snapshot = Mapping[str, np.ndarray]


def section_of_snapshots(
    material: Material, title: str, maps: bool, draw: Callable[[Result, Run], list[Picture]], text: Sequence[str]
) -> Section | None:
    """Pictures of the first run of each configuration that has snapshots of this kind."""
    pictures, left_out = [], []
    for result in material.results:
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
