"""The conformance kit: every built-in component passes it, and every promise that is broken is told."""

import contextlib
import io
import math
import random
import traceback
from functools import partial

import dm_env
import numpy as np
import pytest
import torch
from building import CELLS, PINS, Walk
from dm_env import specs
from explore_plugins.deep_sea import DeepSea
from explore_plugins.hypermodel import Hypermodel
from explore_plugins.mean_net import MLP
from explore_plugins.objectives import SampledTD
from explore_plugins.selections import MeanArgmax, SampledArgmax
from explore_plugins.softplus_heads import SoftplusHeads

import explore.testing
from explore import nn as lane_nn
from explore._cli.main import main
from explore._config.discovery import discover
from explore._storage.files import Lock
from explore.interfaces import (
    BASE_CLASSES,
    Judge,
    Launcher,
    Model,
    News,
    Observer,
    Prior,
    ScaleModule,
    Schedule,
    Selection,
    UncertaintyModule,
    ValueNetwork,
)
from explore.streams import normal, uniform
from explore.testing import (
    Nonconformance,
    Options,
    check_agent,
    check_environment,
    check_launcher,
    check_objective,
    check_observer,
    check_prior,
    check_schedule,
    check_selection,
    check_uncertainty,
    check_value,
    running,
)
from explore.testing.toy import Dice

QUICK = Options(compile=False)

# Every built-in passes

NEEDED = {
    "schedule.Constant": {"value": 0.5},
    "schedule.Linear": {"start": 1.0, "end": 0.1},
    "environment.Bsuite": {"id": "catch/0"},
    "environment.CartpoleSwingup": {"max_time": 0.5},
    "agent.Indexed": PINS,
}
COMPILED = ("value.MLP", "uncertainty.SoftplusHeads", "uncertainty.Hypermodel", "objective.SampledTD")
"""With compile = True, which is slow: one or two of each slot whose code is in the update step."""
BUILT_INS = {name: one for name, one in discover().components.items() if one.source == "built in"}


def test_there_is_a_check_for_every_slot():
    assert {f"check_{slot}" for slot in BASE_CLASSES} == {
        name for name in explore.testing.__all__ if name.startswith("check_")
    }


@pytest.mark.parametrize("name", [name for name in BUILT_INS if name != "launcher.Ray"])  # see test_launchers.py
def test_a_built_in_component_keeps_every_promise(name):
    if name == "observer.TensorBoard":
        pytest.importorskip("tensorboard")
    component = BUILT_INS[name]
    options = Options() if name in COMPILED else QUICK
    getattr(explore.testing, f"check_{component.slot}")(component.cls, options, **NEEDED.get(name, {}))


@pytest.mark.parametrize("parameters", [{"train_heads": "masked"}, {"heads": 1, "hidden": ()}])
def test_parameters_are_bound_as_gin_would(parameters):
    check_uncertainty(SoftplusHeads, QUICK, **parameters)


@pytest.mark.parametrize("id", ["bandit_noise/3", "memory_len/2", "cartpole_noise/1", "umbrella_length/4"])
def test_environments_of_bsuite_keep_every_promise(id):
    check_environment(BUILT_INS["environment.Bsuite"].cls, id=id)


def test_a_partial_of_a_class_is_a_component_too():
    check_environment(partial(DeepSea, size=4), deterministic=False)


def test_the_code_that_torch_generates_can_be_tried_too():
    check_value(MLP, Options(observations=["integers"], compile="inductor"), hidden=(4,))


def test_a_complaint_shows_where_the_component_failed_and_not_its_way_through_the_kit():
    def frames(cls):
        with pytest.raises(Nonconformance) as caught:
            check_value(cls, QUICK)
        cause = caught.value.__cause__
        return [entry.name for entry in caught.traceback[1:]], cause and cause.__traceback__

    assert frames(MixesLanes) == (["checked"], None)
    own, cause = frames(Fails)
    assert own == ["checked"]
    assert traceback.extract_tb(cause)[-1].name == "forward"


# Values


class Net(ValueNetwork):
    """What third parties derive from: it keeps every promise."""

    def __init__(self, spec):
        super().__init__()
        self.net = lane_nn.MLP(spec.observation, (8,), spec.num_actions)

    def forward(self, obs):
        return self.net(obs)


