"""Information-directed sampling: actions that cost little regret for what they tell."""

import torch
from torch import Tensor

from explore import hookimpl
from explore.interfaces import Beliefs, Selection, argmax
from explore.streams import uniform

NOTHING = 1e-100  # stands for no information, less than float32 values ever give: the least regret decides


class InformationDirected(Selection):
    """An action of the mixture with the least (expected regret)² / information.

    Russo and Van Roy 2014 and 2018, with their variance in place of mutual information, on draws
    Q_1 .. Q_K of the indexed value function. The expected regret of an action is
    E_k[max_a' Q_k(s, a') - Q_k(s, a)]. Some mixture of two actions attains the least ratio; an
    action without regret is taken outright.

    Indices are drawn anew in every step, so none is followed through an episode, and the ratio
    weighs one step at a time. On Deep-sea this explores less deeply than Thompson sampling
    (docs/results.md).

    Args:
      draws: number K of indices drawn for each observation; 1: Thompson sampling in each step.
      information: 'optimal_action': what the value of the action tells of which action is optimal,
        the variance of its mean given the optimal one; 'value': the variance of its value.
    """

    def __init__(self, draws: int = 100, information: str = "optimal_action"):
        if draws < 1:
            raise ValueError(f"draws must be at least 1, got {draws!r}")
        if information not in ("optimal_action", "value"):
            raise ValueError(f"information must be 'optimal_action' or 'value', got {information!r}")
        self.draws, self.information = draws, information

    def scores(self, beliefs: Beliefs) -> Tensor:
        """Minus the information ratio of each action alone; `select` mixes two where that has less."""
        regret, information = self.estimates(beliefs)
        return -regret.square() / information

    def select(self, beliefs: Beliefs) -> Tensor:
        first, second, share, ratio = mixtures(*self.estimates(beliefs))
        pair = argmax(-ratio, beliefs.generators)  # [lanes, batch, 1]
        chance = uniform(beliefs.generators, *pair.shape[1:]).to(pair.device)
        share = share.gather(-1, pair.unsqueeze(-1)).squeeze(-1)
        return torch.where(chance < share, second[pair], first[pair])

    def estimates(self, beliefs: Beliefs) -> tuple[Tensor, Tensor]:
        """Expected regret and information of each action, both `[lanes, batch, 1, actions]`."""
        # Over the last axis the sums of all lanes and actions round alike; in float64 equal draws vary by exactly 0.
        values = beliefs.draw(self.draws).movedim(2, -1).contiguous().double()  # [lanes, batch, actions, draws]
        highest = values.amax(2, keepdim=True)
        regret = (highest - values).mean(-1)
        deviation = values - values.mean(-1, keepdim=True)
        if self.information == "value":
            information = deviation.square().mean(-1)
        else:
            best = (values == highest).double()
            optimal = best / best.sum(2, keepdim=True)  # tied actions share a draw
            probability = optimal.mean(-1)  # p(a*)
            # E[deviation; a*], which is p(a*) (E[Q(a) | a*] - E[Q(a)]): [lanes, batch, actions, optimal actions]
            joint = (deviation.unsqueeze(3) * optimal.unsqueeze(2)).mean(-1)
            information = (joint.square() / probability.clamp_min(NOTHING).unsqueeze(2)).sum(-1)
        return regret.unsqueeze(2), information.clamp_min(NOTHING).unsqueeze(2)


def mixtures(regret: Tensor, information: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The best mixture of each pair of actions: both actions `[pairs]`, the probability of the second
    and the information ratio, `[..., pairs]`, from regret and information above 0, `[..., actions]`.

    An action paired with itself is that action alone. Where one of a pair is better alone, the
    ratio of the pair is infinite.
    """
    actions = regret.shape[-1]
    first, second = torch.triu_indices(actions, actions, device=regret.device)
    a0, b0 = regret[..., first], information[..., first]
    a1, b1 = regret[..., second] - a0, information[..., second] - b0
    # f(q) = (a0 + a1 q)² / (b0 + b1 q) is convex on [0, 1], so a zero of f' between the ends beats both. The other
    # zero, without regret, is never between them.
    share = a0 / a1 - 2 * b0 / b1
    mixed = (share > 0) & (share < 1)  # not where it is NaN
    share = torch.where(mixed, share, 0.0)
    ratio = (a0 + a1 * share).square() / (b0 + b1 * share)
    return first, second, share, torch.where(mixed | (first == second), ratio, torch.inf)


@hookimpl
def explore_selections() -> list[type]:
    return [InformationDirected]
