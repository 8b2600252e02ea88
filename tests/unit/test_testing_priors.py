"""check_prior: every promise that a prior breaks is reported."""

import random

import pytest

from explore.interfaces import Prior
from explore.testing import Nonconformance, Options, check_prior


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


def test_a_prior_that_keeps_its_promises_passes():
    check_prior(Sum, Options(observations=["floats"]))


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
def test_a_prior_that_breaks_a_promise_is_reported(cls, message):
    with pytest.raises(Nonconformance, match=message):
        check_prior(cls)
