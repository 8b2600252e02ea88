"""From trees to things. A tree may be a stranger's: whatever is wrong with it ends in a `Misfit`."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from explore._state import kinds
from explore._state.generators import new_generator, set_state
from explore._state.kinds import MISSING, Misfit, Tree, describe, live_tag

MALFORMED = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def restore(thing: Any, tree: Tree, name: str) -> Any:
    """Puts a state back, in place where the thing is mutable; returns what now stands in its place.

    After a `Misfit` the thing may be half restored: build it again.
    """
    value = _Restore().place_tree(thing, tree, name)
    if thing is not None and type(value) is not type(thing):
        raise Misfit(f"{name} is {describe(value)}, expected {describe(thing)}")
    return value


def restore_data(tree: Tree, name: str) -> Any:
    """The plain data that a tree holds, where there is nothing to put it on."""
    return _Restore(data_only=True).place_tree(MISSING, tree, name)


class Place(NamedTuple):
    """Where a value goes."""

    fresh: Any  # what a newly built object has there, or MISSING
    name: str
    number: int | None = None  # by which other places refer to the value


class _Restore:
    """One walk over a tree and the fresh things it is put on."""

    def __init__(self, data_only: bool = False, depth: int = 0):
        self._data_only = data_only
        self._depth = depth
        self._owner = "it"  # the class to give state_dict, for messages
        self._shared: dict[int, Any] = {}
        self._claimed: dict[int, Any] = {}  # by id: what has been filled, so that no second place writes over it
        self._in_frozen = False  # what a constant holds is constant too

    def place_tree(self, fresh: Any, tree: Tree, name: str) -> Any:
        """The tree's value. Plain data may take the place of other plain data, but not of an object."""
        value = self._value(fresh, tree, name)
        if fresh is MISSING or fresh is None or value is None or type(value) is type(fresh):
            return value
        if isinstance(fresh, kinds.PLAIN):
            return value
        raise Misfit(f"{name} is {describe(value)}, expected {describe(fresh)}")

    def _value(self, fresh: Any, tree: Tree, name: str) -> Any:
        if self._depth == kinds.DEEPEST:
            raise Misfit(f"{name} lies more than {kinds.DEEPEST} levels deep")
        self._depth += 1
        try:
            value = self._of_kind(Place(fresh, name), tree)
        except MALFORMED as error:
            raise Misfit(f"{name} is not as it was written ({_in_a_line(error)})") from error
        self._depth -= 1
        return value

    def _of_kind(self, place: Place, tree: Tree) -> Any:
        if tree is None or type(tree) in (bool, int, str) or (type(tree) is float and math.isfinite(tree)):
            return tree
        if type(tree) is list:
            return self._list(place, tree)
        if type(tree) is not dict:
            return self._array(place, tree)
        tags = [key for key in tree if key.startswith("$")]
        if not tags:
            return self._mapping(place, dict, tree.items())
        if len(tree) == 1 and tags[0] in TAGS:
            return TAGS[tags[0]](self, place, tree[tags[0]])
        raise Misfit(f"{place.name} has the unknown mark {tags[0]!r}")

    # What is met more than once, and what is filled in place

    def _shared_thing(self, place: Place, content: Tree) -> Any:
        number, tree = content
        if type(number) is not int or number in self._shared or place.number is not None:
            raise Misfit(f"{place.name} has a number that is none, that another thing has, or a second one")
        place = place._replace(number=number)
        return self._begin(place, self._of_kind(place, tree))

    def _begin(self, place: Place, target: Any) -> Any:
        """What is to be filled is known by its number before, as it may hold itself."""
        if place.number is not None:
            self._shared[place.number] = target
        return target

    def _claim(self, thing: Any) -> bool:
        if id(thing) in self._claimed:
            return False
        self._claimed[id(thing)] = thing
        return True

    def _may_fill(self, thing: Any) -> bool:
        return not self._in_frozen and self._claim(thing)

    def _container(self, place: Place, kind: type, **options: Any) -> Any:
        fits = type(place.fresh) is kind and self._may_fill(place.fresh)
        return self._begin(place, place.fresh if fits else kind(**options))

    # Containers

    def _list(self, place: Place, tree: Tree) -> list[Any]:
        target = self._container(place, list)
        target[:] = self._items(list(target), tree, place.name)
        return target

    def _deque(self, place: Place, content: Tree) -> deque[Any]:
        longest, entries = content
        target = self._container(place, deque, maxlen=longest)
        if target.maxlen != longest:
            raise Misfit(f"{place.name} has a maxlen of {longest}, expected {target.maxlen}")
        items = self._items(list(target), entries, place.name)
        target.clear()
        target.extend(items)
        return target

    def _set(self, place: Place, content: Tree) -> set[Any]:
        target = self._container(place, set)
        entries = self._hashable(place.fresh, content, place.name)
        target.clear()
        target.update(entries)
        return target

    def _subclass_of_dict(self, place: Place, content: Tree) -> dict[Any, Any]:
        called, pairs = content
        kind = kinds.MAPPINGS[called]
        if kind is defaultdict and type(place.fresh) is not kind and not self._data_only:
            raise self._not_there(called, place)
        return self._mapping(place, kind, pairs)

    def _mapping(self, place: Place, kind: type, pairs: Iterable[tuple[Tree, Tree]]) -> dict[Any, Any]:
        target = self._container(place, kind)
        keys, old = self._hashable(place.fresh, [key for key, _ in pairs], place.name), dict(target)
        new = {
            key: self.place_tree(old.get(key, MISSING), tree, f"{place.name}[{key!r}]")
            for key, (_, tree) in zip(keys, pairs)
        }
        target.clear()
        target.update(new)
        return target

    def _hashable(self, fresh: Any, trees: Tree, name: str) -> list[Any]:
        """Keys, or the entries of a set; an enumeration or namedtuple is known by those that are there."""
        examples = {type(key).__name__: key for key in fresh} if isinstance(fresh, dict | set | frozenset) else {}
        keys = []
        for tree in trees:
            named = type(tree) is dict and (tree.get("$enum") or tree.get("$named"))
            keys.append(self._value(examples.get(named[0], MISSING) if named else MISSING, tree, f"{name}'s key"))
        if len(set(keys)) != len(keys):
            raise Misfit(f"{name} has a key twice")
        return keys

    def _items(self, fresh: Sequence[Any], tree: Tree, name: str) -> list[Any]:
        if type(tree) is list:
            there = [*fresh, *[MISSING] * len(tree)]
            return [self.place_tree(there[place], entry, f"{name}[{place}]") for place, entry in enumerate(tree)]
        ((tag, content),) = tree.items()
        array = _leaf(content, name)
        if array.ndim != 1 or tag not in ("$numbers", "$scalars"):
            raise Misfit(f"{name} is no list of numbers")
        return array.tolist() if tag == "$numbers" else list(array)

    # Values that take their class from the fresh one

    def _named(self, place: Place, content: Tree) -> Any:
        called, entries = content
        kind = self._class(place, called)
        fresh = place.fresh if type(place.fresh) is kind else [MISSING] * len(kind._fields)
        paths = [f"{place.name}.{field}" for field in kind._fields]
        return tuple.__new__(kind, [self.place_tree(*entry) for entry in zip(fresh, entries, paths, strict=True)])

    def _enum(self, place: Place, content: Tree) -> Any:
        called, member = content
        return self._class(place, called).__members__[member]

    def _class(self, place: Place, called: str) -> Any:
        if type(place.fresh).__name__ == called:
            return type(place.fresh)
        if called in kinds.KNOWN:
            return kinds.KNOWN[called]
        raise self._not_there(called, place)

    # Arrays, tensors, generators

    def _array(self, place: Place, tree: Tree) -> np.ndarray:
        array, fresh = _leaf(tree, place.name), place.fresh
        same = type(fresh) is np.ndarray and (fresh.shape, fresh.dtype) == (array.shape, array.dtype)
        if same and fresh.flags.writeable and self._may_fill(fresh):
            np.copyto(fresh, array)
            return fresh
        return np.array(array)

    def _tensor(self, place: Place, content: Tree) -> Tensor:
        (called, device, leaf, trained, gradient), (fresh, name, _) = content, place
        dtype, tensor = kinds.TENSORS[called], torch.from_numpy(np.require(_leaf(leaf, name), requirements=["C", "W"]))
        if tensor.dtype is not (torch.int16 if dtype is torch.bfloat16 else dtype):
            raise Misfit(f"{name} has {tensor.dtype}, expected {dtype}")
        tensor = tensor.view(dtype)
        same = isinstance(fresh, Tensor) and (fresh.shape, fresh.dtype) == (tensor.shape, dtype)
        if same and 0 not in fresh.stride() and self._may_fill(fresh):  # an expanded one cannot be written to
            with torch.no_grad():
                return self._with_gradient(fresh.copy_(tensor), trained, gradient, name)
        if isinstance(fresh, nn.Parameter):
            raise Misfit(f"{name} has shape {tuple(tensor.shape)}, expected {tuple(fresh.shape)} of {fresh.dtype}")
        where = fresh.device if isinstance(fresh, Tensor) else torch.device(device)
        return self._with_gradient(tensor.to("cpu" if self._data_only else where, copy=True), trained, gradient, name)

    def _with_gradient(self, tensor: Tensor, trained: Any, gradient: Tree, name: str) -> Tensor:
        if tensor.is_leaf and type(trained) is bool:
            tensor.requires_grad_(trained)
            tensor.grad = self.place_tree(tensor.grad, gradient, f"{name}.grad")
        return tensor

    def _generator(self, place: Place, content: Tree) -> Any:
        called, tree = content
        target, state = place.fresh, self._data(tree, place.name)
        if target is MISSING or target is None or not self._claim(target):
            target = new_generator(called, state, place.name)
        elif type(target).__name__ != called or live_tag(target) != "$generator":
            raise Misfit(f"{place.name} is a {called}, expected {describe(target)}")
        set_state(target, state, place.name)
        return target

    def _data(self, tree: Tree, name: str) -> Any:
        return _Restore(data_only=True, depth=self._depth).place_tree(MISSING, tree, name)

    # Objects: only ever the fresh ones, of which a tree can change no more than the attributes

    def _state(self, place: Place, content: Tree) -> Any:
        called, tree = content
        self._check_live(place, "$state", called)
        state = self._data(tree, f"{place.name}.state_dict()")
        try:
            place.fresh.load_state_dict(state)
        except MALFORMED as error:
            raise Misfit(f"{place.name} does not load its state: {_in_a_line(error)}") from error
        return place.fresh

    def _object(self, place: Place, content: Tree) -> Any:
        called, trees = content
        frozen = kinds.is_frozen(place.fresh)  # maybe a constant of a whole module: its place gets another one
        self._check_live(place, "$object", called, claim=not frozen)
        target = self._begin(place, object.__new__(type(place.fresh)) if frozen else place.fresh)
        with self._inside(called, frozen):
            self._fill(target, kinds.attributes(place.fresh), trees, place.name)
        return target

    def _module(self, place: Place, content: Tree) -> nn.Module:
        called, trees = content
        self._check_live(place, "$module", called)
        module = self._begin(place, place.fresh)
        own = {
            "buffers": (module._buffers, Tensor),
            "parameters": (module._parameters, nn.Parameter),
            "children": (module._modules, nn.Module),
        }
        if not {"attributes", "buffers", "children"} <= trees.keys() <= {"attributes", *own}:
            raise Misfit(f"{place.name} is no {called}")
        with self._inside(called):
            self._fill(module, kinds.attributes(module), trees["attributes"], place.name)
            for part, (there, kind) in own.items():
                if part in trees:
                    self._fill_part(part, there, kind, trees[part], place.name)
        return module

    def _fill(self, target: Any, old: dict[str, Any], trees: Tree, name: str) -> None:
        for key, tree in trees.items():
            if key not in old and not kinds.can_be_added(target, key):
                raise Misfit(f"{name}.{key} cannot be an attribute of a {type(target).__name__}")
            kinds.set_attribute(target, key, self.place_tree(old.get(key, MISSING), tree, f"{name}.{key}"))
        for key in kinds.attributes(target).keys() - trees.keys():
            kinds.delete_attribute(target, key)

    def _fill_part(self, part: str, own: dict[str, Any], kind: type, trees: Tree, name: str) -> None:
        if trees.keys() != own.keys():
            raise Misfit(f"{name} has the {part} {[*trees]}, expected {[*own]}")
        for key, tree in trees.items():
            value = self.place_tree(own[key], tree, f"{name}.{key}")
            if value is not None and not isinstance(value, kind):
                raise Misfit(f"{name}.{key} is {describe(value)}, expected one of the {part}")
            own[key] = value

    @contextmanager
    def _inside(self, owner: str, frozen: bool = False) -> Iterator[None]:
        before = self._owner, self._in_frozen
        self._owner, self._in_frozen = owner, frozen
        yield
        self._owner, self._in_frozen = before

    def _fixed(self, place: Place, content: Tree) -> Any:
        there = kinds.fixed_name(place.fresh)
        if there is None:
            raise self._not_there(content, place)
        if there != content:
            raise Misfit(f"{place.name} is {content}, where a newly built one has {there}{self._advice()}")
        return place.fresh

    # What does not fit

    def _check_live(self, place: Place, tag: str, called: str, claim: bool = True) -> None:
        if place.fresh is MISSING or place.fresh is None:
            raise self._not_there(called, place)
        if type(place.fresh).__name__ != called or live_tag(place.fresh) != tag:
            raise Misfit(f"{place.name} is a {called}, expected {describe(place.fresh)}")
        if claim and not self._claim(place.fresh):
            raise Misfit(f"{place.name} is a {called} of its own, but a newly built one has it in two places")

    def _not_there(self, called: Any, place: Place) -> Misfit:
        return Misfit(f"{place.name} holds a {called} that a newly built one does not have{self._advice()}")

    def _advice(self) -> str:
        return f"; give {self._owner} the methods state_dict and load_state_dict"


