"""Each operation that the kernels execute is as precise as PyTorch's, its gradient too."""

import pytest
import torch
from native import compute, gradients, numbers, reference, run
from native_functions import FUNCTIONS, PAIRS, PLACES
from torch.nn import functional

from explore._native.function import NativeFunction
from explore._native.program import choose_lanes

FACTOR, FLOOR = 6.0, 6e-7
"""How much larger errors may be than those of PyTorch in single precision; and what they may be beside the largest."""

pytestmark = [
    pytest.mark.usefixtures("kernels"),
    pytest.mark.filterwarnings("ignore:Using a target size", "ignore:(var|std).*degrees of freedom"),
]


SHAPES = [(1, 6, 4), *(pytest.param(shape, marks=pytest.mark.slow) for shape in [(1, 1, 5), (1, 33, 17), (1, 70, 3)])]
BROADCASTS = [((1, 6, 4), (1, 6, 4)), ((1, 6, 4), (1, 1, 4)), ((1, 6, 1), (1, 1, 9)), ((1, 20, 33), (1, 20, 1))]


def assert_precise(function, *arguments):
    """As precise as PyTorch in single precision, forward and backward."""
    everything = gradients(function)
    found, exact, usual = run(everything, *arguments), reference(everything, *arguments), everything(*arguments)
    for one, right, other in zip(found, exact, usual):
        assert one.dtype == other.dtype and one.shape == other.shape
        scale = float(right.abs().max()) if right.numel() else 0.0
        worst = FACTOR * float((other - right).abs().max()) + FLOOR * scale
        assert float((one - right).abs().max()) <= worst


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_function_of_numbers_is_precise(function, shape):
    if shape[1] == 1 and function in (FUNCTIONS["cut"], FUNCTIONS["standard deviation"]):
        pytest.skip("of a single row")
    assert_precise(function, numbers(sum(shape), *shape))


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_numbers_may_lie_apart(function):
    assert_precise(lambda x: function(x[:, ::2, 1::3].transpose(1, 2)), numbers(1, 1, 12, 13))


@pytest.mark.parametrize("shapes", BROADCASTS, ids=str)
@pytest.mark.parametrize("function", PAIRS.values(), ids=PAIRS)
def test_a_function_of_two_tensors_is_precise(function, shapes):
    x, y = (numbers(k, *shape) for k, shape in enumerate(shapes))
    try:
        function(x, y)
    except (RuntimeError, ValueError):
        pytest.skip("PyTorch cannot do it either")
    assert_precise(function, x, y)


@pytest.mark.parametrize("function", PLACES.values(), ids=PLACES)
def test_numbers_are_found_by_their_places(function):
    places = (numbers(2, 1, 6, 4) * 10).long().remainder(4)
    assert_precise(lambda x, i: function(x, i), numbers(3, 1, 6, 4), places)


def test_places_that_do_not_exist_are_no_accident():
    x, places = numbers(0, 1, 6, 4), torch.zeros(1, 6, 1, dtype=torch.int64)
    native = NativeFunction(lambda x, i: [x.gather(2, i)], [x, places])
    for outside in (4, -5, 2**40):
        places[0, 2] = outside
        with pytest.raises(IndexError, match="1 places in tensors that were asked for do not exist"):
            native([x, places], choose_lanes((0,)), 1)


SPECIAL = [float("nan"), float("inf"), -float("inf"), 0.0, -1.0, 3.0, 88.5, -88.5, 1e30, -1e30]
OF_SPECIAL = {
    "relu": torch.relu,
    "maximum": lambda x: torch.maximum(x, x.flip(1)),
    "minimum": lambda x: torch.minimum(x, x.flip(1)),
    "clamp": lambda x: x.clamp(-2, 2),
    "clamp from above": lambda x: x.clamp_max(0),
    "argmax": lambda x: x.argmax(-1),
    "argmin": lambda x: x.argmin(-1),
    "place of nothing": lambda x: x[..., 1:].argmax(-1),
    "amax": lambda x: x[..., 1:].amax(-1),
    "amax of nothing": lambda x: x.amax(-1),
    "where": lambda x: torch.where(x > 0, x, -x),
    "equal": lambda x: torch.stack([x == x, x != x, x < 1, x >= 1, x <= x]).float(),
    "sum": lambda x: x.sum(-1),
    "sign": lambda x: x[..., 1:].sign(),
    "abs": torch.abs,
    "sqrt": torch.sqrt,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
    "softplus": functional.softplus,
    "cos": lambda x: torch.where((x.abs() > 1e20) & (x.abs() < 1e35), 0.5, x).cos(),
    "sin": lambda x: torch.where((x.abs() > 1e20) & (x.abs() < 1e35), 0.5, x).sin(),
    "elu": functional.elu,
    "softmax": lambda x: x[..., 2:].softmax(-1),
    "divided": lambda x: x / x.flip(1),
    "product": lambda x: torch.einsum("lij,lkj->lik", x, x),
    "relu backward": lambda x: gradients(torch.relu)(x)[1],
    "any": lambda x: (x == 3).any(-1),
}


@pytest.mark.parametrize("function", OF_SPECIAL.values(), ids=OF_SPECIAL)
def test_what_is_not_finite_is_treated_as_pytorch_does(function):
    x = torch.tensor([SPECIAL, SPECIAL[::-1]])[None]
    torch.testing.assert_close(compute(function, x), function(x), equal_nan=True, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("name", ["exp", "log", "log1p", "expm1", "tanh", "sigmoid", "erf", "softplus", "sin", "cos"])
def test_functions_are_precise_everywhere(name):
    function = getattr(torch, name, None) or getattr(functional, name)
    x = torch.cat([torch.linspace(-30, 30, 20_001), torch.logspace(-30, 1, 2_000), -torch.logspace(-30, 1, 2_000)])
    x = x[x > 0][None] if name == "log" else x[x > -1][None] if name == "log1p" else x[None]
    found, right = compute(function, x).double(), function(x.double())
    error = (found - right).abs() / right.abs().clamp_min(1.0 if name in ("sin", "cos") else 1e-37)
    assert float(error.max()) < 6e-7
