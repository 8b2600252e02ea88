"""The walk through things, which writes a tree, and the walk through a tree, which reads it onto fresh things."""

from __future__ import annotations

import copy
import math
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import dm_env
import numpy as np
from torch import nn

Tree = Any
"""None, bool, int, finite float, str, list[Tree], dict[str, Tree], or an array."""

DEEPEST = 75  # levels of things in things: each may be five of the tree, which Python and its json have to walk
MALFORMED = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
KNOWN = {kind.__name__: kind for kind in (dict, OrderedDict, Counter, dm_env.TimeStep, dm_env.StepType)}
"""Classes that need not be found on the fresh object."""
LIVE = ("$object", "$state", "$fixed", "$named", "$enum", "$dict")
"""Tags of what takes its class from the fresh object in its place; their content begins with the class's name."""
ADVICE = "; give the object that holds it state_dict and load_state_dict"
MISSING: Any = object()  # stands for what the fresh object does not have


class Unsavable(Exception):
    """A thing has state that cannot be saved; says which, and what to do."""


class Misfit(Exception):
    """A tree does not fit the thing it is put on. One line, whatever it quotes of a stranger's tree."""

    def __init__(self, message: str):
        super().__init__("".join(letter if letter.isprintable() else "?" for letter in message[:500]))


class Kind(NamedTuple):
    """How things of a kind are recognised, by their type or a test; and how they are written and read."""

    tag: str
    matches: type | Callable[[Any], bool]
    write: Callable[[Writer, Any, str], Tree]  # thing, its name
    read: Callable[[Reader, Any, Tree, str], Any]  # the fresh thing in the place or MISSING, content, name
    is_mutable: bool = False  # met twice, it is one thing; its reader calls `begin` before it reads what is inside


class Kinds:
    """The table of all kinds."""

    def __init__(self, *kinds: Kind):
        self.by_tag = {kind.tag: kind for kind in kinds}
        self._by_type = {kind.matches: kind for kind in kinds if isinstance(kind.matches, type)}
        self._by_test = [kind for kind in kinds if not isinstance(kind.matches, type)]

    def find(self, thing: Any) -> Kind | None:
        by_test = (kind for kind in self._by_test if kind.matches(thing))
        return self._by_type.get(type(thing)) or next(by_test, None)


class Writer:
    """One walk through things. `data_only`, inside a `state_dict`: no fresh object will stand there to be filled."""

    def __init__(self, kinds: Kinds, parameters: bool = True, data_only: bool = False, depth: int = 0):
        self._kinds, self._parameters, self._data_only, self._depth = kinds, parameters, data_only, depth
        self._met: dict[int, tuple[int, Any]] = {}  # id -> number, and the thing, since ids are of the living only

    def write(self, thing: Any, name: str) -> Tree:
        if self._depth == DEEPEST:
            raise Unsavable(f"{name} lies more than {DEEPEST} levels deep, which cannot be saved{ADVICE}")
        self._depth += 1
        tree = self._write(thing, name)
        self._depth -= 1
        if self._data_only and (called := live_class(tree)):
            raise Unsavable(f"{name} holds a {called}, which is not plain data and cannot be saved")
        return tree

    def _write(self, thing: Any, name: str) -> Tree:
        if isinstance(thing, nn.Parameter) and not self._parameters:
            return {"$fixed": ["Parameter"]}
        kind = self._kinds.find(thing)
        if kind is None:
            raise refuse(describe(thing), name)
        if kind.is_mutable:
            if id(thing) in self._met:
                return {"$same": self._met[id(thing)][0]}
            self._met[id(thing)] = len(self._met), thing
        return kind.write(self, thing, name)

    def write_data(self, data: Any, name: str) -> Tree:
        """A tree of its own, since what is restored from it is a thing of its own."""
        return Writer(self._kinds, self._parameters, True, self._depth).write(data, name)


class Reader:
    """One walk through a tree and the fresh things it is put on."""

    def __init__(self, kinds: Kinds, depth: int = 0):
        self.kinds, self._depth = kinds, depth
        self.is_constant = False  # inside a frozen dataclass: what it holds is not to be changed either
        self._met: list[Any] = []  # what is mutable, in the order in which the writer numbered it
        self._claimed: dict[int, Any] = {}  # by id: what has been filled, so that no second place writes over it

    def read(self, fresh: Any, tree: Tree, name: str) -> Any:
        """The tree's value. Plain data may take the place of other plain data, but not of an object."""
        if self._depth == DEEPEST:
            raise Misfit(f"{name} lies more than {DEEPEST} levels deep")
        self._depth += 1
        try:
            value = self._read(fresh, tree, name)
        except MALFORMED as error:
            raise Misfit(f"{name} is not as it was written ({in_one_line(error)})") from error
        self._depth -= 1
        if fresh is MISSING or fresh is None or value is None or type(value) is type(fresh):
            return value
        kind = self.kinds.find(fresh)
        if kind is None or kind.tag in ("$object", "$state", "$fixed", "$generator"):
            raise Misfit(f"{name} is {describe(value)}, expected {describe(fresh)}")
        return value

    def _read(self, fresh: Any, tree: Tree, name: str) -> Any:
        if tree is None or type(tree) in (bool, int, str) or (type(tree) is float and math.isfinite(tree)):
            return tree
        if type(tree) is dict and any(key.startswith("$") for key in tree):
            ((tag, tree),) = tree.items()
        else:
            tag = "$list" if type(tree) is list else "$dict" if type(tree) is dict else "$array"
        return self._met[tree] if tag == "$same" else self.kinds.by_tag[tag].read(self, fresh, tree, name)

    def read_data(self, tree: Tree, name: str) -> Any:
        """What `write_data` has written."""
        return Reader(self.kinds, self._depth).read(MISSING, tree, name)

    def begin(self, target: Any) -> Any:
        """What is to be filled is known by its number before, as it may hold itself."""
        self._met.append(target)
        return target

    def begin_container(self, fresh: Any, kind: type, *arguments: Any) -> Any:
        if type(fresh) is not kind:
            return self.begin(kind(*arguments))
        return self.begin(fresh if self.may_fill(fresh) else copy.copy(fresh))

    def may_fill(self, thing: Any) -> bool:
        return not self.is_constant and self.claim(thing)

    def claim(self, thing: Any) -> bool:
        """False if another place has it already: the state has two things there, and the fresh object one."""
        is_new = id(thing) not in self._claimed
        self._claimed[id(thing)] = thing
        return is_new


def find_class(fresh: Any, called: str, name: str) -> Any:
    """The class of this name: the fresh thing's own or one that is known. No other is ever looked for."""
    if type(fresh).__name__ != called and called not in KNOWN:
        raise Misfit(f"{name} holds a {called} that a newly built one does not have{ADVICE}")
    return type(fresh) if type(fresh).__name__ == called else KNOWN[called]


def live_class(tree: Tree) -> str | None:
    """The class that must be found in the place of this node of a tree, if any."""
    tag, content = next(iter(tree.items()), ("", ())) if isinstance(tree, dict) else ("", ())
    called = content[0] if tag in LIVE and isinstance(content, list) else None
    return None if called in KNOWN else called


def refuse(described: str, name: str) -> Unsavable:
    return Unsavable(f"{name} is {described}, which cannot be saved{ADVICE}")


def describe(thing: Any) -> str:
    """For messages: "a list", "an array of object", "nothing"."""
    if thing is None or thing is MISSING:
        return "nothing"
    kind = f"array of {thing.dtype}" if type(thing) is np.ndarray else type(thing).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


def in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
