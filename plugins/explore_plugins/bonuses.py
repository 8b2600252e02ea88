"""How new a state and action are, 1/n̂(s, a): exact counts, counts in random features, coin flips, and RND."""

import math
from collections.abc import Sequence

import torch
from dm_env import specs
from torch import Tensor, nn

from explore import hookimpl
from explore.interfaces import Bonus, Signs, Spec, Transitions
from explore.nn import MLP, Linear, apply_elementwise, generators, zeros
from explore.streams import normal, uniform


class VisitCounts(Bonus):
    """Exact counts at one-hot observations: 1/n, and `unvisited` before the first visit.

    Args:
      unvisited: 1/n̂ of a pair that was never visited.
    """

    counts: Tensor  # [lanes, observations * actions]

    def __init__(self, spec: Spec, unvisited: float = 10.0):
        super().__init__()
        if not isinstance(spec.observation, specs.DiscreteArray):
            raise ValueError("bonus.VisitCounts needs one-hot observations; for others use bonus.Features")
        _check_unvisited(unvisited)
        self.unvisited, self.actions = unvisited, spec.num_actions
        self.register_buffer("counts", zeros(int(spec.observation.num_values) * spec.num_actions))

    def observe(self, transitions: Transitions) -> None:
        self.counts.scatter_add_(1, transitions.obs * self.actions + transitions.action, transitions.there)

    def forward(self, obs: Tensor) -> Tensor:
        counts = self.counts.unflatten(1, (-1, self.actions))[torch.arange(len(obs)).unsqueeze(1), obs]
        return 1 / counts.clamp_min(1 / self.unvisited)


class Features(Bonus):
    """Counts in random features: 1/n̂(s, a) = φᵀ Λ_a⁻¹ φ with Λ_a = λ I + Σ φφᵀ over the visits of a.

    That is the posterior variance of a linear model of φ(s). The features are √(2/d) cos(ω·s + b) with
    ω ~ N(0, 1/ℓ²), as many for each bandwidth ℓ (Rahimi and Recht 2007), so φ·φ is about 1.

    Args:
      features: number d of features.
      bandwidths: ℓ, in units of the observations: how far apart two states are new to each other.
      ridge: λ.
    """

    precision: Tensor  # Λ, [lanes, actions, features, features]
    covariance: Tensor  # its inverse, unless that is_outdated

    def __init__(
        self,
        spec: Spec,
        features: int = 128,
        bandwidths: Sequence[float] = (2.0, 1.0, 0.5, 0.25),
        ridge: float = 1.0,
    ):
        super().__init__()
        if isinstance(spec.observation, specs.DiscreteArray):
            raise ValueError("bonus.Features needs observations that are numbers; for others use bonus.VisitCounts")
        if not bandwidths or min(bandwidths) <= 0:
            raise ValueError(f"bandwidths must be a list of numbers above 0, got {bandwidths!r}")
        if features < 1 or features % len(bandwidths):
            raise ValueError(f"features must be a multiple of the number of bandwidths, got {features!r}")
        if not 0 < ridge < math.inf:
            raise ValueError(f"ridge must be above 0 and finite, got {ridge!r}")
        self.ridge = ridge
        self.cosines = RandomCosines(spec.observation, features, bandwidths)
        start = zeros(spec.num_actions, features, features) + torch.eye(features) * ridge
        self.register_buffer("precision", start.double())
        self.register_buffer("covariance", (start / ridge**2).double())
        self.is_outdated = False

    def observe(self, transitions: Transitions) -> None:
        phi = (self.features(transitions.obs) * transitions.there.unsqueeze(-1)).double()
        taken = nn.functional.one_hot(transitions.action, self.precision.shape[1]).double()
        of_action = phi.unsqueeze(1) * taken.movedim(-1, 1).unsqueeze(-1)  # [lanes, actions, batch, features]
        self.precision += of_action.mT @ of_action
        self.is_outdated = True

    def features(self, obs: Tensor) -> Tensor:
        """φ(s), `[lanes, batch, features]`."""
        return self.cosines(obs) / math.sqrt(self.precision.shape[-1])

    def forward(self, obs: Tensor) -> Tensor:
        if self.is_outdated:
            self.covariance, self.is_outdated = torch.linalg.inv(self.precision), False
        phi = self.features(obs).double().unsqueeze(1)
        return ((phi @ self.covariance) * phi).sum(-1).movedim(1, -1).clamp_min(0).float()


