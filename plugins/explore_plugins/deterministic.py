"""No uncertainty: the value network alone, as in DQN."""

from explore import hookimpl
from explore.interfaces import Members, Spec
from explore.nn import exact


@exact
class Deterministic(Members):
    """A single value function, the same at every index (DQN)."""

    def __init__(self, spec: Spec):
        super().__init__(1)


@hookimpl
def explore_uncertainty_modules() -> list[type]:
    return [Deterministic]
