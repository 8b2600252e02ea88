"""The state of live objects as plain data, and back onto freshly built ones.

A run that resumes builds everything from its configuration and then puts the state back in place,
because closures and other objects may hold what is restored. So a tree of state needs to say what
changes, never how to make an object: no class named in a tree is ever instantiated, and a tree from
a stranger can raise nothing worse than `Misfit` or be wrong about numbers.

A tree is None, a bool, an int, a finite float, a str, a list, a dict with str keys, or an array; all
else is a dict of one key that starts with "$":

    $int $float $complex $bytes $range    values that JSON has no word for
    $scalar                               a number of numpy, as an array of no dimensions
    $numbers $scalars                     a long list of equal type, of Python's or of numpy's numbers
    $tuple $size $named $enum             (torch's sizes, namedtuples and members of enumerations)
    $dict $mapping $deque $set $frozenset
    $tensor $generator                    torch's tensors, anybody's random generators
    $object $module $state                attributes, those of a torch module, what `state_dict` gave
    $fixed                                what the configuration fixes: functions, classes, specs, ...
    $shared $same                         a thing met more than once, and each later meeting
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import math
import random
import re
import time
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import PurePath
from typing import Any

import dm_env
import numpy as np
import torch
from dm_env import specs
from torch import Tensor, nn

Tree = Any
"""None, bool, int, finite float, str, list[Tree], dict[str, Tree], or an array."""

DEEPEST = 75  # levels of things in things: each may be five of the tree, which Python and its json have to walk
LONG = 64  # a list of more numbers than this is an array
WIDEST = 256  # bits of an integer that JSON is trusted with
KINDS = "biufcU"  # of numpy's dtypes
REHEARSAL_STEPS = 100
REHEARSAL_SECONDS = 0.3

FIXED = (
    specs.Array,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ModuleType,
    types.EllipsisType,
    type,
    functools.partial,
    type(functools.cache(len)),
    np.ufunc,
    np.dtype,
    torch.dtype,
    torch.device,
    re.Pattern,
    logging.Logger,
    PurePath,
)
KNOWN: dict[str, type] = {"TimeStep": dm_env.TimeStep, "StepType": dm_env.StepType}
MAPPINGS: dict[str, type] = {"OrderedDict": OrderedDict, "Counter": Counter, "defaultdict": defaultdict}
BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
POSITIONS = {"pos": 624, "buffer_pos": 4, "has_uint32": 1, "has_gauss": 1}  # numpy does not look, and reads there
NUMBERS = "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128 bfloat16"
TENSORS: dict[str, torch.dtype] = {name: getattr(torch, name) for name in NUMBERS.split()}
TORCHS_OWN = frozenset(vars(nn.Module())) - {"training"}
MALFORMED = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
HEAP_TYPE = 1 << 9  # in a class's flags: made by a class statement, or by an extension that imitates one
POINTER = np.dtype(np.intp).itemsize
ADVICE = "; give it state_dict and load_state_dict"


class Unsavable(Exception):
    """A thing has state that cannot be saved; says which, and what to do."""


class Misfit(Exception):
    """A tree does not fit the thing it is put on. One line, whatever it quotes of a stranger's tree."""

    def __init__(self, message: str):
        super().__init__("".join(letter if letter.isprintable() else "?" for letter in message[:500]))


class _Missing:
    """Stands for what the fresh object does not have."""


MISSING = _Missing()


def captured(thing: Any, name: str, *, parameters: bool = True) -> Tree:
    """The state of a thing. Arrays are not copied: use the tree before the thing goes on.

    `parameters=False` leaves out torch's parameters, which may be views of what is saved elsewhere.
    """
    return _Capture(parameters).whole(thing, name)


def restore(thing: Any, tree: Tree, name: str) -> Any:
    """Puts a state back, in place where the thing is mutable; returns what now stands in its place.

    After a `Misfit` the thing may be half restored: build it again.
    """
    return _Restore().placed(thing, tree, name, strict=True)


def rebuilt(tree: Tree, name: str) -> Any:
    """The plain data that a tree holds, where there is nothing to put it on."""
    return _Restore(data_only=True).placed(MISSING, tree, name)


def global_generators() -> dict[str, Any]:
    """The generators behind the global functions of `numpy.random`, `random` and `torch`."""
    return {
        "numpy": np.random.get_state.__self__,  # type: ignore[attr-defined]
        "random": random.getstate.__self__,  # type: ignore[attr-defined]
        "torch": torch.default_generator,
    }


# What kind of thing it is: asked of what is captured, and of the fresh thing a tree is put on


def _live_tag(thing: Any) -> str | None:
    """The tag of what is not plain data and can only be filled, never made anew."""
    if isinstance(thing, np.random.RandomState | np.random.Generator | np.random.BitGenerator | torch.Generator):
        return "$generator"
    if type(thing) is random.Random:
        return "$generator"
    if _has_own_state_dict(type(thing)):
        return "$state"
    if isinstance(thing, nn.Module):
        return "$module"
    return "$object" if _is_made_of_attributes(type(thing)) else None


