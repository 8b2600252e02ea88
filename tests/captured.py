"""Things whose state is captured in the tests of `explore._state`, and how they are compared."""

from __future__ import annotations

import copy
import enum
import json
import math
import random
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import dm_env
import numpy as np
import torch
from stateful import Holder
from torch import nn

from explore._state import capture, check_fits, restore, skeleton

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


GENERATORS: dict[str, Callable[[], Any]] = {
    "RandomState": lambda: np.random.RandomState(1),
    "random.Random": lambda: random.Random(1),
    "torch.Generator": lambda: torch.Generator().manual_seed(1),
    "numpy's Generator": lambda: np.random.default_rng(1),
}


def draws(generator: Any) -> list[float]:
    if isinstance(generator, torch.Generator):
        return torch.randn(5, generator=generator).tolist()
    if isinstance(generator, random.Random):
        return [generator.gauss(0, 1) for _ in range(5)]
    if isinstance(generator, np.random.Generator):
        return [*generator.normal(size=4), *generator.integers(9, size=3, dtype=np.int32)]
    return [generator.randn() for _ in range(5)]


class Slotted:
    __slots__ = ("shown",)
    shown: int


class SlottedMore(Slotted):
    """Has slots and a dict."""

    def __init__(self) -> None:
        self.shown, self.more = 1, 2


@dataclass
class Board:
    cells: np.ndarray = field(default_factory=lambda: np.zeros(2))
    moves: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Position:
    x: int
    path: list[int] = field(default_factory=list)
    board: np.ndarray = field(default_factory=lambda: np.zeros(2))
    owner: Holder | None = None


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


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.steps, self.rng = 0, np.random.default_rng(0)
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("none", None)


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict | list):
        return [leaf for entry in (tree.values() if isinstance(tree, dict) else tree) for leaf in leaves(entry)]
    return [tree]


def play(environment: dm_env.Environment, policy: np.random.Generator, steps: int) -> list[dm_env.TimeStep]:
    actions = environment.action_spec().num_values
    return [copy.deepcopy(environment.step(int(policy.integers(actions)))) for _ in range(steps)]


# Whether the way back is open


def fits(saved, fresh):
    return check_fits(capture(saved, "it"), skeleton({"it": capture(fresh, "it")})["it"], "it")
