"""The composed agent lives as the paper's live_IS, every lane by itself."""

from __future__ import annotations

import copy
import re
from functools import partial
from itertools import pairwise

import dm_env
import numpy as np
import pytest
import torch
from building import BSP, CELLS, PINS, Walk, build, live, weights
from dm_env import specs
from explore_plugins.bonuses import VisitCounts
from explore_plugins.deterministic import Deterministic
from explore_plugins.ensemble import Ensemble
from explore_plugins.objectives import SampledTD
from explore_plugins.selections import SampledArgmax
from explore_plugins.softplus_heads import SoftplusHeads

from explore.agents import capture, restore
from explore.errors import RunFailed
from explore.interfaces import Spec
from explore.streams import stream

AGENTS = pytest.mark.parametrize("parts", [PINS, BSP], ids=["PINs", "BSP"])
SEEDS = (0, 3)  # of these walks, the first fills the replay earlier
TRAINED, PRIOR, TARGET = range(3)


def watch(agent, monkeypatch, method="learn"):
    """A list that collects the weights before and after each call, and how many phases lanes have learned in."""
    original, calls = getattr(agent, method), []

    def watched(*args, **kwargs):
        before, phases = weights(agent), list(agent.phases)
        original(*args, **kwargs)
        calls.append((before, weights(agent), phases, list(agent.phases)))

    monkeypatch.setattr(agent, method, watched)
    return calls


@AGENTS
def test_the_index_is_held_for_the_episode_and_changes_between(parts, monkeypatch):
    agent = build(SEEDS, **parts)
    begin, act, episodes = agent.begin_episode, agent.act, []
    monkeypatch.setattr(agent, "begin_episode", lambda *args, **kw: episodes.append([]) or begin(*args, **kw))
    monkeypatch.setattr(
        agent, "act", lambda *args: episodes[-1].append(torch.cat(agent.index, -1).clone()) or act(*args)
    )
    rows = live(agent, 12)
    for lane, seed in enumerate(SEEDS):
        held = [{tuple(index[lane].flatten().tolist()) for index in episode} for episode in episodes]
        assert all(len(indices) == 1 for indices in held)
        drawn = set.union(*held)
        assert len(drawn) == 12 if parts is PINS else 3
        assert len({row["index"] for row in rows[seed]}) == len(drawn)


@AGENTS
@pytest.mark.parametrize("learn_every", [None, 3])
def test_only_what_should_change_does(parts, learn_every, monkeypatch):
    agent = build(SEEDS, **parts, target_period=3, learn_every=learn_every)
    learning, other = ("learn", "learn_online")[:: 1 if learn_every is None else -1]
    calls, idle = watch(agent, monkeypatch, learning), watch(agent, monkeypatch, other)
    live(agent, 14)
    for before, after, _, _ in idle:
        assert all(torch.equal(a, b) for seed in SEEDS for a, b in zip(before[seed], after[seed]))
    assert any(new[0] > old[0] and new[1] == old[1] for _, _, old, new in calls)  # one learns, the other does not
    for before, after, old_phases, new_phases in calls:
        for lane, seed in enumerate(SEEDS):
            learned = new_phases[lane] > old_phases[lane]
            for old, new in zip(before[seed], after[seed]):
                assert torch.equal(new[PRIOR], old[PRIOR])
                assert torch.equal(new[TRAINED], old[TRAINED]) != learned
                copied = learned and new_phases[lane] % 3 == 0
                assert torch.equal(new[TARGET], new[TRAINED] if copied else old[TARGET])
    assert min(agent.phases) >= 6


@AGENTS
def test_a_lane_starts_to_learn_when_it_has_seen_enough(parts):
    agent = build(SEEDS, **parts)
    for rows in live(agent, 8).values():
        for before, row in pairwise(rows):
            assert (row["uncertainty"] is None) == (before["steps"] < 12)


