"""Small tasks and agents for tests: observations of either kind, episodes of different lengths, tiny networks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import dm_env
import numpy as np
import torch
from dm_env import specs

from explore._config.discovery import Component, discover
from explore.interfaces import Agent, Spec, Streams

ACTIONS = 3
FLOATS = Spec(specs.Array((2, 2), np.float32), ACTIONS)
CELLS = Spec(specs.DiscreteArray(9), ACTIONS)


class Walk(dm_env.Environment):
    """Random observations and rewards; episodes last 2 to 7 steps, every third is cut, the others terminal."""

    def __init__(self, seed: int, spec: Spec = FLOATS):
        self.spec, self.random, self.episodes = spec, np.random.RandomState(seed % 2**32), 0

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


class Dice(Agent):
    """Actions at random."""

    def __init__(self, spec: Spec, streams: Streams, device: torch.device):
        self.num_actions, self.streams = spec.num_actions, streams

    def begin_episode(self, observations: np.ndarray, progress: float) -> None:
        pass

    def act(self, observations: np.ndarray, active: Sequence[bool]) -> Sequence[int]:
        return self._draw_actions("acting", active)

    def observe(self, actions: Sequence[int], timesteps: Sequence[dm_env.TimeStep], active: Sequence[bool]) -> None:
        pass

    def evaluate(self, observations: np.ndarray, active: Sequence[bool]) -> Sequence[int]:
        return self._draw_actions("evaluation", active)

    def policy(self, observations: np.ndarray) -> np.ndarray:
        return np.full((len(self.streams), len(observations), self.num_actions), 1 / self.num_actions)

    def _draw_actions(self, use: str, active: Sequence[bool]) -> list[int]:
        return [int(g.integers(self.num_actions)) if on else 0 for g, on in zip(self.streams[use], active)]


def part(selector: str) -> Any:
    """A built-in component by its name in gin, `value.MLP`."""
    return components()[selector].cls


@cache
def components() -> dict[str, Component]:
    """The built-in components."""
    return {name: one for name, one in discover().components.items() if one.source == "built in"}


def pins() -> dict[str, Any]:
    """The parameters of a tiny agent: PINs."""
    return {
        "value": partial(part("value.MLP"), hidden=(8, 6)),
        "uncertainty": partial(part("uncertainty.SoftplusHeads"), heads=3, hidden=(7,)),
        "prior": partial(part("prior.Additive"), scale=2.0, uncertainty_scale=3.0),
        "objective": part("objective.WassersteinTD"),
        "acting": part("selection.SampledArgmax"),
        "target": part("selection.MeanArgmax"),
        "batch_size": 8,
        "batches_per_episode": 2,
        "min_replay": 12,
    }


def bsp() -> dict[str, Any]:
    """The same for an ensemble with priors."""
    return pins() | {
        "uncertainty": partial(part("uncertainty.Ensemble"), size=3),
        "objective": part("objective.SampledTD"),
        "target": part("selection.SampledArgmax"),
    }


def indexed(**parts: Any) -> Any:
    """`agent.Indexed` with these parts, for an experiment to build."""
    return partial(part("agent.Indexed"), **parts)
