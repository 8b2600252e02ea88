"""From things to trees."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from explore._state import kinds
from explore._state.generators import state_of
from explore._state.kinds import Tree, Unsavable, describe

LONG = 64  # a list of more numbers than this is an array
WIDEST = 256  # bits of an integer that JSON is trusted with
KEYS = (type(None), bool, int, float, complex, str, bytes, Enum, tuple, frozenset, np.generic)
NUMPYS = {bool: np.bool_, int: np.int64, float: np.float64}


def capture(thing: Any, name: str, *, parameters: bool = True) -> Tree:
    """The state of a thing, called `name` in messages. Arrays are not copied: use the tree before the thing goes on.

    `parameters=False` leaves out torch's parameters, which may be views of what is saved elsewhere.
    """
    return _Capture(parameters).whole(thing, name)


class _Capture:
    """One walk over things. `data_only`, inside a `state_dict`: nothing fresh will stand there to be filled."""

    def __init__(self, parameters: bool, data_only: bool = False, depth: int = 0, owner: str = "it"):
        self._parameters = parameters
        self._data_only = data_only
        self._depth = depth
        self._owner = owner  # the class to give state_dict, for messages
        self._met: dict[int, tuple[int, Any]] = {}  # by id: number, and the thing, as an id is of the living only
        self._trees: dict[int, Tree] = {}  # by number
        self._shared: set[int] = set()

    def whole(self, thing: Any, name: str) -> Tree:
        tree = self._tree(thing, name)
        shared = {id(self._trees[number]): number for number in self._shared}
        return _labelled(tree, shared) if shared else tree

    def _tree(self, thing: Any, name: str) -> Tree:
        if self._depth == kinds.DEEPEST:
            raise Unsavable(f"{name} lies more than {kinds.DEEPEST} levels deep, which cannot be saved{self._advice()}")
        self._depth += 1
        tree = self._of_kind(thing, name)
        self._depth -= 1
        return tree

    def _of_kind(self, thing: Any, name: str) -> Tree:
        kind = type(thing)
        if kind in VALUES:
            return VALUES[kind](self, thing, name)
        is_saved_parameter = self._parameters and isinstance(thing, nn.Parameter)
        if not is_saved_parameter and (fixed := kinds.fixed_name(thing)) is not None:
            return self._unless_data_only({"$fixed": fixed}, thing, name)
        if isinstance(thing, Enum) and thing.name in kind.__members__:
            return self._unless_data_only({"$enum": [kind.__name__, thing.name]}, thing, name)
        if isinstance(thing, np.generic) and thing.dtype.kind in kinds.ARRAYS:
            return {"$scalar": np.asarray(thing)}
        if isinstance(thing, tuple) and hasattr(kind, "_fields"):
            entries = [self._tree(entry, f"{name}.{field}") for field, entry in zip(kind._fields, thing)]
            return self._unless_data_only({"$named": [kind.__name__, entries]}, thing, name)
        return self._once(thing, name)

    def _once(self, thing: Any, name: str) -> Tree:
        """What is mutable: the first time as it is, later as a reference."""
        if id(thing) in self._met:
            number, _ = self._met[id(thing)]
            self._shared.add(number)
            return {"$same": number}
        number = len(self._met)
        self._met[id(thing)] = number, thing
        self._trees[number] = self._mutable(thing, name)
        return self._trees[number]

    def _mutable(self, thing: Any, name: str) -> Tree:
        if type(thing) in CONTAINERS:
            return CONTAINERS[type(thing)](self, thing, name)
        if type(thing) is np.ndarray and thing.dtype.kind in kinds.ARRAYS and thing.dtype.isnative:
            return thing
        if isinstance(thing, Tensor):
            return self._tensor(thing, name)
        return self._live(thing, name)

    def _items(self, things: Sequence[Any] | deque[Any], name: str) -> Tree:
        if len(things) > LONG and len(types := set(map(type, things))) == 1:
            kind = types.pop()
            if kind in NUMPYS and (kind is not int or all(-(2**63) <= thing < 2**63 for thing in things)):
                return {"$numbers": np.array(things, NUMPYS[kind])}
            if issubclass(kind, np.number | np.bool_) and np.dtype(kind).kind in kinds.ARRAYS:
                return {"$scalars": np.array(things, kind)}
        return [self._tree(thing, f"{name}[{place}]") for place, thing in enumerate(things)]

    def _dict(self, thing: dict[Any, Any], name: str) -> Tree:
        if all(type(key) is str and not key.startswith("$") for key in thing):
            return {key: self._tree(value, f"{name}[{key!r}]") for key, value in thing.items()}
        return {"$dict": self._pairs(thing, name)}

    def _subclass_of_dict(self, thing: dict[Any, Any], name: str) -> Tree:
        return {"$mapping": [type(thing).__name__, self._pairs(thing, name)]}

    def _pairs(self, thing: dict[Any, Any], name: str) -> list[Tree]:
        keys = self._keys(thing, name)
        return [[key, self._tree(thing[own], f"{name}[{own!r}]")] for key, own in zip(keys, thing)]

    def _keys(self, keys: Iterable[Any], name: str) -> list[Tree]:
        """Keys, or the entries of a set."""
        for key in keys:
            if not isinstance(key, KEYS):  # equal to nothing but itself, which a new process does not have
                raise self._refusal(key, f"{name}'s key {key!r}")
        return [self._tree(key, f"{name}'s key {key!r}") for key in keys]

    def _tensor(self, thing: Tensor, name: str) -> Tree:
        dtype = str(thing.dtype).removeprefix("torch.")
        if dtype not in kinds.TENSORS or thing.layout is not torch.strided or thing.device.type == "meta":
            raise self._refusal(thing, name)
        bits = thing.detach().view(torch.int16) if dtype == "bfloat16" else thing  # which numpy does not have
        gradient = self._tree(thing.grad, f"{name}.grad") if thing.is_leaf else None
        return {"$tensor": [dtype, str(thing.device), bits.numpy(force=True), thing.requires_grad, gradient]}

    def _live(self, thing: Any, name: str) -> Tree:
        kind, tag = type(thing).__name__, kinds.live_tag(thing)
        if tag == "$generator":
            return {tag: [kind, self._data(state_of(thing), name)]}
        if tag is None or self._data_only:
            raise self._refusal(thing, name)
        owner, self._owner = self._owner, kind
        content = (
            self._data(thing.state_dict(), f"{name}.state_dict()") if tag == "$state" else self._parts(thing, name)
        )
        self._owner = owner
        return {tag: [kind, content]}

    def _data(self, state: Any, name: str) -> Tree:
        """A tree of its own, since what is restored from it is a thing of its own."""
        return _Capture(self._parameters, True, self._depth, self._owner).whole(state, name)

    def _parts(self, thing: Any, name: str) -> dict[str, Tree]:
        if not isinstance(thing, nn.Module):
            return self._named(kinds.attributes(thing), name)
        parts = {"attributes": kinds.attributes(thing), "buffers": thing._buffers}
        if self._parameters:
            parts["parameters"] = thing._parameters
        parts["children"] = thing._modules
        return {part: self._named(things, name) for part, things in parts.items()}

    def _named(self, things: Mapping[str, Any], name: str) -> dict[str, Tree]:
        return {key: self._tree(thing, f"{name}.{key}") for key, thing in things.items()}

    def _unless_data_only(self, tree: Tree, thing: Any, name: str) -> Tree:
        """For what takes its class from the fresh thing in its place."""
        if self._data_only and type(thing) not in kinds.KNOWN.values():
            raise self._refusal(thing, name)
        return tree

    def _refusal(self, thing: Any, name: str) -> Unsavable:
        if self._data_only:
            return Unsavable(f"{name} holds {describe(thing)}, which is not plain data and cannot be saved")
        return Unsavable(f"{name} is {describe(thing)}, which cannot be saved{self._advice()}")

    def _advice(self) -> str:
        return f"; give {self._owner} state_dict and load_state_dict"


def _labelled(tree: Tree, shared: dict[int, int]) -> Tree:
    """The tree with a number on each node (by its id) that is referred to."""
    inside = tree
    if isinstance(tree, dict) and "$state" not in tree:  # which has numbers of its own
        inside = {key: _labelled(entry, shared) for key, entry in tree.items()}
    elif isinstance(tree, list):
        inside = [_labelled(entry, shared) for entry in tree]
    return {"$shared": [shared[id(tree)], inside]} if id(tree) in shared else inside


def _integer(value: int) -> Tree:
    return value if value.bit_length() <= WIDEST else {"$int": hex(value)}


def _float(value: float) -> Tree:
    return value if math.isfinite(value) else {"$float": repr(value)}


Writer = Callable[[_Capture, Any, str], Tree]
VALUES: dict[type, Writer] = {
    type(None): lambda self, thing, name: thing,
    bool: lambda self, thing, name: thing,
    str: lambda self, thing, name: thing,
    int: lambda self, thing, name: _integer(thing),
    float: lambda self, thing, name: _float(thing),
    complex: lambda self, thing, name: {"$complex": [_float(thing.real), _float(thing.imag)]},
    bytes: lambda self, thing, name: {"$bytes": np.frombuffer(thing, np.uint8)},
    range: lambda self, thing, name: {"$range": [_integer(part) for part in (thing.start, thing.stop, thing.step)]},
    tuple: lambda self, thing, name: {"$tuple": self._items(thing, name)},
    torch.Size: lambda self, thing, name: {"$size": list(thing)},
    frozenset: lambda self, thing, name: {"$frozenset": self._keys(thing, name)},
}
"""What nobody can tell from a copy."""
CONTAINERS: dict[type, Writer] = {
    list: _Capture._items,
    dict: _Capture._dict,
    **dict.fromkeys(kinds.MAPPINGS.values(), _Capture._subclass_of_dict),
    set: lambda self, thing, name: {"$set": self._keys(thing, name)},
    deque: lambda self, thing, name: {"$deque": [thing.maxlen, self._items(thing, name)]},
}
