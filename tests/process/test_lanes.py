"""A seed is bit-for-bit the same alone, in company, and in another order of company."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import pytest
import torch
from building import BSP, PINS, build, live, spec_of, weights
from explore_plugins.bonuses import RND, CoinFlips, Features, VisitCounts
from explore_plugins.bsuite import Bsuite
from explore_plugins.cartpole_swingup import CartpoleSwingup
from explore_plugins.deep_sea import DeepSea
from explore_plugins.ensemble import Ensemble
from explore_plugins.epinet import Epinet
from explore_plugins.hypermodel import Hypermodel
from explore_plugins.information_directed import InformationDirected
from explore_plugins.mean_net import MLP
from explore_plugins.noise import McDropout, NoisyNet
from explore_plugins.objectives import SampledTD
from explore_plugins.selections import Boltzmann, EpsilonGreedy, OptimisticArgmax, SampledArgmax
from explore_plugins.softplus_heads import SoftplusHeads
from torch.nn.functional import softplus

from explore import nn as lane_nn
from explore._native.library import without_kernels
from explore.interfaces import ScaleModule, ValueNetwork

SEED, COMPANIES = 3, ([0, 1, 2, 3, 4], [7, 3], [3, 9, 8])

SWINGUP = partial(CartpoleSwingup, max_time=0.3, x_threshold=0.06, init_range=0.05)  # lanes end at different times
DEEP_SEA = partial(DeepSea, size=7)
STOCHASTIC = partial(DeepSea, size=6, deterministic=False)

DEEP = {"batch_size": 64, "batches_per_episode": 3, "min_replay": 20}
DEEP_PINS = PINS | DEEP | {"value": partial(MLP, hidden=(300,)), "uncertainty": partial(SoftplusHeads, hidden=(512,))}
DEEP_BSP = BSP | DEEP | {"value": partial(MLP, hidden=(50,))}
SWING = DEEP | {"value": partial(MLP, hidden=(50, 50, 50)), "min_replay": 40}
SWING_PINS = PINS | SWING | {"uncertainty": partial(SoftplusHeads, heads=2, hidden=(50, 50, 50))}
SWING_BSP = BSP | SWING


class TanhValue(ValueNetwork):
    """As a third party writes it: torch's functions on layers of odd widths."""

    def __init__(self, spec):
        super().__init__()
        self.first = lane_nn.Linear(lane_nn.num_features(spec.observation), 13)
        self.second = lane_nn.Linear(13, spec.num_actions)

    def forward(self, obs):
        return self.second(torch.tanh(self.first(obs.flatten(2))))


class LayeredTanh(TanhValue):
    """Which shows its layers to those who look inside."""

    def as_layers(self):
        return [self.first, self.second]


class PlainHeads(ScaleModule):
    """With torch's softplus, which rounds the last numbers of a tensor differently."""

    def __init__(self, spec, heads=3):
        super().__init__(heads)
        self.net = lane_nn.MLP(spec.observation, (21,), spec.num_actions * heads)

    def forward(self, obs):
        return softplus(self.net(obs)).unflatten(-1, (-1, self.heads))


class LiftedValue(ValueNetwork):
    """An ordinary module of torch, lifted."""

    def __init__(self, spec):
        super().__init__()
        sizes = lane_nn.num_features(spec.observation), spec.num_actions
        self.net = lane_nn.per_lane(
            lambda: torch.nn.Sequential(torch.nn.Linear(sizes[0], 11), torch.nn.ELU(), torch.nn.Linear(11, sizes[1]))
        )

    def forward(self, obs):
        return self.net(obs.flatten(2))


