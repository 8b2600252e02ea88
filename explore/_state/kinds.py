"""The kinds of things that can be saved, in the order in which they are recognised."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Any

import numpy as np
import torch

from explore._state import data, generators, objects
from explore._state.walk import Kind, Kinds, Misfit, Reader, Tree, Writer, describe


def _write_itself(walk: Writer, thing: Any, name: str) -> Tree:
    return thing


def _read_itself(walk: Reader, fresh: Any, content: Tree, name: str) -> Any:
    raise Misfit(f"{name} has a mark that it does not need")


# fmt: off
KINDS = Kinds(
    # What a tree holds as it is
    *(Kind("$itself", kind, _write_itself, _read_itself) for kind in (type(None), bool, str)),
    Kind("$int", int, data.write_int, _read_itself),
    Kind("$float", float, data.write_float, data.read_float),
    # Values
    Kind("$bytes", bytes,
         lambda walk, thing, name: {"$bytes": np.frombuffer(thing, np.uint8)},
         lambda walk, fresh, content, name: data.load_leaf(content, name).tobytes()),
    Kind("$range", range,
         lambda walk, thing, name: {"$range": [thing.start, thing.stop, thing.step]},
         lambda walk, fresh, content, name: range(*content)),
    Kind("$size", torch.Size,
         lambda walk, thing, name: {"$size": list(thing)},
         lambda walk, fresh, content, name: torch.Size(content)),
    Kind("$tuple", tuple,
         lambda walk, thing, name: {"$tuple": data.write_items(walk, thing, name)},
         lambda walk, fresh, content, name: tuple(
             data.read_items(walk, fresh if type(fresh) is tuple else (), content, name))),
    Kind("$frozenset", frozenset, data.write_set,
         lambda walk, fresh, content, name: frozenset(data.read_items(walk, (), content, name))),
    Kind("$fixed", objects.is_fixed, objects.write_fixed, objects.read_fixed),
    Kind("$enum", lambda thing: isinstance(thing, Enum), data.write_enum, data.read_enum),
    Kind("$named", lambda thing: isinstance(thing, tuple) and hasattr(thing, "_fields"),
         data.write_named, data.read_named),
    Kind("$scalar", lambda thing: isinstance(thing, np.generic) and thing.dtype.kind in data.ARRAYS,
         lambda walk, thing, name: {"$scalar": np.asarray(thing)},
         lambda walk, fresh, content, name: data.load_leaf(content, name).reshape(())[()]),
    # What changes in place
    Kind("$list", list, data.write_list, data.read_list, is_mutable=True),
    Kind("$deque", deque, data.write_deque, data.read_deque, is_mutable=True),
    Kind("$set", set, data.write_set, data.read_set, is_mutable=True),
    *(Kind("$dict", kind, data.write_dict, data.read_dict, is_mutable=True) for kind in data.MAPPINGS),
    Kind("$array", data.is_array, _write_itself, data.read_array, is_mutable=True),
    Kind("$tensor", data.is_tensor, data.write_tensor, data.read_tensor, is_mutable=True),
    Kind("$generator", generators.is_generator,
         generators.write_generator, generators.read_generator, is_mutable=True),
    Kind("$state", objects.saves_itself, objects.write_state, objects.read_state, is_mutable=True),
    Kind("$object", objects.is_object, objects.write_object, objects.read_object, is_mutable=True),
)
# fmt: on


def capture(thing: Any, name: str, *, parameters: bool = True) -> Tree:
    """The state of a thing, called `name` in messages. Arrays are not copied: use the tree before the thing goes on.

    `parameters=False` leaves out torch's parameters, which may be views of what is saved elsewhere.
    """
    return Writer(KINDS, parameters).write(thing, name)


def restore(thing: Any, tree: Tree, name: str) -> Any:
    """Puts a state back, in place where the thing is mutable; returns what now stands in its place.

    After a `Misfit` the thing may be half restored: build it again.
    """
    value = Reader(KINDS).read(thing, tree, name)
    if thing is not None and type(value) is not type(thing):
        raise Misfit(f"{name} is {describe(value)}, expected {describe(thing)}")
    return value
