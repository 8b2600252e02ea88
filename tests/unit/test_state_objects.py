"""Objects, modules and constants get back what they hold, and nothing else."""

from __future__ import annotations

import copy
import functools
import logging
import math
import pathlib
import re
from typing import Any

import numpy as np
import pytest
import torch
from captured import Board, Careful, Colour, Net, Point, Position, assert_same, fits, leaves, moved
from dm_env import specs
from stateful import Holder
from torch import nn

from explore._state import Misfit, Unsavable, capture, restore


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


def test_objects_get_their_attributes_back_in_place():
    fresh = Holder(child=Holder(x=0, gone=1), boards=[Holder(n=0), Holder(n=0)])
    child, boards = fresh.child, list(fresh.boards)
    moved(Holder(child=Holder(x=2.5, added=[1]), boards=[Holder(n=1), Holder(n=2)]), fresh)
    assert fresh.child is child and vars(child) == {"x": 2.5, "added": [1]}
    assert [board.n for board in boards] == [1, 2] and fresh.boards[1] is boards[1]


class Measured:
    count = 0

    @functools.cached_property
    def area(self) -> float:
        return 1.0


def test_what_the_class_has_a_default_or_a_formula_for_may_be_an_attribute_since():
    used, fresh = Measured(), Measured()
    used.count, used.area = 3, 2.0
    moved(used, fresh)
    assert vars(fresh) == {"count": 3, "area": 2.0}


def test_a_dataclass_is_an_object():
    fresh = Holder(board=Board())
    board, cells = fresh.board, fresh.board.cells
    moved(Holder(board=Board(np.ones(2), [1])), fresh)
    assert fresh.board is board and board.cells is cells and cells.all() and board.moves == [1]


CONSTANTS = [
    (range(3), range(4)),
    (b"a", b"b"),
    (1j, 2j),
    (torch.Size([3]), torch.Size([4])),
    (Colour.RED, Colour.BLUE),
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


def test_a_frozen_dataclass_is_a_value_and_constants_stay_constant():
    owner = Holder(n=[0])
    start, numbers = Position(0, owner=owner), owner.n
    fresh = Holder(now=start, before=Position(0))
    now = Position(2, [1], np.ones(2), owner=Holder(n=[5]))
    moved(Holder(now=now, before=Position(1)), fresh)
    assert (fresh.now.x, fresh.now.path, fresh.now.board.tolist()) == (2, [1], [1, 1])
    assert fresh.before.x == 1 and not fresh.before.board.any()
    assert start.x == 0 and start.path == [] and not start.board.any()
    assert fresh.now.owner is owner and owner.n is numbers and numbers == [5]


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


def test_gradients_and_what_is_trained_are_kept():
    saved, fresh = nn.Linear(2, 1), nn.Linear(2, 1)
    saved(torch.ones(3, 2)).sum().backward()
    saved.bias.requires_grad_(False)
    moved(saved, fresh)
    assert torch.equal(fresh.weight.grad, saved.weight.grad)
    assert (fresh.weight.requires_grad, fresh.bias.requires_grad) == (True, False)
    saved.zero_grad()
    assert moved(saved, fresh).weight.grad is None
