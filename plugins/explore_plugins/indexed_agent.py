"""The agent composed from slots: an indexed value function, acted on and learned as in live_IS."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import dm_env
import numpy as np
import torch
from torch import Tensor

from explore import hookimpl
from explore.agents import ActionSelector, Batch, IndexedValue, Learner, Replay, capture, check_learner, restore
from explore.errors import RunFailed
from explore.interfaces import (
    Agent,
    Beliefs,
    Bonus,
    Index,
    Objective,
    Prior,
    Selection,
    Spec,
    UncertaintyModule,
    ValueNetwork,
)
from explore.streams import Generators, Streams
from explore_plugins.selections import MeanArgmax

CPU = torch.device("cpu")


class Indexed(Agent):
    """Acts on an indexed value function and learns it from replay (paper, Algorithm 2 and supplement A).

    For each episode it draws an index, learns from the replay buffer, and acts to the end of the
    episode with the index held.

    Args:
      value: the value network, @value.MLP.
      uncertainty: what makes values depend on an index, or a list of such modules, which add up.
      prior: how networks are joined with frozen random twins.
      objective: how targets are formed and matched.
      acting: selection of the actions taken.
      target: selection of the next action in learning targets.
      evaluation: selection in evaluation episodes; None: @selection.MeanArgmax.
      bonus: how new states and actions are, 1/n̂(s, a), such as @bonus.CoinFlips; None: that of the uncertainty
        module, if it holds one.
      bonus_scale: how much √(1/n̂) is added to rewards when they are learned from.
      discount: γ.
      double_q: the target's selection sees the values of the trained networks, not of the target networks.
      learning_rate: of Adam, for all networks.
      adam_epsilon: ε of Adam.
      gradient_clip: the longest that a seed's gradient, of all its networks together, may be; None: any.
      batch_size: transitions in a minibatch.
      batches_per_episode: minibatches learned from before each episode.
      learn_every: learn from one minibatch every so many steps instead; None: before each episode.
      target_period: the target networks are copied after every so many learning phases, that is
        episodes, or minibatches with learn_every.
      replay_capacity: transitions kept for each seed.
      replay_weight: the share of each minibatch drawn in proportion to 1/n̂, weighed anew before each episode, the rest
        being drawn uniformly.
      min_replay: steps stored before learning starts.
      mask_probability: probability of each bit of a transition's bootstrap mask.
      redraw_probability: with which the index is drawn anew at each step within an episode; 1: at every step.
    """

    def __init__(
        self,
        spec: Spec,
        streams: Streams,
        device: torch.device = CPU,
        *,
        value: type[ValueNetwork],
        uncertainty: type[UncertaintyModule] | Sequence[type[UncertaintyModule]],
        prior: type[Prior],
        objective: type[Objective],
        acting: type[Selection],
        target: type[Selection],
        evaluation: type[Selection] | None = None,
        bonus: type[Bonus] | None = None,
        bonus_scale: float = 0.0,
        discount: float = 0.99,
        double_q: bool = False,
        learning_rate: float = 1e-3,
        adam_epsilon: float = 1e-8,
        gradient_clip: float | None = None,
        batch_size: int = 64,
        batches_per_episode: int = 10,
        learn_every: int | None = None,
        target_period: int = 10,
        replay_capacity: int = 1_000_000,
        replay_weight: float = 0.0,
        min_replay: int = 64,
        mask_probability: float = 0.5,
        redraw_probability: float = 0.0,
    ):
        shares = {
            "discount": discount, "mask_probability": mask_probability, "redraw_probability": redraw_probability,
            "replay_weight": replay_weight,
        }  # fmt: skip
        rates = {"learning_rate": learning_rate, "adam_epsilon": adam_epsilon}
        counts = {
            "batch_size": batch_size, "batches_per_episode": batches_per_episode, "learn_every": learn_every,
            "target_period": target_period, "min_replay": min_replay,
        }  # fmt: skip
        _check_numbers(shares, rates, counts, replay_capacity)
        _check(0 <= bonus_scale < math.inf, "bonus_scale", "at least 0 and finite", bonus_scale)
        _check(gradient_clip is None or gradient_clip > 0, "gradient_clip", "None or above 0", gradient_clip)
        modules: Sequence[Any] = uncertainty if isinstance(uncertainty, list | tuple) else [uncertainty]
        _check(len(modules) > 0, "uncertainty", "a module or a list of them", uncertainty)
        self.streams, lanes = streams, len(streams)
        self.everyone = [True] * lanes
        self.batch_size, self.batches_per_episode = batch_size, batches_per_episode
        self.learn_every, self.target_period, self.min_replay = learn_every, target_period, min_replay
        self.redraw_probability, self.bonus_scale, self.replay_weight = redraw_probability, bonus_scale, replay_weight

        one_hot = isinstance(spec.observation, dm_env.specs.DiscreteArray)
        self.function = IndexedValue(
            spec, streams.seeds, value, modules, prior(), device,
            tabulate_targets=one_hot and spec.observation.num_values <= self._rows_per_target, bonus=bonus,
        )  # fmt: skip
        self.bonus = self._find_bonus()
        self.objective, self.acting, self.evaluation = objective(), acting(), (evaluation or MeanArgmax)()
        self._acting = ActionSelector(self.function, self.acting, "acting")
        self._evaluating = ActionSelector(self.function, self.evaluation, "evaluation")
        self.learner = Learner(
            self.function, self.objective, target(), discount, learning_rate, adam_epsilon, gradient_clip, double_q,
            mask_probability,
        )  # fmt: skip
        self.replay = Replay(
            spec.observation, lanes, replay_capacity, stored=self.learner.stored, prior=self.function.prior_shape
        )
        self.columns = ("index", *self.learner.losses, "uncertainty")
        self.steps, self.phases = [0] * lanes, [0] * lanes
        self.episode, self.progress = 0, 0.0
        self.index: tuple[Tensor, ...] = ()
        self.index_is_new = False
        self.evaluation_index: Index = ()
        self.latest: dict[str, list[float | None]] = {}
        selectors = [self._acting, self._evaluating]
        check_learner(self.learner, selectors, self.replay, batch_size, self._batches_per_phase)

    @property
    def _batches_per_phase(self) -> int:
        return self.batches_per_episode if self.learn_every is None else 1

    @property
    def _rows_per_target(self) -> int:
        """Transitions learned from before the target networks change."""
        return self.target_period * self.batch_size * self._batches_per_phase

    def _find_bonus(self) -> Bonus | None:
        """The agent's, or that of its uncertainty module."""
        held = [memory for memory in self.function.memories if isinstance(memory, Bonus)]
        if self.function.bonus is not None:
            return self.function.bonus
        for name in ("bonus_scale", "replay_weight"):
            there = f"with {len(held)} bonuses" if held else "without a bonus"
            wanted = f"0 {there}; name one with agent.Indexed.bonus, such as @bonus.CoinFlips"
            _check(len(held) == 1 or not getattr(self, name), name, wanted, getattr(self, name))
        return held[0] if held else None

    def begin_episode(self, observations: np.ndarray, progress: float = 0.0) -> None:
        expected = (len(self.steps), *self.function.spec.observation.shape)
        if np.shape(observations) != expected:
            raise ValueError(
                f"begin_episode takes an observation for each seed, {[*expected]}, got {[*np.shape(observations)]}"
            )
        self.episode += 1
        self.progress = progress
        self.index, self.index_is_new = self.function.indexer.draw(self.streams["index"], 1, 1), True
        self.latest = {name: [None] * len(self.steps) for name in self.columns[1:]}
        for lane, observation in enumerate(observations):
            self.replay.start(lane, observation)

    def learn(self) -> None:
        everywhere = range(len(self.steps))
        self.learner.complete(self.replay, everywhere, self.streams["mask"])
        if self.replay_weight:
            self._weigh_replay()
        if self.learn_every is None:
            self._learn(everywhere, self.batches_per_episode)

    def act(self, observations: np.ndarray, active: Sequence[bool] | None = None) -> Sequence[int]:
        active = active or self.everyone
        if self.redraw_probability and not self.index_is_new:
            self._redraw(active)
        self.index_is_new = False
        return self._acting.select(observations, self.index, self.streams["acting"], active, self.progress)

    def observe(
        self,
        actions: Sequence[int],
        timesteps: Sequence[dm_env.TimeStep],
        active: Sequence[bool] | None = None,
    ) -> None:
        active = active or self.everyone
        self.replay.append(actions, timesteps, active)
        self.steps = [step + on for step, on in zip(self.steps, active)]

    def learn_online(self, active: Sequence[bool] | None = None) -> None:
        if self.learn_every is not None:
            steps = zip(active or self.everyone, self.steps)
            lanes = [lane for lane, (on, step) in enumerate(steps) if on and step % self.learn_every == 0]
            if lanes:
                self.learner.complete(self.replay, lanes, self.streams["mask"])
                self._learn(lanes, 1)

    def begin_evaluation(self) -> None:
        self.evaluation_index = self.function.indexer.draw(self.streams["evaluation index"], 1, 1)

    def evaluate(self, observations: np.ndarray, active: Sequence[bool] | None = None) -> Sequence[int]:
        index, generators = self.evaluation_index, self.streams["evaluation"]
        return self._evaluating.select(observations, index, generators, active or self.everyone, self.progress)

    def metrics(self) -> dict[str, Sequence[Any]]:
        return {"index": self.function.indexer.describe(self.index), **self.latest}

    def beliefs(self, observations: np.ndarray) -> dict[str, np.ndarray]:
        obs = self._tensor(observations)
        features = {"": self.function.acting_features(obs)}
        if self.function.prior.has_twin:
            features["prior_"] = self.function.prior_only_features(obs)
        mean_index = self.function.indexer.mean()
        means = {f"{whose}mean": self.function.values(f, mean_index).squeeze(2) for whose, f in features.items()}
        stds = {f"{whose}uncertainty": self.function.std(f) for whose, f in features.items()}
        return {name: tensor.numpy(force=True) for name, tensor in (means | stds).items()}

    def execution(self) -> dict[str, str]:
        return self.function.execution()

    def cost(self) -> dict[str, int]:
        updates = self._batches_per_phase * sum(self.phases)
        parameters = self.function.trained_parameters
        return {"parameters": parameters, "updates": updates, "samples": updates * self.batch_size}

    def unused_parameters(self) -> dict[str, str]:
        unused = {
            "batches_per_episode": (self.learn_every is not None, "learn_every is set"),
            "mask_probability": (
                not any(index.bits for index in self.function.indexer.distributions),
                "no uncertainty module has bootstrap masks",
            ),
            "redraw_probability": (self.function.indexer.count == 1, "values have no index"),
            "bonus": (
                self.function.bonus is not None and not (self.bonus_scale or self.replay_weight),
                "bonus_scale and replay_weight are 0",
            ),
        }
        return {name: reason for name, (is_unused, reason) in unused.items() if is_unused}

    # Asked by people, of all seeds, about observations `[batch, ...]`.

    def values(self, observations: np.ndarray) -> np.ndarray:
        """Expected values, `[seeds, batch, actions]`."""
        return self._beliefs(observations).mean().squeeze(2).numpy(force=True)

    def uncertainty(self, observations: np.ndarray) -> np.ndarray:
        """Standard deviations of the values over indices, `[seeds, batch, actions]`."""
        return self._beliefs(observations).std().squeeze(2).numpy(force=True)

    def actions(self, observations: np.ndarray) -> np.ndarray:
        """Actions of the evaluation selection, `[seeds, batch]`."""
        return self.evaluation.select(self._beliefs(observations)).squeeze(-1).numpy(force=True)

    def state_dict(self) -> dict[str, Any]:
        return {
            "function": self.function.state_dict(),
            "learner": self.learner.state_dict(),
            "replay": self.replay.state_dict(),
            "streams": self.streams.state_dict(),
            "components": capture(self._components(), "agent"),
            "steps": self.steps,
            "phases": self.phases,
            "episode": self.episode,
            "progress": self.progress,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.function.load_state_dict(state["function"])
        self.learner.load_state_dict(state["learner"])
        self.replay.load_state_dict(state["replay"])
        if self.replay.action.min() < 0 or self.replay.action.max() >= self.function.spec.num_actions:
            raise ValueError("there are actions in the replay that the environment does not have")
        self.streams.load_state_dict(state["streams"])
        restore(self._components(), state["components"], "agent")
        self.steps, self.phases = [*state["steps"]], [*state["phases"]]
        self.episode, self.progress = state["episode"], state["progress"]

    def _components(self) -> dict[str, Any]:
        """Those that may keep something of their own."""
        return {
            "prior": self.function.prior,
            "acting": self.acting,
            "evaluation": self.evaluation,
        }

    def _weigh_replay(self) -> None:
        bonus, device = self.bonus, self.function.device
        assert bonus is not None
        lanes = [lane for lane, steps in enumerate(self.steps) if steps]
        if not lanes:
            return
        try:
            self.replay.weigh(lanes, lambda obs, action: bonus.at(obs.to(device), action.to(device)))
        except ValueError as error:
            raise RunFailed(f"{type(bonus).__name__}: {error}") from error

    def _sample(self, lanes: Sequence[int], batches: int) -> Batch:
        """All minibatches of a learning phase."""
        weighted = None
        if self.replay_weight:
            weighted = np.arange(batches * self.batch_size) % self.batch_size < self.replay_weight * self.batch_size
        batch = self.replay.sample(lanes, batches * self.batch_size, self.streams["replay"], weighted)
        if self.bonus is not None and self.bonus_scale:
            new = self.bonus.at(self._tensor(batch.obs.numpy()), batch.action.to(self.function.device))
            batch.reward = batch.reward + self.bonus_scale * new.sqrt().cpu()
        return batch

    def _learn(self, lanes: Sequence[int], batches: int) -> None:
        """A learning phase of these lanes, as far as they have seen enough."""
        lanes = [lane for lane in lanes if self.steps[lane] >= self.min_replay]
        if not lanes:
            return
        streams = self.streams
        batch = self._sample(lanes, batches)
        only = [lane in lanes for lane in range(len(self.steps))]
        means = self.learner.learn(
            batch, self.batch_size, lanes, self.progress,
            selecting=_only_active(streams["target"], only), drawing=_only_active(streams["learning index"], only),
            measures=any(self.latest["uncertainty"][lane] is None for lane in lanes),
        )  # fmt: skip
        for name, tensor in means.items():
            numbers = tensor.tolist()
            for lane in lanes:
                if name == "uncertainty" and self.latest[name][lane] is not None:
                    continue  # once an episode, whenever other lanes are measured
                if not np.isfinite(numbers[lane]):
                    seed = streams.seeds[lane]
                    raise RunFailed(f"{name} of seed {seed} turned {numbers[lane]} in episode {self.episode}")
                self.latest[name][lane] = numbers[lane]
        for lane in lanes:
            self.phases[lane] += 1
        copied = [lane for lane in lanes if self.phases[lane] % self.target_period == 0]
        if copied:
            self.function.copy_to_target(copied)

    def _redraw(self, active: Sequence[bool]) -> None:
        """A new index for some of the lanes, by chance."""
        chances = zip(self.streams["redraw"], active)
        again = [on and generator.random() < self.redraw_probability for generator, on in chances]
        if any(again):
            drawn = self.function.indexer.draw(_only_active(self.streams["index"], again), 1, 1)
            where = torch.tensor(again, device=self.function.device)[:, None, None, None]
            self.index = tuple(torch.where(where, new, old) for new, old in zip(drawn, self.index))

    def _beliefs(self, observations: np.ndarray) -> Beliefs:
        obs = self._tensor(observations)
        everywhere = obs.expand(len(self.steps), *obs.shape)
        generators = self.streams["questions"]
        index = self.function.indexer.draw(generators, 1, 1)
        return Beliefs(self.function, self.function.acting_features(everywhere), index, generators, self.progress)

    def _tensor(self, observations: np.ndarray) -> Tensor:
        one_hot = isinstance(self.function.spec.observation, dm_env.specs.DiscreteArray)
        kind = np.int64 if one_hot else np.float32
        return torch.from_numpy(np.asarray(observations, kind)).to(self.function.device)


def _only_active(generators: Sequence[np.random.Generator], active: Sequence[bool]) -> Generators:
    return [generator if on else None for generator, on in zip(generators, active)]


def _check_numbers(
    shares: Mapping[str, float], rates: Mapping[str, float], counts: Mapping[str, int | None], capacity: int
) -> None:
    for name, share in shares.items():
        _check(0 <= share <= 1, name, "between 0 and 1", share)
    for name, rate in rates.items():
        _check(rate > 0, name, "above 0", rate)
    for name, count in counts.items():
        _check(count is None or count >= 1, name, "at least 1", count)
    _check(capacity >= 2, "replay_capacity", "at least 2", capacity)
    least = counts["min_replay"]
    _check(least is None or least <= capacity, "min_replay", f"at most replay_capacity = {capacity}", least)


def _check(ok: bool, name: str, expected: str, value: Any) -> None:
    if not ok:
        raise ValueError(f"{name} must be {expected}, got {value!r}")


@hookimpl
def explore_agents() -> list[type]:
    return [Indexed]
