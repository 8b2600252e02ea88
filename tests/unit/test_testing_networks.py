"""check_value: every promise that a value network breaks is reported."""

import numpy as np
import pytest
import torch
from building import Walk
from sample_components import QUICK, DrawsGlobally, FloatsOnly, MixesLanes, Net

from explore import nn as lane_nn
from explore.interfaces import ValueNetwork
from explore.testing import Nonconformance, check_value


class OneTooMany(Net):
    def __init__(self, spec):
        super().__init__(spec)
        self.net = lane_nn.MLP(spec.observation, (8,), spec.num_actions + 1)


class SharesObservations(Net):
    """What the others see, which the core does not change when it looks for mixed lanes."""

    def forward(self, obs):
        return self.net(obs) + 1e-3 * obs.float().mean()


class FalselyExact(ValueNetwork):
    exact = True

    def __init__(self, spec):
        super().__init__()
        self.first, self.last = lane_nn.Linear(spec.observation, 13), lane_nn.Linear(13, spec.num_actions)

    def forward(self, obs):
        return self.last(torch.nn.functional.softplus(self.first(obs).contiguous()))


class TheSameForAll(Net):
    def __init__(self, spec):
        super().__init__(spec)
        weight = self.net.layers[0].weight.data
        weight[:] = torch.randn(weight.shape[1:], generator=torch.Generator().manual_seed(0))


class OtherEachTime(Net):
    def __init__(self, spec):
        super().__init__(spec)
        weight = self.net.layers[0].weight.data
        weight += torch.from_numpy(np.random.default_rng().normal(size=weight.shape)).float()


class Noisy(Net):
    def forward(self, obs):
        return self.net(obs) + float(np.random.default_rng().normal())


class NeverUsed(Net):
    def __init__(self, spec):
        super().__init__(spec)
        self.spare = lane_nn.Linear(4, 4)


class Detached(Net):
    def forward(self, obs):
        *body, last = self.net.layers
        return last(lane_nn.apply_hidden(body, obs).detach())


class CountsInAFrozenParameter(Net):
    def __init__(self, spec):
        super().__init__(spec)
        self.seen = torch.nn.Parameter(torch.zeros(len(self.net.layers[0].weight), 1), requires_grad=False)

    def forward(self, obs):
        self.seen.data += 1
        return self.net(obs)


class Branches(Net):
    def forward(self, obs):
        values = self.net(obs)
        return values if float(values.sum()) < 1e9 else values * 2


class OtherLayers(Net):
    def as_layers(self):
        return list(self.net.layers)[1:]


class Shy(Net):
    def __init__(self, observation_spec):
        super().__init__(observation_spec)


class Swallows(Net):
    def __init__(self, spec, **settings):
        super().__init__(spec)


class Demanding(Net):
    def __init__(self, spec, width: int):
        super().__init__(spec)


BROKEN_VALUES = [
    (OneTooMany, r"OneTooMany gives values of shape \[2, 32, 4\], expected \[lanes, batch, actions\]"),
    (MixesLanes, "MixesLanes mixes lanes: a change in the first seed's network changes another seed's values"),
    (SharesObservations, "SharesObservations gives seed 3 other values .* or other last bits: let no mean, norm"),
    (FalselyExact, "FalselyExact gives seed 3 other .* mark with @explore.nn.exact only what its documentation says"),
    (DrawsGlobally, "DrawsGlobally draws from the global generator of torch, .*: take random numbers from what the"),
    (
        TheSameForAll,
        r"TheSameForAll begins with the same weights for every seed in .*layers\.0\.weight: draw them from",
    ),
    (OtherEachTime, "OtherEachTime begins with other weights each time .*: draw them from explore.nn"),
    (Noisy, "Noisy gives other values for the same observations each time; it must not be random"),
    (NeverUsed, r"NeverUsed never trains its parameter spare\.weight, .*: use it in what is returned"),
    (Detached, r"Detached never trains its parameter net\.layers\.0\.(bias|weight)"),
    (CountsInAFrozenParameter, "changes its parameter seen, which is frozen: let nothing assign to parameters"),
    (OtherLayers, "OtherLayers .* layer by layer"),
    (FloatsOnly, "FloatsOnly fails on observations of shape .*: TypeError: floats, please"),
    (Shy, "Shy takes nothing from the core, which supplies spec .*: its constructor must take spec before"),
    (Swallows, r"value.Swallows takes \*\*kwargs"),
    (Demanding, r"Demanding needs a value for width: call check_value\(Demanding, width=...\)"),
    (Walk, "value.Walk must be a subclass of explore.interfaces.ValueNetwork"),
]


def test_a_network_that_keeps_its_promises_passes():
    check_value(Net)


@pytest.mark.parametrize(("cls", "message"), BROKEN_VALUES, ids=lambda one: getattr(one, "__name__", ""))
def test_a_value_network_that_breaks_a_promise_is_reported(cls, message):
    with pytest.raises(Nonconformance, match=message):
        check_value(cls, QUICK)
