"""The best episode of a seed, step by step: what the agent believes along it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from explore._analysis.report import style
from explore._analysis.report.data import Material, Result
from explore._analysis.report.maps import has_maps
from explore._analysis.report.section import Picture, Section
from explore._storage.run_folder import Run
from explore.errors import UserError

SEEDS = 5  # of which episodes are drawn
COSINE = 3  # where it is in swing-up's observation
HEIGHT = "height of the pole, cos θ"
BELIEFS = {"mean": "mean value", "uncertainty": "uncertainty"}
MOMENTS = 6  # of which beliefs are drawn, as long as the episode is the same
Snapshot = Mapping[str, np.ndarray]


def best_episodes(material: Material) -> Section | None:
    """Those of the first run of each configuration that has recorded some."""
    pictures, text = [], []
    for result in material.results:
        try:
            pictures += _pictures(result)
        except UserError as error:
            text.append(f"Best episodes left out: {error}.")
    if pictures:
        text.append(
            "The best episode of a seed so far, and what the agent believed of it at the last recorded moment: mean "
            "value and uncertainty of the action taken at each step."
        )
    return Section("Best episode", text, [], pictures) if text else None


def _pictures(result: Result) -> list[Picture]:
    run = result.configuration.runs[0]
    episodes = run.snapshots.episodes()[-MOMENTS:]
    if not episodes or has_maps(run):
        return []
    snapshots = {episode: run.snapshots.read(episode) for episode in episodes}
    last = snapshots[episodes[-1]]
    order = np.argsort(last["best_return"], kind="stable")
    middle = int(order[(len(order) - 1) // 2])
    others = [lane for lane in range(len(order)) if lane != middle][: SEEDS - 1]
    drawn = [lane for lane in (middle, *others) if last["lengths"][lane]]
    return [_picture(result, run, snapshots, lane, folded=lane != middle) for lane in drawn]


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


def along(snapshot: Snapshot, lane: int, task: str) -> dict[str, np.ndarray]:
    """What is drawn, each `[steps]`."""
    steps = int(snapshot["lengths"][lane])
    actions = snapshot["actions"][lane, :steps].astype(int)
    found = {}
    if is_swingup(task) and snapshot["observations"].shape[2:] == (1, 8):
        found[HEIGHT] = snapshot["observations"][lane, :steps, 0, COSINE]
    found["reward"] = snapshot["rewards"][lane, :steps]
    for name, title in BELIEFS.items():
        beliefs = snapshot.get(name)
        if beliefs is not None and (actions >= 0).all() and (actions < beliefs.shape[-1]).all():
            found[title] = beliefs[lane, np.arange(steps), actions]
    return found


def is_swingup(task: str) -> bool:
    """Also by bsuite's name for it, cartpole_swingup/3."""
    return task.lower().replace("_", "").startswith("cartpoleswingup")


@style.styled()
def _picture(result: Result, run: Run, snapshots: Mapping[int, Snapshot], lane: int, folded: bool) -> Picture:
    moments = of_one_episode(snapshots, lane)
    lines = {moment: along(snapshot, lane, run.task) for moment, snapshot in moments.items()}
    *earlier, moment = lines
    titles = list(lines[moment])
    figure, axes = style.new_figure(len(titles), height=0.95 * len(titles) + 0.5, sharex=True, squeeze=False)
    for panel, title in zip(axes[:, 0], titles):
        for age, then in enumerate(reversed(lines)):
            look = {"linewidth": 1.2} if then == moment else {"linewidth": 0.8, "alpha": 0.5 * 0.75**age}
            if then == moment or (title in BELIEFS.values() and title in lines[then]):
                values = lines[then][title]
                panel.plot(np.arange(1, len(values) + 1), values, color=style.series(0)["color"], **look)
        panel.set_title(title)
        if title == HEIGHT:
            panel.set_ylim(-1.1, 1.1)
    axes[-1, 0].set_xlabel("step")
    caption = _caption(result, run, moments[moment], lane, folded)
    told = [f"{caption}, and beliefs of it after episode {moment:,}."]
    if earlier:
        told.append(f"Fainter: beliefs after episodes {', '.join(f'{then:,}' for then in earlier)}, of the same steps.")
    name = f"Seed {run.info['seeds'][lane]}: {result.setting}, {result.method}"
    return Picture(figure, " ".join([*told, "Nothing is smoothed."]), folded, name)


def _caption(result: Result, run: Run, snapshot: Snapshot, lane: int, folded: bool) -> str:
    seed, seeds = run.info["seeds"][lane], len(run.info["seeds"])
    which = f"seed {seed}, one of {seeds} seeds" if seeds > 1 else f"seed {seed}, the only one"
    median = ", the median of them in best returns" if seeds > 1 and not folded else ""
    best = f"{snapshot['best_episode'][lane]:,.0f} with a return of {snapshot['best_return'][lane]:.4g}"
    return f"{result.setting}, {result.method}: {which}{median}. Its best episode, {best}"
