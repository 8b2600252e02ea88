"""The uncertainty network of PINs: softplus heads on a shared trunk."""

from collections.abc import Sequence

from torch import Tensor

from explore import hookimpl
from explore.interfaces import ScaleModule, Spec
from explore.nn import MLP, softplus


class SoftplusHeads(ScaleModule):
    """Standard deviations m^u(s, a) >= 0 with U heads that share all but the last layer.

    Paper: section "Network Design"; the index is z ~ N(0, 1) and a head u ~ Unif{1..U}.

    Args:
      heads: number of heads U.
      hidden: widths of the hidden layers, shared by the heads.
      init: initialiser: torch, glorot_uniform, glorot_normal, he_normal or truncated_normal.
      train_heads: 'one': each sample trains one head drawn among its set mask bits (supplement A);
        'masked': it trains every head whose bit is set.
    """

    exact = True

    def __init__(
        self,
        spec: Spec,
        heads: int = 10,
        hidden: Sequence[int] = (50, 50, 50),
        init: str = "torch",
        train_heads: str = "one",
    ):
        super().__init__(heads, train_heads)
        self.net = MLP(spec.observation, hidden, spec.num_actions * heads, init)

    def forward(self, obs: Tensor) -> Tensor:
        return softplus(self.net(obs)).unflatten(-1, (-1, self.heads))


@hookimpl
def explore_uncertainty_modules() -> list[type]:
    return [SoftplusHeads]
