"""Adam of the kernels is torch.optim.Adam's, lane by lane."""

import numpy as np
import pytest
import torch
from native import load_variants

from explore._native.adam import NativeAdam, Table, Trained
from explore._native.program import choose_lanes

LANES, DENSE, RATE, EPSILON = 3, 37, 0.01, 1e-6
WIDTHS, INPUTS = (4, 3), 5

pytestmark = pytest.mark.usefixtures("kernels")


class Network:
    """Some rows of parameters for each lane, trained by the kernels and by torch in double precision."""

    def __init__(self, seed, rows, tables, rate):
        random = np.random.default_rng(seed)
        self.rows, starts = rows, np.cumsum([DENSE, *(INPUTS * width for width in WIDTHS)])
        self.tables = [Table(int(s), INPUTS, w) for s, w in zip(starts, WIDTHS)] if tables else []
        width = int(starts[-1]) if tables else DENSE
        self.parameters = torch.from_numpy(random.normal(size=(LANES * rows, width)).astype(np.float32))
        zeros = (torch.zeros_like(self.parameters) for _ in range(3))
        self.trained = Trained(self.parameters, *zeros, torch.zeros(LANES * rows), rate, self.tables)
        self.before = self.parameters.clone()
        self.copies = [row.double().clone().requires_grad_() for row in self.parameters]

    def of_lane(self, lane):
        return range(lane * self.rows, (lane + 1) * self.rows)

    def put_gradients(self, random, lane, seen, size):
        for row in self.of_lane(lane):
            gradient = random.normal(size=self.parameters.shape[1]) * size
            for table in self.tables:
                part = gradient[table.start : table.start + table.rows * table.width].reshape(table.rows, table.width)
                part[~seen[lane]] = 0
            self.trained.gradient[row] = torch.from_numpy(gradient.astype(np.float32))
            self.copies[row].grad = self.trained.gradient[row].double()


def take_steps(adam, lanes, variant=None):
    run = (variant or next(iter(load_variants().values()))).run
    chosen = choose_lanes(tuple(lanes))
    assert run(None, 0, None, 0, chosen.address, len(lanes), 1, adam.address) == 0


@pytest.mark.parametrize("clip", [None, 0.5, 1e9])
@pytest.mark.parametrize("tables", [False, True], ids=["dense", "one-hot"])
def test_steps_are_those_of_torch(clip, tables):
    random = np.random.default_rng(0)
    seen = np.zeros((LANES, INPUTS), bool)
    networks = [Network(1, 1, tables, RATE), Network(2, 2, tables, 3 * RATE)]
    adam = NativeAdam([network.trained for network in networks], seen, EPSILON, clip)
    optimizers = {
        lane: torch.optim.Adam(
            [{"params": [n.copies[row] for row in n.of_lane(lane)], "lr": n.trained.rate} for n in networks],
            eps=EPSILON,
        )
        for lane in range(LANES)
    }
    for step in range(12):
        lanes = [lane for lane in range(LANES) if step % (lane + 1) == 0]
        for lane in lanes:
            seen[lane, random.integers(INPUTS)] = True
            for network in networks:
                network.put_gradients(random, lane, seen, 10.0 ** random.integers(-3, 2))
        take_steps(adam, lanes)
        for lane in lanes:
            if clip is not None:
                own = [network.copies[row] for network in networks for row in network.of_lane(lane)]
                torch.nn.utils.clip_grad_norm_(own, clip)
            optimizers[lane].step()
    for network in networks:
        assert not network.trained.gradient.any()
        assert network.trained.steps.view(LANES, -1)[:, 0].tolist() == [12, 6, 4]
        for row, right in zip(network.parameters, network.copies):
            torch.testing.assert_close(row.double(), right.detach(), rtol=1e-5, atol=2e-6)
        assert_unseen_stay(network, seen)


def assert_unseen_stay(network, seen):
    for lane in range(LANES):
        for table in network.tables:
            span = slice(table.start, table.start + table.rows * table.width)
            for row in network.of_lane(lane):
                changed = (network.parameters[row, span] != network.before[row, span]).view(table.rows, table.width)
                assert changed.any(1).numpy().tolist() == seen[lane].tolist()


def test_a_lane_that_takes_no_step_stays_as_it_is():
    network = Network(1, 2, False, RATE)
    adam = NativeAdam([network.trained], np.zeros((LANES, 0), bool), EPSILON, None)
    network.trained.gradient.fill_(1.0)
    take_steps(adam, [1])
    changed = (network.parameters != network.before).any(1).view(LANES, 2).all(1)
    assert changed.tolist() == [False, True, False]
    assert network.trained.steps.tolist() == [0, 0, 1, 1, 0, 0]


def test_tiny_numbers_are_no_trouble():
    network = Network(1, 1, False, RATE)
    adam = NativeAdam([network.trained], np.zeros((LANES, 0), bool), EPSILON, 0.5)
    for size in (1e-30, 1e-38, 1e-45, 0.0):
        network.trained.gradient.fill_(size)
        take_steps(adam, [0])
    assert network.parameters.isfinite().all()


@pytest.mark.parametrize("clip", [None, 0.5])
def test_all_variants_take_the_same_steps(clip):
    results = set()
    for variant in load_variants().values():
        random, network, seen = np.random.default_rng(0), Network(1, 2, True, RATE), np.ones((LANES, INPUTS), bool)
        seen[:, 2] = False
        adam = NativeAdam([network.trained], seen, EPSILON, clip)
        for _ in range(20):
            for lane in range(LANES):
                network.put_gradients(random, lane, seen, 1.0)
            take_steps(adam, range(LANES), variant)
        results.add(network.parameters.numpy().tobytes())
    assert len(results) == 1
