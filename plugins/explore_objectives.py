"""How targets are formed and matched: Wasserstein TD on (ν, m), and TD at sampled indices."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from explore import hookimpl
from explore.indexed import IndexedValue
from explore.interfaces import Features, Objective, Phase, ScaleModule, Schedule, scheduled
from explore.streams import normal


class WassersteinTD(Objective):
    """PINs: two squared errors, the 2-Wasserstein distance between Gaussians (supplement A).

    ((ν + β1 ν̄)(s, a) - (r + γ (ν + β1 ν̄)_target(s', a')))², and for the heads being trained
    ((m^u + β2 m̄^u)(s, a) - (σ + γ (m^u + β2 m̄^u)_target(s', a')))². The next action a' is the
    target selection's at one index per transition, whose head is one being trained. If the means
    are an ensemble, each member is matched to its own target where its mask bit is set.

    Args:
      sigma: σ, the perturbation of the reward: a number or a schedule.
    """

    losses = ("mean_loss", "uncertainty_loss")

    def __init__(self, sigma: float | type[Schedule] = 2.0):
        self.sigma = scheduled(sigma, "sigma", minimum=0)

    def check(self, function: IndexedValue) -> None:
        rest = function.parts[1:]
        if len(rest) != 1 or not isinstance(rest[0], ScaleModule):
            names = ", ".join(type(part).__name__ for part in rest) or type(function.members).__name__
            raise ValueError(
                "objective.WassersteinTD matches means and standard deviations, so it needs one uncertainty "
                f"module with scales such as uncertainty.SoftplusHeads, not {names}; use objective.SampledTD"
            )

    def prepare(self, phase: Phase) -> dict[str, Tensor]:
        members, scales = phase.function.parts
        assert isinstance(scales, ScaleModule)
        member_mask, head_mask = phase.mask
        batch = phase.reward.shape[1]
        one_head = scales.draw_heads(phase.generators, head_mask, 1)  # [lanes, batch, 1, heads]
        z = normal(phase.generators, batch, 1, 1).to(one_head.device)
        index = (members.draw(phase.generators, batch, 1).to(one_head.device), z * one_head)
        action = phase.select(index).unsqueeze(-1)  # [lanes, batch, 1, 1]
        mean, scale = (f.gather(2, action.expand(-1, -1, 1, f.shape[-1])) for f in phase.next_features)
        discount = phase.discount[:, :, None, None]
        return {
            "mean_target": phase.reward[:, :, None, None] + discount * mean,
            "mean_weight": member_mask[:, :, None] if members.random else torch.ones_like(mean),
            "scale_target": self.sigma(phase.progress) + discount * scale,
            "scale_weight": one_head if scales.train_heads == "one" else head_mask[:, :, None],
        }

    def loss(self, function: IndexedValue, features: Features, prepared: Mapping[str, Any]) -> dict[str, Tensor]:
        mean, scale = features
        mean_error = prepared["mean_weight"] * (mean - prepared["mean_target"]).square()
        scale_error = prepared["scale_weight"] * (scale - prepared["scale_target"]).square()
        return {
            "mean_loss": mean_error.sum((2, 3)).mean(1),
            "uncertainty_loss": scale_error.sum((2, 3)).mean(1),
        }


class SampledTD(Objective):
    """Temporal differences at indices: Q_i(s, a) is matched to r + σ_b ξ·i + γ Q_i,target(s', a').

    Every member of an ensemble is an index, weighed by its mask bit (bootstrapped DQN); other
    indices are drawn for each transition, for PINs with a head whose mask bit is set (train_heads
    does not matter). ξ ~ N(0, I) is drawn once per transition and stored.

    Args:
      noise: σ_b, the standard deviation of the noise added to rewards.
      indices: draws per transition (and member) where the index is continuous.
    """

    losses = ("loss",)

    def __init__(self, noise: float = 0.0, indices: int = 1):
        if not 0 <= noise < math.inf:
            raise ValueError(f"noise must be at least 0 and finite, got {noise!r}")
        if indices < 1:
            raise ValueError(f"indices must be at least 1, got {indices!r}")
        self.noise, self.indices = noise, indices

    @property
    def uses_noise(self) -> bool:
        return self.noise > 0

    def check(self, function: IndexedValue) -> None:
        if self.uses_noise and not any(part.random for part in function.parts):
            raise ValueError(
                "objective.SampledTD.noise perturbs the values of different indices differently, but "
                f"uncertainty.{type(function.members).__name__} has only one; set it to 0"
            )

    def prepare(self, phase: Phase) -> dict[str, Any]:
        function, members = phase.function, phase.function.members
        repeats = self.indices if any(part.continuous for part in function.parts) else 1
        index = function.draw_for_learning(phase.generators, phase.mask, members.size * repeats)
        action = phase.select(index)
        values = function.values(phase.next_features, index)  # [lanes, batch, draws, actions]
        bootstrap = values.gather(-1, action.expand(values.shape[:-1]).unsqueeze(-1)).squeeze(-1)
        target = phase.reward.unsqueeze(-1) + phase.discount.unsqueeze(-1) * bootstrap
        if self.uses_noise:
            for part, noise, i in zip(function.parts, phase.noise, index):
                target = target + self.noise * part.perturbation(noise, i)  # type: ignore[arg-type]
        weight = torch.ones_like(target) if not members.random else phase.mask[0].repeat_interleave(repeats, -1)
        return {"index": index, "target": target, "weight": weight / repeats}

    def loss(self, function: IndexedValue, features: Features, prepared: Mapping[str, Any]) -> dict[str, Tensor]:
        values = function.values(features, prepared["index"]).squeeze(-1)  # [lanes, batch, draws]
        error = prepared["weight"] * (values - prepared["target"]).square()
        return {"loss": error.sum(2).mean(1)}


@hookimpl
def explore_objectives() -> list[type]:
    return [WassersteinTD, SampledTD]
