"""Agents built from the built-in components as gin would build them, and a toy environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import dm_env
import numpy as np
import torch
from dm_env import specs
from explore_ensemble import Ensemble
from explore_indexed_agent import Indexed
from explore_mean_net import MLP
from explore_objectives import SampledTD, WassersteinTD
from explore_priors import Additive
from explore_selections import MeanArgmax, SampledArgmax
from explore_softplus_heads import SoftplusHeads

from explore.interfaces import Judge, Spec
from explore.loop import Progress, train
from explore.streams import Streams

FLOATS = Spec(specs.Array((2, 2), np.float32), 3)
CELLS = Spec(specs.DiscreteArray(9), 3)

PINS: dict[str, Any] = {
    "value": partial(MLP, hidden=(8, 6)),
    "uncertainty": partial(SoftplusHeads, heads=3, hidden=(7,)),
    "prior": partial(Additive, scale=2.0, uncertainty_scale=3.0),
    "objective": WassersteinTD,
    "acting": SampledArgmax,
    "target": MeanArgmax,
    "batch_size": 8,
    "batches_per_episode": 2,
    "min_replay": 12,
}
BSP: dict[str, Any] = PINS | {
    "uncertainty": partial(Ensemble, size=3),
    "objective": SampledTD,
    "target": SampledArgmax,
}


class Walk(dm_env.Environment):
    """Random observations and rewards; episodes last 2 to 7 steps, every third is cut, the others terminal."""

    def __init__(self, seed: int, spec: Spec = FLOATS):
        self.spec, self.random, self.episodes = spec, np.random.RandomState(seed), 0

    def reset(self) -> dm_env.TimeStep:
        self.episodes += 1
        self.left = self.random.randint(2, 8)
        return dm_env.restart(self._observation())

    def step(self, action: int) -> dm_env.TimeStep:
        self.left -= 1
        reward = self.random.normal() + action
        if self.left:
            return dm_env.transition(reward, self._observation())
        end = dm_env.truncation if self.episodes % 3 == 0 else dm_env.termination
        return end(reward, self._observation())

    def _observation(self) -> np.ndarray | np.int32:
        if isinstance(self.spec.observation, specs.DiscreteArray):
            return np.int32(self.random.randint(self.spec.observation.num_values))
        return self.random.normal(size=self.spec.observation.shape).astype(np.float32)

    def observation_spec(self) -> specs.Array:
        return self.spec.observation

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(self.spec.num_actions)


def spec_of(environment: dm_env.Environment) -> Spec:
    return Spec(environment.observation_spec(), environment.action_spec().num_values)


def build(seeds: Sequence[int] = (0, 1), spec: Spec = FLOATS, **parts: Any) -> Indexed:
    """An agent, that of PINs if no parts are given."""
    return Indexed(spec, Streams(seeds), torch.device("cpu"), **(PINS | parts))


def live(
    agent: Indexed,
    episodes: int,
    environment: Callable[..., dm_env.Environment] = Walk,
    measure: Callable[[int], Any] = lambda episode: {},
) -> dict[int, list[dict[str, Any]]]:
    """Trains the agent; returns the rows of each seed."""
    seeds = agent.streams.seeds
    environments = [environment(seed=seed) for seed in seeds]
    rows: list[dict[str, Any]] = []
    judges, progress = [Judge(e) for e in environments], Progress(np.zeros(len(seeds), int))
    for new in train(agent, environments, judges, seeds, episodes, measure, progress):
        rows.extend(new)
    return {seed: [row for row in rows if row["seed"] == seed] for seed in seeds}


def weights(agent: Indexed) -> dict[int, list[torch.Tensor]]:
    """All networks of each seed: a tensor `[copies, numbers]` per part."""
    seeds = agent.streams.seeds
    stacks = [stack.buffer.unflatten(1, (len(seeds), -1)).flatten(2).clone() for stack in agent.function.stacks]
    return {seed: [stack[:, lane] for stack in stacks] for lane, seed in enumerate(seeds)}