@pytest.mark.parametrize("learn_every", [1, 4])
def test_learning_within_episodes_counts_each_lanes_own_steps(learn_every, monkeypatch):
    agent = build(SEEDS, learn_every=learn_every, min_replay=1)
    learn, learned = agent.learner.learn, {lane: [] for lane in range(2)}

    def spied(batch, batch_size, lanes, *args, **streams):
        assert batch.obs.shape[1] == batch_size
        for lane in lanes:
            learned[lane].append(agent.steps[lane])
        return learn(batch, batch_size, lanes, *args, **streams)

    monkeypatch.setattr(agent.learner, "learn", spied)
    live(agent, 6)
    for lane in range(2):
        assert learned[lane] == list(range(learn_every, agent.steps[lane] + 1, learn_every))


def test_the_phase_before_an_episode_has_its_minibatches(monkeypatch):
    agent = build(batches_per_episode=4, batch_size=5, min_replay=1)
    learn, sizes = agent.learner.learn, []
    monkeypatch.setattr(
        agent.learner, "learn", lambda batch, *args, **kw: sizes.append(batch.obs.shape[1]) or learn(batch, *args, **kw)
    )
    live(agent, 5)
    assert sizes == [20] * 4  # before the first episode there is nothing to learn from


@AGENTS
@pytest.mark.parametrize("copies", [[TRAINED], [TARGET]])
def test_a_loss_that_is_not_a_number_ends_the_run_and_names_seed_and_episode(parts, copies):
    agent = build((4, 17), **parts)
    agent.function.stacks[0].buffer[copies, -1] = torch.nan
    with pytest.raises(RunFailed, match="loss of seed 17 turned nan in episode 4"):
        live(agent, 6)


def test_a_lane_whose_loss_is_not_a_number_leaves_the_others_alone():
    def environment(seed):
        walk = Walk(seed)
        if seed == 3:
            walk.step = lambda action: dm_env.transition(np.nan, walk._observation())
        return walk

    agent = build((3, 4), learn_every=1, min_replay=1, batch_size=4)
    with pytest.raises(RunFailed, match="seed 3"):
        live(agent, 1, environment)
    trained, _, _ = weights(agent)[4][0]
    assert torch.isfinite(trained).all()


def test_observations_of_integers_that_are_no_index_are_numbers():
    spec = Spec(specs.Array((2, 2), np.int32), 3)

    class Grid(Walk):
        def _observation(self):
            return self.random.randint(5, size=(2, 2)).astype(np.int32)

    agent = build(SEEDS, spec)
    live(agent, 6, Grid)
    grid = np.array([[[0, 4], [2, 9]]])
    np.testing.assert_array_equal(agent.values(grid), agent.values(grid.astype(np.float32)))


@AGENTS
def test_an_agent_can_be_asked_what_it_believes(parts):
    agent = build(SEEDS, CELLS, **parts)
    live(agent, 5, partial(Walk, spec=CELLS))
    cells = np.arange(9)
    values, uncertainty, actions = agent.values(cells), agent.uncertainty(cells), agent.actions(cells)
    assert values.shape == uncertainty.shape == (2, 9, 3)
    assert (uncertainty >= 0).all() and uncertainty.std() > 0
    np.testing.assert_array_equal(actions, values.argmax(-1))  # the mean's, unless another evaluation is bound
    agent.begin_evaluation()
    for cell in cells:
        assert agent.evaluate(np.array([cell, cell]), [True, True]) == actions[:, cell].tolist()


def test_evaluation_has_its_own_selection_and_index():
    agent = build(SEEDS, evaluation=SampledArgmax)
    agent.begin_episode(np.zeros((2, 2, 2), np.float32), 0.0)
    agent.begin_evaluation()
    assert not torch.equal(agent.index[1], agent.evaluation_index[1])
    held = agent.evaluation_index[1]
    obs = np.random.RandomState(0).normal(size=(2, 2, 2)).astype(np.float32)
    features = agent.function.acting_features(torch.from_numpy(obs).unsqueeze(1))
    expected = agent.function.values(features, agent.evaluation_index).argmax(-1).flatten().tolist()
    assert agent.evaluate(obs, [True, True]) == expected
    assert agent.evaluation_index[1] is held