TAGS: dict[str, Callable[[_Restore, Place, Tree], Any]] = {
    "$int": lambda self, place, content: int(content, 16),
    "$float": lambda self, place, content: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[content],
    "$complex": lambda self, place, content: complex(*self._items((), content, place.name)),
    "$bytes": lambda self, place, content: _leaf(content, place.name).tobytes(),
    "$range": lambda self, place, content: range(*self._items((), content, place.name)),
    "$scalar": lambda self, place, content: _leaf(content, place.name).reshape(())[()],
    "$numbers": lambda self, place, content: self._list(place, {"$numbers": content}),
    "$scalars": lambda self, place, content: self._list(place, {"$scalars": content}),
    "$tuple": lambda self, place, content: tuple(
        self._items(place.fresh if type(place.fresh) is tuple else (), content, place.name)
    ),
    "$size": lambda self, place, content: torch.Size(content),
    "$named": _Restore._named,
    "$enum": _Restore._enum,
    "$dict": lambda self, place, content: self._mapping(place, dict, content),
    "$mapping": _Restore._subclass_of_dict,
    "$deque": _Restore._deque,
    "$set": _Restore._set,
    "$frozenset": lambda self, place, content: frozenset(self._hashable(place.fresh, content, place.name)),
    "$tensor": _Restore._tensor,
    "$generator": _Restore._generator,
    "$object": _Restore._object,
    "$module": _Restore._module,
    "$state": _Restore._state,
    "$fixed": _Restore._fixed,
    "$shared": _Restore._shared_thing,
    "$same": lambda self, place, content: self._shared[content],
}


def _leaf(tree: Tree, name: str) -> np.ndarray:
    if not all(hasattr(tree, part) for part in ("dtype", "shape", "__array__")):
        raise Misfit(f"{name} is {describe(tree)}, expected an array")
    array = np.asarray(tree)
    if array.dtype.kind not in kinds.ARRAYS:
        raise Misfit(f"{name} is an array of {array.dtype}")
    return array


def _in_a_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
