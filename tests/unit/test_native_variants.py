"""All variants of the kernels give the same, to the bit."""

import numpy as np
import pytest
import torch
from building import CELLS, FLOATS, PINS, Walk, build, live, weights
from explore_plugins.hypermodel import Hypermodel
from explore_plugins.objectives import SampledTD
from explore_plugins.selections import SampledArgmax
from native import draw, gradients, list_variants, load_variants, numbers, run_in_variants, use
from native_functions import FUNCTIONS, PAIRS, PLACES

HYPERMODEL = PINS | {"objective": SampledTD, "target": SampledArgmax, "uncertainty": Hypermodel, "gradient_clip": 0.1}


@pytest.fixture(scope="module", autouse=True)
def several():
    if len(load_variants()) < 2:
        pytest.skip("this processor has one variant only")


def assert_same(function, *arguments):
    first, *others = run_in_variants(gradients(function), *arguments)
    assert all(other == first for other in others)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_function_of_numbers_is_the_same(function):
    assert_same(function, numbers(0, 1, 9, 21))


@pytest.mark.parametrize("function", PAIRS.values(), ids=PAIRS)
def test_a_function_of_two_tensors_is_the_same(function):
    assert_same(function, numbers(0, 1, 9, 21), numbers(1, 1, 9, 21))


@pytest.mark.parametrize("function", PLACES.values(), ids=PLACES)
def test_what_is_found_by_place_is_the_same(function):
    assert_same(function, numbers(3, 1, 6, 4), (numbers(2, 1, 6, 4) * 10).long().remainder(4))


def test_products_are_the_same():
    random = np.random.default_rng(0)
    for k in range(25):
        rows, inner, columns = (int(random.integers(1, high)) for high in (70, 100, 140))
        assert_same(torch.bmm, numbers(k, 1, rows, inner), numbers(k, 1, inner, columns))


@pytest.mark.parametrize("name", ["exp", "log", "log1p", "expm1", "tanh", "sigmoid", "erf", "sin", "cos", "relu"])
def test_functions_are_the_same_for_any_bits(name):
    words = np.random.default_rng(0).integers(2**32, size=(1, 10_000), dtype=np.uint64).astype(np.uint32)
    x = torch.from_numpy(words.view(np.float32))
    x = torch.where(x.abs() < 1e-37, 0.0, x)  # smaller ones are 0 in the kernels
    if name in ("sin", "cos"):
        x = torch.where(x.isfinite(), x.clamp(-1e6, 1e6), x)
    first, *others = run_in_variants(lambda x: [getattr(torch, name)(x)], x)
    assert all(other == first for other in others)


@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_random_numbers_are_the_same(kind):
    drawn = {draw(kind, range(50), 1000, variant).tobytes() for variant in load_variants().values()}
    assert len(drawn) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "spec"),
    [(PINS, FLOATS), (HYPERMODEL, FLOATS), (PINS, CELLS), (HYPERMODEL, CELLS)],
    ids=["PINs", "a clipped hypermodel", "one-hot PINs", "a one-hot hypermodel"],
)
def test_agents_learn_the_same(parts, spec, monkeypatch):
    learned = []
    for variant in list_variants():
        use(variant, monkeypatch)
        agent = build(spec=spec, **parts)
        live(agent, 8, lambda seed: Walk(seed, spec))
        assert agent.execution() == {"native kernels": variant}
        learned.append(weights(agent))
    first, *others = learned
    for other in others:
        assert all(torch.equal(a, b) for seed in first for a, b in zip(first[seed], other[seed]))
