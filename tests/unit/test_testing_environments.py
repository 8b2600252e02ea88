"""check_environment: every promise that an environment or its judge breaks is reported."""

import dm_env
import numpy as np
import pytest
from building import CELLS, Walk
from dm_env import specs

from explore.interfaces import Judge, Model
from explore.testing import Nonconformance, check_environment


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


class SmallSeeds(Stroll):
    def __init__(self, seed: int):
        super().__init__(seed)
        np.random.RandomState(seed)


class InOneCall(Stroll):
    """Has a batch form that keeps every promise."""

    @staticmethod
    def step_lanes(environments, actions, lanes, timesteps):
        for lane in lanes:
            timestep = environments[lane].step(actions[lane])
            timesteps.observations[lane], timesteps.rewards[lane] = timestep.observation, timestep.reward
            if timestep.last():
                timesteps.end(lane, timestep.discount)


class EveryLane(InOneCall):
    @staticmethod
    def step_lanes(environments, actions, lanes, timesteps):
        InOneCall.step_lanes(environments, actions, range(len(actions)), timesteps)


class NeverCut(InOneCall):
    @staticmethod
    def step_lanes(environments, actions, lanes, timesteps):
        InOneCall.step_lanes(environments, actions, lanes, timesteps)
        timesteps.discounts[timesteps.last] = 0.0


class NeverOver(InOneCall):
    @staticmethod
    def step_lanes(environments, actions, lanes, timesteps):
        InOneCall.step_lanes(environments, actions, lanes, timesteps)
        timesteps.last[:] = False


class Rounded(InOneCall):
    @staticmethod
    def step_lanes(environments, actions, lanes, timesteps):
        InOneCall.step_lanes(environments, actions, lanes, timesteps)
        timesteps.rewards[:] = timesteps.rewards.astype(np.float32)


class OfOthers(InOneCall):
    @staticmethod
    def step_lanes(environments, actions, lanes, timesteps):
        InOneCall.step_lanes(environments, actions, lanes, timesteps)
        timesteps.observations[:] = timesteps.observations[::-1].copy()


class KeepsItElsewhere(InOneCall):
    """Leaves out what nobody sees in its timesteps."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self.steps = 0

    def step(self, action):
        self.steps += 1
        return super().step(action)

    @staticmethod
    def step_lanes(environments, actions, lanes, timesteps):
        before = [environment.steps for environment in environments]
        InOneCall.step_lanes(environments, actions, lanes, timesteps)
        for environment, steps in zip(environments, before):
            environment.steps = steps


class NoBatch(InOneCall):
    @staticmethod
    def step_lanes(environments, actions):
        pass


def test_an_environment_that_keeps_its_promises_passes():
    check_environment(Stroll)
    check_environment(InOneCall)


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
        (SmallSeeds, f"SmallSeeds, when its seed is as large as {2**70}: Seed must be between 0"),
        (EveryLane, "EveryLane gives other observations and rewards.* when lanes are stepped in one call: step_lanes"),
        (NeverCut, "NeverCut gives other discounts when lanes are stepped in one call"),
        (NeverOver, "NeverOver gives other last when lanes are stepped in one call"),
        (Rounded, "Rounded gives other rewards when lanes are stepped in one call"),
        (OfOthers, "OfOthers gives other observations when lanes are stepped in one call"),
        (KeepsItElsewhere, r"KeepsItElsewhere is in another state after step_lanes than after step \(.*steps\): keep"),
        (NoBatch, "NoBatch fails when lanes are stepped in one call.*: TypeError"),
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
def test_an_environment_that_breaks_a_promise_is_reported(cls, message):
    with pytest.raises(Nonconformance, match=message):
        check_environment(cls)
