"""Layers with a lane axis compute what torch's own layers would, lane by lane."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from dm_env import specs
from torch import nn

from explore.nn import (
    MLP,
    LaneLayer,
    Linear,
    apply_hidden,
    count_parameters,
    find_safe_rows,
    lanes,
    num_features,
    per_lane,
    softplus,
)
from explore.nn.initialisers import INITIALISERS
from explore.streams import stream


def streams(count=3):
    return [stream(seed, "init") for seed in range(count)]


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_a_layer_is_torchs_in_each_lane():
    with lanes(streams()):
        layer = Linear(5, 4)
    x = numbers(3, 7, 5)
    expected = [nn.functional.linear(x[k], layer.matrix[k].T, layer.bias[k, 0, : layer.outputs]) for k in range(3)]
    torch.testing.assert_close(layer(x), torch.stack(expected))


def test_integers_are_one_hot_vectors():
    with lanes(streams()):
        layer = Linear(specs.DiscreteArray(6), 4)
    x = torch.tensor([[0, 5, 5, 2], [1, 1, 1, 1], [3, 2, 0, 4]])
    wanted = numbers(3, 4, 4)
    gradients = []
    for inputs in (x, nn.functional.one_hot(x, 6).float()):
        layer.zero_grad()
        outputs = layer(inputs)
        (outputs * wanted).sum().backward()
        gradients.append((outputs.detach(), layer.weight.grad.clone(), layer.bias.grad.clone()))
    for looked_up, multiplied in zip(*gradients):
        torch.testing.assert_close(looked_up, multiplied)


def test_the_gradient_of_a_look_up_adds_to_what_is_there():
    with lanes(streams(1)):
        layer = Linear(specs.DiscreteArray(3), 2)
    for _ in range(2):
        layer(torch.tensor([[1]])).sum().backward()
    assert layer.weight.grad[..., :2].tolist() == [[[0, 0], [2, 2], [0, 0]]]


@pytest.mark.parametrize("outputs", [1, 3, 5, 11, 20, 33, 50])
@pytest.mark.parametrize("inputs", [1, 3, 7, 25, 50])
def test_a_lane_is_the_same_to_the_bit_wherever_it_lies(inputs, outputs):
    """Outputs and gradients of a lane alone equal those in company, for widths that suit no vector unit."""

    def learned(seeds, x, wanted):
        with lanes([stream(seed, "init") for seed in seeds]):
            net = MLP(inputs, (13,), outputs)
        results = []
        for _ in range(2):  # in the second round gradients are added to what is there
            x = x.detach().requires_grad_()
            y = net(x)
            (y * wanted).sum().backward()
            results += [y.detach(), x.grad, *(p.grad.clone() for p in net.parameters())]
        return results

    for rows in (2, 64):
        x, wanted = numbers(5, rows, inputs), numbers(5, rows, outputs)
        together = learned(range(5), x, wanted)
        for lane in range(5):
            alone = learned([lane], x[lane : lane + 1].clone(), wanted[lane : lane + 1].clone())
            assert all(torch.equal(one[0], many[lane]) for one, many in zip(alone, together))


def test_what_fills_a_layer_up_stays_zero():
    with lanes(streams()):
        net = MLP(3, (5,), 2)
    for _ in range(3):
        net(numbers(3, 8, 3)).square().sum().backward()
    for layer in net.layers:
        for filled, real in ((layer.weight, layer.matrix), (layer.bias, layer.bias[..., : layer.outputs])):
            assert torch.count_nonzero(filled) == torch.count_nonzero(real)
        assert torch.count_nonzero(layer.weight.grad) <= layer.matrix.numel()
        assert not layer.bias.grad[..., layer.outputs :].any()


@pytest.mark.parametrize("inputs, shape", [(6, (6,)), (specs.Array((2, 3), np.float32), (2, 3))])
def test_an_mlp_is_torchs_in_each_lane(inputs, shape):
    with lanes(streams()):
        net = MLP(inputs, (8, 7), 4)
    x = numbers(3, 5, *shape)
    for lane in range(3):
        y = x[lane].flatten(1)
        for layer in net.layers:
            y = nn.functional.linear(y, layer.matrix[lane].T, layer.bias[lane, 0, : layer.outputs])
            y = y.relu() if layer is not net.layers[-1] else y
        torch.testing.assert_close(net(x)[lane], y)


def test_an_observation_spec_says_how_many_features_there_are():
    assert num_features(specs.DiscreteArray(9)) == 9
    assert num_features(specs.Array((3, 4), np.float32)) == 12
    assert num_features(5) == 5


@pytest.mark.parametrize("hidden", [(50, 0), (50, -1)])
def test_hidden_must_be_widths(hidden):
    with pytest.raises(ValueError, match="hidden must be a list of positive layer widths"):
        MLP(4, hidden, 2)


FAN_IN, FAN_OUT = 400, 100
BOUNDS = {"torch": 1 / math.sqrt(FAN_IN), "glorot_uniform": math.sqrt(6 / (FAN_IN + FAN_OUT))}
DEVIATIONS = {
    "torch": BOUNDS["torch"] / math.sqrt(3),
    "glorot_uniform": BOUNDS["glorot_uniform"] / math.sqrt(3),
    "glorot_normal": math.sqrt(2 / (FAN_IN + FAN_OUT)),
    "he_normal": math.sqrt(2 / FAN_IN),
    "truncated_normal": 0.8796 / math.sqrt(FAN_IN),  # that of a normal number cut at 2
}


@pytest.mark.parametrize("init", INITIALISERS)
def test_initialisers_have_their_bounds_and_moments(init):
    with lanes(streams()):
        layer = Linear(FAN_IN, FAN_OUT, init)
    for weight in layer.weight:
        assert weight.mean().item() == pytest.approx(0, abs=0.02 * DEVIATIONS[init])
        assert weight.std().item() == pytest.approx(DEVIATIONS[init], rel=0.02)
    if init in BOUNDS:
        assert layer.weight.abs().max().item() == pytest.approx(BOUNDS[init], rel=1e-3)
    if init == "truncated_normal":
        assert layer.weight.abs().max().item() == pytest.approx(2 / math.sqrt(FAN_IN), rel=1e-2)
    if init == "torch":
        assert layer.bias.abs().max().item() == pytest.approx(BOUNDS[init], rel=0.02)
    else:
        assert not layer.bias.any()


def test_torchs_initialiser_is_torchs():
    torch.manual_seed(0)
    ours, theirs = Linear(FAN_IN, FAN_OUT, "torch"), nn.Linear(FAN_IN, FAN_OUT)
    for our, their in ((ours.weight, theirs.weight), (ours.bias, theirs.bias)):
        assert our.abs().max().item() == pytest.approx(their.abs().max().item(), rel=0.05)
        assert our.std().item() == pytest.approx(their.std().item(), rel=0.2)


def test_a_lane_is_initialised_by_its_own_stream():
    with lanes(streams()):
        together = MLP(4, (5,), 2)
    for lane in range(3):
        with lanes([stream(lane, "init")]):
            alone = MLP(4, (5,), 2)
        for one, other in zip(together.parameters(), alone.parameters()):
            assert torch.equal(one[lane], other[0])


def test_the_context_can_replace_the_initialiser():
    with lanes(streams(1), "glorot_uniform"):
        replaced = Linear(4, 3, "torch")
    with lanes(streams(1)):
        asked = Linear(4, 3, "glorot_uniform")
    assert torch.equal(replaced.weight, asked.weight)
    assert not replaced.bias.any()


def test_an_unknown_initialiser_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"init must be one of torch, glorot_uniform.*, got 'xavier'"):
        Linear(4, 3, "xavier")


def test_outside_a_run_there_is_one_lane():
    assert MLP(4, (5,), 2)(numbers(1, 3, 4)).shape == (1, 3, 2)


def ordinary():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


def test_a_lifted_module_is_the_module_run_lane_by_lane():
    with lanes(streams()):
        lifted = per_lane(ordinary)
    x = numbers(3, 5, 4)
    outputs = lifted(x)
    outputs.square().sum().backward()
    for lane, generator in enumerate(streams()):
        torch.manual_seed(int(generator.integers(2**63)))
        module = ordinary()
        expected = module(x[lane])
        expected.square().sum().backward()
        torch.testing.assert_close(outputs[lane], expected)
        for stacked, parameter in zip(lifted.parameters(), module.parameters(), strict=True):
            assert torch.equal(stacked[lane], parameter)
            torch.testing.assert_close(stacked.grad[lane], parameter.grad)


def convolutional():
    return nn.Sequential(nn.Unflatten(1, (1, 9)), nn.Conv1d(1, 3, 3), nn.ReLU(), nn.Conv1d(3, 5, 3), nn.Flatten())


@pytest.mark.parametrize("batch", [1, 3, 16])
def test_lifted_convolutions_have_the_same_bits_alone_and_in_company(batch):
    x, found = numbers(3, batch, 9), []
    for company in ([1], [1, 2], [0, 1, 2]):
        with lanes([streams()[lane] for lane in company]):
            lifted = per_lane(convolutional)
        outputs, lane = lifted(x[company]), company.index(1)
        outputs.square().sum().backward()
        found.append([outputs[lane], *(parameter.grad[lane] for parameter in lifted.parameters())])
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


def test_lifting_leaves_torchs_own_random_numbers_alone():
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    with lanes(streams()):
        per_lane(ordinary)
    assert torch.equal(torch.rand(1), expected)


def test_a_module_with_buffers_is_not_lifted():
    with lanes(streams()), pytest.raises(ValueError, match="must not have buffers, got running_mean"):
        per_lane(partial(nn.BatchNorm1d, 4))


@pytest.mark.parametrize("size", [1, 31, 32, 33, 100])
def test_softplus_is_torchs_wherever_a_number_stands(size):
    x = 10 * numbers(2, size)
    torch.testing.assert_close(softplus(x), nn.functional.softplus(x))
    reversed_ = softplus(x.flip(0, 1)).flip(0, 1)
    assert torch.equal(softplus(x), reversed_)


class Filter(LaneLayer):
    """A third party's layer: a convolution per lane, `[lanes, batch, length] -> [lanes, batch, length - 2]`."""

    def __init__(self, length, **told):
        super().__init__()
        self.kernel = nn.Parameter(numbers(3, 3))
        vars(self).update(told)

    def forward(self, x):
        return (x.unfold(-1, 3, 1) * self.kernel[:, None, None]).sum(-1)


def test_a_new_kind_of_layer_needs_nothing_but_its_forward():
    with lanes(streams()):
        network = nn.Sequential(Filter(10), Linear(8, 4))
    x = numbers(3, 6, 10)
    torch.testing.assert_close(apply_hidden(network, x), torch.relu(network[1](torch.relu(network[0](x)))))
    assert count_parameters(network) == 3 * (3 + 8 * 4 + 4)
    assert find_safe_rows(network) == 32
    assert find_safe_rows(Filter(10, outputs=8)) == 4


def test_frozen_parameters_of_layers_are_not_counted():
    with lanes(streams()):
        layer = Linear(5, 3)
    assert count_parameters(layer) == 3 * (5 * 3 + 3)
    layer.weight.requires_grad_(False)
    assert count_parameters(layer) == 3 * 3
    layer.bias.requires_grad_(False)
    assert count_parameters(layer) == 0