def _has_own_state_dict(kind: type) -> bool:
    # Of the class, as a wrapper that passes on all it does not know would answer with the wrapped one's.
    methods = [getattr(kind, method, None) for method in ("state_dict", "load_state_dict")]
    return all(map(callable, methods)) and methods != [nn.Module.state_dict, nn.Module.load_state_dict]


def _is_made_of_attributes(kind: type) -> bool:
    """Whether its state is in its dict and slots: an extension's class keeps more where nobody sees it."""
    classes = [cls for cls in kind.__mro__ if cls not in (object, types.SimpleNamespace)]
    members = [member for cls in classes for member in vars(cls).values()]
    slots = sum(isinstance(member, types.MemberDescriptorType) for member in members)
    known = slots + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    return kind.__basicsize__ <= object.__basicsize__ + POINTER * known and all(
        cls.__flags__ & HEAP_TYPE and not isinstance(vars(cls).get("__new__"), types.BuiltinFunctionType)
        for cls in classes
    )


def _fixed_name(thing: Any) -> str | None:
    """What a fixed thing is called: one that has another name by now has changed after all."""
    if not isinstance(thing, (*FIXED, nn.Parameter)):
        return None
    if isinstance(thing, functools.partial):
        return f"partial of {_fixed_name(thing.func)}"
    return str(getattr(thing, "__qualname__", type(thing).__name__))


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _slots(kind: type) -> dict[str, Any]:
    members = (item for cls in reversed(kind.__mro__) for item in vars(cls).items())
    return {name: member for name, member in members if isinstance(member, types.MemberDescriptorType)}


def _own_dict(thing: Any) -> dict[str, Any] | None:
    try:
        return object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return None


def _attributes(thing: Any) -> dict[str, Any]:
    found = dict(_own_dict(thing) or {})
    for name, member in _slots(type(thing)).items():
        try:
            found[name] = member.__get__(thing)
        except AttributeError:
            continue
    hidden = TORCHS_OWN if isinstance(thing, nn.Module) else frozenset()
    return {name: value for name, value in found.items() if not _is_dunder(name) and name not in hidden}


def _set_attribute(thing: Any, name: str, value: Any) -> None:
    if name in (slots := _slots(type(thing))):
        slots[name].__set__(thing, value)
    else:
        _own_dict(thing)[name] = value  # type: ignore[index]


def _delete_attribute(thing: Any, name: str) -> None:
    if name in (slots := _slots(type(thing))):
        slots[name].__delete__(thing)
    else:
        del _own_dict(thing)[name]  # type: ignore[union-attr]


def _is_number(thing: Any) -> bool:
    return isinstance(thing, int | float | complex | np.number | np.bool_) and not isinstance(thing, Enum)


def _generator_state(generator: Any) -> Any:
    """What `_set_generator_state` takes, in plain data and arrays."""
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.BitGenerator):
        return generator.state
    if isinstance(generator, torch.Generator):
        return generator.get_state().numpy()
    version, words, gauss = generator.getstate()
    return {"version": version, "words": np.array(words, np.int64), "gauss": gauss}


def _set_generator_state(generator: Any, state: Any, name: str) -> None:
    if isinstance(generator, torch.Generator):
        if not (isinstance(state, np.ndarray) and state.dtype == np.uint8):
            raise Misfit(f"{name} is no state of a torch.Generator")
        generator.set_state(torch.from_numpy(state))
    elif isinstance(generator, random.Random):
        if not isinstance(state["gauss"], float | None):
            raise Misfit(f"{name} is no state of a random.Random")
        generator.setstate((state["version"], tuple(state["words"].tolist()), state["gauss"]))
    else:
        _check_alike(state, _generator_state(generator), name)
        if isinstance(generator, np.random.RandomState):
            generator.set_state(state)
        elif isinstance(generator, np.random.Generator):
            generator.bit_generator.state = state
        else:
            generator.state = state


def _check_alike(state: Any, own: Any, name: str) -> None:
    """Refuses a state of another form than the generator's own."""
    if type(state) is not type(own):
        raise Misfit(f"{name} has a {type(state).__name__}, expected a {type(own).__name__}")
    if isinstance(own, dict):
        if state.get("bit_generator") != own.get("bit_generator"):
            raise Misfit(f"{name} is a state of {state.get('bit_generator')}, expected {own.get('bit_generator')}")
        if state.keys() != own.keys():
            raise Misfit(f"{name} has {sorted(state)}, expected {sorted(own)}")
        for key in own:
            _check_alike(state[key], own[key], f"{name}[{key!r}]")
            if key in POSITIONS and not 0 <= state[key] <= POSITIONS[key]:
                raise Misfit(f"{name}[{key!r}] is {state[key]}, expected at most {POSITIONS[key]}")
    elif isinstance(own, np.ndarray) and (state.shape, state.dtype) != (own.shape, own.dtype):
        raise Misfit(f"{name} has shape {state.shape} of {state.dtype}, expected {own.shape} of {own.dtype}")
    elif isinstance(own, int) and not 0 <= state < 2**128:
        raise Misfit(f"{name} is not an unsigned integer")