class OneTooMany(Net):
    def __init__(self, spec):
        super().__init__(spec)
        self.net = lane_nn.MLP(spec.observation, (8,), spec.num_actions + 1)


class MixesLanes(Net):
    def forward(self, obs):
        values = self.net(obs)
        return values - values.mean(0, keepdim=True)


class Fails(Net):
    def forward(self, obs):
        raise TypeError("no")


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


class DrawsGlobally(Net):
    def __init__(self, spec):
        super().__init__(spec)
        self.net.layers[0].weight.data.normal_()


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


class FloatsOnly(Net):
    def forward(self, obs):
        if not obs.is_floating_point():
            raise TypeError("floats, please")
        return self.net(obs)


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
    (FalselyExact, "FalselyExact gives seed 3 other .* say `exact = True` only of explore.nn, sums, products and ReLU"),
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
def test_a_value_network_that_breaks_a_promise_is_told(cls, message):
    with pytest.raises(Nonconformance, match=message):
        check_value(cls, QUICK)


def test_what_torch_cannot_compile_is_told_unless_it_is_not_asked_for():
    check_value(Branches, QUICK)
    with pytest.raises(Nonconformance, match=r"Branches, under compile = True: torch.compile failed: "):
        check_value(Branches)


def test_a_component_need_not_take_every_observation():
    check_value(FloatsOnly, Options(observations=["floats"], compile=False))
    check_value(Net, Options(observations=[specs.Array((3, 1, 2), np.float32)], compile=False))


def test_observations_of_an_unknown_kind_are_refused():
    with pytest.raises(ValueError, match="observations must be some of integers, floats or specs, got "):
        Options(observations=["images"])


def test_a_parameter_that_there_is_not_is_told():
    with pytest.raises(Nonconformance, match="MLP has no parameter 'widht': it has hidden, init"):
        check_value(MLP, widht=3)


def test_the_kit_leaves_everything_as_it_was():
    torch.set_num_threads(1)
    before = random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes()
    check_value(Net, QUICK)
    with pytest.raises(Nonconformance):
        check_value(DrawsGlobally, QUICK)
    assert before == (random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes())


# Uncertainty


class Heads(ScaleModule):
    def __init__(self, spec, heads: int = 2):
        super().__init__(heads)
        self.net = lane_nn.MLP(spec.observation, (8,), spec.num_actions * heads)

    def forward(self, obs):
        return lane_nn.softplus(self.net(obs)).unflatten(-1, (-1, self.heads))


class NegativeHeads(Heads):
    def forward(self, obs):
        return self.net(obs).unflatten(-1, (-1, self.heads))


class NegativeLater(Heads):
    def forward(self, obs):
        return 30 + self.net(obs).unflatten(-1, (-1, self.heads))


class SignedHeads(NegativeHeads):
    signed = True


class Directions(UncertaintyModule):
    """Keeps every promise: features(s, a) · z with z ~ N(0, I)."""

    def __init__(self, spec, size: int = 3):
        super().__init__()
        self.size = size
        self.net = lane_nn.MLP(spec.observation, (8,), spec.num_actions * size)

    def forward(self, obs):
        return self.net(obs).unflatten(-1, (-1, self.size))

    def draw(self, generators, *shape):
        return normal(generators, *shape, self.size)

    def variance(self, features):
        return features.square().sum(-1)


class WrongVariance(Directions):
    def variance(self, features):
        return features.square().mean(-1)


class WrongMean(Directions):
    def draw(self, generators, *shape):
        return 1 + super().draw(generators, *shape)


class DrawsTorch(Directions):
    def draw(self, generators, *shape):
        return torch.randn(len(generators), *shape, self.size)


class DrawsFromTheFirst(Directions):
    def draw(self, generators, *shape):
        return normal([generators[0]] * len(generators), *shape, self.size)


class NeedsEveryGenerator(Directions):
    def draw(self, generators, *shape):
        return torch.from_numpy(np.stack([g.normal(size=(*shape, self.size)) for g in generators])).float()


class FlipsTheIndex(Directions):
    def values(self, features, index):
        return super().values(features, index.neg_())