DITHERING = {"acting": partial(EpsilonGreedy, epsilon=0.3, greedy=SampledArgmax)}
REWARD_NOISE = {"objective": partial(SampledTD, noise=0.5)}
DIRECTED = {"acting": InformationDirected}
BOTH = {"uncertainty": [PINS["uncertainty"], partial(Ensemble, size=2)], "objective": SampledTD}
ODD = {"batch_size": 37}
ONLINE = {"learn_every": 1, "target_period": 4, "double_q": True, "redraw_probability": 0.2}
HYPER = {
    "uncertainty": partial(Hypermodel, dimension=3),
    "objective": partial(SampledTD, indices=5, target_index="fresh", noise=0.1),
    "target": SampledArgmax,
    "gradient_clip": 0.05,
    "adam_epsilon": 1e-4,
}
EPINET = {"uncertainty": partial(Epinet, hidden=(18, 10)), "objective": partial(SampledTD, indices=3)}
NOISY = {"uncertainty": NoisyNet, "objective": partial(SampledTD, target_index="fresh"), "redraw_probability": 1.0}
DROPOUT = {"uncertainty": partial(McDropout, rate=0.3), "objective": SampledTD, "target": SampledArgmax}
INSIDE = {"uncertainty": partial(SoftplusHeads, heads=3, hidden=(21,), prior_inside=True)}

REPLAYED = {"bonus_scale": 0.3, "replay_weight": 0.5}

CASES = {
    "PINs on Deep-sea": (DEEP_PINS, DEEP_SEA),
    "PINs on stochastic Deep-sea with a-tilde": (DEEP_PINS | {"target": SampledArgmax}, STOCHASTIC),
    "BSP on Deep-sea": (DEEP_BSP, DEEP_SEA),
    "BSP on Deep-sea, learning within episodes": (DEEP_BSP | {"learn_every": 3}, DEEP_SEA),
    "PINs on swing-up": (SWING_PINS, SWINGUP),
    "BSP on swing-up": (SWING_BSP, SWINGUP),
    "PINs on swing-up, learning within episodes": (SWING_PINS | {"learn_every": 3}, SWINGUP),
    "odd batches": (SWING_PINS | ODD, SWINGUP),
    "odd batches of an ensemble with reward noise": (SWING_BSP | ODD | REWARD_NOISE, SWINGUP),
    "epsilon-greedy Thompson sampling": (SWING_PINS | DITHERING, SWINGUP),
    "Boltzmann acting, optimistic target": (SWING_PINS | {"acting": Boltzmann, "target": OptimisticArgmax}, SWINGUP),
    "information-directed acting": (SWING_PINS | DIRECTED, SWINGUP),
    "information-directed acting and target of an ensemble": (
        DEEP_BSP | DIRECTED | {"target": partial(InformationDirected, draws=17, information="value")},
        DEEP_SEA,
    ),
    "heads on an ensemble": (SWING_PINS | BOTH, SWINGUP),
    "heads with torch's own functions": (SWING_PINS | ODD | {"uncertainty": PlainHeads}, SWINGUP),
    "an ensemble with torch's own functions": (SWING_BSP | ODD | {"value": TanhValue}, SWINGUP),
    "one feature and eleven actions": (SWING_PINS | {"min_replay": 4}, partial(Bsuite, id="bandit_noise/3")),
    "two features and five actions": (SWING_PINS, partial(Bsuite, id="discounting_chain/0")),
    "a hypermodel on Deep-sea, learning at every step": (DEEP_PINS | HYPER | ONLINE, DEEP_SEA),
    "a hypermodel on swing-up": (SWING_PINS | ODD | HYPER, SWINGUP),
    "a hypermodel under Wasserstein TD": (SWING_PINS | {"uncertainty": Hypermodel}, SWINGUP),
    "an ensemble with clipped gradients": (DEEP_BSP | {"gradient_clip": 0.05}, DEEP_SEA),
    "an epinet on Deep-sea, learning at every step": (DEEP_PINS | EPINET | ONLINE, DEEP_SEA),
    "an epinet on swing-up": (SWING_PINS | ODD | EPINET, SWINGUP),
    "NoisyNet on Deep-sea": (DEEP_PINS | NOISY, DEEP_SEA),
    "NoisyNet on swing-up, odd batches": (SWING_PINS | ODD | NOISY, SWINGUP),
    "dropout on Deep-sea": (DEEP_PINS | DROPOUT, DEEP_SEA),
    "dropout on swing-up with torch's own functions": (SWING_PINS | ODD | DROPOUT | {"value": LayeredTanh}, SWINGUP),
    "heads with the prior inside": (SWING_PINS | ODD | INSIDE, SWINGUP),
    "a lifted module": (SWING_PINS | ODD | {"value": LiftedValue}, SWINGUP),
    "visit counts on Deep-sea": (DEEP_PINS | REPLAYED | {"bonus": VisitCounts}, DEEP_SEA),
    "counts in features on swing-up": (SWING_PINS | REPLAYED | {"bonus": partial(Features, features=20)}, SWINGUP),
    "coin flips on Deep-sea": (DEEP_BSP | REPLAYED | {"bonus": partial(CoinFlips, coins=7, hidden=(13,))}, DEEP_SEA),
    "coin flips on swing-up, learning within episodes": (
        SWING_PINS | ODD | REPLAYED | {"bonus": CoinFlips, "learn_every": 3},
        SWINGUP,
    ),
    "RND on swing-up": (SWING_BSP | REPLAYED | {"bonus": partial(RND, outputs=5, hidden=(13,))}, SWINGUP),
}


