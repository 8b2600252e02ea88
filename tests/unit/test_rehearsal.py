"""What a component of a plugin gets wrong is told, with its name, before anything is trained."""

import contextlib
import math
import random
from functools import partial

import dm_env
import numpy as np
import pytest
import torch
from building import BSP, CELLS, PINS, Walk, build, live, weights
from dm_env import specs
from explore_plugins.epinet import Epinet
from explore_plugins.hypermodel import Hypermodel
from explore_plugins.noise import NoisyNet
from explore_plugins.objectives import SampledTD, WassersteinTD
from explore_plugins.priors import NoPrior
from explore_plugins.selections import MeanArgmax, SampledArgmax
from explore_plugins.softplus_heads import SoftplusHeads
from stateful import ENVIRONMENTS, Holder

from explore import nn as lane_nn
from explore._learning.rehearsal import rehearse, rehearse_resume
from explore._state import Unsavable
from explore.errors import UserError
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
        ({"value": Unlifted, "prior": NoPrior}, "Unlifted mixes lanes"),
        ({"value": Averaging}, "Averaging mixes lanes"),
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


@pytest.mark.parametrize("compile", [False, True])
def test_a_network_without_parameters_is_no_obstacle(compile, only_traced):
    agent = build(uncertainty=Constant, compile=compile)
    rows = live(agent, 8)
    assert rows[0][-1]["mean_loss"] > 0
    assert rows[0][-1]["uncertainty"] == pytest.approx(4)  # 1, and 3 times as much of the prior


def test_a_rehearsal_leaves_no_trace():
    once, twice = build(), build()
    rehearse(twice.learner, [MeanArgmax()], twice.replay)
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


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize(("parts", "part"), [({"uncertainty": Frozen}, 1), ({"value": FrozenLifted}, 0)])
def test_what_is_frozen_is_not_trained(parts, part, compile, only_traced):
    agent = build(**parts, compile=compile)
    stack = agent.function.stacks[part]
    before = {name: tensor.clone() for name, tensor in stack.view_parameters(stack.buffer[0]).items()}
    live(agent, 8)
    changed = {
        name for name, tensor in stack.view_parameters(stack.buffer[0]).items() if not tensor.equal(before[name])
    }
    assert changed == set(stack.trainable)
    assert 0 < len(changed) < len(before)


SAMPLED = PINS | {"objective": partial(SampledTD, indices=2), "target": SampledArgmax}
COMPILED = {
    "PINs": PINS,
    "BSP": BSP,
    "a hypermodel, clipped": SAMPLED | {"uncertainty": Hypermodel, "gradient_clip": 0.1, "adam_epsilon": 1e-4},
    "an epinet": SAMPLED | {"uncertainty": Epinet, "double_q": True},
    "NoisyNet": SAMPLED | {"uncertainty": NoisyNet},
}


@pytest.mark.parametrize("parts", COMPILED.values(), ids=COMPILED)
def test_the_compiled_step_learns_as_the_eager_one(parts, only_traced):
    compare_with_eager(parts)


def test_the_generated_code_learns_as_the_eager_step():
    compare_with_eager(PINS)


def compare_with_eager(parts):
    eager, compiled = (build(**(parts | {"compile": compile})) for compile in (False, True))
    live(eager, 8)
    live(compiled, 8)
    for one, other in zip(weights(eager)[0], weights(compiled)[0]):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


class Gym(Walk):
    def step(self, action):
        return np.zeros((2, 2)), 1.0, False, {}


class Flat(Walk):
    def reset(self):
        return dm_env.restart(np.zeros(4, np.float32))


class Outside(Walk):
    def _observation(self):
        return np.int32(9)


class Unpaid(Walk):
    def step(self, action):
        return super().step(action)._replace(reward=None)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (Gym, r"environment\.Gym\.step must return a dm_env\.TimeStep, .*, got tuple"),
        (Flat, r"environment\.Flat observes shape \[4\], its spec says \[2, 2\]"),
        (partial(Outside, spec=CELLS), r"environment\.Outside observes 9, its spec says from 0 to 8"),
        (Unpaid, r"environment\.Unpaid gives the reward None, which is no finite number"),
    ],
)
def test_an_environment_that_breaks_its_contract_is_told_how(environment, message):
    with pytest.raises(UserError, match=message):
        rehearse_resume(lambda: environment(seed=0), "environment.Some")