# From things to trees


class _Capture:
    """One walk over things. `data_only`, inside a `state_dict`: nothing fresh will stand there to be filled."""

    def __init__(self, parameters: bool, data_only: bool = False, depth: int = 0, owners: Sequence[str] = ()):
        self._parameters = parameters
        self._data_only = data_only
        self._depth = depth
        self._owners = list(owners)
        self._met: dict[int, tuple[int, Any]] = {}  # by id: number, and the thing, as an id is of the living only
        self._trees: dict[int, Tree] = {}
        self._shared: set[int] = set()

    def whole(self, thing: Any, name: str) -> Tree:
        tree = self._tree(thing, name)
        shared = {id(self._trees[number]): number for number in self._shared}
        return _labelled(tree, shared) if shared else tree

    def _tree(self, thing: Any, name: str) -> Tree:
        if self._depth == DEEPEST:
            raise Unsavable(f"{name} lies more than {DEEPEST} levels deep, which cannot be saved{self._advice()}")
        self._depth += 1
        try:
            if thing is None or type(thing) in (bool, str):
                return thing
            if type(thing) in VALUES:
                return VALUES[type(thing)](thing)
            if (fixed := self._fixed(thing)) is not None:
                return self._unless_data_only({"$fixed": fixed}, thing, name)
            if isinstance(thing, Enum | tuple | frozenset | np.generic):
                return self._immutable(thing, name)
            return self._once(thing, name)
        finally:
            self._depth -= 1

    def _fixed(self, thing: Any) -> str | None:
        return None if isinstance(thing, nn.Parameter) and self._parameters else _fixed_name(thing)

    def _immutable(self, thing: Any, name: str) -> Tree:
        kind = type(thing)
        if isinstance(thing, Enum):
            if thing.name not in kind.__members__:
                raise self._refusal(thing, name)
            member = {"$enum": [kind.__name__, thing.name]}
            return member if kind is KNOWN.get(kind.__name__) else self._unless_data_only(member, thing, name)
        if isinstance(thing, np.generic):
            if thing.dtype.kind not in KINDS:
                raise self._refusal(thing, name)
            return {"$scalar": np.asarray(thing)}
        if kind is tuple:
            return {"$tuple": self._items(thing, name)}
        if kind is torch.Size:
            return {"$size": list(thing)}
        if kind is frozenset:
            return {"$frozenset": self._keys(thing, name)}
        if hasattr(kind, "_fields") and hasattr(kind, "_make"):
            entries = [self._tree(entry, f"{name}.{field}") for field, entry in zip(kind._fields, thing)]
            tree: Tree = {"$named": [kind.__name__, entries]}
            return tree if kind is KNOWN.get(kind.__name__) else self._unless_data_only(tree, thing, name)
        raise self._refusal(thing, name)

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
        kind = type(thing)
        if kind is list:
            return self._items(thing, name)
        if kind is dict:
            if all(type(key) is str and not key.startswith("$") for key in thing):
                return {key: self._tree(value, f"{name}[{key!r}]") for key, value in thing.items()}
            return {"$dict": self._pairs(thing, name)}
        if kind in MAPPINGS.values():
            return {"$mapping": [kind.__name__, self._pairs(thing, name)]}
        if kind is deque:
            return {"$deque": [thing.maxlen, self._items(thing, name)]}
        if kind is set:
            return {"$set": self._keys(thing, name)}
        if kind is np.ndarray and thing.dtype.kind in KINDS and thing.dtype.isnative:
            return thing
        if isinstance(thing, Tensor):
            return self._tensor(thing, name)
        return self._live(thing, name)

    def _items(self, things: Sequence[Any] | deque[Any], name: str) -> Tree:
        if len(things) > LONG and len(kinds := set(map(type, things))) == 1:
            kind = kinds.pop()
            if kind in (bool, float) or (kind is int and all(-(2**63) <= thing < 2**63 for thing in things)):
                return {"$numbers": np.array(things, {bool: np.bool_, int: np.int64, float: np.float64}[kind])}
            if issubclass(kind, np.number | np.bool_) and np.dtype(kind).kind in KINDS:
                return {"$scalars": np.array(things, kind)}
        return [self._tree(thing, f"{name}[{place}]") for place, thing in enumerate(things)]

    def _keys(self, keys: Iterable[Any], name: str) -> list[Tree]:
        return [self._key(key, f"{name}[{place}]") for place, key in enumerate(keys)]

    def _pairs(self, thing: dict[Any, Any], name: str) -> list[Tree]:
        return [
            [self._key(key, f"{name}'s key {key!r}"), self._tree(value, f"{name}[{key!r}]")]
            for key, value in thing.items()
        ]

    def _key(self, key: Any, name: str) -> Tree:
        if not isinstance(
            key, None | bool | int | float | complex | str | bytes | Enum | tuple | frozenset | np.generic
        ):
            raise self._refusal(key, name)  # equal to nothing but itself, which a new process does not have
        return self._tree(key, name)

    def _tensor(self, thing: Tensor, name: str) -> Tree:
        dtype = str(thing.dtype).removeprefix("torch.")
        if dtype not in TENSORS or thing.layout is not torch.strided or thing.device.type == "meta":
            raise self._refusal(thing, name)
        plain = thing.detach().cpu().resolve_conj().resolve_neg()
        array = (plain.view(torch.int16) if dtype == "bfloat16" else plain).numpy()
        return {"$tensor": [dtype, str(thing.device), array]}

    def _live(self, thing: Any, name: str) -> Tree:
        kind, tag = type(thing).__name__, _live_tag(thing)
        if tag == "$generator":
            state = _generator_state(thing)
            return {tag: [kind, _Capture(True, data_only=True, depth=self._depth).whole(state, name)]}
        if tag is None or self._data_only:
            raise self._refusal(thing, name)
        self._owners.append(kind)
        try:
            if tag == "$state":
                inside = _Capture(self._parameters, True, self._depth, self._owners)
                return {tag: [kind, inside.whole(thing.state_dict(), f"{name}.state_dict()")]}
            attributes = self._named(_attributes(thing), name)
            if tag == "$object":
                return {tag: [kind, attributes]}
            parts = {"attributes": attributes, "buffers": self._named(thing._buffers, name)}
            if self._parameters:
                parts["parameters"] = self._named(thing._parameters, name)
            return {tag: [kind, parts | {"children": self._named(thing._modules, name)}]}
        finally:
            self._owners.pop()

    def _named(self, things: dict[str, Any], name: str) -> dict[str, Tree]:
        return {key: self._tree(thing, f"{name}.{key}") for key, thing in things.items()}

    def _unless_data_only(self, tree: Tree, thing: Any, name: str) -> Tree:
        if self._data_only:
            raise self._refusal(thing, name)
        return tree

    def _refusal(self, thing: Any, name: str) -> Unsavable:
        kind = type(thing).__name__
        if type(thing) is np.ndarray:
            kind = f"array of {thing.dtype}"
        article = "an" if kind[0] in "aeiouAEIOU" else "a"
        if self._data_only:
            return Unsavable(f"{name} holds {article} {kind}, which is not plain data and cannot be saved")
        return Unsavable(f"{name} is {article} {kind}, which cannot be saved{self._advice()}")

    def _advice(self) -> str:
        return f"; give {self._owners[-1] if self._owners else 'it'} state_dict and load_state_dict"


