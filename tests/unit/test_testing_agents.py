"""check_agent: every promise that an agent breaks is reported."""

import numpy as np
import pytest
from sample_components import counter

from explore.testing import Nonconformance, check_agent
from explore.testing.toy import Dice


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
    def _draw_actions(self, use, active):
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


def test_an_agent_that_keeps_its_promises_passes():
    check_agent(Dice)


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
def test_an_agent_that_breaks_a_promise_is_reported(cls, message):
    with pytest.raises(Nonconformance, match=message):
        check_agent(cls)
