"""Epinets equal their equation, and no gradient flows through the hidden layer that they look at."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from building import CELLS, FLOATS, Walk, as_numbers, build, live, some_observations
from explore_plugins.epinet import Epinet
from explore_plugins.mean_net import MLP
from explore_plugins.objectives import SampledTD, WassersteinTD
from explore_plugins.priors import Additive, NoPrior

from explore._values.indexed_value import IndexedValue
from explore.streams import stream

SEEDS, BETA = (0, 5), 1.5
VALUE = partial(MLP, hidden=(8, 6))
PRIOR = partial(Additive, scale=BETA)


def function(spec=FLOATS, prior=PRIOR, **settings):
    return IndexedValue(spec, SEEDS, VALUE, [partial(Epinet, **settings)], prior())


@pytest.mark.parametrize("hidden", [(7,), (7, 5)])
@pytest.mark.parametrize("spec", [FLOATS, CELLS], ids=["floats", "cells"])
def test_values_are_those_of_the_equation(spec, hidden):
    """μ(x) + σ([x, φ(x), z])·z + β Σ_i z_i p_i(x), the epinet's first layer as one matrix."""
    q = function(spec, hidden=hidden, dimension=2)
    obs = some_observations(spec)
    index = q.indexer.draw([stream(seed, "test") for seed in SEEDS], 5, 3)
    found = q.values(q.acting_features(obs), index)
    net, prior = q.stacks[0].trained, q.prior_parts[0]
    for lane in range(2):
        for row in range(5):
            for k in range(3):
                x, z = as_numbers(spec, obs[lane, row]), index[0][lane, row, k].double()
                phi = x
                *body, last = net.network.net.layers
                for layer in body:
                    phi = torch.relu(phi @ layer.matrix[lane].double() + layer.bias[lane, 0, : layer.outputs].double())
                mu = phi @ last.matrix[lane].double() + last.bias[lane, 0, : last.outputs].double()
                first = torch.cat([layer.matrix[lane].double() for layer in (net.of_obs, net.of_hidden, net.of_index)])
                e = torch.cat([x, phi, z]) @ first + net.of_obs.bias[lane, 0, : net.of_obs.outputs].double()
                for layer in net.rest:
                    bias = layer.bias[lane, 0, : layer.outputs].double()
                    e = torch.relu(e) @ layer.matrix[lane].double() + bias
                p = (x @ prior.net.matrix[lane].double()).view(3, 2)
                expected = mu + e.view(3, 2) @ z + BETA * p @ z
                torch.testing.assert_close(found[lane, row, k].double(), expected, rtol=1e-4, atol=1e-5)


def test_no_gradient_reaches_the_value_network_through_the_epinet():
    q = function(prior=NoPrior)
    net = q.stacks[0].trained
    obs = some_observations(FLOATS)
    values = net.values(net(obs), torch.full((2, 5, 1, 2), 0.7)) - net.network(obs).unsqueeze(2)
    values.sum().backward()
    assert not any(parameter.grad.any() for parameter in net.network.parameters())
    trained = [p for layer in (net.of_obs, net.of_hidden, net.of_index, *net.rest) for p in layer.parameters()]
    assert all(parameter.grad.any() for parameter in trained if parameter.requires_grad)


def test_functions_of_the_prior_have_standard_deviation_1_over_one_hot_observations():
    q = IndexedValue(CELLS, range(60), VALUE, [Epinet], Additive())
    outputs = q.prior_parts[0](torch.arange(9).expand(60, -1))
    assert float(outputs.std()) == pytest.approx(0.88, abs=0.05)  # a normal cut off at 2 has 0.88


def test_the_epinets_layers_begin_as_one_layer_of_all_inputs_would():
    q = IndexedValue(CELLS, range(30), VALUE, [partial(Epinet, hidden=(40,))], NoPrior())
    net = q.stacks[0].trained
    bound = (9 + 6 + 2) ** -0.5  # torch's own initialiser, uniform
    for layer in (net.of_obs, net.of_hidden, net.of_index):
        assert float(layer.matrix.abs().max()) == pytest.approx(bound, rel=0.03)


def test_the_spread_is_that_of_the_values_and_the_mean_is_the_base_network():
    q = function(dimension=2)
    obs = some_observations(FLOATS)
    features = q.acting_features(obs)
    mean = q.values(features, q.indexer.mean()).squeeze(2)
    torch.testing.assert_close(mean, q.stacks[0].trained.network(obs))
    values = q.values(features, q.indexer.draw([stream(seed, "test") for seed in SEEDS], 5, 4000))
    assert (q.std(features) / values.std(2) - 1).abs().max() < 0.6  # of few indices, the same for all observations
    assert torch.equal(q.std(features), q.std(q.acting_features(obs)))


@pytest.mark.parametrize("spec", [FLOATS, CELLS], ids=["floats", "cells"])
def test_an_agent_with_an_epinet_learns_values_of_a_constant_reward(spec):
    class Ones(Walk):
        def step(self, action):
            return super().step(action)._replace(reward=1.0, discount=0.0)

    agent = build(
        SEEDS, spec, uncertainty=Epinet, objective=partial(SampledTD, indices=4), prior=NoPrior, learn_every=1,
        learning_rate=1e-2,
    )  # fmt: skip
    live(agent, 60, partial(Ones, spec=spec))
    obs = some_observations(spec)[0].numpy()
    assert abs(agent.values(obs).max(-1) - 1).mean() < 0.1  # of the action taken; the others are not tried


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"dimension": 0}, "dimension must be at least 1, got 0"),
        ({"hidden": ()}, "hidden must be a list of positive layer widths"),
        ({"init": "zeros"}, "init must be one of torch, "),
    ],
)
def test_parameters_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        function(**settings)


def test_wasserstein_td_refuses_it():
    with pytest.raises(ValueError, match=r"module with scales .*, not Epinet; use objective\.SampledTD"):
        build(uncertainty=Epinet, objective=WassersteinTD)
