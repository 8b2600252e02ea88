"""What cannot be saved or put back is refused in one line, and nothing else comes out of a tree."""

from __future__ import annotations

import copy
import math
import random
import threading
import types
from collections import defaultdict, deque
from typing import Any

import dm_env
import numpy as np
import pytest
import torch
from captured import (
    GENERATORS,
    VALUES,
    Board,
    Careful,
    Colour,
    Net,
    Point,
    Position,
    Slotted,
    SlottedMore,
    fits,
    leaves,
    moved,
)
from dm_env import specs
from explore_plugins.bsuite import Bsuite
from stateful import Holder
from torch import nn

from explore._state import Misfit, Unsavable, capture, restore
from explore._state.walk import BY_TAG, DEEPEST


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
    keys = (Holder(), Colour.RED, (1, Holder()), torch.zeros(1), np.random.default_rng(0))
    for thing in ({Holder()}, *({key: 1} for key in keys)):
        with pytest.raises((Unsavable, Misfit)):
            moved(Holder(x=thing), Holder(x=type(thing)()))


def test_what_is_too_deep_is_refused_in_both_directions():
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(Unsavable, match="levels deep"):
        capture(deep, "it")
    with pytest.raises(Misfit, match=r"^it\[0\]"):
        restore([], deep, "it")
    with pytest.raises(Misfit, match=r"^it\[0\]"):
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
