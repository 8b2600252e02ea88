"""Replay gives back what happened, uniformly, and forgets the oldest."""

from __future__ import annotations

from functools import partial

import dm_env
import numpy as np
import pytest
import torch
from building import CELLS, FLOATS, Walk, append, build, live
from dm_env import specs

from explore._learning.replay import Replay
from explore.interfaces import Bits, Normals, Timesteps
from explore.streams import stream

OBSERVATION = specs.Array((2,), np.float32)


class Diary:
    """Fills a lane with episodes whose every observation is different, and keeps all that happened."""

    def __init__(self, replay, lane=0):
        self.replay, self.lane = replay, lane
        self.time = 0
        self.transitions = []  # (obs, action, reward, discount, next obs)

    def observation(self):
        self.time += 1
        return np.array([self.time, self.lane], np.float32)

    def episode(self, length, end=dm_env.termination):
        obs = self.observation()
        self.replay.start(self.lane, obs)
        for step in range(1, length + 1):
            next_obs, action, reward = self.observation(), self.time % 3, self.time / 10
            timestep = (end if step == length else dm_env.transition)(reward, next_obs)
            append(self.replay, self.lane, action, timestep)
            self.transitions.append((obs[0], action, np.float32(reward), timestep.discount, next_obs[0]))
            obs = next_obs

    def sampled(self, count=2000):
        """How often each transition was sampled; the next observation of a terminal one is nobody's business."""
        batch = self.replay.sample([self.lane], count, [stream(0, "replay")] * (self.lane + 1))
        assert (batch.obs[self.lane, :, 1] == self.lane).all()
        found = zip(
            batch.obs[self.lane, :, 0].tolist(), batch.action[self.lane].tolist(), batch.reward[self.lane].numpy(),
            batch.discount[self.lane].tolist(), batch.next_obs[self.lane, :, 0].tolist(),
        )  # fmt: skip
        counts = dict.fromkeys(map(self.known, self.transitions), 0)
        for transition in found:
            counts[self.known(transition)] += 1
        return list(counts.values())

    @staticmethod
    def known(transition):
        return transition if transition[3] else (*transition[:4], None)


def kept_bits(replay, slots):
    """The bits of the first slots of the first lane, `[slots, count]`."""
    return replay.stored[0].read(replay.kept[0][0, :slots])


def test_every_transition_comes_back_as_it_was_and_equally_often():
    diary = Diary(Replay(OBSERVATION, 1, 100))
    for length, end in [
        (3, dm_env.termination),
        (4, dm_env.truncation),
        (1, dm_env.truncation),
        (2, dm_env.termination),
    ]:
        diary.episode(length, end)
    counts = diary.sampled(10_000)
    assert len(counts) == 10
    assert sum((count - 1000) ** 2 / 1000 for count in counts) < 27.9  # chi-square, 9 degrees, p = 0.001


def test_a_cut_episode_is_bootstrapped_from_its_last_observation():
    diary = Diary(Replay(OBSERVATION, 1, 100))
    diary.episode(2, dm_env.truncation)
    diary.episode(2)
    assert diary.transitions[1][3:] == (1.0, 3.0)
    assert all(diary.sampled())
    assert diary.replay.size(0) == 5  # the last observation of a cut episode takes a slot


def test_the_current_episode_is_sampled_too():
    diary = Diary(Replay(OBSERVATION, 1, 100))
    diary.episode(3, dm_env.transition)
    assert diary.replay.size(0) == 3
    assert all(diary.sampled())


@pytest.mark.parametrize("end", [dm_env.termination, dm_env.truncation])
@pytest.mark.parametrize("capacity", [2, 5, 7])
def test_the_oldest_is_forgotten(capacity, end):
    diary = Diary(Replay(OBSERVATION, 1, capacity))
    for length in (1, 2, 3, 1, 4, 2, 2, 5, 1, 3):
        diary.episode(length, end)
        counts = diary.sampled()
        kept = sum(map(bool, counts))
        assert all(counts[-kept:]) and not any(counts[:-kept])
        if end is dm_env.termination:
            assert kept == min(capacity, len(counts)) == diary.replay.size(0)
        else:
            assert diary.replay.size(0) / 2 <= kept <= diary.replay.size(0) <= capacity


