"""What a component of a plugin gets wrong is told, with its name, before anything is trained."""

from functools import partial

import pytest
import torch
from building import BSP, PINS, build, live, weights
from explore_plugins.bonuses import RND, CoinFlips, Features
from explore_plugins.epinet import Epinet
from explore_plugins.hypermodel import Hypermodel
from explore_plugins.mean_net import MLP
from explore_plugins.noise import NoisyNet
from explore_plugins.objectives import SampledTD, WassersteinTD
from explore_plugins.priors import NoPrior
from explore_plugins.selections import MeanArgmax, SampledArgmax
from explore_plugins.softplus_heads import SoftplusHeads

from explore import nn as lane_nn
from explore._learning.preflight import check_learner
from explore._native.library import without_kernels
from explore._values.acting import ActionSelector
from explore.interfaces import ScaleModule, Selection, ValueNetwork


class EveryDraw(Selection):
    """Forgets to reduce its draws to one score."""

    def scores(self, beliefs):
        return beliefs.draw(4)


class NoSuchThing(Selection):
    def scores(self, beliefs):
        return beliefs.nothing()


class Misnamed(WassersteinTD):
    losses = ("td",)


class Unaveraged(WassersteinTD):
    def loss(self, function, features, prepared):
        return {name: loss.sum() for name, loss in super().loss(function, features, prepared).items()}


class Unlifted(ValueNetwork):
    """An ordinary layer, whose three outputs might be taken for three lanes."""

    def __init__(self, spec):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3, bias=False)

    def forward(self, obs):
        return self.layer(obs.flatten(2))


class Averaging(ValueNetwork):
    """Subtracts a mean over all seeds."""

    def __init__(self, spec):
        super().__init__()
        self.net = lane_nn.MLP(spec.observation, (5,), spec.num_actions)

    def forward(self, obs):
        values = self.net(obs)
        return values - values.mean(0, keepdim=True)


class Constant(ScaleModule):
    """The same uncertainty everywhere, without a parameter."""

    def __init__(self, spec, heads=2):
        super().__init__(heads)
        self.actions = spec.num_actions

    def forward(self, obs):
        return torch.ones(*obs.shape[:2], self.actions, self.heads)


class Counting(SoftplusHeads):
    """Keeps what it observes in an attribute."""

    seen = 0

    def observe(self, transitions):
        self.seen += 1


class Decayed(MLP):
    losses = ("decay",)

    def loss(self, transitions):
        return {"decay": self(transitions.obs).square().mean((1, 2))}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"acting": EveryDraw},
            r"EveryDraw selects actions of shape \[3, 1, 4\], expected \[lanes, batch, draws or 1\]",
        ),
        ({"target": EveryDraw}, r"EveryDraw selects actions of shape \[3, 4, 4\]"),
        ({"evaluation": NoSuchThing}, "NoSuchThing fails on made-up transitions: AttributeError: "),
        ({"objective": Misnamed}, r"Misnamed gives the losses \['mean_loss', 'uncertainty_loss'\], but names \['td'\]"),
        ({"objective": Unaveraged}, r"Unaveraged gives mean_loss of shape \[\], expected \[lanes\]"),
        ({"value": Unlifted, "prior": NoPrior}, "Unlifted (mixes lanes|has no axis of lanes)"),
        ({"value": Averaging}, "Averaging mixes lanes"),
        ({"uncertainty": Counting}, "Counting.observe changes seen, which copies of it such as its target"),
        (
            BSP | {"value": partial(Decayed, hidden=(5,))},
            "Decayed has a loss of its own or observes, which is given transitions of each seed",
        ),
    ],
)
def test_a_component_that_goes_wrong_is_refused_by_name(parts, message):
    with pytest.raises(ValueError, match=message):
        build([0, 1, 2], **parts)


def test_a_network_without_an_axis_of_lanes_is_refused():
    with pytest.raises(
        ValueError, match=r"Unlifted has no axis of lanes in layer\.weight: build its layers with explore\.nn"
    ):
        build([0, 1], value=Unlifted)


