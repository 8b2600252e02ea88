"""What tabular agents share, and the rivals of Wasserstein TD: RLSVI, PSRL, UCBVI and Q-learning.

Arrays are `[lanes, stages, states, actions]`, and `[..., next states]` for what followed; in memory lanes lie side by
side, which is fastest. There is no loop over lanes but for their random numbers, and none over states: planning is one
sweep backwards over the stages.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import dm_env
import numpy as np
import torch

from explore import hookimpl
from explore.interfaces import Agent, Schedule, Spec, Timesteps, as_schedule
from explore.streams import Streams

Place = tuple[np.ndarray, ...]
"""What picks an entry for each of some lanes: lanes, stages, states and, maybe, actions."""


def expected(weights: np.ndarray, later: np.ndarray) -> np.ndarray:
    """Sums over next states: `[lanes, states, actions, next states]` and `[lanes, next states]`.

    No matrix product: the last bits of that may depend on a lane's neighbours. In Fortran's order next states are
    added one after another, for all lanes at once.
    """
    return np.multiply(weights, later[:, None, None, :], order="F").sum(-1)


class Tabular(Agent):
    """Counts what followed each action, and plans before each episode the values that it then acts on greedily."""

    def __init__(self, spec: Spec, streams: Streams, device: torch.device):
        if spec.stages is None:
            raise ValueError(
                f"environment must have stages for {type(self).__name__}, "
                "such as @environment.RandomMDP or @environment.DeepSea"
            )
        self.streams = streams
        shape = (len(streams), *spec.stages.shape, spec.num_actions)
        self.counts = np.zeros((*shape, shape[2]), order="F")  # of what followed
        self.visits = np.zeros(shape, order="F")
        self.rewards = np.zeros(shape, order="F")  # their sums
        self.values = np.zeros(shape, order="F")
        self.greedy = np.zeros(shape[:-1], np.int64)
        self.best = np.zeros(shape[:-1], np.int64)  # for evaluation
        self._stage_of, self._state_of = _places(spec.stages, int(spec.observation.num_values))
        self._lanes = np.arange(len(streams))
        self._at: tuple[np.ndarray, np.ndarray] = (self._lanes, self._lanes)  # where the lanes are

    def execution(self) -> dict[str, str]:
        return {"NumPy": ""}

    @abstractmethod
    def plan(self, progress: float) -> np.ndarray:
        """The values to act on, `[lanes, stages, states, actions]`."""

    def update(self, here: Place, rewards: np.ndarray, following: np.ndarray) -> None:
        """For what is learned step by step: `here`, a place with actions, led to these rewards and next states."""

    def begin_episode(self, observations: np.ndarray, progress: float) -> None:
        self.values = self.plan(progress)
        self.greedy = _argmax(self.values, self.streams["ties"])

    def act(self, observations: np.ndarray, active: Sequence[bool]) -> Sequence[int]:
        self._at = self._stage_of[observations], self._state_of[observations]
        return self.greedy[self._lanes, *self._at].tolist()

    def observe(self, actions: Sequence[int], timesteps: Sequence[dm_env.TimeStep], active: Sequence[bool]) -> None:
        lanes = np.flatnonzero(active)
        here = (lanes, *(place[lanes] for place in self._at), np.array(actions)[lanes])
        arrays = Timesteps.gather(timesteps, active)
        rewards, following = arrays.rewards[lanes], self._state_of[arrays.observations[lanes]]
        self.counts[*here, following] += 1
        self.visits[here] += 1
        self.rewards[here] += rewards
        self.update(here, rewards, following)

    def best_guess(self) -> np.ndarray:
        """The values that evaluation acts on: those of acting, but for what is drawn to explore."""
        return self.values

    def begin_evaluation(self) -> None:
        self.best = self.best_guess().argmax(-1)

    def evaluate(self, observations: np.ndarray, active: Sequence[bool]) -> Sequence[int]:
        return self.best[self._lanes, self._stage_of[observations], self._state_of[observations]].tolist()

    def policy(self, observations: np.ndarray) -> np.ndarray:
        chosen = self.greedy[:, self._stage_of[observations], self._state_of[observations]]
        return np.eye(self.visits.shape[-1])[chosen]

    def beliefs(self, observations: np.ndarray) -> dict[str, np.ndarray]:
        return {"mean": self.values[self._everywhere(observations)]}

    def cost(self) -> dict[str, int]:
        return {"parameters": self.visits[0].size}

    def _induce_backward(self, values_at: Callable[[int, np.ndarray], np.ndarray]) -> np.ndarray:
        """Values by backward induction; `values_at` gives those of a stage, told what its next states are worth."""
        values = np.empty(self.visits.shape, order="F")
        later = np.zeros(self.visits[:, 0, :, 0].shape)
        for stage in reversed(range(self.visits.shape[1])):
            values[:, stage] = values_at(stage, later)
            later = values[:, stage].max(-1)
        return values

    def _everywhere(self, observations: np.ndarray) -> Place:
        """What picks the values of observations `[lanes, batch]`."""
        return self._lanes[:, None], self._stage_of[observations], self._state_of[observations]

    def _normal(self, *shape: int) -> np.ndarray:
        """Standard normal numbers `[lanes, *shape]` for an index."""
        return np.asfortranarray([generator.standard_normal(shape) for generator in self.streams["index"]])


class TabularGaussian(Tabular):
    """Values that are normally distributed, with a normal prior that weighs as much as `beta` outcomes.

    Args:
      sigma: the noise of a value; None: sqrt(3) times the horizon, as in the paper's Theorem 1.
      prior_mean: the prior's mean; None: the horizon, as in the theorem.
      beta: the prior's weight, sigma^2 / prior_sigma^2; None: what follows from these, or 3.
      prior_sigma: the prior's standard deviation; None: what follows from sigma and beta.
      shared_index: one random number for all states and actions of an episode, as in PINs, instead of one for each.
    """

    def __init__(
        self,
        spec: Spec,
        streams: Streams,
        device: torch.device,
        sigma: float | None = None,
        prior_mean: float | None = None,
        beta: float | None = None,
        prior_sigma: float | None = None,
        shared_index: bool = False,
    ):
        super().__init__(spec, streams, device)
        horizon = self.visits.shape[1]
        for name, number in {"sigma": sigma, "beta": beta, "prior_sigma": prior_sigma}.items():
            if number is not None and not 0 < number < np.inf:
                raise ValueError(f"{name} must be None or above 0 and finite, got {number!r}")
        if prior_mean is not None and not np.isfinite(prior_mean):
            raise ValueError(f"prior_mean must be None or finite, got {prior_mean!r}")
        self.sigma = np.sqrt(3) * horizon if sigma is None else sigma
        self.prior_mean = horizon if prior_mean is None else prior_mean
        self.beta = beta or (self.sigma**2 / prior_sigma**2 if prior_sigma else 3.0)
        self.prior_sigma = prior_sigma or self.sigma / np.sqrt(self.beta)
        self.shared_index = shared_index
        self.mean = np.full(self.visits.shape, self.prior_mean, float, order="F")
        self.std = np.full(self.visits.shape, self.prior_sigma, float, order="F")

    @abstractmethod
    def stds(self, visits: np.ndarray) -> np.ndarray:
        """Standard deviations after so many visits."""

    def fit(self, stage: int, later: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations of a stage, `[lanes, states, actions]`."""
        visits = self.visits[:, stage]
        targets = self.rewards[:, stage] + expected(self.counts[:, stage], later)  # their sums
        return (targets + self.beta * self.prior_mean) / (visits + self.beta), self.stds(visits)

    def plan(self, progress: float) -> np.ndarray:
        shape = (1, 1, 1) if self.shared_index else self.visits.shape[1:]
        index = np.broadcast_to(self._normal(*shape), self.visits.shape)

        def drawn(stage: int, later: np.ndarray) -> np.ndarray:
            self.mean[:, stage], self.std[:, stage] = self.fit(stage, later)
            return self.mean[:, stage] + self.std[:, stage] * index[:, stage]

        return self._induce_backward(drawn)

    def best_guess(self) -> np.ndarray:
        return self.mean

    def beliefs(self, observations: np.ndarray) -> dict[str, np.ndarray]:
        there = self._everywhere(observations)
        return {"mean": self.mean[there], "uncertainty": self.std[there]}

    def cost(self) -> dict[str, int]:
        return {"parameters": 2 * self.visits[0].size}