def _labelled(tree: Tree, shared: dict[int, int]) -> Tree:
    """The tree with a number on each node (by its id) that is referred to."""
    if isinstance(tree, dict):
        inside: Tree = tree if "$state" in tree else {key: _labelled(entry, shared) for key, entry in tree.items()}
    elif isinstance(tree, list):
        inside = [_labelled(entry, shared) for entry in tree]
    else:
        inside = tree
    return {"$shared": [shared[id(tree)], inside]} if id(tree) in shared else inside


def _integer(value: int) -> Tree:
    return value if value.bit_length() <= WIDEST else {"$int": hex(value)}


def _float(value: float) -> Tree:
    return value if math.isfinite(value) else {"$float": repr(value)}


VALUES: dict[type, Callable[[Any], Tree]] = {
    int: _integer,
    float: _float,
    complex: lambda value: {"$complex": [_float(value.real), _float(value.imag)]},
    bytes: lambda value: {"$bytes": np.frombuffer(value, np.uint8)},
    range: lambda value: {"$range": [_integer(value.start), _integer(value.stop), _integer(value.step)]},
}


# From trees to things


class _Restore:
    """One walk over a tree and the fresh things it is put on."""

    def __init__(self, data_only: bool = False, depth: int = 0):
        self._data_only = data_only
        self._depth = depth
        self._owners: list[str] = []
        self._shared: dict[int, Any] = {}
        self._claimed: dict[int, Any] = {}  # by id: what has been filled, so that no second place writes over it
        self._in_frozen = False  # what a constant holds is constant too

    def placed(self, thing: Any, tree: Tree, name: str, strict: bool = False) -> Any:
        """The tree's value, checked against what stood there; `strict` holds plain data to its type too."""
        value = self._value(thing, tree, name)
        if thing is MISSING or thing is None or type(value) is type(thing) or (_is_number(thing) and _is_number(value)):
            return value
        if not strict and isinstance(thing, PLAIN):
            return value
        raise Misfit(f"{name} is {_described(value)}, expected {_described(thing)}")

    def _value(self, thing: Any, tree: Tree, name: str) -> Any:
        if self._depth == DEEPEST:
            raise Misfit(f"{name} lies more than {DEEPEST} levels deep")
        self._depth += 1
        try:
            label, tree = _label_of(tree)
            if label in self._shared:
                raise Misfit(f"{name} has a number that another thing has")
            value = self._of_kind(thing, tree, name, label)
            if label is not None:
                self._shared[label] = value
            return value
        except MALFORMED as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise Misfit(f"{name} is not as it was written ({reason})") from error
        finally:
            self._depth -= 1

    def _of_kind(self, thing: Any, tree: Tree, name: str, label: int | None) -> Any:
        if tree is None or type(tree) in (bool, int, str):
            return tree
        if type(tree) is float:
            if math.isfinite(tree):
                return tree
            raise Misfit(f"{name} is not finite")
        if type(tree) is list:
            return self._list(thing, tree, name, label)
        if type(tree) is dict:
            tags = [key for key in tree if key.startswith("$")]
            if not tags:
                return self._mapping(thing, dict, tree.items(), name, label)
            if len(tree) == 1 and tags[0] in TAGS:
                return TAGS[tags[0]](self, thing, tree[tags[0]], name, label)
            raise Misfit(f"{name} has the unknown mark {tags[0]!r}")
        return self._array(thing, tree, name)

    def _begin(self, label: int | None, target: Any) -> Any:
        """What is to be filled is known by its number before, as it may hold itself."""
        if label is not None:
            self._shared[label] = target
        return target

    def _claim(self, thing: Any) -> bool:
        if id(thing) in self._claimed:
            return False
        self._claimed[id(thing)] = thing
        return True

    def _may_fill(self, thing: Any) -> bool:
        return not self._in_frozen and self._claim(thing)

    def _list(self, thing: Any, tree: Tree, name: str, label: int | None) -> list[Any]:
        fits = type(thing) is list and self._may_fill(thing)
        target = self._begin(label, thing if fits else [])
        target[:] = self._items(list(target), tree, name)
        return target

    def _numbers(self, thing: Any, content: Tree, name: str, label: int | None) -> list[Any]:
        return self._list(thing, {"$numbers": content}, name, label)

    def _scalars(self, thing: Any, content: Tree, name: str, label: int | None) -> list[Any]:
        return self._list(thing, {"$scalars": content}, name, label)

    def _items(self, things: Sequence[Any], tree: Tree, name: str) -> list[Any]:
        if type(tree) is list:
            return [
                self.placed(things[place] if place < len(things) else MISSING, entry, f"{name}[{place}]")
                for place, entry in enumerate(tree)
            ]
        ((tag, content),) = tree.items()
        array = _leaf(content, name)
        if array.ndim != 1 or tag not in ("$numbers", "$scalars"):
            raise Misfit(f"{name} is no list of numbers")
        return array.tolist() if tag == "$numbers" else list(array)

    def _tuple(self, thing: Any, content: Tree, name: str, label: int | None) -> tuple[Any, ...]:
        return tuple(self._items(thing if type(thing) is tuple else (), content, name))

    def _size(self, thing: Any, content: Tree, name: str, label: int | None) -> torch.Size:
        return torch.Size(content)

    def _named(self, thing: Any, content: Tree, name: str, label: int | None) -> Any:
        called, entries = content
        kind = self._class(thing, called, name)
        fields = getattr(kind, "_fields", ())
        if not issubclass(kind, tuple) or type(entries) is not list or len(entries) != len(fields):
            raise Misfit(f"{name} is no {called}")
        fresh = thing if type(thing) is kind else [MISSING] * len(entries)
        paths = [f"{name}.{field}" for field in fields]
        return tuple.__new__(kind, [self.placed(*entry) for entry in zip(fresh, entries, paths)])

    def _enum(self, thing: Any, content: Tree, name: str, label: int | None) -> Enum:
        called, member = content
        kind = self._class(thing, called, name)
        if not issubclass(kind, Enum) or member not in kind.__members__:
            raise Misfit(f"{name} is no {called}")
        return kind.__members__[member]

    def _class(self, thing: Any, called: str, name: str) -> type:
        """A class of values: that of the fresh value, or one that is always known."""
        if type(thing).__name__ == called:
            return type(thing)
        if called in KNOWN:
            return KNOWN[called]
        raise self._not_there(called, name)

    def _dict(self, thing: Any, content: Tree, name: str, label: int | None) -> dict[Any, Any]:
        return self._mapping(thing, dict, self._pairs(thing, content, name), name, label)

    def _subclass_of_dict(self, thing: Any, content: Tree, name: str, label: int | None) -> dict[Any, Any]:
        called, pairs = content
        kind = MAPPINGS[called]
        if kind is defaultdict and type(thing) is not kind and not self._data_only:
            raise self._not_there(called, name)
        return self._mapping(thing, kind, self._pairs(thing, pairs, name), name, label)

    def _pairs(self, thing: Any, pairs: Tree, name: str) -> list[tuple[Any, Tree]]:
        keys = self._hashable(thing, [key for key, _ in pairs], name)
        return [(key, tree) for key, (_, tree) in zip(keys, pairs)]

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

    def _mapping(
        self, thing: Any, kind: type, pairs: Iterable[tuple[Any, Tree]], name: str, label: int | None
    ) -> dict[Any, Any]:
        fits = type(thing) is kind and self._may_fill(thing)
        target = self._begin(label, thing if fits else kind())
        old = dict(target)
        new = [(key, self.placed(old.get(key, MISSING), tree, f"{name}[{key!r}]")) for key, tree in pairs]
        target.clear()
        for key, value in new:
            target[key] = value
        return target

    def _deque(self, thing: Any, content: Tree, name: str, label: int | None) -> deque[Any]:
        longest, entries = content
        fits = type(thing) is deque and self._may_fill(thing)
        target = self._begin(label, thing if fits else deque(maxlen=longest))
        if target.maxlen != longest:
            raise Misfit(f"{name} has a maxlen of {longest}, expected {target.maxlen}")
        new = self._items(list(target), entries, name)
        target.clear()
        target.extend(new)
        return target

    def _set(self, thing: Any, content: Tree, name: str, label: int | None) -> set[Any]:
        fits = type(thing) is set and self._may_fill(thing)
        target = self._begin(label, thing if fits else set())
        new = self._hashable(target, content, name)
        target.clear()
        target.update(new)
        return target

    def _frozenset(self, thing: Any, content: Tree, name: str, label: int | None) -> frozenset[Any]:
        return frozenset(self._hashable(thing, content, name))

    def _array(self, thing: Any, tree: Tree, name: str) -> np.ndarray:
        array = _leaf(tree, name)
        same = type(thing) is np.ndarray and (thing.shape, thing.dtype) == (array.shape, array.dtype)
        if same and thing.flags.writeable and self._may_fill(thing):
            np.copyto(thing, array)
            return thing
        return np.array(array)

    def _tensor(self, thing: Any, content: Tree, name: str, label: int | None) -> Tensor:
        called, device, leaf = content
        dtype, tensor = TENSORS[called], torch.from_numpy(np.require(_leaf(leaf, name), requirements=["C", "W"]))
        if dtype is torch.bfloat16:
            if tensor.dtype is not torch.int16:
                raise Misfit(f"{name} has no bits of bfloat16")
            tensor = tensor.view(torch.bfloat16)
        if tensor.dtype is not dtype:
            raise Misfit(f"{name} has {tensor.dtype}, expected {dtype}")
        place = thing.device if isinstance(thing, Tensor) else torch.device(device)
        same = isinstance(thing, Tensor) and (thing.shape, thing.dtype) == (tensor.shape, dtype)
        if same and not _overlaps_itself(thing) and self._may_fill(thing):
            with torch.no_grad():
                return thing.copy_(tensor)
        if isinstance(thing, nn.Parameter):
            raise Misfit(f"{name} has shape {tuple(tensor.shape)}, expected {tuple(thing.shape)} of {thing.dtype}")
        return tensor.to("cpu" if self._data_only else place, copy=True)

    def _generator(self, thing: Any, content: Tree, name: str, label: int | None) -> Any:
        called, tree = content
        if thing is MISSING or thing is None or not self._claim(thing):
            target = _new_generator(called, tree, name)
        elif type(thing).__name__ == called and _live_tag(thing) == "$generator":
            target = thing
        else:
            raise Misfit(f"{name} is a {called}, expected {_described(thing)}")
        state = _Restore(data_only=True, depth=self._depth).placed(MISSING, tree, name)
        _set_generator_state(target, state, name)
        return target

    def _fixed(self, thing: Any, content: Tree, name: str, label: int | None) -> Any:
        if thing is MISSING or (there := _fixed_name(thing)) is None:
            raise self._not_there(content, name)
        if there != content:
            raise Misfit(f"{name} is {content}, where a newly built one has {there}{self._advice()}")
        return thing

    def _state(self, thing: Any, content: Tree, name: str, label: int | None) -> Any:
        called, tree = content
        self._check_live(thing, "$state", called, name)
        state = _Restore(data_only=True, depth=self._depth).placed(MISSING, tree, f"{name}.state_dict()")
        try:
            thing.load_state_dict(state)
        except MALFORMED as error:
            reason = (f"{type(error).__name__}: {error}".splitlines())[0]
            raise Misfit(f"{name} does not load its state: {reason}") from error
        return thing

    def _object(self, thing: Any, content: Tree, name: str, label: int | None) -> Any:
        called, attributes = content
        frozen = _is_frozen(thing)  # maybe a constant of a whole module: its place gets another one
        self._check_live(thing, "$object", called, name, claim=not frozen)
        target = object.__new__(type(thing)) if frozen else thing
        self._begin(label, target)
        if frozen:
            for key, value in _attributes(thing).items():
                _set_attribute(target, key, value)
        with self._inside(called, frozen):
            self._fill(target, _attributes(thing), attributes, name)
        return target

    def _module(self, thing: Any, content: Tree, name: str, label: int | None) -> Any:
        called, parts = content
        self._check_live(thing, "$module", called, name)
        self._begin(label, thing)
        own = {"buffers": thing._buffers, "parameters": thing._parameters, "children": thing._modules}
        kinds = {"buffers": Tensor, "parameters": nn.Parameter, "children": nn.Module}
        if not {"attributes", "buffers", "children"} <= parts.keys() <= {"attributes", *own}:
            raise Misfit(f"{name} is no {called}")
        with self._inside(called):
            for part, trees in parts.items():
                if part == "attributes":
                    self._fill(thing, _attributes(thing), trees, name)
                    continue
                if trees.keys() != own[part].keys():
                    raise Misfit(f"{name} has the {part} {[*trees]}, expected {[*own[part]]}")
                for key, tree in trees.items():
                    value = self.placed(own[part][key], tree, f"{name}.{key}", strict=True)
                    if value is not None and not isinstance(value, kinds[part]):
                        raise Misfit(f"{name}.{key} is {_described(value)}, expected one of the {part}")
                    own[part][key] = value
        return thing

    @contextmanager
    def _inside(self, owner: str, frozen: bool = False) -> Iterator[None]:
        before, self._in_frozen = self._in_frozen, frozen
        self._owners.append(owner)
        yield
        self._owners.pop()
        self._in_frozen = before

    def _fill(self, target: Any, old: dict[str, Any], trees: Tree, name: str) -> None:
        for key, tree in trees.items():
            where = f"{name}.{key}"
            if key not in old:
                self._check_addition(target, key, where)
            _set_attribute(target, key, self.placed(old.get(key, MISSING), tree, where, strict=True))
        for key in old.keys() - trees.keys():
            _delete_attribute(target, key)

    def _check_addition(self, target: Any, key: str, name: str) -> None:
        of_class = inspect.getattr_static(type(target), key, None)
        shadows = callable(of_class) or isinstance(of_class, classmethod)
        torchs = isinstance(target, nn.Module) and key in TORCHS_OWN
        homeless = _own_dict(target) is None and key not in _slots(type(target))
        if _is_dunder(key) or shadows or torchs or homeless:
            raise Misfit(f"{name} cannot be an attribute of a {type(target).__name__}")

    def _check_live(self, thing: Any, tag: str, called: str, name: str, claim: bool = True) -> None:
        if thing is MISSING or thing is None:
            raise self._not_there(called, name)
        if type(thing).__name__ != called or _live_tag(thing) != tag or isinstance(thing, (*PLAIN, *FIXED)):
            raise Misfit(f"{name} is a {called}, expected {_described(thing)}")
        if claim and not self._claim(thing):
            raise Misfit(f"{name} is a {called} of its own, but a newly built one has it in two places")

    def _not_there(self, called: Any, name: str) -> Misfit:
        return Misfit(f"{name} holds a {called} that a newly built one does not have{self._advice()}")

    def _advice(self) -> str:
        return f"; give {self._owners[-1] if self._owners else 'it'} the methods state_dict and load_state_dict"

    def _same(self, thing: Any, content: Tree, name: str, label: int | None) -> Any:
        if content not in self._shared:
            raise Misfit(f"{name} refers to a thing that is not there")
        return self._shared[content]


