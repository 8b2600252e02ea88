"""State goes from live objects to plain data and back onto new ones, in place."""

from __future__ import annotations

import copy
from collections import defaultdict, deque
from typing import Any

import numpy as np
import pytest
import torch
from captured import GENERATORS, VALUES, Point, assert_same, draws, leaves, moved, play, through_json
from explore_plugins.deep_sea import DeepSea
from stateful import ENVIRONMENTS, Holder
from torch import nn

from explore._state import Misfit, capture, restore
from explore.streams import Streams


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_plain_data_comes_back_as_it_was(value):
    fresh = Holder(value=None)
    assert moved(Holder(value=value), fresh) is fresh
    assert_same(fresh.value, value)
    assert_same(restore(None, through_json(capture(value, "it")), "it"), value)
    assert_same(moved(value, copy.deepcopy(value)), value)


def test_long_lists_of_numbers_are_one_array():
    for numbers in ([0.5] * 1000, [3] * 1000, [True] * 1000):
        *_, array = leaves(capture(numbers, "it"))
        assert isinstance(array, np.ndarray) and len(array) == 1000


def test_arrays_are_not_copied_when_captured_and_never_shared_when_restored():
    array, tensor = np.zeros(3), torch.zeros(3)
    tree = capture({"array": array, "tensor": tensor}, "it")
    assert tree["array"] is array
    array[0], tensor[0] = 1, 1
    for new in (restore(None, tree, "it"), restore({}, tree, "it")):
        array[0], tensor[0] = 5, 5
        assert new["array"][0] == new["tensor"][0] == 1
        array[0], tensor[0] = 1, 1