def test_an_agent_may_keep_the_observations_it_acted_on():
    agent, kept = build(), []
    act = agent.act

    def keeping(observations, active):
        kept.append((observations, observations.copy()))
        return act(observations, active)

    agent.act = keeping
    live(agent, 2)
    assert all((kept_one == copy).all() for kept_one, copy in kept)


@pytest.mark.parametrize("build", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_environments_pass_the_rehearsal(build):
    rehearse_resume(build, "environment")


class Corridor(dm_env.Environment):
    """Third parties derive from this: five steps, the observation is what `look` says."""

    def __init__(self) -> None:
        self.time = 0

    def reset(self) -> dm_env.TimeStep:
        self.time = 0
        return dm_env.restart(np.float32(self.look()))

    def step(self, action: int) -> dm_env.TimeStep:
        self.time += 1
        make = dm_env.termination if self.time == 5 else dm_env.transition
        return make(1.0, np.float32(self.look()))

    def look(self) -> float:
        return self.time

    def observation_spec(self) -> specs.Array:
        return specs.Array((), np.float32)

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(2)


class WithGenerator(Corridor):
    def __init__(self) -> None:
        super().__init__()
        self.moves = (n for n in range(10**6))

    def look(self) -> float:
        return next(self.moves)


class DrawsGlobally(Corridor):
    def look(self) -> float:
        return np.random.rand() + random.random() + torch.rand(()).item()


class CountsInItsClass(Corridor):
    looks = 0

    def look(self) -> float:
        type(self).looks += 1
        return self.looks


class CountsInAClosure(Corridor):
    def __init__(self) -> None:
        super().__init__()
        looks = 0

        def look() -> float:
            nonlocal looks
            looks += 1
            return looks

        self.look = look  # type: ignore[method-assign]


class BuildsABoard(Corridor):
    board: Holder | None = None

    def reset(self) -> dm_env.TimeStep:
        self.board = Holder(looks=0)
        return super().reset()

    def look(self) -> float:
        assert self.board is not None
        self.board.looks += 1
        return self.board.looks


class SavesItsBoard(BuildsABoard):
    def state_dict(self) -> dict[str, int]:
        assert self.board is not None
        return {"looks": self.board.looks, "time": self.time}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.board, self.time = Holder(looks=state["looks"]), state["time"]


class ForgetsItsTime(Corridor):
    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def look(self) -> float:
        self.total += 1
        return self.total

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None: ...


class FailsWhenPutBack(ForgetsItsTime):
    def load_state_dict(self, state: dict[str, int]) -> None:
        del self.total


class SeesNothingButNaN(Corridor):
    def look(self) -> float:
        return math.nan


@pytest.mark.parametrize("build", [Corridor, DrawsGlobally, SavesItsBoard, SeesNothingButNaN])
def test_third_parties_that_can_be_resumed(build):
    rehearse_resume(build, "environment")


@pytest.mark.parametrize(
    "build, message",
    [
        (
            WithGenerator,
            r"^environment\.moves is a generator, which cannot be saved; give the object that holds it state_dict",
        ),
        (CountsInItsClass, "^environment does not go on the same after it is put back .*; give it state_dict"),
        (CountsInAClosure, "^environment does not go on the same after it is put back .*; give it state_dict"),
        (ForgetsItsTime, "^environment does not go on the same after it is put back"),
        (
            FailsWhenPutBack,
            r"^environment does not go on after it is put back \(AttributeError: .*; give it state_dict",
        ),
        (
            BuildsABoard,
            r"^environment\.board holds a Holder that a newly built one does not have; give the object that",
        ),
    ],
)
def test_third_parties_that_cannot_be_resumed(build, message):
    with pytest.raises(Unsavable, match=message):
        rehearse_resume(build, "environment")


@pytest.mark.parametrize("build", [DrawsGlobally, WithGenerator])
def test_the_rehearsal_leaves_the_global_generators_as_they_were(build):
    def states():
        _, words, *rest = np.random.get_state()
        return words.tolist(), rest, random.getstate(), torch.get_rng_state().tolist()

    before = states()
    with contextlib.suppress(Unsavable):
        rehearse_resume(build, "environment")
    assert states() == before