@AGENTS
def test_a_new_agent_with_the_state_of_another_decides_as_it_does(parts):
    agent = build(SEEDS, CELLS, **parts)
    live(agent, 6, partial(Walk, spec=CELLS))
    other = build((8, 9), CELLS, **parts)
    assert not np.array_equal(other.values(np.arange(9)), agent.values(np.arange(9)))
    other.load_state_dict(agent.state_dict())
    np.testing.assert_array_equal(other.values(np.arange(9)), agent.values(np.arange(9)))
    np.testing.assert_array_equal(other.uncertainty(np.arange(9)), agent.uncertainty(np.arange(9)))


class Endless(Walk):
    def reset(self):
        timestep, self.left = super().reset(), 400
        return timestep


@pytest.mark.parametrize("probability", [0.0, 0.2, 1.0])
def test_within_an_episode_the_index_is_drawn_anew_by_chance(probability):
    """At its first step it has just been drawn."""
    agent = build(SEEDS, redraw_probability=probability, min_replay=10**6)
    seen = {lane: [] for lane in range(2)}
    act = agent.act

    def watched(observations, active):
        actions = act(observations, active)
        for lane in range(2):
            seen[lane].append(agent.index[1][lane].tolist())
        return actions

    agent.act = watched
    live(agent, 1, Endless)
    for lane, seed in enumerate(SEEDS):
        changes = [one != other for one, other in zip(seen[lane], seen[lane][1:])]
        chances = stream(seed, "redraw").random(399) < probability
        assert changes == chances.tolist()
    if probability == 0.2:
        assert seen[0] != seen[1] and 40 < sum(changes) < 120


def test_a_lane_that_waits_draws_no_index():
    agent = build(SEEDS, redraw_probability=1.0)
    agent.begin_episode(np.zeros((2, 2, 2), np.float32), 0.0)
    agent.act(np.zeros((2, 2, 2), np.float32), [True, True])
    before = agent.index[1].clone()
    agent.act(np.zeros((2, 2, 2), np.float32), [False, True])
    assert torch.equal(agent.index[1][0], before[0]) and not torch.equal(agent.index[1][1], before[1])


@pytest.mark.parametrize(
    "parts, message",
    [
        ({"adam_epsilon": 0.0}, "adam_epsilon must be above 0, got 0.0"),
        ({"gradient_clip": 0.0}, "gradient_clip must be None or above 0, got 0.0"),
        ({"redraw_probability": 1.5}, "redraw_probability must be between 0 and 1, got 1.5"),
        (
            {"objective": partial(SampledTD, target_index="other")},
            "target_index must be 'same' or 'fresh'",
        ),
        ({"discount": 1.5}, "discount must be between 0 and 1, got 1.5"),
        ({"learning_rate": 0}, "learning_rate must be above 0, got 0"),
        ({"mask_probability": 2}, "mask_probability must be between 0 and 1, got 2"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"learn_every": 0}, "learn_every must be at least 1, got 0"),
        ({"target_period": -1}, "target_period must be at least 1, got -1"),
        ({"replay_weight": 1.1}, "replay_weight must be between 0 and 1, got 1.1"),
        ({"bonus_scale": -1.0}, "bonus_scale must be at least 0 and finite, got -1.0"),
        ({"bonus_scale": 0.1}, r"bonus_scale must be 0 without a bonus; name one .*, got 0\.1"),
        ({"replay_weight": 0.5}, r"replay_weight must be 0 without a bonus; name one .*, got 0\.5"),
        ({"replay_capacity": 10, "min_replay": 11}, "min_replay must be at most replay_capacity = 10, got 11"),
        ({"uncertainty": []}, r"uncertainty must be a module or a list of them, got \[\]"),
        ({"uncertainty": partial(SoftplusHeads, heads=0)}, "heads must be at least 1, got 0"),
        (
            {"uncertainty": partial(SoftplusHeads, train_heads="all")},
            "train_heads must be 'one' or 'masked', got 'all'",
        ),
        ({"uncertainty": partial(Ensemble, size=-1)}, "size must be at least 1, got -1"),
    ],
)
def test_parameters_out_of_range_are_refused(parts, message):
    with pytest.raises(ValueError, match=message):
        build(**parts)