CONTAINERS = (list, tuple, dict, set, frozenset, deque)
PLAIN = (bool, int, float, complex, str, bytes, range, Enum, np.generic, np.ndarray, Tensor, *CONTAINERS)
TAGS: dict[str, Callable[[_Restore, Any, Tree, str, int | None], Any]] = {
    "$int": lambda self, thing, content, name, label: int(content, 16),
    "$float": lambda self, thing, content, name, label: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[content],
    "$complex": lambda self, thing, content, name, label: complex(*self._items((), content, name)),
    "$bytes": lambda self, thing, content, name, label: _leaf(content, name, np.uint8).tobytes(),
    "$range": lambda self, thing, content, name, label: range(*self._items((), content, name)),
    "$scalar": lambda self, thing, content, name, label: _leaf(content, name).reshape(())[()],
    "$numbers": _Restore._numbers,
    "$scalars": _Restore._scalars,
    "$tuple": _Restore._tuple,
    "$size": _Restore._size,
    "$named": _Restore._named,
    "$enum": _Restore._enum,
    "$dict": _Restore._dict,
    "$mapping": _Restore._subclass_of_dict,
    "$deque": _Restore._deque,
    "$set": _Restore._set,
    "$frozenset": _Restore._frozenset,
    "$tensor": _Restore._tensor,
    "$generator": _Restore._generator,
    "$object": _Restore._object,
    "$module": _Restore._module,
    "$state": _Restore._state,
    "$fixed": _Restore._fixed,
    "$same": _Restore._same,
}