@pytest.fixture(params=["native kernels", "PyTorch"])
def executed(request):
    """What executes agents that are built meanwhile."""
    with without_kernels() if request.param == "PyTorch" else nullcontext():
        yield


@pytest.mark.parametrize("case", CASES)
def test_a_seed_is_the_same_alone_and_in_any_company(case, executed):
    parts, environment = CASES[case]

    def life(seeds):
        agent = build(seeds, spec_of(environment(seed=0)), **parts)
        return live(agent, 10, environment), weights(agent)[SEED]

    alone, networks = life([SEED])
    assert alone[SEED][-1]["uncertainty"] is not None  # it has learned
    for company in COMPANIES:
        rows, company_networks = life(company)
        assert rows[SEED] == alone[SEED]
        for found, expected in zip(company_networks, networks, strict=True):
            assert torch.equal(found, expected)


@pytest.mark.parametrize("case", ["PINs on Deep-sea", "BSP on swing-up", "a hypermodel on swing-up"])
@pytest.mark.parametrize("others", [1, 7, 31])
def test_a_seed_is_the_same_in_a_crowd(case, others, executed):
    parts, environment = CASES[case]

    def live_with(seeds):
        agent = build(seeds, spec_of(environment(seed=0)), **parts)
        return live(agent, 8, environment)[SEED], weights(agent)[SEED]

    alone, networks = live_with([SEED])
    rows, found = live_with([*range(100, 100 + others), SEED])
    assert rows == alone
    assert all(map(torch.equal, found, networks))


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("width", [20, 52])
def test_a_seed_is_the_same_whatever_its_company_has_seen(seed, width, executed):
    """Adam ends at the last cell that any lane has seen, which depends on the company."""
    parts = DEEP_PINS | {"value": partial(MLP, hidden=(width,)), "uncertainty": partial(SoftplusHeads, hidden=(width,))}
    environment = partial(DeepSea, size=5)

    def life(seeds):
        agent = build(seeds, spec_of(environment(seed=0)), **(parts | {"batch_size": 16}))
        return live(agent, 12, environment)[seed], weights(agent)[seed]

    alone, networks = life([seed])
    rows, company_networks = life([seed, *range(10, 16)])
    assert rows == alone
    assert all(torch.equal(found, expected) for found, expected in zip(company_networks, networks, strict=True))


def test_in_these_companies_some_wait_for_others():
    for company in COMPANIES:
        rows = live(build(company, spec_of(SWINGUP(seed=0)), **SWING_PINS), 10, SWINGUP)
        assert len({seed_rows[-1]["steps"] for seed_rows in rows.values()}) > 1


def test_seeds_differ():
    agent = build([0, 1])
    one, other = live(agent, 5).values()
    assert [row["return"] for row in one] != [row["return"] for row in other]
    assert not any(torch.equal(a, b) for a, b in zip(*weights(agent).values()))
