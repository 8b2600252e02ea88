"""What the benchmarks share: contenders that take turns, and the episodes of an experiment, timed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import NamedTuple, TypeVar

from explore._running.experiment import Experiment
from explore._running.loop import play_episode

T = TypeVar("T")


class Cost(NamedTuple):
    """Of one seed, in seconds: an update, sampling and targets included; and a step with environment and storing."""

    update: float
    step: float

    def of_episode(self, updates: int, steps: int) -> float:
        return updates * self.update + steps * self.step


def take_turns(contenders: Mapping[str, Callable[[], T]], warm_up: int, repeats: int) -> dict[str, list[T]]:
    """What each gives, `repeats` times, after as many times as it takes to warm up.

    They go in turns, so that a noisy machine disturbs all of them alike.
    """
    for contend in contenders.values():
        for _ in range(warm_up):
            contend()
    rounds = [{name: contend() for name, contend in contenders.items()} for _ in range(repeats)]
    return {name: [one[name] for one in rounds] for name in contenders}


def median_cost(costs: list[Cost]) -> Cost:
    return Cost(*(median(column) for column in zip(*costs)))


def time_episodes(experiment: Experiment, updates: int) -> Callable[[], Cost]:
    """Plays an episode, which begins with a learning phase of so many updates, and tells what it cost."""
    agent, marks = experiment.agent, []
    learn = agent.learn
    seeds = len(experiment.seeds)

    def timed_learn() -> None:
        marks.append(time.perf_counter())
        learn()
        marks.append(time.perf_counter())

    agent.learn = timed_learn

    def episode() -> Cost:
        marks.clear()
        lanes = play_episode(agent, experiment.environments, progress=0.5)
        began, learned, ended = *marks, time.perf_counter()
        return Cost((learned - began) / updates / seeds, (ended - learned) / int(lanes.lengths.sum()))

    return episode


def show_goal(goal: float | None, reached: float) -> str:
    """A ratio beside what it should be at least."""
    said = "-" if math.isnan(reached) else f"{reached:.1f}"
    return said if goal is None else f"{said} (goal {goal:g})"
