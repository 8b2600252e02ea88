"""The paper's Algorithm 2 (live_IS), for all seeds in lockstep: each is a lane of one program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dm_env
import numpy as np

from explore._running.lanes import Lanes
from explore._running.visits import Visits
from explore.interfaces import Agent, Judge


@dataclass
class Progress:
    """How far a run has come."""

    steps: np.ndarray  # of each lane
    episode: int = 0  # the latest that is complete


def train(
    agent: Agent,
    environments: Sequence[dm_env.Environment],
    judges: Sequence[Judge],
    seeds: Sequence[int],
    episodes: int,
    measure: Callable[[int], Mapping[str, Sequence[float]]],
    progress: Progress,
    visits: Visits | None = None,
) -> Iterator[list[dict[str, Any]]]:
    """Play the remaining episodes of all lanes, and yield the rows of each as it ends.

    `measure` returns further columns of the episode with the given number.
    """
    while progress.episode < episodes:
        lanes = play_episode(agent, environments, progress.episode / episodes, visits)
        progress.episode += 1
        progress.steps += lanes.lengths
        if visits is not None:
            visits.end(progress.episode, lanes.returns, lanes.lengths)
        metrics, measured = agent.metrics(), measure(progress.episode)
        yield [
            {"seed": seed, "episode": progress.episode, "return": lanes.returns[lane]}
            | {"length": int(lanes.lengths[lane]), "steps": int(progress.steps[lane])}
            | {name: column[lane] for name, column in metrics.items()}
            | judges[lane].episode(lanes.returns[lane])
            | {name: column[lane] for name, column in measured.items()}
            for lane, seed in enumerate(seeds)
        ]


def play_episode(
    agent: Agent,
    environments: Sequence[dm_env.Environment],
    progress: float,
    visits: Visits | None = None,
) -> Lanes:
    """An episode of every lane: draw an index, learn, and act on the index to the end of the episode."""
    lanes = Lanes(environments)
    lanes.reset()
    agent.begin_episode(lanes.observations, progress)  # draws the index
    agent.learn()
    while any(active := lanes.active):
        observations = lanes.observations
        actions = agent.act(observations, active)
        timesteps = lanes.step(actions)
        agent.observe(actions, timesteps, active)
        agent.learn_online(active)
        if visits is not None:
            visits.step(observations, actions, timesteps)
    return lanes


def evaluate_episode(agent: Agent, environments: Sequence[dm_env.Environment]) -> list[float]:
    """The return of an episode of every lane from which nothing is learned."""
    lanes = Lanes(environments)
    lanes.reset()
    agent.begin_evaluation()
    while any(lanes.active):
        lanes.step(agent.evaluate(lanes.observations, lanes.active))
    return lanes.returns
