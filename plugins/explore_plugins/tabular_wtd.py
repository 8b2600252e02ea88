"""Tabular Wasserstein TD, the paper's Algorithm 1."""

from __future__ import annotations

import numpy as np
import torch
from scipy.special import erf

from explore import hookimpl
from explore.interfaces import Spec
from explore.streams import Streams
from explore_plugins.tabular import Place, TabularGaussian, reward_bounds


class TabularWTD(TabularGaussian):
    """Tabular Wasserstein TD (paper, Algorithm 1).

    The value of (h, x, a) is nu + m z with z ~ N(0, 1). After n outcomes (r, x') that sum up to targets
    r + max Q(h + 1, x') they are, as minimisers of the squared 2-Wasserstein distances to the
    targets' distributions and, with weight beta, to the prior's,

        nu = (sum of targets + beta prior_mean) / (n + beta)
        m  = (sqrt(n) sigma + beta prior_sigma) / (n + beta)

    Args:
      decay: False: the noise of a target is sigma, not sigma / sqrt(n), as in the deep version; then m
        does not go to 0.
      p: of the Wasserstein distance: 1, 2 or 4. Only 2 has the closed form; the others are minimised by
        Newton's method, which takes longer. They tell rewards of 1 from others, and those with the same
        next state count as their mean: exact where rewards are 0 or 1, or follow from the transition.
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
        decay: bool = True,
        p: int = 2,
    ):
        super().__init__(spec, streams, device, sigma, prior_mean, beta, prior_sigma, shared_index)
        if p not in (1, 2, 4):
            raise ValueError(f"p must be 1, 2 or 4, got {p!r}")
        self.decay, self.p = decay, p
        if p != 2:
            reward_bounds(spec, f"{type(self).__name__} with p = {p}")  # noise without bounds has no few outcomes
            self.ones = np.zeros(self.counts.shape)  # those of the `counts` with a reward of 1
            self.others = np.zeros(self.counts.shape)  # the sum of other rewards

    def noise(self, visits: np.ndarray) -> np.ndarray:
        """The standard deviation of a target after so many visits, at least 1."""
        return self.sigma / np.sqrt(visits) if self.decay else np.full(visits.shape, self.sigma, float)

    def stds(self, visits: np.ndarray) -> np.ndarray:
        targets = visits * self.noise(np.maximum(visits, 1))
        return (targets + self.beta * self.prior_sigma) / (visits + self.beta)

    def update(self, here: Place, rewards: np.ndarray, following: np.ndarray) -> None:
        if self.p != 2:
            self.ones[*here, following] += rewards == 1
            self.others[*here, following] += np.where(rewards == 1, 0, rewards)

    def fit(self, stage: int, later: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, std = super().fit(stage, later)
        if self.p != 2:
            seen = self.visits[:, stage] > 0
            means, weights = self._outcomes(stage, later, seen)
            stds = np.full(means.shape, self.prior_sigma, float)
            stds[:, :-1] = self.noise(self.visits[:, stage][seen])[:, None]
            mean[seen], std[seen] = nearest_normal(self.p, means, stds, weights, (mean[seen], std[seen]))
        return mean, std

    def _outcomes(self, stage: int, later: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The targets of what has been seen, and how often each came, `[seen, outcomes]`; the prior is the last."""
        counts, ones, others = (array[:, stage][seen] for array in (self.counts, self.ones, self.others))
        worth, rest = later[np.nonzero(seen)[0]], counts - ones
        prior = np.full((len(ones), 1), self.prior_mean, float), np.full((len(ones), 1), self.beta)
        targets = [worth + others / np.maximum(rest, 1), worth + 1, prior[0]]
        return np.hstack(targets), np.hstack([rest, ones, prior[1]])


