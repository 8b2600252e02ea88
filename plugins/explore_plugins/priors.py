"""Prior functions: what the agent believes before it has seen anything."""

import math

from torch import Tensor

from explore import hookimpl
from explore.interfaces import Prior
from explore.nn import check_init


class Additive(Prior):
    """Adds a frozen random twin: ν + β1 ν̄ for value networks, m + β2 m̄ for uncertainty.

    Osband et al. 2018; paper, section "Network Design".

    Args:
      scale: β1 (β of BSP), for value networks.
      uncertainty_scale: β2, for uncertainty networks; None: the same as scale.
      init: initialiser of the twins; None: that of the network they are paired with.
    """

    def __init__(self, scale: float = 1.0, uncertainty_scale: float | None = None, init: str | None = None):
        for name, value in (("scale", scale), ("uncertainty_scale", uncertainty_scale)):
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite, got {value!r}")
        check_init(init, optional=True)
        self.scales = {"value": scale, "uncertainty": scale if uncertainty_scale is None else uncertainty_scale}
        self.init = init

    def join(self, trained: Tensor, frozen: Tensor, network: str) -> Tensor:
        return trained + self.scales[network] * frozen


class NoPrior(Prior):
    """The trained networks alone."""

    has_twin = False

    def join(self, trained: Tensor, frozen: Tensor, network: str) -> Tensor:
        return trained


@hookimpl
def explore_priors() -> list[type]:
    return [Additive, NoPrior]
