"""Which action an indexed value function picks: ā, ã and their relatives."""

import torch
from torch import Tensor

from explore import hookimpl
from explore.interfaces import Beliefs, Schedule, Selection, as_schedule
from explore.streams import uniform


class MeanArgmax(Selection):
    """ā: the best action of the mean, argmax_a E_i[Q_i(s, a)]."""

    def scores(self, beliefs: Beliefs) -> Tensor:
        return beliefs.mean()


class SampledArgmax(Selection):
    """ã: the best action at the index, argmax_a Q_i(s, a).

    In acting the index is held for the episode (Thompson sampling); in a target it is the one
    being learned at (the member of an ensemble), or drawn for the transition (PINs).
    """

    def scores(self, beliefs: Beliefs) -> Tensor:
        return beliefs.values()


class OptimisticArgmax(Selection):
    """The best action by an optimistic estimate from several fresh indices (supplement B).

    Args:
      draws: number K of indices drawn for each observation.
      quantile: the estimate of an action is this quantile of its K values; 1: their maximum.
    """

    def __init__(self, draws: int = 8, quantile: float = 1.0):
        if draws < 1:
            raise ValueError(f"draws must be at least 1, got {draws!r}")
        if not 0 <= quantile <= 1:
            raise ValueError(f"quantile must be between 0 and 1, got {quantile!r}")
        self.draws, self.quantile = draws, quantile

    def scores(self, beliefs: Beliefs) -> Tensor:
        values = beliefs.draw(self.draws)
        if self.quantile == 1:
            return values.amax(2, keepdim=True)
        return values.quantile(self.quantile, dim=2, keepdim=True)


class EpsilonGreedy(Selection):
    """With probability epsilon an action at random, else what another selection picks.

    Args:
      epsilon: probability of a random action: a number or a schedule.
      greedy: the other selection; @selection.SampledArgmax puts dithering on Thompson sampling.
    """

    def __init__(self, epsilon: float | type[Schedule] = 0.05, greedy: type[Selection] = MeanArgmax):
        self.epsilon = as_schedule(epsilon, "epsilon", minimum=0, maximum=1)
        self.greedy = greedy()

    def scores(self, beliefs: Beliefs) -> Tensor:
        return self.greedy.scores(beliefs)

    def select(self, beliefs: Beliefs) -> Tensor:
        actions = self.greedy.select(beliefs)
        chance, choice = uniform(beliefs.generators, 2, *actions.shape[1:]).to(actions.device).unbind(1)
        at_random = (choice * beliefs.function.spec.num_actions).long()
        return torch.where(chance < self.epsilon(beliefs.progress), at_random, actions)


class Boltzmann(Selection):
    """An action drawn with probability proportional to exp(E_i[Q_i(s, a)] / temperature).

    Args:
      temperature: a number above 0 or a schedule.
    """

    def __init__(self, temperature: float | type[Schedule] = 1.0):
        self.temperature = as_schedule(temperature, "temperature", minimum=1e-8)

    def scores(self, beliefs: Beliefs) -> Tensor:
        mean = beliefs.mean()
        noise = uniform(beliefs.generators, *mean.shape[1:]).to(mean.device).clamp_min(1e-12)
        return mean / self.temperature(beliefs.progress) - (-noise.log()).log()  # Gumbel-max


@hookimpl
def explore_selections() -> list[type]:
    return [MeanArgmax, SampledArgmax, OptimisticArgmax, EpsilonGreedy, Boltzmann]