def nearest_normal(
    p: int, means: np.ndarray, stds: np.ndarray, weights: np.ndarray, start: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The normal distributions with the least weighted sum of squared p-Wasserstein distances to others.

    There are `[problems, distributions]` to be near to. The sum is convex. Newton's method gets to its
    least value from any start, damped wherever a step would not descend. Where p = 1 and means differ
    by far more than standard deviations the sum hardly depends on the one to be found, which then
    stays near the start.
    """
    found = np.stack(start)
    left = np.arange(len(means))  # the problems that are not solved yet
    damping = np.zeros(len(means))
    now = _total(p, found, means, stds, weights)
    for _ in range(100):
        value, slope, curvature = now[0, left], now[1:3, left], now[3:, left]
        step = _newton_step(slope, curvature, damping[left])
        tried = found[:, left] - step
        then = _total(p, tried, means[left], stds[left], weights[left])
        better = then[0] <= value
        found[:, left[better]], now[:, left[better]] = tried[:, better], then[:, better]
        damping[left] = np.where(better, damping[left] / 10, np.maximum(10 * damping[left], 1e-3))
        left = left[(slope * step).sum(0) > 1e-13 * value]
        if not len(left):
            break
    return found[0], found[1]


def _newton_step(slope: np.ndarray, curvature: np.ndarray, damping: np.ndarray) -> np.ndarray:
    """Solves the equations of two unknowns; damping is relative to the curvature."""
    aa, ab, bb = curvature
    extra = (damping + 1e-12) * (aa + bb)
    aa, bb = aa + extra, bb + extra
    return np.stack([bb * slope[0] - ab * slope[1], aa * slope[1] - ab * slope[0]]) / (aa * bb - ab**2)


def _total(p: int, at: np.ndarray, means: np.ndarray, stds: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weighted sums, with their two first and three second derivatives, `[6, problems]`."""
    return (weights * squared_distance(p, at[0][:, None] - means, at[1][:, None] - stds)).sum(-1)


def squared_distance(p: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """W_p^2 of normal distributions whose means differ by a and standard deviations by b, and its
    derivatives by a, b, aa, ab and bb, `[6, ...]`.

    The best coupling is the monotone one, so that W_p is the p-th root of E|a + b Z|^p.
    """
    parts = np.stack({1: _folded, 2: _square, 4: _fourth}[p](a, b))
    parts[3:, (a == 0) & (b == 0)] = np.array([2.0, 0.0, 2.0])[:, None]  # there is none, unless p = 2
    return parts


def _folded(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
    """p = 1: the square of the mean of a folded normal distribution."""
    ratio = np.clip(a / np.maximum(np.abs(b), 1e-200), -40, 40)  # beyond that the density below is 0
    density = np.sqrt(2 / np.pi) * np.exp(-(ratio**2) / 2)
    by_a, by_b = erf(ratio / np.sqrt(2)), np.sign(b) * density
    mean = a * by_a + b * by_b
    bend = mean * density / np.maximum(np.abs(b), 1e-200)
    turn = np.sign(b) * ratio
    second = by_a**2 + bend, by_a * by_b - turn * bend, by_b**2 + turn**2 * bend
    return mean**2, 2 * mean * by_a, 2 * mean * by_b, *(2 * part for part in second)


def _square(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
    two = np.full(a.shape, 2.0)
    return a**2 + b**2, 2 * a, 2 * b, two, 0 * two, two


def _fourth(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
    """p = 4: the root of the fourth moment, a^4 + 6 a^2 b^2 + 3 b^4."""
    aa, bb = a**2, b**2
    root = np.sqrt(aa**2 + 6 * aa * bb + 3 * bb**2)
    safe = np.where(root == 0, 1, root)
    by_a, by_b = 2 * a * (aa + 3 * bb) / safe, 6 * b * (aa + bb) / safe
    second = 6 * (aa + bb) - by_a**2, 12 * a * b - by_a * by_b, 6 * (aa + 3 * bb) - by_b**2
    return root, by_a, by_b, *(part / safe for part in second)


@hookimpl
def explore_agents() -> list[type]:
    return [TabularWTD]