def _label_of(tree: Tree) -> tuple[int | None, Tree]:
    if type(tree) is not dict or "$shared" not in tree:
        return None, tree
    ((label, inside),) = tree.values()
    if type(label) is not int:
        raise ValueError("a number that is none")
    return label, inside


def _leaf(tree: Tree, name: str, dtype: Any = None) -> np.ndarray:
    if not all(hasattr(tree, part) for part in ("dtype", "shape", "__array__")):
        raise Misfit(f"{name} is {_described(tree)}, expected an array")
    array = np.asarray(tree)
    if array.dtype.kind not in KINDS or (dtype is not None and array.dtype != dtype):
        raise Misfit(f"{name} is an array of {array.dtype}")
    return array


def _overlaps_itself(tensor: Tensor) -> bool:
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape))


def _is_frozen(thing: Any) -> bool:
    return dataclasses.is_dataclass(thing) and type(thing).__dataclass_params__.frozen  # type: ignore[union-attr]


def _new_generator(called: str, tree: Tree, name: str) -> Any:
    """A generator where the fresh object has none: these classes are known, whoever wrote the tree."""
    inside = tree.get("bit_generator") if isinstance(tree, dict) else None
    if called == "RandomState" and inside == "MT19937":
        return np.random.RandomState(0)
    if called == "Generator" and inside in BIT_GENERATORS:
        return np.random.Generator(getattr(np.random, inside)(0))
    if called == "Generator" and inside is None:
        return torch.Generator()
    if called in BIT_GENERATORS:
        return getattr(np.random, called)(0)
    if called == "Random":
        return random.Random(0)
    raise Misfit(f"{name} is a generator of an unknown kind, {called!r}")


