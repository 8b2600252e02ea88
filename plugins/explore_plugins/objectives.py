"""How targets are formed and matched: Wasserstein TD on (ν, m), and TD at sampled indices."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from explore import hookimpl
from explore.agents import IndexedValue
from explore.interfaces import Features, Objective, Phase, Schedule, as_schedule


class WassersteinTD(Objective):
    """PINs: two squared errors, the 2-Wasserstein distance between Gaussians (supplement A).

    ((ν + β1 ν̄)(s, a) - (r + γ (ν + β1 ν̄)_target(s', a')))², and for the heads being trained
    ((m^u + β2 m̄^u)(s, a) - (σ + γ (m^u + β2 m̄^u)_target(s', a')))². The next action a' is the
    target selection's at one index per transition, whose head is one being trained. If the means
    are an ensemble, each member is matched to its own target where its mask bit is set. A hypermodel's
    mean and standard deviation at each state and action are matched in the same way.

    Args:
      sigma: σ, the perturbation of the reward: a number or a schedule.
    """

    losses = ("mean_loss", "uncertainty_loss")

    def __init__(self, sigma: float | type[Schedule] = 2.0):
        self.sigma = as_schedule(sigma, "sigma", minimum=0)

    def check(self, function: IndexedValue) -> None:
        numbers = [len(_which(function, moment)) for moment in ("means", "scales")]
        moments = {*_which(function, "means"), *_which(function, "scales")}
        if numbers != [1, 1] or len(moments) != len(function.parts):
            modules = [type(part).__name__ for part in function.parts if part.index.count != 1]
            raise ValueError(
                "objective.WassersteinTD matches means and standard deviations, so it needs one uncertainty module "
                f"with scales such as uncertainty.SoftplusHeads, not {', '.join(modules) or 'none'}; "
                "use objective.SampledTD"
            )

    def prepare(self, phase: Phase) -> dict[str, Tensor]:
        function = phase.function
        everything = zip(function.indexer.distributions, phase.bits)
        drawn = [index.draw_columns(phase.generators, bits) for index, bits in everything]
        columns, index = (tuple(tensor.to(function.device) for tensor in own) for own in zip(*drawn))
        action = phase.select(index).unsqueeze(-1)  # [lanes, batch, 1, 1]
        mean, scale = (
            moment.gather(2, action.expand(-1, -1, 1, moment.shape[-1]))
            for moment in _moments(function, phase.next_features)
        )
        discount = phase.discount[:, :, None, None]
        [of_mean], [of_scale] = _which(function, "means"), _which(function, "scales")
        return {
            "mean_target": phase.reward[:, :, None, None] + discount * mean,
            # Where one module has both, its columns are those of the scales, and all transitions train its mean.
            "mean_weight": torch.ones_like(mean) if of_mean == of_scale else columns[of_mean].expand_as(mean),
            "scale_target": self.sigma(phase.progress) + discount * scale,
            "scale_weight": columns[of_scale].expand_as(scale),
        }

    def loss(self, function: IndexedValue, features: Features, prepared: Mapping[str, Any]) -> dict[str, Tensor]:
        mean, scale = _moments(function, features)
        mean_error = prepared["mean_weight"] * (mean - prepared["mean_target"]).square()
        scale_error = prepared["scale_weight"] * (scale - prepared["scale_target"]).square()
        return {
            "mean_loss": mean_error.sum((2, 3)).mean(1),
            "uncertainty_loss": scale_error.sum((2, 3)).mean(1),
        }


def _which(function: IndexedValue, moment: str) -> list[int]:
    """The parts that know a moment of their values."""
    return [k for k, part in enumerate(function.parts) if hasattr(part, moment)]


def _moments(function: IndexedValue, features: Features) -> tuple[Tensor, Tensor]:
    """Means `[lanes, batch, actions, members]` and standard deviations `[lanes, batch, actions, heads]`."""
    [of_mean], [of_scale] = _which(function, "means"), _which(function, "scales")
    return function.parts[of_mean].means(features[of_mean]), function.parts[of_scale].scales(features[of_scale])


class SampledTD(Objective):
    """Temporal differences at indices: Q_i(s, a) is matched to r + σ_b ξ·i + γ Q_i,target(s', a').

    Every member of an ensemble is an index, weighed by its mask bit (bootstrapped DQN); other
    indices are drawn for each transition, for PINs with a head whose mask bit is set (train_heads
    does not matter). ξ ~ N(0, I) is drawn once per transition and stored.

    Args:
      noise: σ_b, the standard deviation of the noise added to rewards.
      indices: draws per transition (and member) where the index is continuous.
      target_index: 'same': the target is taken at the index that is learned at; 'fresh': at one of its own for
        each transition, whatever indices are learned at (HyperAgent, NoisyNet).
    """

    losses = ("loss",)

    def __init__(self, noise: float = 0.0, indices: int = 1, target_index: str = "same"):
        if not 0 <= noise < math.inf:
            raise ValueError(f"noise must be at least 0 and finite, got {noise!r}")
        if indices < 1:
            raise ValueError(f"indices must be at least 1, got {indices!r}")
        if target_index not in ("same", "fresh"):
            raise ValueError(f"target_index must be 'same' or 'fresh', got {target_index!r}")
        self.noise, self.indices, self.target_index = noise, indices, target_index
        self.draws_indices = True

    @property
    def uses_noise(self) -> bool:
        return self.noise > 0

    def check(self, function: IndexedValue) -> None:
        self.draws_indices = function.indexer.count is None
        if self.uses_noise and function.indexer.count == 1:
            raise ValueError(
                "objective.SampledTD.noise perturbs the values of different indices differently, but "
                f"uncertainty.{type(function.parts[0]).__name__} has only one; set it to 0"
            )

    def unused_parameters(self) -> dict[str, str]:
        return {} if self.draws_indices else {"indices": "learning goes through all indices"}

    def prepare(self, phase: Phase) -> dict[str, Any]:
        function, draws = phase.function, self.indices if self.draws_indices else 1
        index, weight = function.indexer.draw_to_learn(phase.generators, phase.bits, draws)
        target_index = index
        if self.target_index == "fresh":
            target_index = function.indexer.draw_batch(phase.generators, phase.reward.shape[1])
        action = phase.select(target_index)
        values = function.values(phase.next_features, target_index)  # [lanes, batch, draws, actions]
        bootstrap = values.gather(-1, action.expand(values.shape[:-1]).unsqueeze(-1)).squeeze(-1)
        target = phase.reward.unsqueeze(-1) + phase.discount.unsqueeze(-1) * bootstrap
        for part, noise, own in zip(function.parts, phase.noise, index):
            target = target + self.noise * part.index.perturb(noise, own)
        return {"index": index, "target": target.expand_as(weight), "weight": weight / draws}

    def loss(self, function: IndexedValue, features: Features, prepared: Mapping[str, Any]) -> dict[str, Tensor]:
        values = function.values(features, prepared["index"]).squeeze(-1)  # [lanes, batch, draws]
        error = prepared["weight"] * (values - prepared["target"]).square()
        return {"loss": error.sum(2).mean(1)}


@hookimpl
def explore_objectives() -> list[type]:
    return [WassersteinTD, SampledTD]
