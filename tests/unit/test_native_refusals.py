"""What the kernels cannot execute is refused with a reason that a user can read."""

import numpy as np
import pytest
import torch
from native import numbers

from explore._native.function import NativeFunction
from explore._native.program import choose_lanes
from explore._native.recorder import NotRecordable

ELSEWHERE = torch.ones(3)
SEEDED = "draws random numbers, which only uniform, normal and integers of explore.streams may"
DEPENDS = "what it does depends on the numbers it is given"

pytestmark = pytest.mark.usefixtures("kernels")


def branch(x):
    return x * 2 if (x > 0).any() else x


def become_constant(x):
    return x + torch.tensor(np.asarray(x.detach()).max().tolist())


def change(x):
    return x.mul_(2)


def change_silently(x):
    x.clamp_(-100, 100)
    return x * 1


def change_a_place(x):
    x[:, 0] = 1.0
    return x * 1


def fail(x):
    raise RuntimeError("first line\nsecond line")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (branch, DEPENDS),
        (become_constant, DEPENDS),
        (lambda x: x * x.max().item(), DEPENDS),
        (lambda x: x[x > 0][None], "index: with a mask; use where"),
        (lambda x: x.nonzero()[None], DEPENDS),
        (lambda x: x.sort(-1).values, "the kernels have no sort"),
        (lambda x: x.cummax(-1).values, "the kernels have no cummax"),
        (lambda x: torch.fft.fft(x).real, "the kernels have no _fft_r2c"),
        (lambda x: x.double().sum(-1), "the kernels have no float64"),
        (lambda x: x.half() + 1, "the kernels have no float16"),
        (lambda x: x * ELSEWHERE, "a tensor that is neither a parameter nor computed from the arguments"),
        (lambda x: x + ELSEWHERE.clone().add_(1), "a tensor that is neither a parameter nor computed from"),
        (lambda x: x + ELSEWHERE.add_(0), "a tensor that is neither a parameter nor computed from"),
        (lambda x: x + torch.from_numpy(np.ones(3, np.float32)), "a tensor that is neither a parameter nor"),
        (lambda x: x + torch.tensor([1.0, 2.0, 3.0]), "a tensor that is neither a parameter nor computed from"),
        (lambda x: x * torch.rand(3), f"rand {SEEDED}"),
        (lambda x: torch.nn.functional.dropout(x), f"bernoulli {SEEDED}"),
        (lambda x: x + torch.randn_like(x), f"randn_like {SEEDED}"),
        (lambda x: x * torch.randint(5, (3,)), f"randint {SEEDED}"),
        (lambda x: torch.empty(1, 3).uniform_() * x, f"uniform {SEEDED}"),
        (change, "it changes an argument in place"),
        (change_silently, "it changes an argument in place"),
        (change_a_place, "it changes an argument in place"),
        (lambda x: torch.add(x, 1, out=torch.empty(1, 4, 3)), "the kernels have no add with out="),
        (lambda x: x.sum(), "it gives a tensor without an axis of lanes"),
        (lambda x: x.expand(2, -1, -1), "it gives a tensor without an axis of lanes"),
        (lambda x: x**2.5, "pow: with this exponent"),
        (lambda x: x.long() @ x.long().transpose(1, 2), "the kernels have no product of int64"),
        (fail, "RuntimeError: first line"),
    ],
)
def test_it_is_refused_with_a_reason(function, reason):
    x = numbers(0, 1, 4, 3)
    before = x.clone()
    with pytest.raises(NotRecordable) as caught:
        NativeFunction(lambda x: [function(x)], [x])
    [line] = str(caught.value).splitlines()
    assert line.startswith(reason)
    assert torch.equal(x, before)


def test_a_number_of_the_functions_own_is_a_constant():
    x = numbers(0, 1, 4, 3)
    native = NativeFunction(lambda x: [x * torch.tensor(2.0)], [x])
    [found] = native([x], choose_lanes((0,)), 1)
    assert torch.equal(found[0], x * 2)
