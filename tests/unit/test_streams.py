"""Every random number comes from the seed of its lane and the name of its use."""

import random

import numpy as np
import pytest
import torch

from explore.streams import Streams, global_generators, integer_seed, integers, normal, stream, uniform


def test_a_stream_depends_on_its_seed_and_name_alone():
    assert stream(3, "init", "value", 7).random() == stream(3, "init", "value", 7).random()
    others = [stream(4, "init", "value", 7), stream(3, "prior", "value", 7), stream(3, "init", "value", 8)]
    assert stream(3, "init", "value", 7).random() not in [other.random() for other in others]


def test_streams_of_lanes_go_on_where_they_stopped_and_do_not_disturb_each_other():
    streams = Streams([5, 9])
    assert len(streams) == 2
    first = streams["index"][1].random(3)
    streams["mask"][1].random(100)
    streams["index"][0].random(100)
    np.testing.assert_array_equal(np.append(first, streams["index"][1].random(3)), stream(9, "index").random(6))


def test_integer_seeds_fit_what_wants_them():
    seeds = [integer_seed(seed, "environment") for seed in range(100)]
    assert len(set(seeds)) == 100
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert seeds[7] == integer_seed(7, "environment")


@pytest.mark.parametrize(
    "draw, dtype",
    [(uniform, torch.float32), (normal, torch.float32), (lambda g, *shape: integers(g, 6, *shape), torch.int64)],
)
def test_each_lane_draws_from_its_own_generator(draw, dtype):
    both = draw([stream(0, "x"), stream(1, "x")], 4, 3)
    assert both.shape == (2, 4, 3) and both.dtype == dtype
    for lane in range(2):
        assert torch.equal(both[lane], draw([stream(lane, "x")], 4, 3)[0])


@pytest.mark.parametrize("draw", [uniform, normal])
def test_a_waiting_lane_draws_nothing(draw):
    generator = stream(0, "x")
    drawn = draw([None, generator], 5)
    assert not drawn[0].any()
    alone = stream(0, "x")
    assert torch.equal(drawn[1], draw([alone], 5)[0])
    assert torch.equal(draw([generator], 2), draw([alone], 2))


def test_distributions():
    generators = [stream(0, "x")]
    u, n, k = uniform(generators, 10_000), normal(generators, 10_000), integers(generators, 5, 10_000)
    assert u.min() >= 0 and u.max() < 1 and abs(u.mean() - 0.5) < 0.02
    assert abs(n.mean()) < 0.04 and abs(n.std() - 1) < 0.03
    assert torch.bincount(k.flatten()).tolist() == pytest.approx([2000] * 5, abs=200)


def test_global_generators_are_those_that_the_global_functions_draw_from():
    numpys, pythons, torchs = (global_generators()[name] for name in ("numpy", "random", "torch"))
    states = numpys.get_state(), pythons.getstate(), torchs.get_state()
    globally = np.random.rand(), random.random(), torch.rand(()).item()
    numpys.set_state(states[0]), pythons.setstate(states[1]), torchs.set_state(states[2])
    assert (numpys.rand(), pythons.random(), torch.rand((), generator=torchs).item()) == globally
