"""check_objective and check_schedule: every promise that one of them breaks is reported."""

import math
import random

import pytest
import torch
from explore_plugins.objectives import SampledTD
from sample_components import QUICK, Directions, counter

from explore.interfaces import Schedule
from explore.testing import Nonconformance, Options, check_objective, check_schedule


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
        (Flattens, r"Flattens prepares extra of shape \[4\] for 4 transitions of \d seeds: it must be \[lanes, batch"),
        (Shaky, "Shaky draws from the global generator of torch"),
        (Picky, r"Picky accepts none of .* needs uncertainty.Directions\): name what it needs with Options\(agent="),
        (KeepsCount, "KeepsCount learns something else with native kernels .* and no state that they change"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_an_objective_that_breaks_a_promise_is_reported(cls, message):
    with pytest.raises(Nonconformance, match=message):
        check_objective(cls, QUICK)


def test_an_objective_may_need_a_certain_module():
    check_objective(Picky, Options(agent={"uncertainty": Directions}))


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
def test_a_schedule_that_breaks_a_promise_is_reported(cls, message):
    with pytest.raises(Nonconformance, match=message):
        check_schedule(cls)
