"""State goes from live objects to plain data and back onto new ones, in place, and nothing else comes out of it."""

from __future__ import annotations

import copy
import enum
import functools
import json
import logging
import math
import pathlib
import random
import re
import threading
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import dm_env
import numpy as np
import pytest
import torch
from dm_env import specs
from explore_plugins.bsuite import Bsuite
from explore_plugins.deep_sea import DeepSea
from stateful import ENVIRONMENTS, Holder
from torch import nn

from explore._state import Misfit, Unsavable, capture, check_fits, restore, skeleton
from explore._state.walk import BY_TAG, DEEPEST
from explore.streams import Streams

torch.set_num_threads(1)


class Lazy:
    """An array as a file gives it: it has a form, and can be loaded."""

    def __init__(self, array: np.ndarray):
        self._bytes, self.dtype, self.shape = array.tobytes(), array.dtype, array.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.frombuffer(self._bytes, self.dtype).reshape(self.shape)


def through_json(tree: Any) -> Any:
    arrays: list[np.ndarray] = []

    def aside(leaf: Any) -> Any:
        assert type(leaf) is np.ndarray, leaf
        arrays.append(leaf)
        return {"$array": len(arrays) - 1}

    def back(node: dict[str, Any]) -> Any:
        return Lazy(arrays[node["$array"]]) if "$array" in node else node

    return json.loads(json.dumps(tree, default=aside, allow_nan=False), object_hook=back)


def moved(thing: Any, fresh: Any, **options: Any) -> Any:
    """The state of a thing put onto a fresh one."""
    return restore(fresh, through_json(capture(thing, "it", **options)), "it")


class Point(NamedTuple):
    x: Any
    y: Any


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert one.shape == other.shape and bool((one == other).all())
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple | deque):
        assert len(one) == len(other)
        for pair in zip(one, other):
            assert_same(*pair)
    else:
        assert one == other or (one != one and other != other)


VALUES = {
    "None": None,
    "bool": True,
    "int": -7,
    "an int of 128 bits": 2**128 - 1,
    "an int of 1,000 bits": -(2**1000) - 5,
    "float": 0.1,
    "the other zero": [math.copysign(1, -0.0), -0.0],
    "infinite": [math.inf, -math.inf],
    "not a number": math.nan,
    "str": "Lärm \ud800 \x00",
    "numpy's float": np.float64(0.1),
    "numpy's half": np.float16(0.1),
    "numpy's int": np.int32(-3),
    "numpy's bool": np.bool_(True),
    "numpy's NaN": np.float32(np.nan),
    "list": [1, "a", [None, 2.5], []],
    "tuple": (1, (2, [3])),
    "set": {1, "a", (2, None)},
    "dict": {"b": 1, "a": {"c": []}},
    "dict of other keys": {1: "a", None: "b", (1, 2.5): "c", "$x": "d", np.int64(7): [1]},
    "dict that looks like a mark": {"$same": 3},
    "ordered": OrderedDict(b=1, a=2),
    "counter": Counter("abba"),
    "a long list of floats": [*map(float, range(100)), math.nan],
    "a long list of ints": list(range(100)),
    "a long list of wide ints": [2**70] * 100,
    "a long list of bools": [True, False] * 50,
    "a long mixed list": [1, 1.0, True] * 50,
    "a long list of numpy's": [np.float32(x) for x in range(100)],
    "a long tuple": tuple(map(float, range(100))),
    "array": np.arange(12.0).reshape(3, 4)[:, ::2],
    "array of no dimension": np.array(3),
    "empty array": np.zeros((0, 3), np.int8),
    "bools": np.array([True, False]),
    "tensor": torch.arange(6).view(2, 3).t(),
    "scalar tensor": torch.tensor(2.5),
    "time step": dm_env.restart(np.zeros(3)),
    "last time step": dm_env.termination(np.float32(1), {"a": np.ones(2)}),
    "step type": dm_env.StepType.LAST,
}


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


GENERATORS: dict[str, Callable[[], Any]] = {
    "RandomState": lambda: np.random.RandomState(1),
    "random.Random": lambda: random.Random(1),
    "torch.Generator": lambda: torch.Generator().manual_seed(1),
    "numpy's Generator": lambda: np.random.default_rng(1),
}
OTHERS = [np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64]


