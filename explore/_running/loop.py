"""The paper's Algorithm 2 (live_IS), for all seeds in lockstep: each is a lane of one program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dm_env
import numpy as np

from explore._running.visits import Visits
from explore.interfaces import Agent, Judge


@dataclass
class Progress:
    """How far a run has come."""

    steps: np.ndarray  # of each lane
    episode: int = 0  # the latest that is complete


class Lanes:
    """Environments that are stepped together; a lane whose episode has ended waits for the others."""

    def __init__(self, environments: Sequence[dm_env.Environment]):
        self.environments = environments
        one_hot = isinstance(environments[0].observation_spec(), dm_env.specs.DiscreteArray)
        self._dtype = np.int64 if one_hot else np.float32

    def reset(self) -> None:
        self._timesteps = [environment.reset() for environment in self.environments]
        self.observations = np.array([timestep.observation for timestep in self._timesteps], self._dtype)
        self.active = [True] * len(self.environments)
        self.returns = [0.0] * len(self.environments)
        self.lengths = np.zeros(len(self.environments), int)

    def step(self, actions: Sequence[int]) -> list[dm_env.TimeStep]:
        """Take an action in every active lane; return the latest timestep of each lane."""
        self.observations = self.observations.copy()  # an agent may have kept the last ones
        self.lengths += self.active
        timesteps = self._timesteps
        for lane, active in enumerate(self.active):
            if active:
                timestep = timesteps[lane] = self.environments[lane].step(actions[lane])
                self.observations[lane] = timestep.observation
                self.returns[lane] += float(timestep.reward)
        self.active = [active and not timestep.last() for active, timestep in zip(self.active, timesteps)]
        return timesteps


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
            visits.step(observations, actions, timesteps, active)
    return lanes


def evaluate_episode(agent: Agent, environments: Sequence[dm_env.Environment]) -> list[float]:
    """The return of an episode of every lane from which nothing is learned."""
    lanes = Lanes(environments)
    lanes.reset()
    agent.begin_evaluation()
    while any(lanes.active):
        lanes.step(agent.evaluate(lanes.observations, lanes.active))
    return lanes.returns
