"""The walk through things, which writes a tree, and the walk through a tree, which reads it onto fresh things."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import dm_env
import numpy as np
from torch import Tensor, nn

from explore._state import data, generators, objects
from explore._state.tree import ADVICE, MALFORMED, MISSING, Misfit, Tree, Unsavable, describe, in_one_line, refuse

DEEPEST = 75  # levels of things in things: each may be five of the tree, which Python and its json have to walk
DATA = (bool, int, float, str, tuple, list, set, dict, np.generic, np.ndarray, Tensor)
"""What other data may take the place of."""


def capture(thing: Any, name: str, *, parameters: bool = True) -> Tree:
    """The state of a thing, called `name` in messages. Arrays are not copied: use the tree before the thing goes on.

    `parameters=False` leaves out torch's parameters, which may be views of what is saved elsewhere.
    """
    return Writer(parameters).write(thing, name)


def restore(thing: Any, tree: Tree, name: str) -> Any:
    """Puts a state back, in place where the thing is mutable; returns what now stands in its place.

    After a `Misfit` the thing may be half restored: build it again.
    """
    value = Reader().read(thing, tree, name)
    if thing is not None and type(value) is not type(thing):
        raise Misfit(f"{name} is {describe(value)}, expected {describe(thing)}")
    return value


class Writer:
    """One walk through things."""

    def __init__(self, parameters: bool):
        self._parameters, self._depth = parameters, 0
        self._met: dict[int, tuple[int, Any]] = {}  # id -> number, and the thing, since ids are of the living only

    def write(self, thing: Any, name: str) -> Tree:
        if thing is None or type(thing) in (bool, int, str):
            return thing
        if isinstance(thing, nn.Parameter) and not self._parameters:
            return {"$fixed": ["Parameter"]}
        cls: Any = type(thing)
        kind = find_kind(cls)
        if kind is None:
            raise refuse(thing, name)
        if self._depth == DEEPEST:
            raise Unsavable(f"{name} lies more than {DEEPEST} levels deep, which cannot be saved{ADVICE}")
        if kind.is_mutable:
            if id(thing) in self._met:
                return {"$same": self._met[id(thing)][0]}
            self._met[id(thing)] = len(self._met), thing
        self._depth += 1
        tree = kind.write(self, thing, name)
        self._depth -= 1
        return tree

    def write_data(self, data: Any, name: str) -> Tree:
        """A tree that is numbered by itself, since what is restored from it is a thing of its own."""
        met, self._met = self._met, {}
        tree = self.write(data, name)
        self._met = met
        return tree


class Reader:
    """One walk through a tree and the fresh things it is put on."""

    def __init__(self) -> None:
        self.is_constant = False  # inside a frozen dataclass: what it holds is not to be changed either
        self._met: list[Any] = []  # what is mutable, in the order in which the writer numbered it
        self._claimed: dict[int, Any] = {}  # by id: what has been filled, so that no second place writes over it

    def read(self, fresh: Any, tree: Tree, name: str) -> Any:
        """The tree's value. Plain data may take the place of other plain data, but not of an object."""
        try:
            value = self._read(fresh, tree, name)
        except MALFORMED as error:  # also a RecursionError
            raise Misfit(f"{name} is not as it was written ({in_one_line(error)})") from error
        if value is None or fresh is None or fresh is MISSING or type(value) is type(fresh) or isinstance(fresh, DATA):
            return value
        raise Misfit(f"{name} is {describe(value)}, expected {describe(fresh)}")

    def _read(self, fresh: Any, tree: Tree, name: str) -> Any:
        if tree is None or type(tree) in (bool, int, str) or (type(tree) is float and math.isfinite(tree)):
            return tree
        if type(tree) is dict and any(key.startswith("$") for key in tree):
            ((tag, content),) = tree.items()
        elif type(tree) is dict:
            tag, content = "$dict", ["dict", [*tree], [*tree.values()]]
        else:
            tag, content = ("$sequence", ["list", tree]) if type(tree) is list else ("$array", tree)
        return self._met[content] if tag == "$same" else BY_TAG[tag].read(self, fresh, content, name)

    def read_data(self, tree: Tree, name: str) -> Any:
        """What `write_data` has written."""
        met, self._met = self._met, []
        data = self.read(MISSING, tree, name)
        self._met = met
        return data

    def begin(self, target: Any) -> Any:
        """What is to be filled is known by its number before, as it may hold itself."""
        self._met.append(target)
        return target

    def may_fill(self, thing: Any) -> bool:
        return not self.is_constant and self.claim(thing)

    def claim(self, thing: Any) -> bool:
        """False if another place has it already: the state has two things there, and the fresh object one."""
        is_new = id(thing) not in self._claimed
        self._claimed[id(thing)] = thing
        return is_new


class Kind(NamedTuple):
    """How things of a kind are recognised, by their class, and how they are written and read."""

    tag: str
    matches: tuple[Any, ...] | Callable[[Any], bool]
    write: Callable[[Writer, Any, str], Tree]  # thing, its name
    read: Callable[[Reader, Any, Tree, str], Any]  # the fresh thing in the place or MISSING, content, name
    is_mutable: bool = True  # met twice, it is one thing; its reader calls `begin` before it reads what is inside


# fmt: off
KINDS = (
    Kind("$float", (float,), data.write_float, data.read_float, is_mutable=False),
    Kind("$step", (dm_env.StepType,), lambda walk, thing, name: {"$step": int(thing)},
         lambda walk, fresh, content, name: dm_env.StepType(content), is_mutable=False),
    Kind("$scalar", data.is_scalar, lambda walk, thing, name: {"$scalar": np.asarray(thing)},
         lambda walk, fresh, content, name: data.load_array(content, name).reshape(())[()], is_mutable=False),
    Kind("$tuple", data.is_tuple, data.write_tuple, data.read_tuple, is_mutable=False),
    Kind("$fixed", objects.is_fixed, objects.write_fixed, objects.read_fixed, is_mutable=False),
    Kind("$sequence", data.SEQUENCES, data.write_sequence, data.read_sequence),
    Kind("$dict", data.DICTS, data.write_dict, data.read_dict),
    Kind("$array", (np.ndarray,), data.write_array, data.read_array),
    Kind("$tensor", lambda cls: issubclass(cls, Tensor), data.write_tensor, data.read_tensor),
    Kind("$generator", (*generators.NAMES,), generators.write_generator, generators.read_generator),
    Kind("$state", objects.saves_itself, objects.write_state, objects.read_state),
    Kind("$object", objects.is_object, objects.write_object, objects.read_object),
)
"""The kinds of things that can be saved, in the order in which they are recognised."""
# fmt: on
BY_TAG = {kind.tag: kind for kind in KINDS}


@functools.cache
def find_kind(cls: Any) -> Kind | None:
    return next((k for k in KINDS if (cls in k.matches if isinstance(k.matches, tuple) else k.matches(cls))), None)
