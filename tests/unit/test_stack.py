"""The copies of a network are views of one buffer."""

import pytest
import torch
from torch import nn

from explore._values.parts import check_network
from explore._values.stack import ALIGNMENT, Stack
from explore.nn import MLP, lanes
from explore.streams import stream

CPU = torch.device("cpu")


def network(purpose, rows=3):
    with lanes([stream(row, purpose) for row in range(rows)]):
        return MLP(4, (5,), 3)


@pytest.fixture
def stack():
    return Stack(network("init"), network("prior"), 3, CPU)


def x():
    return torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0))


def test_the_copies_are_the_networks_they_were_made_of(stack):
    torch.testing.assert_close(stack.trained(x()), network("init")(x()))
    torch.testing.assert_close(stack.target(x()), network("init")(x()))
    torch.testing.assert_close(stack.prior(x()), network("prior")(x()))


def test_the_trained_network_and_its_prior_run_as_one(stack):
    both = stack.with_prior(x().repeat(2, 1, 1))
    torch.testing.assert_close(both, torch.cat([stack.trained(x()), stack.prior(x())]))


def test_parameters_and_gradients_are_views_of_the_buffers(stack):
    start, shape = stack.layout["layers.1.weight"]
    stack.buffer[0, 1, start] = 42
    stack.buffer[1, 1, start] = 43
    assert stack.trained.layers[1].weight[1, 0, 0] == 42
    assert stack.prior.layers[1].weight[1, 0, 0] == 43
    assert stack.target.layers[1].weight[1, 0, 0] not in (42, 43)
    stack.trained(x()).sum().backward()
    gradient = stack.gradient[:, start : start + shape.numel()].unflatten(1, shape)
    assert gradient.any()
    assert torch.equal(stack.trained.layers[1].weight.grad, gradient)


def test_every_parameter_starts_where_adam_rounds_alike(stack):
    assert [name for name, _ in stack.trained.named_parameters()] == list(stack.layout)
    assert all(start % ALIGNMENT == 0 for start, _ in stack.layout.values())
    assert stack.buffer.shape[-1] % ALIGNMENT == 0


def test_only_the_trained_copy_has_gradients(stack):
    (stack.trained(x()) + stack.prior(x()) + stack.target(x())).sum().backward()
    assert all(p.grad is None for copy in (stack.prior, stack.target) for p in copy.parameters())


def test_the_target_is_copied_for_the_lanes_asked_for(stack):
    before = stack.buffer.clone()
    stack.buffer[0] += 1
    stack.copy_to_target([0, 2])
    assert torch.equal(stack.buffer[-1, [0, 2]], before[0, [0, 2]] + 1)
    assert torch.equal(stack.buffer[-1, 1], before[-1, 1])
    stack.copy_to_target([0, 1, 2])
    assert torch.equal(stack.buffer[-1], stack.buffer[0])
    assert torch.equal(stack.buffer[1], before[1])


def test_a_lane_has_the_rows_of_all_its_members():
    stack = Stack(network("init", rows=6), None, 3, CPU)
    stack.buffer[0] += 1
    stack.copy_to_target([1])
    changed = (stack.buffer[0] == stack.buffer[1]).all(1)
    assert changed.tolist() == [False, False, True, True, False, False]


def test_a_network_with_buffers_is_refused():
    """There are several copies of it."""
    module = nn.Module()
    module.weight = nn.Parameter(torch.zeros(3, 1))
    module.register_buffer("mean", torch.zeros(3))
    with pytest.raises(ValueError, match=r"in parameters or in a Memory, not in buffers \(mean\)"):
        check_network(module, 3, 3)
