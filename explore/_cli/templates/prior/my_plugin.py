"""A prior without extremes."""

from explore import hookimpl
from explore.interfaces import Prior


class MyPlugin(Prior):
    """Adds the frozen random twin of a network, cut to a range: nothing is believed to be extreme from the start.

    Args:
      scale: what the twin is multiplied by.
      limit: the largest size of what is added.
    """

    def __init__(self, scale: float = 2.0, limit: float = 1.0):
        for name, value in (("scale", scale), ("limit", limit)):
            if not value >= 0:
                raise ValueError(f"{name} must be at least 0, got {value!r}")
        self.scale, self.limit = scale, limit

    def join(self, trained, frozen, network):
        return trained + (self.scale * frozen).clamp(-self.limit, self.limit)


@hookimpl
def explore_priors():
    return [MyPlugin]
