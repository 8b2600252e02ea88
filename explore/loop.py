"""The paper's live_IS, for all seeds in lockstep; a lane whose episode has ended waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import dm_env
import numpy as np

from explore.interfaces import Agent, Judge


def train(
    agent: Agent,
    environments: Sequence[dm_env.Environment],
    judges: Sequence[Judge],
    seeds: Sequence[int],
    episodes: int,
    record: Callable[[list[dict[str, Any]]], None],
    evaluate: Callable[[int], Sequence[float] | None],
    stop_when_solved: bool = False,
) -> None:
    """Episodes of all lanes, their rows given to `record` as they end."""
    steps = np.zeros(len(seeds), int)
    for episode in range(1, episodes + 1):
        begin = partial(agent.begin_episode, progress=(episode - 1) / episodes)
        returns, lengths = play(environments, agent.act, begin, agent.observe)
        steps += lengths
        metrics = agent.metrics()
        rows = [
            {"seed": seed, "episode": episode, "return": returns[lane], "length": int(lengths[lane])}
            | {"steps": int(steps[lane])}
            | {name: column[lane] for name, column in metrics.items()}
            | judges[lane].episode(returns[lane])
            for lane, seed in enumerate(seeds)
        ]
        for row, evaluation in zip(rows, evaluate(episode) or ()):
            row["evaluation"] = evaluation
        record(rows)
        if stop_when_solved and all(judge.solved_at is not None for judge in judges):
            return


def play(
    environments: Sequence[dm_env.Environment],
    act: Callable[[np.ndarray, Sequence[bool]], Sequence[int]],
    begin: Callable[[np.ndarray], None],
    observe: Callable[[Sequence[int], Sequence[dm_env.TimeStep], Sequence[bool]], None] | None = None,
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
        observations = observations.copy()  # an agent may have kept the last ones
        for lane, environment in enumerate(environments):
            if active[lane]:
                timestep = timesteps[lane] = environment.step(actions[lane])
                observations[lane] = timestep.observation
                returns[lane] += float(timestep.reward)
        if observe is not None:
            observe(actions, timesteps, active)
        lengths += active
        active = [on and not timestep.last() for on, timestep in zip(active, timesteps)]
    return returns, lengths