def draws(generator: Any) -> list[float]:
    if isinstance(generator, torch.Generator):
        return torch.randn(5, generator=generator).tolist()
    if isinstance(generator, random.Random):
        return [generator.gauss(0, 1) for _ in range(5)]
    if isinstance(generator, np.random.Generator):
        return [*generator.normal(size=4), *generator.integers(9, size=3, dtype=np.int32)]
    return [generator.randn() for _ in range(5)]


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


def test_what_the_configuration_fixes_is_left_as_it_is():
    def build() -> Holder:
        return Holder(
            spec=specs.DiscreteArray(3),
            function=lambda: 1,
            method="a".upper,
            builtin=len,
            kind=Holder,
            module=math,
            partial=functools.partial(int, base=2),
            cached=functools.cache(lambda: 1),
            path=pathlib.Path("a"),
            pattern=re.compile("a"),
            logger=logging.getLogger("a"),
            others=[torch.float32, torch.device("cpu"), np.dtype(float), np.add, ...],
        )

    fresh = build()
    before = dict(vars(fresh), others=list(fresh.others))
    moved(build(), fresh)
    assert all(vars(fresh)[name] is value for name, value in before.items() if name != "others")
    assert all(one is other for one, other in zip(fresh.others, before["others"]))
    for other in (Holder(), Holder(function=None)):
        with pytest.raises(Misfit, match=r"it\.function holds a .* that a newly built one does not have"):
            moved(Holder(function=len), other)


def test_a_function_that_was_exchanged_is_noticed():
    with pytest.raises(Misfit, match=r"it\.phase is sum, where a newly built one has len"):
        moved(Holder(phase=sum), Holder(phase=len))


class Slotted:
    __slots__ = ("shown",)
    shown: int


class SlottedMore(Slotted):
    """Has slots and a dict."""

    def __init__(self) -> None:
        self.shown, self.more = 1, 2


def test_objects_get_their_attributes_back_in_place():
    fresh = Holder(child=Holder(x=0, gone=1), boards=[Holder(n=0), Holder(n=0)])
    child, boards = fresh.child, list(fresh.boards)
    moved(Holder(child=Holder(x=2.5, added=[1]), boards=[Holder(n=1), Holder(n=2)]), fresh)
    assert fresh.child is child and vars(child) == {"x": 2.5, "added": [1]}
    assert [board.n for board in boards] == [1, 2] and fresh.boards[1] is boards[1]


@dataclass
class Board:
    cells: np.ndarray = field(default_factory=lambda: np.zeros(2))
    moves: list[int] = field(default_factory=list)


def test_a_dataclass_is_an_object():
    fresh = Holder(board=Board())
    board, cells = fresh.board, fresh.board.cells
    moved(Holder(board=Board(np.ones(2), [1])), fresh)
    assert fresh.board is board and board.cells is cells and cells.all() and board.moves == [1]


@dataclass(frozen=True)
class Position:
    x: int
    path: tuple[int, ...] = ()
    owner: Any = None


CONSTANTS = [
    (range(3), range(4)),
    (b"a", b"b"),
    (1j, 2j),
    (torch.Size([3]), torch.Size([4])),
    (Colour.RED, Colour.BLUE),
    (Position(1, owner=len), Position(2, owner=len)),
]


@pytest.mark.parametrize(("value", "other"), CONSTANTS, ids=lambda value: type(value).__name__)
def test_a_constant_is_left_as_it_is_and_may_not_change(value, other):
    fresh = Holder(value=value)
    assert moved(Holder(value=copy.deepcopy(value)), fresh).value is value
    with pytest.raises(Misfit, match=r"^it\.value is .*, where a newly built one has .*; give the object that"):
        moved(Holder(value=other), fresh)
    with pytest.raises(Unsavable, match=r"^it\.value holds a .* where a newly built one has a .*; give whatever"):
        fits(Holder(value=other), fresh)
    with pytest.raises(Misfit, match=r"^it\.value holds a .* that a newly built one does not have"):
        moved(Holder(value=value), Holder(value=None))


def test_what_a_constant_is_does_not_depend_on_where_it_lies_in_memory():
    one, other = (Position(1, owner=Holder()) for _ in range(2))
    assert moved(Holder(value=one), Holder(value=other)).value is other


def test_plain_data_may_take_the_place_of_plain_data_only():
    for old, new in [(Holder(), 1), (len, 1), (np.random.default_rng(0), [1]), (Colour.RED, "a")]:
        with pytest.raises(Misfit, match=r"^it\.x "):
            moved(Holder(x=new), Holder(x=old))
    for old, new in [(1, 2.5), (2.5, 1), (0, np.int64(3)), (False, 1), (None, "a"), (1, "a"), ([], ()), ({}, [])]:
        assert_same(moved(Holder(x=new), Holder(x=old)).x, new)


