"""The uncertainty network of PINs: softplus heads on a shared trunk, and the same without softplus."""

from collections.abc import Sequence

from torch import Tensor

from explore import hookimpl
from explore.interfaces import GaussianAtHead, ScaleModule, Spec, UncertaintyModule
from explore.nn import MLP, exact, softplus


@exact
class SoftplusHeads(ScaleModule):
    """Standard deviations m^u(s, a) >= 0 with U heads that share all but the last layer.

    Paper: section "Network Design"; the index is z ~ N(0, 1) and a head u ~ Unif{1..U}.

    Args:
      heads: number of heads U.
      hidden: widths of the hidden layers, shared by the heads.
      init: initialiser: torch, glorot_uniform, glorot_normal, he_normal or truncated_normal.
      train_heads: 'one': each sample trains one head drawn among its set mask bits (supplement A);
        'masked': it trains every head whose bit is set.
      prior_inside: False: softplus(m) + β2 softplus(m̄), the paper's form, which never falls below its
        prior; True: softplus(m + β2 m̄).
    """

    def __init__(
        self,
        spec: Spec,
        heads: int = 10,
        hidden: Sequence[int] = (50, 50, 50),
        init: str = "torch",
        train_heads: str = "one",
        prior_inside: bool = False,
    ):
        super().__init__(heads, train_heads)
        self.net = MLP(spec.observation, hidden, spec.num_actions * heads, init)
        self.prior_inside = prior_inside

    def forward(self, obs: Tensor) -> Tensor:
        raw = self.net(obs).unflatten(-1, (-1, self.heads))
        return raw if self.prior_inside else softplus(raw)

    def activate(self, features: Tensor) -> Tensor:
        return softplus(features) if self.prior_inside else features


@exact
class LinearHeads(UncertaintyModule):
    """Scales m^u(s, a) with U heads that share all but the last layer, and may be negative.

    The index is z ~ N(0, 1) and a head u ~ Unif{1..U}. As z is symmetric, -m means the same as m.

    Args:
      heads: number of heads U.
      hidden: widths of the hidden layers, shared by the heads.
      init: initialiser: torch, glorot_uniform, glorot_normal, he_normal or truncated_normal.
      train_heads: 'one': each sample trains one head drawn among its set mask bits (supplement A);
        'masked': it trains every head whose bit is set.
    """

    def __init__(
        self,
        spec: Spec,
        heads: int = 10,
        hidden: Sequence[int] = (50, 50, 50),
        init: str = "torch",
        train_heads: str = "one",
    ):
        super().__init__()
        self.index = GaussianAtHead(heads, train_heads)
        self.net = MLP(spec.observation, hidden, spec.num_actions * heads, init)

    def forward(self, obs: Tensor) -> Tensor:
        return self.net(obs).unflatten(-1, (-1, self.index.size))

    def scales(self, features: Tensor) -> Tensor:
        return features


@hookimpl
def explore_uncertainty_modules() -> list[type]:
    return [SoftplusHeads, LinearHeads]
