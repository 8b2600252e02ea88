"""check_selection: every promise that a selection breaks is reported."""

import pytest
import torch
from explore_plugins.selections import MeanArgmax, SampledArgmax
from sample_components import counter

from explore.interfaces import Selection
from explore.streams import uniform
from explore.testing import Nonconformance, check_selection


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
        (Floats, "Floats selects actions of type torch.float32: they must be integers"),
        (EveryDraw, r"EveryDraw selects actions of shape \[1, 1, 4\], expected \[lanes, batch, draws or 1\]"),
        (Reckless, "Reckless draws from the global generator of torch"),
        (Majority, "Majority picks other actions for seed 3 beside seeds 9, 3 than alone: let no mean"),
        (NobodyWaits, "NobodyWaits fails where a generator is None, as of a lane that waits"),
        (OneStreamForAll, "OneStreamForAll picks other actions for seed 3"),
        (Uneven, "Uneven does not go on as it would have after a run is resumed .*: keep what changes in plain"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_selection_that_breaks_a_promise_is_reported(cls, message):
    with pytest.raises(Nonconformance, match=message):
        check_selection(cls)
