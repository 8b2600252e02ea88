"""The paper's live_IS, for all seeds in lockstep; a lane whose episode has ended waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import dm_env
import numpy as np

from explore._running.visits import Sightings
from explore.interfaces import Agent, Judge


@dataclass
class Progress:
    """How far a run has come."""

    steps: np.ndarray  # of each lane
    episode: int = 0  # the last that is over


def train(
    agent: Agent,
    environments: Sequence[dm_env.Environment],
    judges: Sequence[Judge],
    seeds: Sequence[int],
    episodes: int,
    measure: Callable[[int], Mapping[str, Sequence[float]]],
    progress: Progress,
    sightings: Sightings | None = None,
) -> Iterator[list[dict[str, Any]]]:
    """Plays the episodes of all lanes that are still to come, and yields their rows as they end.

    `measure` gives further columns of the episode that it is told the number of.
    """
    while progress.episode < episodes:
        begin = partial(agent.begin_episode, progress=progress.episode / episodes)
        returns, lengths = play(environments, agent.act, begin, agent.observe, sightings)
        progress.episode += 1
        progress.steps += lengths
        if sightings is not None:
            sightings.end(progress.episode, returns, lengths)
        metrics = agent.metrics()
        rows = [
            {"seed": seed, "episode": progress.episode, "return": returns[lane], "length": int(lengths[lane])}
            | {"steps": int(progress.steps[lane])}
            | {name: column[lane] for name, column in metrics.items()}
            | judges[lane].episode(returns[lane])
            for lane, seed in enumerate(seeds)
        ]
        for name, column in measure(progress.episode).items():
            for row, number in zip(rows, column):
                row[name] = number
        yield rows


def play(
    environments: Sequence[dm_env.Environment],
    act: Callable[[np.ndarray, Sequence[bool]], Sequence[int]],
    begin: Callable[[np.ndarray], None],
    observe: Callable[[Sequence[int], Sequence[dm_env.TimeStep], Sequence[bool]], None] | None = None,
    sightings: Sightings | None = None,
) -> tuple[list[float], np.ndarray]:
    """One episode of every lane: its return and its length."""
    timesteps = [environment.reset() for environment in environments]
    one_hot = isinstance(environments[0].observation_spec(), dm_env.specs.DiscreteArray)
    observations = np.array([timestep.observation for timestep in timesteps], np.int64 if one_hot else np.float32)
    returns = [0.0] * len(environments)
    lengths = np.zeros(len(environments), int)
    active = [True] * len(environments)
    begin(observations)
    while any(active):
        actions = act(observations, active)
        before, observations = observations, observations.copy()  # an agent may have kept the last ones
        for lane, environment in enumerate(environments):
            if active[lane]:
                timestep = timesteps[lane] = environment.step(actions[lane])
                observations[lane] = timestep.observation
                returns[lane] += float(timestep.reward)
        if observe is not None:
            observe(actions, timesteps, active)
        if sightings is not None:
            sightings.step(before, actions, timesteps, active)
        lengths += active
        active = [on and not timestep.last() for on, timestep in zip(active, timesteps)]
    return returns, lengths
