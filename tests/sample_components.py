"""Components for the tests of explore.testing: some keep every promise, others break one."""

from explore import nn as lane_nn
from explore.interfaces import Gaussian, UncertaintyModule, ValueNetwork
from explore.testing import Options

QUICK = Options()


class Net(ValueNetwork):
    """What third parties derive from: it keeps every promise."""

    def __init__(self, spec):
        super().__init__()
        self.net = lane_nn.MLP(spec.observation, (8,), spec.num_actions)

    def forward(self, obs):
        return self.net(obs)


class MixesLanes(Net):
    def forward(self, obs):
        values = self.net(obs)
        return values - values.mean(0, keepdim=True)


class DrawsGlobally(Net):
    def __init__(self, spec):
        super().__init__(spec)
        self.net.layers[0].weight.data.normal_()


class FloatsOnly(Net):
    def forward(self, obs):
        if not obs.is_floating_point():
            raise TypeError("floats, please")
        return self.net(obs)


class Directions(UncertaintyModule):
    """Keeps every promise: features(s, a) · z with z ~ N(0, I)."""

    distribution = Gaussian

    def __init__(self, spec, size: int = 3):
        super().__init__()
        self.index = self.distribution(size)
        self.net = lane_nn.MLP(spec.observation, (8,), spec.num_actions * size)

    def forward(self, obs):
        return self.net(obs).unflatten(-1, (-1, self.index.size))


def counter():
    """Counts the different things it has been told of, where no checkpoint sees it."""
    seen = set()

    def count(thing):
        seen.add(thing)
        return len(seen)

    return count