@pytest.mark.parametrize("old", [1, [2], np.zeros(2), np.random.default_rng(0), Holder(x=1), Colour.RED, len])
def test_what_was_given_up_is_given_up_again(old):
    fresh = moved(Holder(goal=None, goals=[None, 1]), Holder(goal=old, goals=[old, 1]))
    assert fresh.goal is None and fresh.goals == [None, 1]


@pytest.mark.parametrize("thing", [1, [2], Holder(), nn.Linear(1, 1), np.random.RandomState(0)])
def test_the_state_of_a_thing_is_not_nothing(thing):
    with pytest.raises(Misfit, match=r"^it is nothing, expected an? "):
        restore(thing, None, "it")


def test_the_thing_itself_keeps_its_type_too():
    for thing in (Holder(), np.random.RandomState(0), nn.Linear(1, 1)):
        with pytest.raises(Misfit, match="expected a"):
            restore(thing, 3, "it")
        with pytest.raises(Misfit, match="expected a"):
            restore([thing], [3], "it")


def test_an_object_that_the_fresh_one_lacks_is_a_misfit_that_says_what_to_do():
    expected = (
        r"^it\.board holds a Board that a newly built one does not have; "
        "give the object that holds it state_dict and load_state_dict$"
    )
    for fresh in (Holder(board=None), Holder()):
        with pytest.raises(Misfit, match=expected):
            moved(Holder(board=Board()), fresh)
    with pytest.raises(Misfit, match=r"it\.boards\[1\] holds a Holder"):
        moved(Holder(boards=[Holder(), Holder()]), Holder(boards=[Holder()]))


class WithMethods:
    def step(self) -> None: ...

    @classmethod
    def made(cls) -> None: ...

    @staticmethod
    def free() -> None: ...


@pytest.mark.parametrize("name", ["__class__", "__dict__", "__x__", "step", "made", "free"])
def test_a_tree_cannot_replace_what_an_object_does(name):
    with pytest.raises(Misfit, match="cannot be an attribute of a WithMethods"):
        restore(WithMethods(), {"$object": ["WithMethods", {name: 1}]}, "it")


class Careful:
    """Saves itself."""

    def __init__(self) -> None:
        self.board: Holder | None = None
        self.loads = 0

    def state_dict(self) -> dict[Any, Any]:
        return {"n": self.board and self.board.n, 3: np.ones(2)}

    def load_state_dict(self, state: dict[Any, Any]) -> None:
        self.board = Holder(n=state["n"] + 0)
        self.loads += 1
        if not np.array_equal(state[3], np.ones(2)):
            raise ValueError("not ones")


