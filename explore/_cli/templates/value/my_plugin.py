"""A dueling network."""

from collections.abc import Sequence

from explore import hookimpl
from explore.interfaces import ValueNetwork
from explore.nn import MLP


class MyPlugin(ValueNetwork):
    """A dueling network (Wang et al. 2016): Q(s, a) = V(s) + A(s, a) - the mean of A(s, .).

    Args:
      hidden: widths of the hidden layers, which V and A share.
    """

    def __init__(self, spec, hidden: Sequence[int] = (50,)):
        super().__init__()
        self.net = MLP(spec.observation, hidden, 1 + spec.num_actions)

    def forward(self, obs):  # [lanes, batch, ...] -> [lanes, batch, actions]
        value, advantage = self.net(obs).tensor_split([1], -1)
        return value + advantage - advantage.mean(-1, keepdim=True)


@hookimpl
def explore_value_networks():
    return [MyPlugin]
