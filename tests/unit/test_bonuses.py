"""1/n̂ of each bonus against counts, plain loops and what is known exactly."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from building import CELLS, FLOATS, PINS, Walk, build, live
from explore_plugins.bonuses import RND, CoinFlips, Features, VisitCounts

from explore.interfaces import Transitions
from explore.nn import lanes
from explore.streams import stream

SEEDS = (0, 3)
WALK = partial(Walk, spec=CELLS)
SMALL = partial(Features, features=16, bandwidths=(2.0, 0.5), ridge=0.5)
EVERY = {"VisitCounts": VisitCounts, "Features": SMALL, "CoinFlips": CoinFlips, "RND": RND}


def make(bonus, spec=FLOATS, seeds=SEEDS):
    """A bonus by itself."""
    with lanes([stream(seed, "init") for seed in seeds]):
        return bonus(spec)


def see(obs, action, there=None, stored=None):
    """Transitions of which only observations and actions matter."""
    zeros = torch.zeros(action.shape)
    return Transitions(obs, action, zeros, zeros + 1, obs, zeros + 1 if there is None else there, stored or {})


def visits(spec, lanes=2, batch=40, seed=0):
    random = torch.Generator().manual_seed(seed)
    obs = (
        torch.randint(5, (lanes, batch), generator=random)
        if spec is CELLS
        else torch.randn(lanes, batch, 2, 2, generator=random)
    )
    action = torch.randint(2, (lanes, batch), generator=random)
    there = torch.ones(lanes, batch)
    there[0, batch // 2 :] = 0  # a lane that brings fewer
    return obs, action, there


# Exact counts


def test_visit_counts_are_those_of_a_dict():
    bonus, counts = make(partial(VisitCounts, unvisited=20.0), CELLS), {}
    for seed in range(3):
        obs, action, there = visits(CELLS, seed=seed)
        bonus.observe(see(obs, action, there))
        for lane, row in there.nonzero().tolist():
            place = (lane, int(obs[lane, row]), int(action[lane, row]))
            counts[place] = counts.get(place, 0) + 1
    found = bonus(torch.arange(9).expand(2, 9))
    assert found.shape == (2, 9, 3)
    for lane in range(2):
        for cell in range(9):
            for action in range(3):
                n = counts.get((lane, cell, action), 0)
                assert found[lane, cell, action].item() == pytest.approx(1 / n if n else 20.0)
    assert max(counts.values()) > 5


def test_counts_of_an_agent_are_those_of_its_steps():
    agent = build(SEEDS, CELLS, **PINS | {"bonus": VisitCounts, "bonus_scale": 1.0})
    assert not agent.bonus.counts.any(), "the trial before the run"
    live(agent, 9, WALK)
    agent.learner.complete(agent.replay, range(2), agent.streams["mask"])
    assert agent.bonus.counts.sum(1).tolist() == agent.steps


# Counts in features


def plain_features(bonus, lane, obs):
    """√(2/d) cos(ω·s + b) of one observation."""
    layer = bonus.cosines.layer
    omega, phase = layer.matrix[lane].double().numpy(), layer.bias[lane, 0, : layer.outputs].double().numpy()
    return np.sqrt(2 / layer.outputs) * np.cos(obs.flatten().double().numpy() @ omega + phase)


def test_counts_in_features_are_those_of_a_plain_loop():
    bonus = make(SMALL)
    obs, action, there = visits(FLOATS)
    for rows in (slice(0, 13), slice(13, 40)):  # whether it has been asked meanwhile or not
        bonus.observe(see(obs[:, rows], action[:, rows], there[:, rows]))
        bonus(obs[:, :1])
    asked = torch.randn(2, 6, 2, 2, generator=torch.Generator().manual_seed(9))
    found = bonus(asked)
    for lane in range(2):
        precision = [0.5 * np.eye(16) for _ in range(3)]
        for row in range(40):
            if there[lane, row]:
                phi = plain_features(bonus, lane, obs[lane, row])
                precision[action[lane, row]] += np.outer(phi, phi)
        for row in range(6):
            phi = plain_features(bonus, lane, asked[lane, row])
            expected = [phi @ np.linalg.inv(matrix) @ phi for matrix in precision]
            np.testing.assert_allclose(found[lane, row], expected, rtol=1e-4)


def test_a_state_that_was_visited_n_times_has_about_one_over_n():
    """φ·φ is about 1, so 1/n̂ = φ·φ / (λ + n φ·φ) exactly where one state alone was visited."""
    bonus = make(partial(Features, features=400, ridge=1.0))
    obs = torch.ones(2, 1, 2, 2)
    far = 50 + obs
    for n in range(1, 6):
        bonus.observe(see(obs, torch.ones(2, 1, dtype=torch.int64)))
        found = bonus(obs)[:, 0]
        torch.testing.assert_close(found[:, 1], torch.full((2,), 1 / (1 + n)), rtol=0.15, atol=0)
        torch.testing.assert_close(found[:, 0], torch.ones(2), rtol=0.3, atol=0)  # another action
        assert (bonus(far)[:, 0, 1] > 0.7).all(), "another state"


def test_near_states_are_less_new_than_far_ones():
    bonus = make(partial(Features, features=400))
    bonus.observe(see(torch.zeros(2, 50, 2, 2), torch.zeros(2, 50, dtype=torch.int64)))
    distance = torch.tensor([0.0, 0.1, 0.3, 1.0, 5.0])
    new = bonus(distance[:, None, None].expand(2, 5, 2, 2))[..., 0]
    assert (new.diff(dim=1) > 0).all()


# Coin flips


def test_the_least_squares_fit_of_signs_has_a_mean_square_of_one_over_n():
    """What the network is regressed on: the mean of n signs, of expected square 1/n."""
    for n in (1, 2, 5, 20):
        signs = 2.0 * stream(n, "coins").integers(2, size=(4000, n)) - 1
        assert (signs.mean(1) ** 2).mean() == pytest.approx(1 / n, rel=0.1)


@pytest.mark.parametrize("spec", [CELLS, FLOATS], ids=["cells", "floats"])
def test_coin_flips_that_are_learned_long_enough_count(spec):
    counts, random = [1, 2, 4, 8, 16, 32], torch.Generator().manual_seed(0)
    places = torch.arange(6) if spec is CELLS else 2 * torch.randn(6, 2, 2, generator=random)
    obs = torch.cat([place.expand(n, *place.shape) for place, n in zip(places, counts)]).repeat(2, *[1] * places.dim())
    obs = obs.view(2, sum(counts), *places.shape[1:])
    signs = 2.0 * torch.randint(2, (2, sum(counts), 40), generator=random) - 1
    bonus = make(partial(CoinFlips, coins=40, hidden=(64,)), spec)
    seen = see(obs, torch.ones(2, sum(counts), dtype=torch.int64), stored={"coins": signs})
    adam = torch.optim.Adam([p for p in bonus.parameters() if p.requires_grad], 3e-3)
    for _ in range(1500):
        adam.zero_grad()
        bonus.loss(seen)["coin_loss"].sum().backward()
        adam.step()
    found = bonus(places.expand(2, *places.shape))[..., 1].detach()
    expected = 1 / torch.tensor(counts)
    starts = np.cumsum([0, *counts])
    fitted = torch.stack([signs[:, i:j].mean(1).square().mean(-1) for i, j in pairwise(starts)], 1)
    torch.testing.assert_close(found, fitted, rtol=0.2, atol=0.01)  # the least squares themselves
    assert ((found / expected) < 2).all() and ((found / expected) > 0.5).all()


@pytest.mark.parametrize("spec", [CELLS, FLOATS], ids=["cells", "floats"])
def test_before_learning_everything_is_as_new_as_what_was_never_visited(spec):
    bonus = make(partial(CoinFlips, coins=400, unvisited=7.0), spec)
    obs = torch.arange(9).expand(2, 9) if spec is CELLS else visits(FLOATS)[0]
    torch.testing.assert_close(bonus(obs), torch.full((2, obs.shape[1], 3), 7.0), rtol=0.3, atol=0)


def test_the_loss_of_coin_flips_is_the_squared_error_at_the_action_taken():
    bonus = make(partial(CoinFlips, coins=3, hidden=(5,)), CELLS)
    obs, action, _ = visits(CELLS, batch=4)
    signs = torch.ones(2, 4, 3)
    found = bonus.loss(see(obs, action, stored={"coins": signs}))["coin_loss"]
    predicted = bonus.predict(obs)
    for lane in range(2):
        errors = [((predicted[lane, row, action[lane, row]] - 1) ** 2).sum().item() for row in range(4)]
        assert found[lane].item() == pytest.approx(np.mean(errors), rel=1e-5)


# RND


def test_the_error_of_rnd_falls_where_it_is_trained():
    bonus = make(partial(RND, hidden=(32,)))
    known = torch.randn(2, 8, 2, 2, generator=torch.Generator().manual_seed(0))
    other = 3 * torch.randn(2, 8, 2, 2, generator=torch.Generator().manual_seed(1))
    taken = torch.ones(2, 8, dtype=torch.int64)
    bonus.observe(see(known, taken))
    before, elsewhere = bonus(known)[..., 1], bonus(other)[..., 1]
    torch.testing.assert_close(before.mean(1), torch.ones(2))  # in units of the first sight
    adam = torch.optim.Adam([p for p in bonus.parameters() if p.requires_grad], 1e-3)
    for _ in range(500):
        adam.zero_grad()
        bonus.loss(see(known, taken))["rnd_loss"].sum().backward()
        adam.step()
    assert (bonus(known)[..., 1] < 0.2 * before).all()
    falls, falls_elsewhere = (
        bonus(o)[..., 1].mean(1) / old.mean(1) for o, old in ((known, before), (other, elsewhere))
    )
    assert (falls < 0.05).all() and (falls_elsewhere > 3 * falls).all()
    assert not any(p.requires_grad for p in bonus.target.parameters())


def test_rnd_is_measured_by_its_mean_error_at_first_sight_of_what_is_there():
    bonus = make(partial(RND, hidden=(8,)))
    obs, action, there = visits(FLOATS)
    bonus.observe(see(obs, action, there))
    errors = (bonus.predictor(obs) - bonus.target(obs)).square().view(2, 40, 3, 16).mean(-1).detach()
    for lane in range(2):
        seen = [errors[lane, row, action[lane, row]].item() for row in range(40) if there[lane, row]]
        np.testing.assert_allclose(bonus(obs)[lane].detach(), errors[lane] / np.mean(seen), rtol=1e-4)


# In an agent


@pytest.mark.parametrize("learn_every", [None, 2])
def test_bonus_scale_adds_so_many_roots_of_one_over_n_to_rewards(learn_every, monkeypatch):
    settings = {"bonus": VisitCounts, "bonus_scale": 0.7, "learn_every": learn_every}
    agent = build(SEEDS, CELLS, **PINS | settings)
    sample, learn, pairs = agent.replay.sample, agent.learner.learn, []

    def sampling(*args):
        batch = sample(*args)
        pairs.append([batch.reward.clone(), agent.bonus.counts.clone()])
        return batch

    def learning(batch, batch_size, lanes, *args, **kwargs):
        pairs[-1] += [batch, lanes]
        return learn(batch, batch_size, lanes, *args, **kwargs)

    monkeypatch.setattr(agent.replay, "sample", sampling)
    monkeypatch.setattr(agent.learner, "learn", learning)
    live(agent, 8, WALK)
    assert len(pairs) >= 5
    for reward, counts, batch, lanes_learning in pairs:
        for lane in lanes_learning:
            n = counts[lane].view(9, 3)[batch.obs[lane], batch.action[lane]]
            assert (n >= 1).all(), "all that is learned from has been counted"
            torch.testing.assert_close(batch.reward[lane], reward[lane] + 0.7 / n.sqrt())


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("settings", [{"bonus_scale": 0.5}, {"replay_weight": 0.5}], ids=["reward", "replay"])
def test_every_bonus_works_in_an_agent(name, settings):
    spec = CELLS if name == "VisitCounts" else FLOATS
    agent = build(SEEDS, spec, **PINS | {"bonus": EVERY[name]} | settings)
    rows = live(agent, 8, partial(Walk, spec=spec))
    for lane_rows in rows.values():
        assert all(np.isfinite(lane_rows[-1][loss]) for loss in ("mean_loss", *agent.bonus.losses))


def test_a_bonus_without_weight_or_scale_changes_nothing():
    plain, beside = (build(SEEDS, CELLS, **PINS | own) for own in ({}, {"bonus": VisitCounts}))
    assert live(plain, 8, WALK) == live(beside, 8, WALK)
    for one, other in zip(plain.function.stacks, beside.function.stacks[:2]):
        assert torch.equal(one.buffer, other.buffer)


@pytest.mark.parametrize("name", EVERY)
def test_lanes_have_bonuses_of_their_own(name):
    spec = CELLS if name == "VisitCounts" else FLOATS
    settings = PINS | {"bonus": EVERY[name], "bonus_scale": 0.5, "replay_weight": 0.25}

    def life(seeds):
        agent = build(seeds, spec, **settings)
        rows = live(agent, 10, partial(Walk, spec=spec))[3]
        obs = torch.arange(9).expand(len(seeds), 9) if spec is CELLS else torch.ones(len(seeds), 8, 2, 2)
        return rows, agent.bonus(obs)[seeds.index(3)]

    rows, new = life([3])
    for company in ([0, 3, 4, 5, 6], [7, 3]):
        others, also_new = life(company)
        assert others == rows
        torch.testing.assert_close(also_new, new)


@pytest.mark.parametrize("name", EVERY)
def test_the_state_of_a_bonus_goes_with_its_agent(name):
    spec = CELLS if name == "VisitCounts" else FLOATS
    settings = PINS | {"bonus": EVERY[name], "bonus_scale": 0.5}
    agent, other = (build(seeds, spec, **settings) for seeds in (SEEDS, (8, 9)))
    live(agent, 6, partial(Walk, spec=spec))
    obs = torch.arange(9).expand(2, 9) if spec is CELLS else visits(FLOATS)[0]
    before = other.bonus(obs).clone()
    agent.learner.complete(agent.replay, range(2), agent.streams["mask"])  # what has been observed but not asked for
    other.load_state_dict(agent.state_dict())
    assert torch.equal(agent.bonus(obs), other.bonus(obs))
    assert not torch.equal(agent.bonus(obs), before)


@pytest.mark.parametrize(
    "bonus, spec, message",
    [
        (VisitCounts, FLOATS, r"bonus\.VisitCounts needs one-hot observations; for others use bonus\.Features"),
        (Features, CELLS, r"bonus\.Features needs observations that are numbers; for others use bonus\.VisitCounts"),
        (partial(VisitCounts, unvisited=0.5), CELLS, "unvisited must be at least 1 and finite, got 0.5"),
        (partial(Features, bandwidths=()), FLOATS, r"bandwidths must be a list of numbers above 0, got \(\)"),
        (partial(Features, bandwidths=(1.0, -1.0)), FLOATS, "bandwidths must be a list of numbers above 0"),
        (partial(Features, features=10), FLOATS, "features must be a multiple of the number of bandwidths, got 10"),
        (partial(Features, ridge=0.0), FLOATS, "ridge must be above 0 and finite, got 0.0"),
        (partial(CoinFlips, coins=0), FLOATS, "coins must be at least 1, got 0"),
        (partial(CoinFlips, unvisited=0.0), FLOATS, "unvisited must be at least 1 and finite, got 0.0"),
        (partial(RND, outputs=0), FLOATS, "outputs must be at least 1, got 0"),
    ],
)
def test_parameters_out_of_range_are_refused(bonus, spec, message):
    with pytest.raises(ValueError, match=message):
        build(SEEDS, spec, **PINS | {"bonus": bonus, "bonus_scale": 0.1})
