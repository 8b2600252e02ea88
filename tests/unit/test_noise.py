"""NoisyNet and dropout: values at an index are those of a network with that noise."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from building import CELLS, FLOATS, as_numbers, build, live, some_observations
from explore_plugins.mean_net import MLP
from explore_plugins.noise import McDropout, NoisyNet
from explore_plugins.objectives import SampledTD
from explore_plugins.priors import Additive, NoPrior
from explore_plugins.selections import SampledArgmax
from torch import nn

from explore._native.library import without_kernels
from explore._values.indexed_value import IndexedValue
from explore.interfaces import ValueNetwork
from explore.nn import Linear
from explore.streams import normal, stream

SEEDS, BETA = (0, 5), 1.5
VALUE = partial(MLP, hidden=(8, 6))
PRIOR = partial(Additive, scale=BETA)


def function(module, spec=FLOATS, prior=PRIOR, value=VALUE):
    return IndexedValue(spec, SEEDS, value, [module], prior())


def generators():
    return [stream(seed, "test") for seed in SEEDS]


def plain(layer, lane):
    return layer.matrix[lane].double(), layer.bias[lane, 0, : layer.outputs].double()


def frozen_values(q, lane, x):
    for number, layer in enumerate(q.prior_parts[0].network.net.layers):
        weight, bias = plain(layer, lane)
        x = (torch.relu(x) if number else x) @ weight + bias
    return x


def trained_a_little(q):
    """Noise that differs from weight to weight, as it does when trained."""
    for noise in q.stacks[0].trained.noise:
        noise.matrix.data.mul_(torch.rand(noise.matrix.shape, generator=torch.Generator().manual_seed(1)))
    return q


@pytest.mark.parametrize("spec", [FLOATS, CELLS], ids=["floats", "cells"])
def test_noisy_values_are_those_of_a_network_with_perturbed_weights(spec):
    q = trained_a_little(function(NoisyNet, spec))
    obs = some_observations(spec)
    (index,) = q.indexer.draw(generators(), 5, 2)
    found = q.values(q.acting_features(obs), (index,))
    net = q.stacks[0].trained
    for lane in range(2):
        for row in range(5):
            for k in range(2):
                first = as_numbers(spec, obs[lane, row])
                x, noise = first, index[lane, row, k].double()
                for number, (layer, sigma) in enumerate(zip(net.network.net.layers, net.noise)):
                    e_in, e_out, noise = noise.split(
                        [layer.inputs, layer.outputs, len(noise) - layer.inputs - layer.outputs]
                    )
                    weight, bias = plain(layer, lane)
                    sigma_weight, sigma_bias = plain(sigma, lane)
                    weight, bias = weight + sigma_weight * torch.outer(e_in, e_out), bias + sigma_bias * e_out
                    x = (torch.relu(x) if number else x) @ weight + bias
                expected = x + BETA * frozen_values(q, lane, first)
                torch.testing.assert_close(found[lane, row, k].double(), expected, rtol=1e-4, atol=1e-5)


def test_noise_begins_at_sigma_over_the_root_of_inputs():
    net = function(partial(NoisyNet, sigma=0.4)).stacks[0].trained
    for noise, inputs in zip(net.noise, (4, 8, 6)):
        assert torch.allclose(noise.matrix, torch.tensor(0.4 / inputs**0.5))
        assert torch.allclose(noise.bias[..., : noise.outputs], torch.tensor(0.4 / inputs**0.5))


def test_noise_is_the_signed_root_of_normal_numbers():
    q = function(NoisyNet)
    (index,) = q.indexer.draw(generators(), 3)
    numbers = normal([stream(0, "test")], 3, q.parts[0].index.size)[0].numpy()
    np.testing.assert_allclose(index[0], np.sign(numbers) * np.sqrt(np.abs(numbers)), rtol=1e-6)
    assert q.parts[0].index.size == 4 + 8 + 8 + 6 + 6 + 3


def test_without_noise_it_is_the_value_network():
    q = function(NoisyNet, prior=NoPrior)
    obs = some_observations(FLOATS)
    mean = q.values(q.acting_features(obs), q.indexer.mean()).squeeze(2)
    torch.testing.assert_close(mean, q.stacks[0].trained.network(obs))


@pytest.mark.parametrize("target_index", ["same", "fresh"])
def test_a_phase_has_one_noise_for_all_its_transitions_and_if_fresh_another_for_its_targets(target_index, monkeypatch):
    with without_kernels():  # which would call `prepare` once
        agent = build(uncertainty=NoisyNet, objective=partial(SampledTD, target_index=target_index), prior=NoPrior)
    prepare, learned, targets = agent.objective.prepare, [], []

    def watched(phase):
        select = phase.select
        phase.select = lambda index: targets.append(index[0]) or select(index)
        prepared = prepare(phase)
        learned.append(prepared["index"][0])
        return prepared

    monkeypatch.setattr(agent.objective, "prepare", watched)
    live(agent, 6)
    assert len(learned) > 2 and {tuple(index.shape) for index in learned + targets} == {
        (2, 1, 1, agent.function.parts[0].index.size)
    }
    assert all(torch.equal(*both) == (target_index == "same") for both in zip(learned, targets, strict=True))
    assert not any(torch.equal(one, other) for one, other in pairwise(learned))


@pytest.mark.parametrize("spec", [FLOATS, CELLS], ids=["floats", "cells"])
def test_values_with_dropout_are_those_of_the_units_that_stay(spec):
    rate = 0.4
    q = function(partial(McDropout, rate=rate), spec)
    obs = some_observations(spec)
    (index,) = q.indexer.draw(generators(), 5, 3)
    assert set(np.unique(index.numpy())) == {0.0, np.float32(1 / (1 - rate))}
    found = q.values(q.acting_features(obs), (index,))
    layers = q.stacks[0].trained.network.net.layers
    for lane in range(2):
        for row in range(5):
            for k in range(3):
                first = as_numbers(spec, obs[lane, row])
                x, kept = first, index[lane, row, k].double()
                for layer, mask in zip(layers, kept.split([8, 6])):
                    weight, bias = plain(layer, lane)
                    x = torch.relu(x @ weight + bias) * mask
                weight, bias = plain(layers[-1], lane)
                expected = x @ weight + bias + BETA * frozen_values(q, lane, first)
                torch.testing.assert_close(found[lane, row, k].double(), expected, rtol=1e-4, atol=1e-5)


def test_units_are_left_out_with_the_probability_given():
    (index,) = function(partial(McDropout, rate=0.2)).indexer.draw(generators(), 4000)
    torch.testing.assert_close((index == 0).float().mean(1), torch.full((2, 14), 0.2), atol=0.03, rtol=0)
    torch.testing.assert_close(index.mean(1), torch.ones(2, 14), atol=0.04, rtol=0)  # the mean index


def test_each_transition_is_learned_with_units_of_its_own():
    agent = build(uncertainty=McDropout, objective=SampledTD, prior=NoPrior, target=SampledArgmax)
    mask = torch.zeros(2, 50, 0)
    (index,), _ = agent.function.indexer.draw_to_learn(generators(), (mask,), 1)
    assert len({tuple(row) for row in index[0, :, 0].tolist()}) > 20


class Convolution(nn.Module):
    def forward(self, x):
        return x


class Convolutional(ValueNetwork):
    def __init__(self, spec):
        super().__init__()
        self.first, self.last = Convolution(), Linear(spec.observation, spec.num_actions)

    def forward(self, obs):
        return self.last(torch.relu(self.first(obs)))

    def as_layers(self):
        return [self.first, self.last]


@pytest.mark.parametrize(
    "module, value, message",
    [
        (partial(NoisyNet, sigma=-1.0), VALUE, "sigma must be at least 0 and finite, got -1.0"),
        (partial(McDropout, rate=1.0), VALUE, "rate must be at least 0 and below 1, got 1.0"),
        (
            NoisyNet,
            Convolutional,
            "NoisyNet needs a value network of .*Linear, and value.Convolutional has a",
        ),
        (McDropout, partial(MLP, hidden=()), r"McDropout needs a value network with a hidden layer"),
    ],
)
def test_what_cannot_be_built_is_refused(module, value, message):
    with pytest.raises(ValueError, match=message):
        function(module, value=value)
