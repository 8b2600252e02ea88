"""check_bonus, and the checks of memories that modules hold: every promise that is broken is reported."""

import pytest
import torch
from explore_plugins.bonuses import RND, VisitCounts
from sample_components import Directions

from explore.interfaces import Bonus, Memory, Signs
from explore.nn import MLP, zeros
from explore.testing import Nonconformance, Options, check_bonus, check_uncertainty

CELLS = Options(observations=["integers"])


class Rewards(Bonus):
    """Keeps every promise: the sum of the rewards of each action, squared."""

    def __init__(self, spec):
        super().__init__()
        self.register_buffer("sums", zeros(spec.num_actions))

    def observe(self, transitions):
        self.sums.scatter_add_(1, transitions.action, transitions.reward * transitions.there)

    def forward(self, obs):
        return self.sums.square().unsqueeze(1).expand(-1, obs.shape[1], -1)


class MixesLanes(Rewards):
    def observe(self, transitions):
        self.sums += (transitions.reward * transitions.there).sum()


class CountsPadding(Rewards):
    def observe(self, transitions):
        self.sums.scatter_add_(1, transitions.action, torch.ones_like(transitions.reward))


class Negative(Rewards):
    def forward(self, obs):
        return -1 - super().forward(obs)


class OneForAll(Rewards):
    def forward(self, obs):
        return super().forward(obs)[..., :1]


class Flat(Rewards):
    def __init__(self, spec):
        super().__init__(spec)
        self.register_buffer("total", torch.zeros(()))


SEEN = {}


class KeptElsewhere(Rewards):
    """Its buffer is in no attribute, so no checkpoint has it."""

    def observe(self, transitions):
        SEEN[id(self)] = SEEN.get(id(self), 0) + transitions.there.sum(1, keepdim=True)

    def forward(self, obs):
        seen = SEEN.get(id(self), torch.zeros(len(obs), 1))
        return seen.unsqueeze(1).expand(-1, obs.shape[1], self.sums.shape[1])


class Learned(Bonus):
    losses = ("error",)

    def __init__(self, spec):
        super().__init__()
        self.stores = {"coins": Signs(2)}
        self.net = MLP(spec.observation, (8,), spec.num_actions)

    def forward(self, obs):
        return self.net(obs).square()

    def loss(self, transitions):
        error = self.net(transitions.obs).sum(-1) - transitions.stored["coins"].sum(-1)
        return {"error": error.square().mean(1)}


class Scalar(Learned):
    def loss(self, transitions):
        return {"error": super().loss(transitions)["error"].sum()}


class Unnamed(Learned):
    def loss(self, transitions):
        return {"mistake": super().loss(transitions)["error"]}


class NeverTrained(Learned):
    def loss(self, transitions):
        return {"error": 0 * transitions.reward.mean(1).requires_grad_()}


@pytest.mark.parametrize("cls", [Rewards, Learned, VisitCounts, RND])
def test_a_bonus_that_keeps_its_promises_passes(cls):
    check_bonus(cls, CELLS)


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (MixesLanes, r"MixesLanes mixes lanes: what one seed observes changes 0\.sums of others"),
        (CountsPadding, "CountsPadding takes padding for transitions: multiply what is observed by transitions.there"),
        (Negative, "Negative gives 1/n that is negative or not finite"),
        (OneForAll, r"OneForAll gives 1/n of shape \[3, 4, 1\], expected \[lanes, batch, actions\]"),
        (Flat, "Flat has no axis of lanes in total: make it with explore.nn.zeros"),
        (KeptElsewhere, "KeptElsewhere does not go on as it would have after a run is resumed from a checkpoint"),
        (Scalar, r"Scalar gives error of shape \[\], expected \[lanes\]"),
        (Unnamed, r"Unnamed gives the losses \['mistake'\], but names \['error'\]"),
        (NeverTrained, "NeverTrained never trains its parameter net.layers"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_bonus_that_breaks_a_promise_is_reported(cls, message):
    with pytest.raises(Nonconformance, match=message):
        check_bonus(cls, CELLS)


def test_a_memory_that_a_module_holds_is_tried_with_it():
    class Mixed(Memory):
        def __init__(self, spec):
            super().__init__()
            self.register_buffer("seen", zeros())

        def observe(self, transitions):
            self.seen += transitions.there.sum()

    class Holder(Directions):
        def __init__(self, spec):
            super().__init__(spec)
            self.memory = Mixed(spec)

        def build_twin(self, spec):
            return Directions(spec)

    with pytest.raises(Nonconformance, match=r"Holder mixes lanes: what one seed observes changes 0\.seen of others"):
        check_uncertainty(Holder, CELLS)