class OneIndex(Directions):
    def draw(self, generators, *shape):
        return torch.ones(len(generators), *shape, self.size)

    def mean_index(self):
        return torch.ones(self.size)

    def variance(self, features):
        return 0 * features.sum(-1)


class ForgetsAnAxis(Directions):
    def draw_for_learning(self, generators, mask, draws):
        return normal(generators, draws, self.size)


class Numbers(Directions):
    def describe_index(self, index):
        return float(index[0])


class Buffers(Directions):
    def __init__(self, spec):
        super().__init__(spec)
        self.register_buffer("scale", torch.ones(1))


class Bent(Directions):
    """Not linear in the index, and neither is its twin."""

    linear = False

    def values(self, features, index):
        return super().values(features, index).square()


BROKEN_MODULES = [
    (NegativeHeads, "NegativeHeads gives negative uncertainties; they must be at least 0"),
    (NegativeLater, "NegativeLater gives a negative uncertainty for some parameters .*: let its output go through"),
    (WrongVariance, "WrongVariance says its values vary by .*: variance must be that of values"),
    (WrongMean, "WrongMean has another mean over drawn indices than at mean_index: mean_index must be"),
    (DrawsTorch, "DrawsTorch draws from the global generator of torch"),
    (
        DrawsFromTheFirst,
        "DrawsFromTheFirst does not draw the index of a seed from that seed's generator in draw: draw with",
    ),
    (NeedsEveryGenerator, r"fails in draw where a generator is None, as of a lane that waits \(.*py:\d+\): Attribute"),
    (FlipsTheIndex, "FlipsTheIndex changes the index that is held for the episode: do not assign to the index"),
    (OneIndex, "OneIndex draws the same index for every episode: draw must take fresh numbers"),
    (ForgetsAnAxis, r"ForgetsAnAxis gives an index of shape .* in draw_for_learning: it must be \[lanes, batch"),
    (Numbers, "Numbers describes an index as .*: describe_index must return a text"),
    (Buffers, r"networks must keep their tensors in parameters, not in buffers \(scale\)"),
    (Bent, r"Bent.twin must give a module whose values are linear in the index"),
]


@pytest.mark.parametrize("cls", [Heads, SignedHeads, Directions])
def test_a_module_that_keeps_its_promises_passes(cls):
    check_uncertainty(cls, QUICK)


@pytest.mark.parametrize(("cls", "message"), BROKEN_MODULES, ids=lambda one: getattr(one, "__name__", ""))
def test_an_uncertainty_module_that_breaks_a_promise_is_told(cls, message):
    with pytest.raises(Nonconformance, match=message):
        check_uncertainty(cls, QUICK)


def test_a_module_that_looks_inside_the_value_network_needs_one_that_shows_its_layers():
    with pytest.raises(Nonconformance, match=r"Hypermodel looks at the layers of the value network, which value.Net"):
        check_uncertainty(Hypermodel, Options(agent={"value": Net}, compile=False))


# Priors


class Sum(Prior):
    def join(self, trained, frozen, network):
        return trained + frozen


class MeanOfAll(Prior):
    def join(self, trained, frozen, network):
        return trained + frozen - frozen.mean(0, keepdim=True)


class Flat(Prior):
    def join(self, trained, frozen, network):
        return (trained + frozen).flatten(1)


class Restless(Prior):
    def join(self, trained, frozen, network):
        return trained + random.random() * frozen


class InPlace(Prior):
    def join(self, trained, frozen, network):
        return trained.add_(frozen)


class OverActions(Prior):
    def join(self, trained, frozen, network):
        return trained + frozen.softmax(-2)


class Less(Prior):
    def join(self, trained, frozen, network):
        return trained - frozen