class CoinFlips(Bonus):
    """A network that predicts fair coin flips stored with each transition (Lobel et al. 2023).

    f(s, a) in R^d is regressed on d signs c that are drawn once for each visit. Of n visits it can learn no
    more than their mean, so the mean of its squares estimates 1/n̂. f is a trained network, at first 0, plus
    √unvisited times a frozen random function of variance 1.

    Args:
      coins: number d of signs.
      hidden: widths of the hidden layers.
      init: initialiser: torch, glorot_uniform, glorot_normal, he_normal or truncated_normal.
      unvisited: 1/n̂ of a pair that was never visited and is like no other.
      learning_rate: of this network; None: the agent's.
    """

    losses = ("coin_loss",)

    def __init__(
        self,
        spec: Spec,
        coins: int = 20,
        hidden: Sequence[int] = (64, 64),
        init: str = "glorot_normal",
        unvisited: float = 10.0,
        learning_rate: float | None = None,
    ):
        super().__init__()
        if coins < 1:
            raise ValueError(f"coins must be at least 1, got {coins!r}")
        _check_unvisited(unvisited)
        self.stores = {"coins": Signs(coins)}
        self.coins, self.unvisited, self.learning_rate = coins, unvisited, learning_rate
        self.net = MLP(spec.observation, hidden, spec.num_actions * coins, init)
        for parameter in self.net.layers[-1].parameters():
            parameter.data.zero_()
        self.cosines = RandomCosines(spec.observation, spec.num_actions * coins)

    def predict(self, obs: Tensor) -> Tensor:
        """f(s, a), `[lanes, batch, actions, coins]`."""
        return (self.net(obs) + math.sqrt(self.unvisited) * self.cosines(obs)).unflatten(-1, (-1, self.coins))

    def forward(self, obs: Tensor) -> Tensor:
        return self.predict(obs).square().mean(-1)

    def loss(self, transitions: Transitions) -> dict[str, Tensor]:
        error = _take(self.predict(transitions.obs), transitions.action) - transitions.stored["coins"]
        return {"coin_loss": error.square().sum(-1).mean(1)}


class RND(Bonus):
    """Random network distillation (Burda et al. 2019): the error of a network that learns a frozen random one.

    The error is divided by its mean over all transitions, each at its first sight, so that it is about 1
    for what is as new as things were.

    Args:
      outputs: numbers that are predicted for each action.
      hidden: widths of the hidden layers of both networks.
      init: initialiser: torch, glorot_uniform, glorot_normal, he_normal or truncated_normal.
      learning_rate: of this network; None: the agent's.
    """

    losses = ("rnd_loss",)
    error: Tensor  # [lanes], at first sight, summed up
    seen: Tensor  # [lanes], how many

    def __init__(
        self,
        spec: Spec,
        outputs: int = 16,
        hidden: Sequence[int] = (64, 64),
        init: str = "he_normal",
        learning_rate: float | None = None,
    ):
        super().__init__()
        if outputs < 1:
            raise ValueError(f"outputs must be at least 1, got {outputs!r}")
        self.outputs, self.learning_rate = outputs, learning_rate
        self.predictor = MLP(spec.observation, hidden, spec.num_actions * outputs, init)
        self.target = MLP(spec.observation, hidden, spec.num_actions * outputs, init).requires_grad_(False)
        self.register_buffer("error", zeros())
        self.register_buffer("seen", zeros())

    def errors(self, obs: Tensor) -> Tensor:
        """`[lanes, batch, actions]`"""
        return (self.predictor(obs) - self.target(obs)).square().unflatten(-1, (-1, self.outputs)).mean(-1)

    def observe(self, transitions: Transitions) -> None:
        error = _take(self.errors(transitions.obs), transitions.action) * transitions.there
        self.error += error.sum(1)
        self.seen += transitions.there.sum(1)

    def forward(self, obs: Tensor) -> Tensor:
        scale = self.error / self.seen.clamp_min(1)
        return self.errors(obs) / torch.where(scale > 0, scale, 1.0)[:, None, None]

    def loss(self, transitions: Transitions) -> dict[str, Tensor]:
        return {"rnd_loss": _take(self.errors(transitions.obs), transitions.action).mean(1)}


class RandomCosines(nn.Module):
    """Frozen random functions √2 cos(ω·s + b), of variance 1 over b; those of one-hot observations are independent."""

    def __init__(self, observation: specs.Array, functions: int, bandwidths: Sequence[float] = (1.0,)):
        super().__init__()
        self.layer = Linear(observation, functions).requires_grad_(False)
        matrix, phases = self.layer.matrix.data, self.layer.bias.data[..., :functions]
        if self.layer.one_hot:
            matrix[:] = 2 * math.pi * uniform(generators(), *matrix.shape[1:])
        else:
            lengths = torch.tensor(bandwidths).repeat_interleave(functions // len(bandwidths))
            matrix[:] = normal(generators(), *matrix.shape[1:]) / lengths
        phases[:] = 2 * math.pi * uniform(generators(), 1, functions)

    def forward(self, obs: Tensor) -> Tensor:
        return math.sqrt(2) * apply_elementwise(torch.cos, self.layer(obs))


def _take(tensor: Tensor, action: Tensor) -> Tensor:
    """What stands at the actions taken: `[lanes, batch, actions, ...]` -> `[lanes, batch, ...]`."""
    return tensor[torch.arange(len(tensor)).unsqueeze(1), torch.arange(tensor.shape[1]), action]


def _check_unvisited(unvisited: float) -> None:
    if not 1 <= unvisited < math.inf:
        raise ValueError(f"unvisited must be at least 1 and finite, got {unvisited!r}")


@hookimpl
def explore_bonuses() -> list[type]:
    return [VisitCounts, Features, CoinFlips, RND]
