"""Ensemble sampling: bootstrapped DQN, with a prior BSP_K and without BS_K."""

from explore import hookimpl
from explore.interfaces import Members, Spec
from explore.nn import exact


@exact
class Ensemble(Members):
    """K independent copies of the value network; the index is a member k ~ Unif{1..K}.

    Osband et al. 2016 (bootstrapped DQN) and 2018 (randomized prior functions).

    Args:
      size: number of members K.
    """

    def __init__(self, spec: Spec, size: int = 10):
        super().__init__(size)


@hookimpl
def explore_uncertainty_modules() -> list[type]:
    return [Ensemble]