class OnlyThePrior(Prior):
    def join(self, trained, frozen, network):
        return 0 * trained.detach() + frozen + 0 * trained


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (MeanOfAll, "MeanOfAll mixes lanes: a seed's values depend on those of others: let no mean"),
        (Flat, r"Flat joins two tensors of shape \[1, 5, 3, 4\] to one of \[1, 60\]: join must keep the shape"),
        (Restless, "Restless draws from the global generator of random"),
        (InPlace, "InPlace changes the tensors that it joins|InPlace joins the same tensors to something else"),
        (OverActions, "OverActions joins an entry to something else beside other actions than by itself: join must"),
        (Less, "Less joins two uncertainties that are not negative to one that is"),
        (OnlyThePrior, "OnlyThePrior lets no gradient through to what is trained"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_prior_that_breaks_a_promise_is_told(cls, message):
    check_prior(Sum, Options(observations=["floats"]))
    with pytest.raises(Nonconformance, match=message):
        check_prior(cls)


# Selections


class FromOne(MeanArgmax):
    def select(self, beliefs):
        return super().select(beliefs) + 1


class Floats(MeanArgmax):
    def select(self, beliefs):
        return super().select(beliefs).float()


class EveryDraw(Selection):
    def scores(self, beliefs):
        return beliefs.draw(4)


class Reckless(Selection):
    def scores(self, beliefs):
        mean = beliefs.mean()
        return mean + torch.rand(mean.shape)


class Majority(Selection):
    def scores(self, beliefs):
        return beliefs.values().mean(0, keepdim=True).expand_as(beliefs.values())


class NobodyWaits(Selection):
    def scores(self, beliefs):
        return beliefs.mean() + torch.tensor([g.random() for g in beliefs.generators])[:, None, None, None]


class OneStreamForAll(Selection):
    """Draws for everybody from the first that is awake."""

    def scores(self, beliefs):
        mean = beliefs.mean()
        first = next(g for g in beliefs.generators if g is not None)
        return uniform([first] * len(mean), *mean.shape[1:])


def counter():
    """Counts the different things it has been told of, where no checkpoint sees it."""
    seen = set()

    def count(thing):
        seen.add(thing)
        return len(seen)

    return count


class Uneven(SampledArgmax):
    """Every other episode it does the opposite."""

    def __init__(self):
        self.count = counter()

    def scores(self, beliefs):
        return super().scores(beliefs) * (-1) ** self.count(beliefs.progress)


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (FromOne, "FromOne selects action 3 of 3: actions are numbered from 0"),
        (Floats, "Floats selects actions of type torch.float32: they must be whole numbers"),
        (EveryDraw, r"EveryDraw selects actions of shape \[1, 1, 4\], expected \[lanes, batch, draws or 1\]"),
        (Reckless, "Reckless draws from the global generator of torch"),
        (Majority, "Majority picks other actions for seed 3 beside seeds 9, 3 than alone: let no mean"),
        (NobodyWaits, "NobodyWaits fails where a generator is None, as of a lane that waits"),
        (OneStreamForAll, "OneStreamForAll picks other actions for seed 3"),
        (Uneven, "Uneven does not go on as it would have after a run is resumed .*: keep what changes in plain"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_selection_that_breaks_a_promise_is_told(cls, message):
    with pytest.raises(Nonconformance, match=message):
        check_selection(cls)


# Objectives and schedules


class Misnamed(SampledTD):
    losses = ("td",)


class OneForAll(SampledTD):
    def loss(self, function, features, prepared):
        return {"loss": super().loss(function, features, prepared)["loss"].mean()}


class Shared(SampledTD):
    def loss(self, function, features, prepared):
        loss = super().loss(function, features, prepared)["loss"]
        return {"loss": loss.mean().expand(len(loss))}


class NoGradient(SampledTD):
    def loss(self, function, features, prepared):
        loss = super().loss(function, features, prepared)["loss"]
        return {"loss": loss.detach() + 0 * loss}


class Logarithm(SampledTD):
    def loss(self, function, features, prepared):
        return {"loss": super().loss(function, features, prepared)["loss"] * math.nan}


class Flattens(SampledTD):
    def prepare(self, phase):
        return {**super().prepare(phase), "extra": phase.reward.flatten()}


class Shaky(SampledTD):
    def prepare(self, phase):
        prepared = super().prepare(phase)
        return prepared | {"target": prepared["target"] + torch.randn(prepared["target"].shape)}


class Picky(SampledTD):
    def check(self, function):
        if not any(isinstance(part, Directions) for part in function.parts):
            raise ValueError("objective.Picky needs uncertainty.Directions")


class KeepsCount(SampledTD):
    """Gives later phases more weight."""

    def __init__(self):
        super().__init__()
        self.count = counter()

    def prepare(self, phase):
        prepared = super().prepare(phase)
        return prepared | {"weight": prepared["weight"] * self.count(phase.progress)}


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (Misnamed, r"Misnamed gives the losses \['loss'\], but names \['td'\] in its `losses`"),
        (OneForAll, r"OneForAll gives loss of shape \[\], expected \[lanes\]"),
        (Shared, "Shared mixes lanes: the loss of one seed has a gradient in another's network"),
        (NoGradient, "NoGradient trains nothing: its loss has no gradient: loss must depend on `features`"),
        (Logarithm, "Logarithm gives loss that is not finite"),
        (Flattens, r"Flattens prepares extra of shape \[7\] for 7 transitions of 1 seeds: it must be \[lanes, batch"),
        (Shaky, "Shaky draws from the global generator of torch"),
        (Picky, r"Picky accepts none of .* needs uncertainty.Directions\): name what it needs with Options\(agent="),
        (KeepsCount, "KeepsCount does not go on as it would have after a run is resumed"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_an_objective_that_breaks_a_promise_is_told(cls, message):
    with pytest.raises(Nonconformance, match=message):
        check_objective(cls, QUICK)


def test_an_objective_may_need_a_certain_module():
    check_objective(Picky, Options(agent={"uncertainty": Directions}, compile=False))


class Stumbles(Schedule):
    def __call__(self, progress):
        return math.inf if progress == 1 else 1 / (1 - progress)


class Words(Schedule):
    def __call__(self, progress):
        return "much"


class Remembers(Schedule):
    def __init__(self):
        self.value = 1.0

    def __call__(self, progress):
        self.value *= 0.9
        return self.value


class Random(Schedule):
    def __call__(self, progress):
        return random.random()


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (Stumbles, "Stumbles gives inf when 100% of the run is over: it must be a finite number"),
        (Words, "Words gives 'much' when 0% of the run is over"),
        (Remembers, "Remembers gives other numbers for the same share of the run: let it depend on `progress` alone"),
        (Random, "Random draws from the global generator of random"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_schedule_that_breaks_a_promise_is_told(cls, message):
    with pytest.raises(Nonconformance, match=message):
        check_schedule(cls)


# Environments


class Stroll(Walk):
    """Keeps every promise."""

    def __init__(self, seed: int):
        super().__init__(seed, CELLS)


class GlobalStroll(Stroll):
    def step(self, action):
        timestep = super().step(action)
        return timestep._replace(reward=timestep.reward + np.random.normal())


class Unseeded(Stroll):
    def __init__(self, seed: int):
        super().__init__(int(np.random.default_rng().integers(2**31)))


class OneForTheClass(Stroll):
    steps = 0

    def reset(self):
        type(self).steps = 0
        return super().reset()

    def step(self, action):
        type(self).steps += 1
        return super().step(action)._replace(reward=float(self.steps))


class OutOfBounds(Stroll):
    def _observation(self):
        return np.int32(super()._observation() + 1)


class Generous(Stroll):
    def reward_spec(self):
        return specs.BoundedArray((), float, 0.0, 0.1)


class Unrewarding(Stroll):
    def step(self, action):
        return super().step(action)._replace(reward=None)


class Growing(Stroll):
    def step(self, action):
        return super().step(action)._replace(discount=1.5)


class Endless(Stroll):
    def step(self, action):
        return dm_env.transition(0.0, self._observation())


class Restarts(Stroll):
    """Goes on with the next episode by itself."""

    def step(self, action):
        timestep = super().step(action)
        if timestep.last() and self.episodes % 2:
            return self.reset()._replace(reward=0.0, discount=1.0)
        return timestep


class Continuous(Stroll):
    def action_spec(self):
        return specs.BoundedArray((2,), float, -1, 1)


class InAClosure(Stroll):
    def __init__(self, seed: int):
        super().__init__(seed)
        steps = iter(range(10**9))
        self.count = lambda: float(next(steps))

    def step(self, action):
        return super().step(action)._replace(reward=self.count())


def judged(**members):
    return type("Judged", (Stroll,), {"judge": type("Strict", (Judge,), members)})


def raising(self, episode_return):
    raise RuntimeError("no verdict")


class WrongModel(Stroll):
    def true_model(self):
        chances = np.full((7, 9, 3, 9), 1 / 9)
        return Model(np.arange(63).reshape(7, 9), chances, np.zeros((7, 9, 3)), np.full(9, 1 / 9))


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (GlobalStroll, "GlobalStroll draws from the global generator of numpy"),
        (Unseeded, "Unseeded gives other episodes for the same seed and actions: `seed` must be all"),
        (OneForTheClass, "OneForTheClass gives other episodes .* while environments of other seeds are played: keep"),
        (OutOfBounds, "OutOfBounds gives an observation that its observation_spec does not allow"),
        (Generous, "Generous gives a reward of .*, which its reward_spec does not allow: it says from 0.0 to 0.1"),
        (Unrewarding, "Unrewarding gives the reward None: it must be a finite number"),
        (Growing, "Growing gives the discount 1.5: it must be from 0 to 1"),
        (Endless, "Endless does not end an episode within 20,000 steps: end it with dm_env.termination"),
        (Restarts, "Restarts begins another episode before the last one has ended"),
        (Continuous, r"Continuous has actions BoundedArray.*: they must be a DiscreteArray"),
        (
            InAClosure,
            "InAClosure does not continue the same when its state is restored on a new one; give it",
        ),
        (WrongModel, "WrongModel has an episode of . steps, but a model of 7 stages|WrongModel shows observation"),
        (judged(episode=raising), r"Judged fails when Strict judges it.*: RuntimeError: no verdict"),
        (judged(columns=("style",)), r"has a judge that gives the columns \[\] of an episode, but names \['style'\]"),
        (judged(summary=lambda self: {"score": 2.0}), "has a judge with score = 2.0 before the first episode: it must"),
        (judged(summary=lambda self: {"who": self}), "has a judge whose summary JSON cannot hold"),
        (judged(solved_at=property(lambda self: 1, lambda self, value: None)), "solved_at = 1 and decides = False"),
        (judged(curve=("style", "mean")), "curve of Strict must be a column of episodes.csv"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_an_environment_that_breaks_a_promise_is_told(cls, message):
    check_environment(Stroll)
    with pytest.raises(Nonconformance, match=message):
        check_environment(cls)


# Agents


class OneAction(Dice):
    def act(self, observations, active):
        return super().act(observations, active)[:1]


class Adventurous(Dice):
    def act(self, observations, active):
        return [self.num_actions] * len(active)


class SilentColumns(Dice):
    columns = ("mood",)


class ShortColumns(Dice):
    columns = ("mood",)

    def metrics(self):
        return {"mood": [1.0]}


class ThrowsForAll(Dice):
    def _thrown(self, use, active):
        return [int(g.integers(self.num_actions)) for g in self.streams[use]]


class Follows(Dice):
    """All lanes do what the first does."""

    def act(self, observations, active):
        return [super().act(observations, active)[0]] * len(active)


class Opinionated(Dice):
    def beliefs(self, observations):
        chances = [g.random((observations.shape[1], self.num_actions)) for g in self.streams["acting"]]
        return {"mean": np.stack(chances)}


class Secretive(Dice):
    def __init__(self, spec, streams, device):
        super().__init__(spec, streams, device)
        self.count = counter()

    def begin_episode(self, observations, progress):
        self.episode = self.count(progress)

    def act(self, observations, active):
        return [self.episode % self.num_actions] * len(active)


class Unlikely(Dice):
    def policy(self, observations):
        return 2 * super().policy(observations)


class Fearful(Dice):
    def __init__(self, spec, streams, device):
        raise ValueError("environment must be safe")


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (OneAction, r"OneAction acts with \[.*\] in 3 lanes with 3 actions: act and evaluate must return"),
        (Adventurous, r"Adventurous acts with \[3, 3, 3\] in 3 lanes with 3 actions"),
        (SilentColumns, r"SilentColumns gives the metrics \[\], but names the columns \['mood'\]|KeyError"),
        (ShortColumns, "ShortColumns gives 1 entries of mood for 2 seeds|IndexError"),
        (ThrowsForAll, "ThrowsForAll draws from the stream acting of a seed that waits: draw nothing for lanes"),
        (Follows, "Follows gives seed 3 other results beside seeds 9, 3 than alone"),
        (Opinionated, "Opinionated goes on otherwise once it was asked for beliefs"),
        (Secretive, "Secretive does not go on as it would have after a run is resumed"),
        (Unlikely, "Unlikely has a policy of shape .* that is no probability of each action"),
        (Fearful, r"Fearful accepts none of the environments \(environment must be safe\): name one that it does"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_an_agent_that_breaks_a_promise_is_told(cls, message):
    check_agent(Dice)
    with pytest.raises(Nonconformance, match=message):
        check_agent(cls)


# Observers and launchers


class AddsRows(Observer):
    def run_finished(self, run, summary):
        with (run.folder / "episodes.csv").open("a") as file:
            print("0,99", file=file)


class FailsInTheEnd(Observer):
    def run_finished(self, run, summary):
        raise RuntimeError(f"not when {run.status}")


class FailsLater(Observer):
    def run_started(self, run):
        if run.resumed_after:
            raise RuntimeError("again?")


class Meddles(Observer):
    """Sets everybody's generators."""

    def run_started(self, run):
        random.seed(3)


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (AddsRows, "AddsRows changes a run: its episodes.csv has other rows than if nobody watches: an observer may"),
        (FailsInTheEnd, r"observer.FailsInTheEnd .* raises RuntimeError: not when \w+ \(.*test_testing.py:\d+\)"),
        (FailsLater, r"observer.FailsLater .* raises RuntimeError: again\? \(.*test_testing.py:\d+\)"),
        (Meddles, "Meddles draws from the global generator of random"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_an_observer_that_breaks_a_promise_is_told(cls, message):
    check_observer(Observer)
    with pytest.raises(Nonconformance, match=message):
        check_observer(cls)


class InThisProcess(Launcher):
    """Keeps every promise, without waiting for processes."""

    def launch(self, tasks, asked_to_stop):
        for task in tasks:
            if not asked_to_stop():
                yield News(task)
                yield News(task, *self.run(task))

    def run(self, task):
        with contextlib.redirect_stderr(io.StringIO()) as stderr:
            code = main(task.words)
        return code, stderr.getvalue()


class NeverStops(InThisProcess):
    def launch(self, tasks, asked_to_stop):
        return super().launch(tasks, lambda: False)


class TellsNoCode(InThisProcess):
    def run(self, task):
        super().run(task)
        return 0, ""


class TellsNoText(InThisProcess):
    def run(self, task):
        return super().run(task)[0], ""


class DoesNothing(InThisProcess):
    def run(self, task):
        return (2, "siez") if task.name == "wrong" else (0, "")


class NeverBegins(InThisProcess):
    def launch(self, tasks, asked_to_stop):
        return (news for news in super().launch(tasks, asked_to_stop) if news.code is not None)


class LeavesRunning(InThisProcess):
    kept: list[Lock] = []  # noqa: RUF012

    def launch(self, tasks, asked_to_stop):
        if tasks[0].name != "closed":
            yield from super().launch(tasks, asked_to_stop)
        else:
            tasks[0].folder.mkdir()
            self.kept.append(Lock(tasks[0].folder))
            self.kept[0].acquire()
            yield News(tasks[0])


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (InThisProcess, None),
        (NeverStops, "NeverStops begins tasks after it was asked to stop: ask asked_to_stop"),
        (TellsNoCode, r"TellsNoCode tells \[None, 0\] of a task that ends with exit code 2: yield News"),
        (TellsNoText, "TellsNoText does not tell what a task wrote to stderr"),
        (DoesNothing, "DoesNothing has not run a task to its end: start explore with task.words"),
        (NeverBegins, "NeverBegins does not tell that a task has begun"),
        (LeavesRunning, "LeavesRunning leaves closed running when its iterator is closed: end what runs"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_launcher_that_breaks_a_promise_is_told(cls, message, monkeypatch):
    for name, short in {"LONG": 5, "PATIENCE": 0.01, "GRACE": 0.02}.items():
        monkeypatch.setattr(running, name, short)
    told = pytest.raises(Nonconformance, match=message) if message else contextlib.nullcontext()
    with told:
        check_launcher(cls)
    for lock in LeavesRunning.kept:
        lock.release()
