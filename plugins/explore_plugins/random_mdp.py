"""MDPs drawn from the prior that the paper's regret bound is about (its two assumptions)."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from explore import hookimpl
from explore.interfaces import Judge, Model, Timesteps
from explore.streams import integer_seed
from explore.tasks import TaskDescription


class RandomMDPJudge(Judge):
    """Adds the size of the MDP to the summary; it defines no criterion for solved."""

    environment: RandomMDP

    def summary(self) -> dict[str, Any]:
        stages, states, actions, _ = self.environment.outcomes.shape
        sizes = {"states": states, "actions": actions, "horizon": stages, "mass": self.environment.mass}
        return super().summary() | sizes


class RandomMDP(dm_env.Environment):
    """A finite-horizon MDP whose transitions and rewards differ from step to step, drawn from the seed.

    After h steps in state x an action leads to an outcome, a reward of 0 or 1 and the next state. The
    probabilities of the outcomes are drawn for each (h, x, action) from a Dirichlet distribution with
    equal parameters. Episodes start in state 0. The observation is the number h * states + x; h stays that
    of the last step when the episode ends.

    Args:
        states: how many states there are after each number of steps.
        actions: how many actions.
        horizon: steps of an episode.
        mass: the sum of the Dirichlet's parameters, beta in the paper, which asks for at least 3.
    """

    judge = RandomMDPJudge

    def __init__(self, seed: int, states: int = 10, actions: int = 3, horizon: int = 10, mass: float = 3.0):
        for name, number in {"states": states, "actions": actions, "horizon": horizon}.items():
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number!r}")
        if not 0.1 <= mass <= 1e9:  # with less, all of a Dirichlet's numbers may be 0
            raise ValueError(f"mass must be from 0.1 to 1e9, got {mass!r}")
        self.mass = mass
        prior = np.full(2 * states, mass / (2 * states))
        draws = np.random.RandomState(integer_seed(seed, "model"))
        self.outcomes = draws.dirichlet(prior, (horizon, states, actions))  # reward 0, then 1, with each next state
        up_to = self.outcomes.cumsum(-1)
        up_to[..., -1] = 1.0  # whatever rounding made of it
        self._up_to = up_to
        self._numbers = np.arange(horizon * states, dtype=np.int32).reshape(horizon, states)
        self._rng = np.random.RandomState(integer_seed(seed, "outcomes"))
        self._stage, self._state = horizon, 0  # as after an episode: the first step is a reset
        self._chances: list[float] = []  # which outcomes the episode's steps will have

    def reset(self) -> dm_env.TimeStep:
        self._stage = self._state = 0
        self._chances = self._rng.random_sample(len(self._numbers)).tolist()
        return dm_env.restart(self._numbers[0, 0])

    def step(self, action: int) -> dm_env.TimeStep:
        stages = len(self._numbers)
        if self._stage == stages:
            return self.reset()
        reward = self._take(action)
        if self._stage == stages:
            return dm_env.termination(reward, self._numbers[-1, self._state])
        return dm_env.transition(reward, self._numbers[self._stage, self._state])

    @staticmethod
    def step_lanes(
        environments: Sequence[RandomMDP], actions: Sequence[int], lanes: Sequence[int], timesteps: Timesteps
    ) -> None:
        stages, states = environments[0]._numbers.shape
        going = [environments[lane] for lane in lanes]
        at = np.array([(one._stage, one._state, one._chances[one._stage]) for one in going])
        stage, state = at[:, :2].astype(int).T
        up_to = _stack(tuple(environments))[lanes, stage, state, np.array(actions)[lanes]]
        reward, state = np.divmod((up_to <= at[:, 2:]).sum(1), states)
        timesteps.rewards[lanes] = reward
        timesteps.observations[lanes] = np.minimum(stage + 1, stages - 1) * states + state
        for lane, environment, now, there in zip(lanes, going, (stage + 1).tolist(), state.tolist()):
            environment._stage, environment._state = now, there
            if now == stages:
                timesteps.end(lane)

    def _take(self, action: int) -> float:
        """Goes on to the next state; returns the reward."""
        stage = self._stage
        outcome = bisect(self._up_to[stage, self._state, action], self._chances[stage])
        states = self.outcomes.shape[3] // 2
        self._stage, self._state = stage + 1, outcome % states
        return 1.0 if outcome >= states else 0.0

    def true_model(self) -> Model:
        stages, states, actions, _ = self.outcomes.shape
        by_reward = self.outcomes.reshape(stages, states, actions, 2, states)
        return Model(self._numbers, by_reward.sum(-2), by_reward[..., 1, :].sum(-1), np.eye(states)[0])

    def belief_map(self) -> np.ndarray:
        """The numbers of observations, `[stages, states]`; -1 where no episode ever is, before its first step."""
        reached = self._numbers.copy()
        reached[0, 1:] = -1
        return reached

    def describe_task(self) -> TaskDescription:
        return TaskDescription(map_note="RandomMDP: rows are steps, columns states; the start is at the top left.")

    def observation_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(self._numbers.size, name="state")

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(self.outcomes.shape[2], name="action")

    def reward_spec(self) -> specs.BoundedArray:
        return specs.BoundedArray((), float, 0.0, 1.0, name="reward")


@lru_cache(maxsize=1)
def _stack(environments: tuple[RandomMDP, ...]) -> np.ndarray:
    """The sums of probabilities up to each outcome, `[lanes, stages, states, actions, outcomes]`."""
    return np.stack([environment._up_to for environment in environments])


@hookimpl
def explore_environments() -> list[type]:
    return [RandomMDP]