def test_growing_keeps_everything_in_every_lane():
    replay = Replay(OBSERVATION, 2, 5000, stored=[Bits(3)])
    diaries = [Diary(replay, lane) for lane in range(2)]
    diaries[0].episode(500)
    generators = [stream(lane, "mask") for lane in range(2)]
    replay.complete([0], generators, None)
    masks = kept_bits(replay, 500)
    diaries[1].episode(2500, dm_env.truncation)
    diaries[0].episode(100)
    assert replay.size(0) == 600 and replay.size(1) == 2501
    np.testing.assert_array_equal(kept_bits(replay, 500), masks)
    for diary in diaries:
        diary.sampled()
        expected = [t[0] for t in diary.transitions]
        np.testing.assert_array_equal(
            replay.obs[diary.lane, : replay.size(diary.lane), 0][~replay.final[diary.lane, : replay.size(diary.lane)]],
            expected,
        )


def test_memory_grows_with_what_is_stored():
    replay = Replay(OBSERVATION, 1, 10**9)
    Diary(replay).episode(3000)
    assert replay.obs.shape[1] < 10_000


def test_one_hot_observations_are_stored_as_integers_and_next_observations_not_at_all():
    replay = Replay(specs.DiscreteArray(900), 1, 1000)
    assert replay.obs.dtype == np.int32 and replay.obs.shape == (1, 1001)
    replay.start(0, np.int32(899))
    append(replay, 0, 1, dm_env.transition(0.0, np.int32(5)))
    batch = replay.sample([0], 4, [stream(0, "replay")])
    assert batch.obs.dtype == torch.int64
    assert batch.obs.tolist() == [[899] * 4] and batch.next_obs.tolist() == [[5] * 4]


def test_lanes_sample_from_their_own_stream_whoever_else_does():
    replay = Replay(OBSERVATION, 2, 100)
    for lane in range(2):
        Diary(replay, lane).episode(20)
    both = replay.sample([0, 1], 8, [stream(0, "replay"), stream(1, "replay")])
    generator = stream(0, "replay")
    one = replay.sample([1], 8, [generator, stream(1, "replay")])
    assert torch.equal(one.obs[1], both.obs[1])
    assert generator.random() == stream(0, "replay").random()


@pytest.mark.parametrize("probability", [0.0, 0.25, 0.5, 1.0])
def test_masks_have_their_probability(probability):
    replay = Replay(OBSERVATION, 1, 5000, stored=[Bits(4, probability)])
    Diary(replay).episode(4000)
    replay.complete([0], [stream(0, "mask")], None)
    mask = kept_bits(replay, 4000).astype(int)
    assert set(mask.flatten().tolist()) <= {0, 1}
    np.testing.assert_allclose(mask.mean(0), probability, atol=0.03)
    bits = mask @ [8, 4, 2, 1]  # independent of each other
    expected = [np.prod([probability if k >> b & 1 else 1 - probability for b in range(4)]) for k in range(16)]
    np.testing.assert_allclose(np.bincount(bits, minlength=16) / 4000, expected, atol=0.03)


def test_masks_and_noise_are_drawn_once_per_transition():
    """Whenever they are completed, and however often they are sampled."""
    drawn = []
    for chunks in ([12], [5, 7], [1, 2, 9]):
        replay = Replay(OBSERVATION, 1, 100, stored=[Bits(2)])
        diary, generators = Diary(replay), [stream(0, "mask")]
        for length in chunks:
            diary.episode(length)
            replay.complete([0], generators, None)
            replay.complete([0], generators, None)
            replay.sample([0], 10, [stream(0, "replay")])
        drawn.append(kept_bits(replay, 12))
    np.testing.assert_array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[0], drawn[2])


def test_noise_is_normal_and_stays_with_its_transition():
    replay = Replay(OBSERVATION, 1, 5000, stored=[Normals(2)])
    Diary(replay).episode(4000)
    replay.complete([0], [stream(0, "mask")], None)
    noise = replay.kept[0][0, :4000].copy()
    assert abs(noise.mean()) < 0.05 and abs(noise.std() - 1) < 0.05
    replay.complete([0], [stream(0, "mask")], None)
    np.testing.assert_array_equal(replay.kept[0][0, :4000], noise)
    batch = replay.sample([0], 50, [stream(0, "replay")])
    slots = batch.obs[0, :, 0].long() - 1  # of observation n in the first and only episode
    np.testing.assert_array_equal(batch.stored[0][0], noise[slots])


NUMBERED = specs.DiscreteArray(50)