def test_a_network_without_parameters_is_no_obstacle():
    agent = build(uncertainty=Constant)
    rows = live(agent, 8)
    assert rows[0][-1]["mean_loss"] > 0
    assert rows[0][-1]["uncertainty"] == pytest.approx(4)  # 1, and 3 times as much of the prior


def test_a_rehearsal_leaves_no_trace():
    once, twice = build(), build()
    check_learner(twice.learner, [ActionSelector(twice.function, MeanArgmax(), "acting")], twice.replay, 8)
    assert live(once, 6) == live(twice, 6)


class Frozen(SoftplusHeads):
    """Heads on random features that are not trained."""

    def __init__(self, spec):
        super().__init__(spec, heads=3, hidden=(7,))
        self.net.layers[0].requires_grad_(False)


class FrozenLifted(ValueNetwork):
    def __init__(self, spec):
        super().__init__()

        def module():
            layers = torch.nn.Sequential(
                torch.nn.Flatten(), torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
            )
            layers[1].requires_grad_(False)
            return layers

        self.net = lane_nn.per_lane(module)

    def forward(self, obs):
        return self.net(obs)


@pytest.mark.parametrize(("parts", "part"), [({"uncertainty": Frozen}, 1), ({"value": FrozenLifted}, 0)])
def test_what_is_frozen_is_not_trained(parts, part):
    agent = build(**parts)
    stack = agent.function.stacks[part]
    before = {name: tensor.clone() for name, tensor in stack.view_parameters(stack.buffer[0]).items()}
    live(agent, 8)
    changed = {
        name for name, tensor in stack.view_parameters(stack.buffer[0]).items() if not tensor.equal(before[name])
    }
    assert changed == set(stack.trainable)
    assert 0 < len(changed) < len(before)


class Slow(SoftplusHeads):
    learning_rate = 1e-5


SAMPLED = PINS | {"objective": partial(SampledTD, indices=2), "target": SampledArgmax}
KINDS = {
    "PINs": PINS,
    "BSP": BSP,
    "a hypermodel, clipped": SAMPLED | {"uncertainty": Hypermodel, "gradient_clip": 0.1, "adam_epsilon": 1e-4},
    "an epinet": SAMPLED | {"uncertainty": Epinet, "double_q": True},
    "NoisyNet": SAMPLED | {"uncertainty": NoisyNet},
    "counts in features": PINS | {"bonus": Features, "bonus_scale": 0.5, "replay_weight": 0.5},
    "heads at a rate of their own": PINS | {"uncertainty": Slow},
}


@pytest.mark.parametrize("parts", KINDS.values(), ids=KINDS)
def test_kernels_learn_as_pytorch_does(parts):
    compare_with_pytorch(parts)


def test_gradients_are_clipped_beside_a_network_without_trained_parameters():
    compare_with_pytorch(PINS | {"uncertainty": Constant, "gradient_clip": 0.1})


@pytest.mark.parametrize("bonus", [CoinFlips, RND])
def test_kernels_learn_losses_of_their_own(bonus):
    compare_with_pytorch(PINS | {"bonus": bonus, "bonus_scale": 0.5})


def compare_with_pytorch(parts):
    tame = {"adam_epsilon": 1e-3} | parts  # lest Adam blows rounding up to the size of a step
    native = build(**tame)
    with without_kernels():
        plain = build(**tame)
    live(native, 8)
    live(plain, 8)
    for one, other in zip(weights(native)[0], weights(plain)[0]):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_an_agent_may_keep_the_observations_it_acted_on():
    agent, kept = build(), []
    act = agent.act

    def keeping(observations, active):
        kept.append((observations, observations.copy()))
        return act(observations, active)

    agent.act = keeping
    live(agent, 2)
    assert all((kept_one == copy).all() for kept_one, copy in kept)
