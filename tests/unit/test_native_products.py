"""Products of matrices by the kernels, and that a row is the same in any batch."""

import numpy as np
import pytest
import torch
from native import compute, numbers, run
from native_functions import FUNCTIONS
from torch.nn import functional

pytestmark = pytest.mark.usefixtures("kernels")


def draw_shapes(seed, rounds):
    random = np.random.default_rng(seed)
    edges = [[1, 1, 1], [70, 300, 70], [6, 4, 16], [7, 5, 17], [2, 3, 64], [13, 1, 65], [1, 300, 33]]
    return edges + [[int(random.integers(1, high + 1)) for high in (70, 300, 70)] for _ in range(rounds)]


@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)], ids=str)
@pytest.mark.parametrize("started", [False, "row", "column"], ids=["plain", "plus a row", "plus a column"])
def test_products_are_as_precise_as_those_of_pytorch(transposed, started):
    for k, (rows, inner, columns) in enumerate(draw_shapes(sum(transposed), 10)):
        shapes = [(1, inner, rows) if transposed[0] else (1, rows, inner), (1, columns, inner)]
        a, b = numbers(k, *shapes[0]), numbers(k + 1, *shapes[1] if transposed[1] else (1, inner, columns))
        start = numbers(k + 2, *{"row": (1, 1, columns), "column": (1, rows, 1)}.get(started, (1, 1, 1)))

        def multiply(a, b, start):
            a, b = (one.transpose(1, 2) if turned else one for one, turned in zip((a, b), transposed))
            return torch.baddbmm(start, a, b) if started else torch.bmm(a, b)

        found, usual = compute(multiply, a, b, start), multiply(a, b, start)
        exact = multiply(a.double(), b.double(), start.double())
        bound = 4 * float((usual - exact).abs().max()) + 1e-7 * float(exact.abs().max()) * inner**0.5
        assert float((found - exact).abs().max()) <= bound


SIZES = (1, 2, 5, 8, 31, 64)
ACROSS_ROWS = {
    "sum in the middle", "mean", "smallest", "largest of all", "max along the first", "place of the largest",
    "log_softmax", "joined", "padded", "flipped", "transposed", "triangle", "expanded", "many dimensions",
    "sum of all", "standard deviation", "power 0", "repeated", "cut", "sliced", "rolled", "diagonal",
}  # fmt: skip
"""Functions that do not treat each row on its own."""
OF_ROWS = {name: one for name, one in FUNCTIONS.items() if name not in ACROSS_ROWS} | {
    "network": lambda x: torch.bmm(torch.relu(torch.bmm(x, numbers_of(7, 9))), numbers_of(9, 3)),
    "few": lambda x: x[..., :3].sum(-1) + x[..., :3].mean(-1) + x[..., :5].softmax(-1)[..., 0],
    "two dimensions": lambda x: (x[..., :, None] * x[..., None, :3]).sum((2, 3)),
    "from behind": lambda x: (x[..., :, None] * x[..., None, :3]).transpose(0, 2)[0, :, 0].sum(-1)[None],
    "between": lambda x: (x[..., :, None] * x[..., None, :3]).sum(2),
    "linear": lambda x: functional.linear(x[0], numbers_of(5, 7)[0])[None],
}


def numbers_of(rows, columns):
    """Weights, as constants of a function."""
    return (torch.arange(rows * columns) * 1.7).sin().view(1, rows, columns)


@pytest.mark.parametrize("function", OF_ROWS.values(), ids=OF_ROWS)
def test_a_row_does_not_depend_on_how_many_there_are(function):
    x = numbers(0, 1, max(SIZES), 7)
    whole = compute(function, x)
    for size in SIZES[:-1]:
        assert torch.equal(compute(function, x[:, :size]), whole[:, :size])


def test_a_sum_that_is_apart_in_memory_is_the_same_for_any_number_of_rows():
    for size in (1, 3, 40):
        x = numbers(0, 1, 40, 6, 5)[:, :size]
        [apart] = run(lambda x: [x.permute(0, 2, 1, 3).contiguous().permute(0, 2, 1, 3).sum((2, 3))], x)
        [one] = run(lambda x: [x.permute(0, 2, 1, 3).contiguous().permute(0, 2, 1, 3).sum((2, 3))], x[:, :1])
        assert torch.equal(apart[:, :1], one)