class PlainRing:
    """A lane of the replay, written step by step."""

    def __init__(self, capacity):
        self.capacity, self.slots, self.cursor, self.full, self.incomplete = capacity + 1, 1024, 0, False, 0
        self.obs, self.action, self.reward, self.discount, self.final = {}, {}, {}, {}, {}

    def append(self, action, timestep):
        self.action[self.cursor], self.final[self.cursor] = action, False
        self.reward[self.cursor], self.discount[self.cursor] = np.float32(timestep.reward), timestep.discount
        self.advance()
        self.obs[self.cursor] = timestep.observation
        if timestep.last() and timestep.discount > 0:
            self.final[self.cursor] = True
            self.advance()

    def advance(self):
        self.incomplete += 1
        self.cursor += 1
        if self.cursor == min(self.slots, self.capacity):
            if self.slots < self.capacity:
                self.slots *= 2
            else:
                self.cursor, self.full = 0, True


def random_step(random, observation, left):
    """The timestep that a lane with so many steps left comes to."""
    obs = random.integers(50) if observation is NUMBERED else random.standard_normal(observation.shape)
    cut = partial(dm_env.truncation, discount=random.choice([0.0, 0.5, 1.0]))
    end = cut if random.random() < 0.5 else dm_env.termination
    return (dm_env.transition if left > 1 else end)(random.normal(), np.asarray(obs, observation.dtype))


@pytest.mark.parametrize("observation", [OBSERVATION, NUMBERED], ids=["floats", "cells"])
@pytest.mark.parametrize("asked_every", [1, 7, 10**9])
@pytest.mark.parametrize("as_arrays", [True, False])
@pytest.mark.parametrize("capacity", [2, 3, 5, 64, 150, 1500, 10**6])
def test_a_stretch_of_steps_is_kept_as_step_by_step(capacity, as_arrays, asked_every, observation):
    """Episodes of different lengths, some cut, some longer than the ring; it may be asked for at any time."""
    random, count = stream(capacity, "steps", asked_every), 3
    replay, rings = Replay(observation, count, capacity), [PlainRing(capacity) for _ in range(count)]
    for longest in [1, 2, 3, 8, 70, *random.integers(1, 12, 20), *random.integers(60, 200, 8), 2500]:
        left = random.integers(1, longest + 1, count)
        for lane, ring in enumerate(rings):
            ring.obs[ring.cursor] = random_step(random, observation, 1).observation
            replay.start(lane, ring.obs[ring.cursor])
        for step in range(1, left.max() + 1):
            active, actions = (left >= step).tolist(), random.integers(3, size=count).tolist()
            timesteps = [random_step(random, observation, more - step + 1) for more in left]
            replay.append(actions, Timesteps.gather(timesteps, [True] * count) if as_arrays else timesteps, active)
            for lane in np.flatnonzero(active):
                rings[lane].append(actions[lane], timesteps[lane])
            if step % asked_every == 0:
                replay.size(0)
        check_rings(replay.state_dict(), rings)


def check_rings(state, rings):
    assert state["slots"] == min(max(ring.slots for ring in rings), rings[0].capacity)
    for name in ("cursor", "full", "incomplete"):
        assert state[name] == [getattr(ring, name) for ring in rings]
    for arrays, ring in zip(state["lanes"], rings):
        for name in ("obs", "action", "reward", "discount", "final"):
            known = getattr(ring, name)
            np.testing.assert_array_equal(arrays[name][[*known]], [*known.values()], err_msg=name)


def test_what_a_caller_changes_after_a_step_is_not_seen():
    replay = Replay(OBSERVATION, 2, 100)
    obs, actions, active = np.ones(2, np.float32), [1, 2], [True, True]
    replay.append(actions, [dm_env.transition(0.5, obs)] * 2, active)
    obs[:], actions[:], active[:] = 7, [0, 0], [False, False]
    assert [replay.size(0), replay.size(1)] == [1, 1]
    assert (replay.obs[:, 1] == 1).all() and replay.action[:, 0].tolist() == [1, 2]


@pytest.mark.parametrize("spec", [FLOATS, CELLS], ids=["floats", "cells"])
@pytest.mark.parametrize("capacity", [40, 1000])
@pytest.mark.parametrize("learn_every", [None, 2])
def test_what_the_prior_gave_stays_with_the_observation(spec, capacity, learn_every):
    agent = build([0, 1], spec, replay_capacity=capacity, learn_every=learn_every)
    for _ in range(3):
        live(agent, 7, partial(Walk, spec=spec))
        agent.replay.complete([0, 1], agent.streams["mask"], agent.function.prior_features)
        batch = agent.replay.sample([0, 1], 100, agent.streams["replay"])
        torch.testing.assert_close(batch.prior, agent.function.prior_features(batch.obs))
        torch.testing.assert_close(batch.next_prior, agent.function.prior_features(batch.next_obs))