ENUMERATED = {"indices": "learning goes through all indices"}


@pytest.mark.parametrize(
    "parts, unused",
    [
        (PINS, {}),
        (BSP, ENUMERATED),
        (PINS | {"learn_every": 2}, {"batches_per_episode": "learn_every is set"}),
        (
            BSP | {"uncertainty": Deterministic},
            ENUMERATED
            | {
                "mask_probability": "no uncertainty module has bootstrap masks",
                "redraw_probability": "values have no index",
            },
        ),
        (PINS | {"spec": CELLS, "bonus": VisitCounts}, {"bonus": "bonus_scale and replay_weight are 0"}),
        (PINS | {"spec": CELLS, "bonus": VisitCounts, "bonus_scale": 0.1}, {}),
        (PINS | {"spec": CELLS, "bonus": VisitCounts, "replay_weight": 0.1}, {}),
    ],
    ids=["PINs", "BSP", "PINs that learn at steps", "DQN", "an idle bonus", "a bonus", "weighted replay"],
)
def test_parameters_that_others_switch_off_are_known(parts, unused):
    agent = build(**parts)
    objective = getattr(agent.objective, "unused_parameters", dict)()
    assert agent.unused_parameters() | objective == unused


def test_what_adam_has_seen_goes_with_its_moments():
    """Else weights of one-hot observations that do not come again soon would stop moving."""
    agent, other = build(spec=CELLS), build(spec=CELLS)
    live(agent, 8, partial(Walk, spec=CELLS))
    assert agent.learner.adam.seen.any() and not other.learner.adam.seen.any()
    other.learner.adam.load_state_dict(agent.learner.adam.state_dict())
    np.testing.assert_array_equal(other.learner.adam.seen, agent.learner.adam.seen)
    for name in ("mean", "square", "steps"):
        for one, two in zip(getattr(agent.learner.adam, name), getattr(other.learner.adam, name)):
            assert torch.equal(one, two)


def play(agent, episodes):
    """A loop of one's own, in which seeds take turns with episodes of 3 steps and of 5."""
    losses = []
    for _ in range(episodes):
        observations = [np.full((2, 2), float(lane), np.float32) for lane in range(len(agent.steps))]
        agent.begin_episode(observations)
        agent.learn()
        for step in range(5):
            active = [step < 3 + 2 * (seed % 2) for seed in agent.streams.seeds]
            actions = agent.act(observations, active)
            timesteps = [dm_env.transition(float(action), one) for action, one in zip(actions, observations)]
            agent.observe(actions, timesteps, active)
            agent.learn_online(active)
        losses.append(agent.metrics()["mean_loss"])
    return losses


def test_an_agent_in_a_loop_of_ones_own_goes_on_from_its_state():
    whole, first, second = (build(SEEDS) for _ in range(3))
    expected = play(whole, 8)
    assert play(first, 4) == expected[:4]
    restore(second, copy.deepcopy(capture(first, "agent")), "agent")
    assert play(second, 4) == expected[4:]
    assert all(loss is not None for loss in expected[-1])


@pytest.mark.parametrize(
    ("observations", "found"), [(np.zeros((2, 2)), "[2, 2]"), (np.zeros((2, 2, 2)), "[2, 2, 2]"), ([0.0], "[1]")]
)
def test_an_episode_begins_with_an_observation_for_each_seed(observations, found):
    with pytest.raises(ValueError, match=re.escape(f"an observation for each seed, [1, 2, 2], got {found}")):
        build([0]).begin_episode(observations)