@pytest.mark.parametrize(
    "fresh, value",
    [
        ([], [1, [2]]),
        ({"a": 1}, {"b": 2}),
        ({1: 1}, {2: 2}),
        (set(), {1}),
        (deque(), deque([1])),
        (defaultdict(list), defaultdict(list, {3: [1]})),
        (np.zeros(3), np.ones(3)),
        (torch.zeros(3), torch.ones(3)),
        (nn.Parameter(torch.zeros(3)), nn.Parameter(torch.ones(3))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_mutable_is_changed_in_place(fresh, value):
    assert moved(value, fresh) is fresh
    assert_same(fresh, value)


def test_a_defaultdict_keeps_its_factory():
    counts = moved(defaultdict(int, a=2), defaultdict(int))
    counts["b"] += 1
    assert counts == {"a": 2, "b": 1}


def test_an_array_of_another_form_or_that_is_read_only_is_replaced():
    constant = np.zeros(3)
    constant.flags.writeable = False
    for fresh in (constant, np.zeros(4), np.zeros(3, np.float32)):
        holder = Holder(array=fresh)
        moved(Holder(array=np.ones(3)), holder)
        assert_same(holder.array, np.ones(3))
        assert not fresh.any()


def test_a_deque_keeps_its_length_and_must_be_there():
    fresh = Holder(frames=deque(maxlen=3))
    frames = fresh.frames
    moved(Holder(frames=deque(range(100), maxlen=3)), fresh)
    frames.append(0)
    assert fresh.frames is frames and list(frames) == [98, 99, 0]
    with pytest.raises(Misfit, match=r"it\.frames holds a deque that a newly built one does not have"):
        moved(Holder(frames=deque()), Holder(frames=None))


def test_namedtuples_take_their_class_from_what_is_there():
    fresh = Holder(point=Point(0, np.zeros(2)))
    array = fresh.point.y
    moved(Holder(point=Point([1], np.ones(2))), fresh)
    assert type(fresh.point) is Point and fresh.point.x == [1] and fresh.point.y is array and array.all()
    with pytest.raises(Misfit, match=r"it\.value holds a Point that a newly built one does not have"):
        moved(Holder(value=Point(1, 2)), Holder(value=None))


OTHERS = [np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64]


@pytest.mark.parametrize("make", GENERATORS.values(), ids=GENERATORS)
def test_generators_go_on_where_they_were_also_for_closures_that_hold_them(make):
    used, fresh = make(), make()
    draws(used)  # an odd number of normal numbers: the other of the last pair is kept
    draw = lambda: draws(fresh)  # noqa: E731
    tree = through_json(capture(used, "it"))
    assert restore(fresh, tree, "it") is fresh
    new = restore(None, tree, "it")
    expected = draws(used)
    assert draw() == expected
    assert draws(new) == expected


@pytest.mark.parametrize("bits", OTHERS)
def test_generators_of_other_bits_go_on_where_there_is_one(bits):
    used, fresh = (np.random.Generator(bits(1)) for _ in range(2))
    draws(used)
    tree = through_json(capture(used, "it"))
    assert draws(restore(fresh, tree, "it")) == draws(used)
    with pytest.raises(Misfit, match=r"^it is not the state of a Generator like this one$"):
        restore(None, tree, "it")


def test_a_state_of_another_generator_is_a_misfit():
    makers = list(GENERATORS.values())
    for one, other in zip(makers, makers[1:] + makers[:1]):
        with pytest.raises(Misfit):
            moved(one(), other())


def test_a_position_beyond_the_end_of_a_generator_is_a_misfit():
    tree = capture(np.random.RandomState(0), "it")
    tree["$generator"][1]["state"]["pos"] = 10**6
    with pytest.raises(Misfit, match="is not the state of a RandomState like this one"):
        restore(np.random.RandomState(0), tree, "it")


def test_the_streams_of_a_run_go_on_where_they_were():
    used, fresh = Streams([1, 2]), Streams([1, 2])
    used["index"][1].random(3), used["mask"][0].random()
    moved(used, fresh)
    assert fresh["index"][1].random() == used["index"][1].random()
    assert fresh["mask"][0].random() == used["mask"][0].random()


def test_what_was_one_thing_is_one_thing_again():
    def build() -> Holder:
        board, rng = np.zeros(3), np.random.RandomState(0)
        return Holder(one=board, other=board, rng=rng, child=Holder(rng=rng), lists=[[1], [1]])

    used, fresh = build(), build()
    used.one[0] = 5
    used.rng.rand()
    used.lists = [used.lists[0]] * 2
    used.tensors = [torch.ones(2)] * 2
    tree = capture(used, "it")
    assert sum(isinstance(leaf, np.ndarray) and leaf.shape == (3,) for leaf in leaves(tree)) == 1
    restore(fresh, through_json(tree), "it")
    assert fresh.one is fresh.other and fresh.one[0] == 5
    assert fresh.rng is fresh.child.rng
    assert fresh.lists[0] is fresh.lists[1]
    assert fresh.tensors[0] is fresh.tensors[1]


def test_what_was_two_things_is_two_things_even_if_the_fresh_one_has_them_as_one():
    one = np.zeros(2)
    rng = np.random.RandomState(0)
    fresh = Holder(a=one, b=one, lists=[[]] * 2, rng=rng, other_rng=rng)
    moved(
        Holder(
            a=np.ones(2),
            b=np.full(2, 2.0),
            lists=[[1], [2]],
            rng=np.random.RandomState(1),
            other_rng=np.random.RandomState(2),
        ),
        fresh,
    )
    assert fresh.a.tolist() == [1, 1] and fresh.b.tolist() == [2, 2] and fresh.lists == [[1], [2]]
    assert fresh.rng.rand() == np.random.RandomState(1).rand()
    assert fresh.other_rng.rand() == np.random.RandomState(2).rand()
    shared = Holder()
    with pytest.raises(Misfit, match="in two places"):
        moved(Holder(a=Holder(), b=Holder()), Holder(a=shared, b=shared))


def test_things_may_hold_themselves():
    def build() -> Holder:
        holder = Holder(n=0, list=[])
        holder.me, holder.dict = holder, {}
        return holder

    used, fresh = build(), build()
    used.n = 1
    used.list.append(used.list)
    used.dict["owner"] = (used, used.dict)
    moved(used, fresh)
    assert fresh.me is fresh and fresh.n == 1
    assert fresh.list[0] is fresh.list
    assert fresh.dict["owner"][0] is fresh and fresh.dict["owner"][1] is fresh.dict


def test_a_judge_and_its_environment_are_restored_as_one():
    def build() -> tuple[DeepSea, Any]:
        environment = DeepSea(0, deterministic=False)
        return environment, environment.judge(environment)

    used, fresh = build(), build()
    play(used[0], np.random.default_rng(0), 35)
    used[1].episode(0.5)
    moved(used, fresh)
    assert fresh[1].environment is fresh[0]
    assert fresh[1].summary() == used[1].summary()


@pytest.mark.parametrize("build", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_environments_go_on_the_same_from_anywhere(build):
    rng = np.random.default_rng(0)
    for steps in (0, 1, *rng.integers(2, 150, size=6)):
        used, fresh = build(), build()
        play(used, rng, int(steps))
        moved(used, fresh)
        assert_same(play(fresh, np.random.default_rng(steps), 200), play(used, np.random.default_rng(steps), 200))
        assert capture(used, "it").keys() == capture(fresh, "it").keys()


def test_generators_go_on_having_children():
    saved, fresh = (np.random.default_rng(3) for _ in range(2))
    saved.spawn(2)
    moved(saved, fresh)
    assert [child.random() for child in fresh.spawn(2)] == [child.random() for child in saved.spawn(2)]
    fresh = np.random.default_rng(3)
    fresh.spawn(9)
    assert moved(saved, fresh).spawn(1)[0].random() == saved.spawn(1)[0].random()