class Wrapper:
    def __init__(self, inner: Any):
        self.inner, self.count = inner, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class History(list):
    """A list that saves itself."""

    def state_dict(self) -> dict[str, Any]:
        return {"entries": list(self)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self[:] = state["entries"]


def test_who_has_state_dict_is_asked_even_a_list():
    fresh = Holder(history=History())
    moved(Holder(history=History([1, 2])), fresh)
    assert type(fresh.history) is History and fresh.history == [1, 2]


def test_who_has_state_dict_is_asked():
    used, fresh = Careful(), Careful()
    used.board = Holder(n=5)
    assert moved(used, fresh) is fresh
    assert fresh.board is not None and fresh.board.n == 5 and fresh.loads == 1


def test_a_wrapper_that_passes_on_state_dict_has_a_state_of_its_own():
    used, fresh = Wrapper(Careful()), Wrapper(Careful())
    used.count, used.inner.board = 3, Holder(n=5)
    moved(used, fresh)
    assert fresh.count == 3 and fresh.inner.board.n == 5


def test_what_load_state_dict_cannot_take_is_a_misfit_in_one_line():
    for tree in ({}, [], {"n": None}, {"n": 1}):
        with pytest.raises(Misfit, match=r"^it\[0\] does not load its state: \w+Error: .*$"):
            restore([Careful()], [{"$state": ["Careful", tree]}], "it")


def test_a_state_dict_holds_plain_data_only():
    class Careless(Careful):
        def state_dict(self) -> dict[Any, Any]:
            return {"board": self.board}

    careless = Careless()
    for board in (Holder(), Careful(), len, Point(1, 2), Colour.RED):
        careless.board = board  # type: ignore[assignment]
        with pytest.raises(Unsavable, match=r"it\.state_dict\(\)\.board holds a .+, which is not plain data"):
            capture(careless, "it")


def test_optimisers_go_on_where_they_were():
    def build() -> tuple[nn.Linear, torch.optim.Optimizer]:
        torch.manual_seed(0)
        layer = nn.Linear(2, 2)
        return layer, torch.optim.Adam(layer.parameters())

    def update(layer: nn.Linear, adam: torch.optim.Optimizer) -> None:
        adam.zero_grad()
        layer(torch.ones(2)).square().sum().backward()
        adam.step()

    used, fresh = build(), build()
    update(*used)
    moved(used, fresh)
    update(*used), update(*fresh)
    assert torch.equal(used[0].weight, fresh[0].weight)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.steps, self.rng = 0, np.random.default_rng(0)
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("none", None)


@pytest.mark.parametrize("parameters", [True, False])
def test_modules_get_back_attributes_buffers_children_and_parameters(parameters):
    used, fresh = Net(), Net()
    used.steps, used.layer.note, used.mean[0] = 3, "a", 7.0  # type: ignore[assignment, index, operator]
    used.rng.random()
    used.eval()
    weight, before = fresh.layer.weight, fresh.layer.weight.detach().clone()
    moved(used, fresh, parameters=parameters)
    assert fresh.steps == 3 and fresh.layer.note == "a" and fresh.mean.tolist() == [7, 0] and not fresh.training
    assert fresh.rng.random() == used.rng.random()
    assert fresh.layer.weight is weight and weight.requires_grad
    assert torch.equal(weight, used.layer.weight if parameters else before)


def test_parameters_left_out_are_left_out_wherever_they_are_held():
    used, fresh = Net(), Net()
    used.all, fresh.all = (list(net.layer.parameters()) for net in (used, fresh))
    assert not [leaf for leaf in leaves(capture(used.all, "it", parameters=False)) if isinstance(leaf, np.ndarray)]
    moved(used, fresh, parameters=False)
    assert fresh.all[0] is fresh.layer.weight


def test_parameters_of_another_shape_are_a_misfit():
    with pytest.raises(Misfit, match=r"it\._parameters\['weight'\] has shape \(2, 3\), expected \(2, 2\)"):
        moved(nn.Linear(3, 2), nn.Linear(2, 2))
    with pytest.raises(Misfit, match="parameters"):
        tree = capture(nn.Linear(2, 2), "it")
        del tree["$object"][1]["_parameters"]["bias"]
        restore(nn.Linear(2, 2), tree, "it")


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


def a_generator():
    yield 1


@pytest.mark.parametrize(
    "thing, called",
    [
        (a_generator(), "a generator"),
        (iter([1]), "a list_iterator"),
        (map(len, []), "a map"),
        (threading.Lock(), "a lock"),
        (np.array([None]), "an array of object"),
        (np.datetime64("2020-01-01"), "a datetime64"),
        (np.ma.array([1]), "a MaskedArray"),
        (memoryview(b"a"), "a memoryview"),
        (ValueError("a"), "a ValueError"),
        (random.SystemRandom(), "a SystemRandom"),
        (torch.zeros(2).to_sparse(), "a Tensor"),
        (torch.zeros(2, dtype=torch.bfloat16), "a Tensor"),
        (type("Words", (list,), {})(), "a Words"),
        (Slotted(), "a Slotted"),
        (SlottedMore(), "a SlottedMore"),
        (types.SimpleNamespace(), "a SimpleNamespace"),
        (frozenset({1}), "a frozenset"),
        (np.array(["a"]), "an array of <U1"),
        (np.str_("a"), "a str_"),
        (np.random.PCG64(0), "a PCG64"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_saved_is_named_with_what_to_do(thing, called):
    with pytest.raises(
        Unsavable,
        match=rf"^it\.moves\[1\] is {called}.*, which cannot be saved; give the object that holds it state_dict",
    ):
        capture(Holder(moves=[0, thing]), "it")


def test_files_cannot_be_saved(tmp_path):
    with (tmp_path / "file").open("w") as file, pytest.raises(Unsavable, match="TextIOWrapper"):
        capture([file], "it")


def test_objects_cannot_be_keys():
    for thing in ({Holder()}, {Holder(): 1}, {Colour.RED: 1}, {(1, Holder()): 1}):
        with pytest.raises((Unsavable, Misfit)):
            moved(Holder(x=thing), Holder(x=type(thing)()))


def test_what_is_too_deep_is_refused_in_both_directions():
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(Unsavable, match="levels deep"):
        capture(deep, "it")
    with pytest.raises(Misfit, match="levels deep"):
        restore([], deep, "it")
    with pytest.raises(Misfit, match="levels deep"):
        restore(None, deep, "it")


def test_what_is_just_not_too_deep_is_saved():
    def chain() -> Holder:
        first = last = Holder(n=0)
        for n in range(DEEPEST - 2):
            last.next = last = Holder(n=n, first=first)
        return first

    fresh = chain()
    fresh.next.n = 100
    moved(chain(), fresh)
    assert fresh.next.n == 0


HOSTILE = [
    {"$unknown": 1},
    {"$tuple": ["tuple", [1]], "more": 2},
    {"$same": 0},
    {"$same": []},
    {"$shared": [0, []]},
    [{"$same": 5}],
    {"$float": "1"},
    {"$float": []},
    math.nan,
    {"$scalar": np.zeros(3)},
    {"$numbers": np.zeros((2, 2))},
    {"$numbers": np.array([None])},
    {"$tuple": ["os", []]},
    {"$tuple": ["TimeStep", [1]]},
    {"$tuple": ["StepType", [1]]},
    {"$step": "__class__"},
    {"$step": 7},
    {"$tuple": [1]},
    {"$sequence": ["set", [[]]]},
    {"$sequence": ["Popen", []]},
    {"$dict": ["dict", [[]], [2]]},
    {"$dict": ["dict", [1], []]},
    {"$dict": ["dict", [1]]},
    {"$dict": ["Popen", [], []]},
    {"$tensor": ["cpu", np.zeros(2)]},
    {"$tensor": ["nowhere", np.zeros(2), False, None]},
    {"$tensor": ["cpu", [1], False, None]},
    {"$generator": ["RandomState", {}]},
    {"$generator": ["Popen", {"bit_generator": "__loader__"}]},
    {"$object": ["Holder", {}]},
    {"$object": 3},
    {"$object": ["Linear", {}]},
    {"$state": ["Careful", {}]},
    {"$fixed": "len"},
    {"$fixed": ["len"]},
    {"$itself": 1},
    {1: 2},
    object(),
    (1,),
    np.array([None]),
]


@pytest.mark.parametrize("tree", HOSTILE, ids=lambda tree: str(tree).partition(" at 0x")[0][:40])
def test_malformed_trees_are_misfits(tree):
    for fresh in (None, 3, [], Position(1), nn.Linear(1, 1), Careful()):
        with pytest.raises(Misfit, match=r"^it"):
            restore(fresh, tree, "it")
    with pytest.raises(Misfit, match=r"^it"):
        restore(None, tree, "it")


def zoo() -> Holder:
    holder = Holder(
        values=copy.deepcopy(VALUES),
        generators=[make() for make in GENERATORS.values()],
        net=Net(),
        careful=Careful(),
        board=Board(),
        position=Position(1),
        point=Point(1, Colour.RED),
        frames=deque([1, 2], maxlen=2),
        fixed=(len, specs.DiscreteArray(2)),
        counts=defaultdict(int, a=1),
        environment=Bsuite(0, "catch/0"),
    )
    holder.careful.board = Holder(n=1)
    holder.me, holder.again = holder, holder.net
    return holder


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict | list):
        return [leaf for entry in (tree.values() if isinstance(tree, dict) else tree) for leaf in leaves(entry)]
    return [tree]


def nodes(tree: Any) -> list[Any]:
    """All dicts and lists of a tree."""
    if not isinstance(tree, dict | list):
        return []
    return [tree, *(node for entry in (tree.values() if isinstance(tree, dict) else tree) for node in nodes(entry))]


def copied(tree: Any) -> Any:
    """A copy that shares the arrays."""
    if isinstance(tree, dict):
        return {key: copied(entry) for key, entry in tree.items()}
    return [copied(entry) for entry in tree] if isinstance(tree, list) else tree


def edit(tree: Any, rng: random.Random) -> None:
    """One random change: an entry removed, exchanged with another of the tree, or replaced by nonsense."""
    everything = nodes(tree)
    if not leaves(tree):
        return
    node = rng.choice([node for node in everything if node])
    key = rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
    nonsense = [None, -1, 10**30, 0.5, "x", [], {}, [[]], math.inf, np.zeros(2), np.zeros((), "U3"), *copied(HOSTILE)]
    match rng.randrange(5):
        case 0:
            del node[key]
        case 1:
            node[key] = copied(rng.choice(everything))
        case 2:
            node[key] = rng.choice(nonsense)
        case 3:
            node[key] = rng.choice(leaves(tree))
        case 4 if isinstance(node, dict):
            node[rng.choice(["x", "step", "__class__", *BY_TAG])] = node.pop(key)
        case _:
            node.append(rng.choice(nonsense)) if isinstance(node, list) else node.update(x=rng.choice(nonsense))


def test_nothing_but_misfits_comes_of_random_edits():
    rng = random.Random(0)
    original = capture(zoo(), "it")
    restore(zoo(), original, "it")
    misfits = 0
    for _ in range(300):
        tree = copied(original)
        for _ in range(rng.choice([1, 1, 2, 5])):
            edit(tree, rng)
        for attempt in (lambda tree: restore(zoo(), tree, "it"), lambda tree: restore(None, tree, "it")):
            try:
                attempt(tree)
            except Misfit as misfit:
                misfits += 1
                assert str(misfit).startswith("it") and "\n" not in str(misfit)
    assert misfits > 300  # of rebuilding all, as there are objects in it


def play(environment: dm_env.Environment, policy: np.random.Generator, steps: int) -> list[dm_env.TimeStep]:
    actions = environment.action_spec().num_values
    return [copy.deepcopy(environment.step(int(policy.integers(actions)))) for _ in range(steps)]


@pytest.mark.parametrize("build", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_environments_go_on_the_same_from_anywhere(build):
    rng = np.random.default_rng(0)
    for steps in (0, 1, *rng.integers(2, 150, size=6)):
        used, fresh = build(), build()
        play(used, rng, int(steps))
        moved(used, fresh)
        assert_same(play(fresh, np.random.default_rng(steps), 200), play(used, np.random.default_rng(steps), 200))
        assert capture(used, "it").keys() == capture(fresh, "it").keys()


def test_gradients_and_what_is_trained_are_kept():
    saved, fresh = nn.Linear(2, 1), nn.Linear(2, 1)
    saved(torch.ones(3, 2)).sum().backward()
    saved.bias.requires_grad_(False)
    moved(saved, fresh)
    assert torch.equal(fresh.weight.grad, saved.weight.grad)
    assert (fresh.weight.requires_grad, fresh.bias.requires_grad) == (True, False)
    saved.zero_grad()
    assert moved(saved, fresh).weight.grad is None


def test_generators_go_on_having_children():
    saved, fresh = (np.random.default_rng(3) for _ in range(2))
    saved.spawn(2)
    moved(saved, fresh)
    assert [child.random() for child in fresh.spawn(2)] == [child.random() for child in saved.spawn(2)]
    fresh = np.random.default_rng(3)
    fresh.spawn(9)
    assert moved(saved, fresh).spawn(1)[0].random() == saved.spawn(1)[0].random()


# Whether the way back is open


def fits(saved, fresh):
    return check_fits(capture(saved, "it"), skeleton({"it": capture(fresh, "it")})["it"], "it")


@pytest.mark.parametrize(
    ("saved", "fresh"),
    [
        (Holder(x=1, y=[1.0] * 100), Holder(x=None)),
        (Holder(x=Holder(y=2)), Holder(x=Holder(y=1))),
        (Holder(x=None), Holder(x=Holder())),
        (Holder(x=np.random.RandomState(0)), Holder(x=None)),
        (Holder(x=dm_env.restart(1)), Holder(x=None)),
        (Holder(x=[Holder(), 1]), Holder(x=[Holder()])),
    ],
)
def test_what_fits_is_put_back(saved, fresh):
    fits(saved, fresh)
    restore(fresh, capture(saved, "it"), "it")


@pytest.mark.parametrize(
    ("saved", "fresh"),
    [
        (Holder(x=Holder()), Holder(x=None)),
        (Holder(x=Holder(x=Holder())), Holder(x=Holder())),
        (Holder(x=[Holder()]), Holder(x=[])),
        (Holder(x={"a": Holder()}), Holder(x={})),
        (Holder(x={1: Holder()}), Holder(x={})),
        (Holder(x=len), Holder(x=None)),
        (Holder(x=Colour.RED), Holder(x=None)),
        (Holder(x=deque()), Holder(x=None)),
    ],
)
def test_what_would_not_fit_is_noticed_before(saved, fresh):
    with pytest.raises(Unsavable, match=r"^it.*holds a .+ where a newly built one has"):
        fits(saved, fresh)
    with pytest.raises(Misfit):
        restore(fresh, capture(saved, "it"), "it")
