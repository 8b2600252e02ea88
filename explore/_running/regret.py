"""Exact regret: how much less an episode's policy is worth than the best one, on the true model.

Values are those of dynamic programming, all lanes at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from explore.interfaces import Agent, Model


class Regret:
    """That of an agent's policies in environments with these models, one per lane."""

    def __init__(self, models: Sequence[Model]):
        _check(models)
        self.observations = models[0].observations
        # In memory lanes lie side by side, which is fastest.
        self.transitions = np.asfortranarray([model.transitions for model in models])
        self.rewards = np.asfortranarray([model.rewards for model in models])
        self.start = np.stack([model.start for model in models])
        self.best = self._worth(best_values(self.transitions, self.rewards))

    def of(self, agent: Agent) -> list[float]:
        """The regret of each lane in the episode at hand: never below 0, but for rounding."""
        there = self.observations >= 0
        policy = np.zeros(self.rewards.shape, order="F")
        policy[:, there] = agent.policy(self.observations[there])
        return (self.best - self._worth(policy_values(self.transitions, self.rewards, policy))).tolist()

    def _worth(self, values: np.ndarray) -> np.ndarray:
        return (self.start * values[:, 0]).sum(-1)


def best_values(transitions: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    """V* `[lanes, stages, states]` of models `[lanes, stages, states, actions(, states)]`."""
    return _values(transitions, rewards, lambda stage, values: values.max(-1))


def policy_values(transitions: np.ndarray, rewards: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """V^pi, given the probabilities of actions `[lanes, stages, states, actions]`."""
    return _values(transitions, rewards, lambda stage, values: np.multiply(policy[:, stage], values, order="F").sum(-1))


def _values(
    transitions: np.ndarray, rewards: np.ndarray, choose: Callable[[int, np.ndarray], np.ndarray]
) -> np.ndarray:
    """Values by a sweep backwards; `choose` makes those of the states of a stage from those of their actions."""
    values = np.zeros(rewards.shape[:-1], order="F")
    later = np.zeros(rewards.shape[:1] + rewards.shape[2:3])
    for stage in reversed(range(rewards.shape[1])):
        # No matrix product: the last bits of that may depend on a lane's neighbours.
        following = np.multiply(transitions[:, stage], later[:, None, None, :], order="F").sum(-1)
        later = values[:, stage] = choose(stage, rewards[:, stage] + following)
    return values


def _check(models: Sequence[Model]) -> None:
    """Raises `ValueError` unless they are models of one shape."""
    for model in models:
        if not isinstance(model, Model):
            raise ValueError(f"true_model() must give a Model, got {model!r}")
        first = models[0]
        same = model.rewards.shape == first.rewards.shape and np.array_equal(model.observations, first.observations)
        if not same:
            raise ValueError("true_model() must have the same observations and actions for every seed")
