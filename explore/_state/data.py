"""Plain data: numbers, Python's containers, numpy's arrays and torch's tensors."""

from __future__ import annotations

import copy
import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from explore._state.tree import MISSING, Misfit, Tree, check_data, describe, find_class, refuse

if TYPE_CHECKING:
    from explore._state.walk import Reader, Writer

LONG = 64  # a list of more numbers than this is an array
SEQUENCES = (list, set, deque)
DICTS = (dict, OrderedDict, Counter, defaultdict)
KEYS = (type(None), bool, int, float, str, tuple, np.generic)
NUMBERS = "biufc"  # the kinds of numpy's dtypes that are saved


def write_float(walk: Writer, thing: float, name: str) -> Tree:
    return thing if math.isfinite(thing) else {"$float": repr(thing)}


def read_float(walk: Reader, fresh: Any, content: Tree, name: str) -> float:
    return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[content]


# Containers


def write_sequence(walk: Writer, thing: Any, name: str) -> Tree:
    entries = (_write_keys if type(thing) is set else _write_entries)(walk, thing, name)
    return entries if type(thing) is type(entries) is list else {"$sequence": [type(thing).__name__, entries]}


def read_sequence(walk: Reader, fresh: Any, content: Tree, name: str) -> Any:
    called, trees = content
    target = _begin(walk, fresh, called, name, SEQUENCES)
    entries = _read_entries(walk, () if called == "set" else target, trees, name)
    target.clear()
    (target.update if called == "set" else target.extend)(entries)
    return target


def write_dict(walk: Writer, thing: dict[Any, Any], name: str) -> Tree:
    if type(thing) is dict and all(type(key) is str and not key.startswith("$") for key in thing):
        return {key: walk.write(value, f"{name}[{key!r}]") for key, value in thing.items()}
    keys = _write_keys(walk, thing, name)
    return {"$dict": [type(thing).__name__, keys, [walk.write(thing[key], f"{name}[{key!r}]") for key in thing]]}


def read_dict(walk: Reader, fresh: Any, content: Tree, name: str) -> dict[Any, Any]:
    called, keys, values = content
    target = _begin(walk, fresh, called, name, DICTS)
    places = zip(_read_entries(walk, (), keys, f"{name}'s key"), values, strict=True)
    entries = {key: walk.read(target.get(key, MISSING), tree, f"{name}[{key!r}]") for key, tree in places}
    target.clear()
    target.update(entries)
    return target


def is_tuple(cls: type) -> bool:
    return cls is tuple or (issubclass(cls, tuple) and hasattr(cls, "_fields"))


def write_tuple(walk: Writer, thing: tuple[Any, ...], name: str) -> Tree:
    return {"$tuple": [type(thing).__name__, _write_entries(walk, thing, name)]}


def read_tuple(walk: Reader, fresh: Any, content: Tree, name: str) -> tuple[Any, ...]:
    called, trees = content
    cls = find_class(fresh, called, name)
    entries = _read_entries(walk, fresh if type(fresh) is cls else (), trees, name)
    if not is_tuple(cls) or len(entries) != len(getattr(cls, "_fields", entries)):
        raise Misfit(f"{name} is not a {called}")
    return tuple.__new__(cls, entries)


def _begin(walk: Reader, fresh: Any, called: str, name: str, kinds: tuple[type, ...]) -> Any:
    """The container to fill: the fresh one, unless another place has it."""
    cls = find_class(fresh, called, name)
    if cls not in kinds:
        raise Misfit(f"{name} is not a {called}")
    return walk.begin(cls() if type(fresh) is not cls else fresh if walk.may_fill(fresh) else copy.copy(fresh))


def _write_keys(walk: Writer, keys: Iterable[Any], name: str) -> Tree:
    for key in keys:
        if not isinstance(key, KEYS):  # equal to nothing but itself, which a new process does not have
            raise refuse(key, f"{name}'s key {key!r}")
    trees = _write_entries(walk, keys, f"{name}'s key")
    check_data(trees, f"{name}'s key")
    return trees


def _write_entries(walk: Writer, things: Any, name: str) -> Tree:
    """The entries of a list and its like; many numbers of one type as an array."""
    if len(things) > LONG and {*map(type, things)} in ({bool}, {int}, {float}):
        with suppress(OverflowError):  # of an integer of more than 64 bits
            return np.array([*things], type(next(iter(things))))
    return [walk.write(thing, f"{name}[{place}]") for place, thing in enumerate(things)]


def _read_entries(walk: Reader, fresh: Iterable[Any], content: Tree, name: str) -> list[Any]:
    if type(content) is list:
        there = enumerate(zip(content, chain([*fresh], repeat(MISSING))))
        return [walk.read(old, entry, f"{name}[{place}]") for place, (entry, old) in there]
    if (array := load_array(content, name)).ndim != 1:
        raise Misfit(f"{name} is not a list of numbers")
    return array.tolist()


# Arrays and tensors


def is_scalar(cls: type) -> bool:
    return issubclass(cls, np.generic) and np.dtype(cls).kind in NUMBERS


def write_array(walk: Writer, thing: np.ndarray, name: str) -> Tree:
    if thing.dtype.kind not in NUMBERS or not thing.dtype.isnative:
        raise refuse(thing, name)
    return thing


def read_array(walk: Reader, fresh: Any, content: Tree, name: str) -> np.ndarray:
    array = load_array(content, name)
    same = type(fresh) is np.ndarray and (fresh.shape, fresh.dtype) == (array.shape, array.dtype)
    if not same or not fresh.flags.writeable or not walk.may_fill(fresh):
        return walk.begin(np.array(array))
    np.copyto(fresh, array)
    return walk.begin(fresh)


def write_tensor(walk: Writer, thing: Tensor, name: str) -> Tree:
    try:
        array = thing.numpy(force=True)
    except (RuntimeError, TypeError) as error:  # sparse, on no device, or of numbers that numpy does not have
        raise refuse(thing, name) from error
    gradient = walk.write(thing.grad, f"{name}.grad") if thing.is_leaf else None
    return {"$tensor": [str(thing.device), array, thing.requires_grad, gradient]}


def read_tensor(walk: Reader, fresh: Any, content: Tree, name: str) -> Tensor:
    device, leaf, trained, gradient = content
    tensor = torch.from_numpy(np.require(load_array(leaf, name), requirements=["C", "W"]))
    same = isinstance(fresh, Tensor) and (fresh.shape, fresh.dtype) == (tensor.shape, tensor.dtype)
    if same and 0 not in fresh.stride() and walk.may_fill(fresh):  # an expanded one cannot be written to
        with torch.no_grad():
            tensor = fresh.copy_(tensor)
    elif isinstance(fresh, nn.Parameter):
        raise Misfit(f"{name} has shape {tuple(tensor.shape)}, expected {tuple(fresh.shape)} of {fresh.dtype}")
    else:
        tensor = tensor.to(fresh.device if isinstance(fresh, Tensor) else device, copy=True)
    walk.begin(tensor)
    if tensor.is_leaf and type(trained) is bool:
        tensor.requires_grad_(trained)
        tensor.grad = walk.read(tensor.grad, gradient, f"{name}.grad")
    return tensor


def load_array(tree: Tree, name: str) -> np.ndarray:
    if not all(hasattr(tree, part) for part in ("dtype", "shape", "__array__")):
        raise Misfit(f"{name} is {describe(tree)}, expected an array")
    array = np.asarray(tree)
    if array.dtype.kind not in NUMBERS:
        raise Misfit(f"{name} is an array of {array.dtype}")
    return array
