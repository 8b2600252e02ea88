"""The best episode of a seed, step by step: what the agent believes along it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from explore._analysis.report import style
from explore._analysis.report.data import Material, Result
from explore._analysis.report.section import Picture, Section
from explore._analysis.report.seeds import (
    Snapshot,
    drawn_seeds,
    middle_of,
    name_seed,
    read_snapshots,
    say_seed,
    section_of_snapshots,
)
from explore._storage.run_folder import Run
from explore.tasks import Trace

BELIEFS = {"mean": "mean value", "uncertainty": "uncertainty"}
MOMENTS = 6  # of which beliefs are drawn, as long as the episode is the same
READING = (
    "The best episode of a seed so far, and what the agent believed of it at the last recorded moment: mean "
    "value and uncertainty of the action taken at each step."
)


def best_episodes(material: Material) -> Section | None:
    """Those of the first run of each configuration that has recorded some."""
    return section_of_snapshots(material, "Best episode", False, _pictures, [READING])


def _pictures(result: Result, run: Run) -> list[Picture]:
    snapshots = read_snapshots(run, run.snapshots.episodes()[-MOMENTS:])
    *_, last = snapshots.values()
    middle = middle_of(last["best_return"])
    drawn = [lane for lane in drawn_seeds(run, middle) if last["lengths"][lane]]
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


@style.styled()
def _picture(result: Result, run: Run, snapshots: Mapping[int, Snapshot], lane: int, folded: bool) -> Picture:
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