def _described(thing: Any) -> str:
    kind = "nothing" if thing is None or thing is MISSING else type(thing).__name__
    return kind if kind == "nothing" else f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


# Whether an environment goes on the same


def rehearse_resume(build: Callable[[], dm_env.Environment], name: str) -> None:
    """Raises `Unsavable` unless an environment, put back onto a new one, goes on as if nothing had happened.

    That is tried once: state that nobody can see, such as a counter of the class or in a closure,
    shows only in what the environment does.
    """
    generators = global_generators()
    before = captured(generators, "the global generators")
    try:
        _rehearse(build, name, generators)
    finally:
        restore(generators, before, "the global generators")


def _rehearse(build: Callable[[], dm_env.Environment], name: str, generators: dict[str, Any]) -> None:
    policy = np.random.default_rng(0)
    first = build()
    actions = first.action_spec().num_values
    _, _, over = _played(first, policy, actions, over=True)
    tree, globally = captured(first, name), captured(generators, "the global generators")
    try:
        second = restore(build(), tree, name)
    except Misfit as misfit:
        raise Unsavable(str(misfit)) from misfit
    restore(generators, globally, "the global generators")
    moves, expected, _ = _played(first, policy, actions, over)
    restore(generators, globally, "the global generators")
    try:
        same = all(_seen(_moved(second, move)) == seen for move, seen in zip(moves, expected))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise Unsavable(f"{name} does not go on after it is put back ({reason}){ADVICE}") from error
    if not same:
        raise Unsavable(f"{name} does not go on the same after it is put back on a newly built one{ADVICE}")


def _played(
    environment: dm_env.Environment, policy: np.random.Generator, actions: int, over: bool
) -> tuple[list[int | None], list[Any], bool]:
    """Plays to the end of an episode: the moves (None resets), what was seen, and whether it is over."""
    moves: list[int | None] = []
    seen: list[Any] = []
    end = time.monotonic() + REHEARSAL_SECONDS
    while True:
        moves.append(None if over else int(policy.integers(actions)))
        timestep = _moved(environment, moves[-1])
        seen.append(_seen(timestep))
        over = timestep.last()
        if (over and len(moves) >= REHEARSAL_STEPS) or time.monotonic() > end:
            return moves, seen, over


def _moved(environment: dm_env.Environment, move: int | None) -> dm_env.TimeStep:
    return environment.reset() if move is None else environment.step(move)


def _seen(value: Any) -> Any:
    """What can be compared bit for bit, and does not change when the environment goes on."""
    if isinstance(value, dict):
        return {key: _seen(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_seen(entry) for entry in value]
    array = np.array(value)
    if array.dtype.kind not in KINDS:
        return repr(value)
    if array.dtype.kind in "fc":
        array[np.isnan(array)] = np.nan  # which has many forms
    return array.dtype.str, array.shape, array.tobytes()