class TabularRLSVI(TabularGaussian):
    """Randomized least-squares value iteration (Osband et al., https://arxiv.org/abs/1703.07608), tabular.

    Values are drawn from their posterior given noise of `sigma`, backwards from the last stage. It
    differs from `agent.TabularWTD` in the standard deviation: sigma / sqrt(n + beta) after n visits.
    """

    def __init__(
        self,
        spec: Spec,
        streams: Streams,
        device: torch.device,
        sigma: float | None = None,
        prior_mean: float | None = None,
        beta: float | None = None,
        prior_sigma: float | None = None,
        shared_index: bool = False,
    ):
        super().__init__(spec, streams, device, sigma, prior_mean, beta, prior_sigma, shared_index)
        follows = self.sigma**2 / self.prior_sigma**2
        if not np.isclose(self.beta, follows):
            raise ValueError(f"beta must be sigma^2 / prior_sigma^2, which is {follows:g}, or None, got {beta!r}")

    def stds(self, visits: np.ndarray) -> np.ndarray:
        return self.sigma / np.sqrt(visits + self.beta)


class TabularPSRL(Tabular):
    """Posterior sampling: acts on the best policy of a model drawn from its posterior for each episode.

    The prior is that of `environment.RandomMDP`: outcomes, a reward of 0 or 1 and a next state, have
    Dirichlet probabilities. A reward between the bounds of the environment's counts as a share of 1.

    Args:
      mass: the sum of the Dirichlet's parameters.
    """

    def __init__(self, spec: Spec, streams: Streams, device: torch.device, mass: float = 3.0):
        super().__init__(spec, streams, device)
        if not 0.1 <= mass <= 1e9:  # with less, all of a Dirichlet's numbers may be 0
            raise ValueError(f"mass must be from 0.1 to 1e9, got {mass!r}")
        self.low, self.high = reward_bounds(spec, type(self).__name__)
        self.mass = mass
        self.ones = np.zeros(self.counts.shape, order="F")  # those of the `counts` with a reward of 1

    def update(self, here: Place, rewards: np.ndarray, following: np.ndarray) -> None:
        self.ones[*here, following] += np.clip((rewards - self.low) / (self.high - self.low), 0, 1)

    def plan(self, progress: float) -> np.ndarray:
        return self._best_values(*self._draw_model())

    def best_guess(self) -> np.ndarray:
        return self._best_values(*self._model(self._posterior()))

    def beliefs(self, observations: np.ndarray) -> dict[str, np.ndarray]:
        return {"mean": self.best_guess()[self._everywhere(observations)]}

    def _draw_model(self) -> tuple[np.ndarray, np.ndarray]:
        """A model from the posterior."""
        outcomes = self._posterior()
        return self._model(np.stack([g.standard_gamma(lane) for g, lane in zip(self.streams["index"], outcomes)]))

    def _posterior(self) -> np.ndarray:
        """The Dirichlet's parameters, `[..., reward 0 or 1, next states]`."""
        prior = self.mass / (2 * self.counts.shape[-1])
        return np.stack([self.counts - self.ones, self.ones], -2) + prior

    def _model(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities of next states and expected rewards, where outcomes are as likely as these weigh."""
        outcomes = weights / weights.sum((-2, -1), keepdims=True)
        return outcomes.sum(-2), self.low + (self.high - self.low) * outcomes[..., 1, :].sum(-1)

    def _best_values(self, transitions: np.ndarray, rewards: np.ndarray) -> np.ndarray:
        return self._induce_backward(lambda stage, later: rewards[:, stage] + expected(transitions[:, stage], later))


class UCBVI(Tabular):
    """Upper confidence bounds by value iteration (Azar et al., https://arxiv.org/abs/1703.05449).

    Values of the empirical model with a bonus of Hoeffding's kind for what has been seen n times:
    scale * (stages left) * sqrt(log(5 states actions horizon episodes / delta) / n), and never more
    than the best return that is possible. (Azar's values never grow either; these may, with the bonus.)

    Args:
      scale: of the bonus; the proof wants 7 times the root of the logarithm, which never ends exploring here.
      delta: how likely a bound may fail.
    """

    def __init__(self, spec: Spec, streams: Streams, device: torch.device, scale: float = 1.0, delta: float = 0.1):
        super().__init__(spec, streams, device)
        if not 0 <= scale < np.inf:
            raise ValueError(f"scale must be at least 0 and finite, got {scale!r}")
        if not 0 < delta < 1:
            raise ValueError(f"delta must be between 0 and 1, got {delta!r}")
        self.low, self.high = reward_bounds(spec, type(self).__name__)
        self.scale, self.delta = scale, delta
        self.episode = 0

    def plan(self, progress: float) -> np.ndarray:
        self.episode += 1
        _, stages, states, actions = self.visits.shape
        seen = np.maximum(self.visits, 1)
        reach = np.sqrt(np.log(5 * states * actions * stages * self.episode / self.delta) / seen)
        bonus = self.scale * (self.high - self.low) * reach  # for each stage that is left

        def optimistic(stage: int, later: np.ndarray) -> np.ndarray:
            left = stages - stage
            total = self.rewards[:, stage] + expected(self.counts[:, stage], later)
            values = np.minimum(total / seen[:, stage] + left * bonus[:, stage], left * self.high)
            return np.where(self.visits[:, stage] > 0, values, left * self.high)

        return self._induce_backward(optimistic)


class TabularQLearning(Tabular):
    """Q-learning that dithers: the baseline that does not explore deeply.

    Args:
      epsilon: probability of a random action: a number or a schedule.
      initial: the values at first.
      learning_rate: None: (horizon + 1) / (horizon + n) at the n-th visit (Jin et al.,
        https://arxiv.org/abs/1807.03765).
    """

    def __init__(
        self,
        spec: Spec,
        streams: Streams,
        device: torch.device,
        epsilon: float | type[Schedule] = 0.1,
        initial: float = 0.0,
        learning_rate: float | None = None,
    ):
        super().__init__(spec, streams, device)
        if learning_rate is not None and not 0 < learning_rate <= 1:
            raise ValueError(f"learning_rate must be None or from 0 to 1, got {learning_rate!r}")
        if not np.isfinite(initial):
            raise ValueError(f"initial must be finite, got {initial!r}")
        self.schedule = as_schedule(epsilon, "epsilon", 0, 1)
        self.epsilon = 0.0
        self.learning_rate = learning_rate
        self.values[:] = initial

    def plan(self, progress: float) -> np.ndarray:
        self.epsilon = self.schedule(progress)
        return self.values

    def act(self, observations: np.ndarray, active: Sequence[bool]) -> Sequence[int]:
        actions = [*super().act(observations, active)]
        for lane, generator in enumerate(self.streams["acting"]):
            if active[lane] and generator.random() < self.epsilon:
                actions[lane] = int(generator.integers(self.visits.shape[-1]))
        return actions

    def update(self, here: Place, rewards: np.ndarray, following: np.ndarray) -> None:
        lanes, stage, *_ = here
        horizon = self.visits.shape[1]
        after = np.minimum(stage + 1, horizon - 1)
        ahead = np.where(stage + 1 < horizon, self.values[lanes, after, following].max(-1), 0)
        rate = self.learning_rate or (horizon + 1) / (horizon + self.visits[here])
        self.values[here] += rate * (rewards + ahead - self.values[here])

    def policy(self, observations: np.ndarray) -> np.ndarray:
        return (1 - self.epsilon) * super().policy(observations) + self.epsilon / self.visits.shape[-1]


def _argmax(values: np.ndarray, generators: Sequence[np.random.Generator]) -> np.ndarray:
    """Over the last axis; a lane in which there are ties breaks them by its own stream."""
    best = values == values.max(-1, keepdims=True)
    tied = (best.sum(-1) > 1).any((1, 2))
    keys = best.astype(float)
    for lane in np.flatnonzero(tied).tolist():
        keys[lane] += generators[lane].random(best.shape[1:])
    return keys.argmax(-1)


def _places(stages: np.ndarray, observations: int) -> tuple[np.ndarray, np.ndarray]:
    """The stage and the state of each observation."""
    stage_of, state_of = np.zeros((2, observations), np.int64)
    there = np.argwhere(stages >= 0)
    stage_of[stages[stages >= 0]], state_of[stages[stages >= 0]] = there.T
    return stage_of, state_of


def reward_bounds(spec: Spec, name: str) -> tuple[float, float]:
    """Between which rewards lie, for the agent of that name."""
    low, high = (getattr(spec.reward, end, np.nan) for end in ("minimum", "maximum"))
    if not -np.inf < low < high < np.inf:
        raise ValueError(f"environment must say in its reward_spec() between which bounds rewards lie, for {name}")
    return float(low), float(high)


@hookimpl
def explore_agents() -> list[type]:
    return [TabularRLSVI, TabularPSRL, UCBVI, TabularQLearning]
