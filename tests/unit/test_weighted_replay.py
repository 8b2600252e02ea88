"""Replay in proportion to weights that a bonus gives."""

from __future__ import annotations

from collections import Counter
from functools import partial

import dm_env
import numpy as np
import pytest
import torch
from building import CELLS, PINS, Walk, append, build, fill, live
from dm_env import specs
from explore_plugins.bonuses import VisitCounts

from explore import nn as lane_nn
from explore._learning.replay import Replay
from explore.errors import RunFailed
from explore.interfaces import Bonus
from explore.streams import stream

NUMBER = specs.Array((1,), np.float32)
WALK = partial(Walk, spec=CELLS)


def weighted_replay(weights, capacity=99):
    """A replay of a transition for each weight."""
    replay = Replay(NUMBER, 1, capacity)
    fill(replay, len(weights))
    table = torch.tensor([*weights, 10.0**6])  # the latest observation, from which nothing has been done yet
    replay.weigh([0], lambda obs, action: table[obs[..., 0].long()])
    return replay


def chi_square(counts, shares):
    expected = np.array(shares) / sum(shares) * sum(counts)
    return sum((np.array(counts) - expected) ** 2 / expected)


def test_transitions_are_drawn_in_proportion_to_their_weights():
    weights = [1.0, 0.5, 3.0, 0.0, 2.0, 0.25]
    batch = weighted_replay(weights).sample([0], 20_000, [stream(0, "replay")], np.ones(20_000, bool))
    counts = Counter(batch.obs[0, :, 0].long().tolist())
    assert set(counts) == {0, 1, 2, 4, 5}, "never one of weight 0"
    there = sorted(counts)
    assert chi_square([counts[k] for k in there], [weights[k] for k in there]) < 18.5  # 4 degrees, p = 0.001


def test_those_not_weighted_are_drawn_uniformly():
    weights = [1.0, 0.5, 3.0, 0.0, 2.0, 0.25]
    weighted = np.arange(40_000) % 2 < 1
    batch = weighted_replay(weights).sample([0], 40_000, [stream(0, "replay")], weighted)
    numbers = batch.obs[0, :, 0].long().numpy()
    uniform = np.bincount(numbers[~weighted], minlength=6)
    assert chi_square(uniform, [1] * 6) < 20.6  # 5 degrees, p = 0.001
    there = [0, 1, 2, 4, 5]
    assert chi_square(np.bincount(numbers[weighted], minlength=6)[there], [weights[k] for k in there]) < 18.5


def test_weights_follow_the_ring_and_leave_out_what_is_no_transition():
    """The last observation of a cut episode, and that which has not been acted on."""
    replay = Replay(NUMBER, 1, 8)
    for episode in range(5):
        replay.start(0, np.array([10 * episode], np.float32))
        for step in range(1, 4):
            end = dm_env.truncation if step == 3 else dm_env.transition
            append(replay, 0, step, end(0.0, np.array([10 * episode + step], np.float32)))
        replay.weigh([0], lambda obs, action: obs[..., 0] + 1)
        batch = replay.sample([0], 3000, [stream(episode, "replay")], np.ones(3000, bool))
        counts = Counter(batch.obs[0, :, 0].long().tolist())
        assert not {number % 10 for number in counts} & {3}
        assert {number // 10 for number in counts} <= {episode, episode - 1}
        uniform = replay.sample([0], 1000, [stream(episode, "replay")])
        assert set(counts) == set(uniform.obs[0, :, 0].long().tolist())
        shares = [number + 1 for number in sorted(counts)]
        assert chi_square([counts[number] for number in sorted(counts)], shares) < 20.6


class Lowest:
    """A generator of the lowest numbers."""

    def random(self, count):
        return np.zeros(count)

    def integers(self, high, size):
        return np.zeros(size, int)


def test_not_even_the_lowest_random_number_draws_a_transition_of_weight_0():
    batch = weighted_replay([0.0, 0.0, 1.0, 0.0]).sample([0], 5, [Lowest()], np.ones(5, bool))
    assert batch.obs.unique().tolist() == [2]


def test_where_all_weights_are_0_transitions_are_drawn_uniformly():
    batch = weighted_replay([0.0] * 5).sample([0], 10_000, [stream(0, "replay")], np.ones(10_000, bool))
    assert chi_square(np.bincount(batch.obs[0, :, 0].long(), minlength=5), [1] * 5) < 18.5


@pytest.mark.parametrize("end", [dm_env.transition, dm_env.truncation])
def test_weights_found_before_an_episode_draw_only_transitions_in_it(end):
    """Meanwhile slots are used anew, one of them by an observation that has not been acted on."""
    replay = Replay(NUMBER, 1, 8)
    fill(replay, 12)
    replay.weigh([0], lambda obs, action: torch.ones(action.shape))
    for step in range(20, 23):
        append(replay, 0, 0, (end if step == 22 else dm_env.transition)(0.0, np.array([step], np.float32)))
        batch = replay.sample([0], 2000, [stream(0, "replay")], np.ones(2000, bool))
        transitions = replay.sample([0], 2000, [stream(1, "replay")]).obs
        assert set(batch.obs.flatten().tolist()) <= set(transitions.flatten().tolist())


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_a_share_of_every_minibatch_of_an_agent_is_weighted(share, monkeypatch):
    agent = build(spec=CELLS, **PINS | {"bonus": VisitCounts, "replay_weight": share, "min_replay": 1})
    sample, asked = agent.replay.sample, []

    def watched(lanes, count, generators, weighted):
        asked.append(weighted.reshape(-1, agent.batch_size))
        return sample(lanes, count, generators, weighted)

    monkeypatch.setattr(agent.replay, "sample", watched)
    live(agent, 5, WALK)
    assert (np.concatenate(asked).sum(1) == share * agent.batch_size).all() and len(asked) == 4


class Negative(Bonus):
    """A bonus that turns negative once something has been seen."""

    low = -1.0

    def __init__(self, spec):
        super().__init__()
        self.actions = spec.num_actions
        self.register_buffer("seen", lane_nn.zeros())

    def observe(self, transitions):
        self.seen += transitions.there.sum(1)

    def forward(self, obs):
        new = torch.where(self.seen > 5, self.low, 1.0)
        return new[:, None, None].expand(*obs.shape[:2], self.actions)


class NotFinite(Negative):
    low = torch.inf


@pytest.mark.parametrize("bonus", [Negative, NotFinite])
def test_a_weight_that_turns_negative_or_infinite_ends_the_run_in_one_line(bonus):
    agent = build(spec=CELLS, **PINS | {"bonus": bonus, "replay_weight": 0.5})
    with pytest.raises(RunFailed) as raised:
        live(agent, 8, WALK)
    assert str(raised.value).startswith(f"{bonus.__name__}: weights of transitions must be finite and at least 0")
    assert "\n" not in str(raised.value)


def test_a_bonus_that_is_negative_from_the_start_is_refused_before_the_run():
    class Sinking(Negative):
        def forward(self, obs):
            return -torch.ones(*obs.shape[:2], self.actions)

    with pytest.raises(ValueError, match="Sinking gives 1/n that is negative or not finite"):
        build(spec=CELLS, **PINS | {"bonus": Sinking, "replay_weight": 0.5})
