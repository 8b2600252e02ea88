"""Plain data: numbers, strings, Python's containers, numpy's arrays and torch's tensors."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable
from enum import Enum
from itertools import chain, repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from explore._state.walk import MISSING, Misfit, Reader, Tree, Writer, describe, find_class, refuse

LONG = 64  # a list of more numbers than this is an array
WIDEST = 10_000  # bits of an integer: Python does not read much longer ones from text
KEYS = (type(None), bool, int, float, str, bytes, tuple, frozenset, np.generic)
MAPPINGS = (dict, OrderedDict, Counter, defaultdict)
ARRAYS = "biufc"  # the kinds of numpy's dtypes that are saved
NUMBERS = "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128"
TENSORS = [getattr(torch, name) for name in NUMBERS.split()]


def write_int(walk: Writer, thing: int, name: str) -> Tree:
    if thing.bit_length() > WIDEST:
        raise refuse(f"an integer of {thing.bit_length():,} bits", name)
    return thing


def write_float(walk: Writer, thing: float, name: str) -> Tree:
    return thing if math.isfinite(thing) else {"$float": repr(thing)}


def read_float(walk: Reader, fresh: Any, content: Tree, name: str) -> float:
    return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[content]


# Containers


def write_list(walk: Writer, thing: list[Any], name: str) -> Tree:
    items = write_items(walk, thing, name)
    return items if isinstance(items, list) else {"$list": items}


def read_list(walk: Reader, fresh: Any, content: Tree, name: str) -> list[Any]:
    target = walk.begin_container(fresh, list)
    target[:] = read_items(walk, target, content, name)
    return target


def write_deque(walk: Writer, thing: deque[Any], name: str) -> Tree:
    return {"$deque": [thing.maxlen, write_items(walk, thing, name)]}


def read_deque(walk: Reader, fresh: Any, content: Tree, name: str) -> deque[Any]:
    longest, entries = content
    target = walk.begin_container(fresh, deque, (), longest)
    if target.maxlen != longest:
        raise Misfit(f"{name} has a maxlen of {longest}, expected {target.maxlen}")
    items = read_items(walk, target, entries, name)
    target.clear()
    target.extend(items)
    return target


def write_set(walk: Writer, thing: set[Any] | frozenset[Any], name: str) -> Tree:
    _check_keys(thing, name)
    return {f"${type(thing).__name__}": write_items(walk, thing, name)}


def read_set(walk: Reader, fresh: Any, content: Tree, name: str) -> set[Any]:
    target = walk.begin_container(fresh, set)
    entries = read_items(walk, (), content, name)
    target.clear()
    target.update(entries)
    return target


def write_items(walk: Writer, things: Any, name: str) -> Tree:
    """The entries of a list and its like; many numbers of one type as an array."""
    types = {*map(type, things)} if len(things) > LONG else set()
    if len(types) == 1:
        kind = types.pop()
        if kind in (bool, float) or (kind is int and all(-(2**63) <= thing < 2**63 for thing in things)):
            return np.array([*things], kind)
        if issubclass(kind, np.generic) and np.dtype(kind).kind in ARRAYS:
            return {"$scalars": np.array([*things], kind)}
    return [walk.write(thing, f"{name}[{place}]") for place, thing in enumerate(things)]


def read_items(walk: Reader, fresh: Iterable[Any], content: Tree, name: str) -> list[Any]:
    if type(content) is list:
        there = enumerate(zip(content, chain([*fresh], repeat(MISSING))))
        return [walk.read(old, entry, f"{name}[{place}]") for place, (entry, old) in there]
    array = load_leaf(content["$scalars"] if type(content) is dict else content, name)
    if array.ndim != 1:
        raise Misfit(f"{name} is not a list of numbers")
    return list(array) if type(content) is dict else array.tolist()


def write_dict(walk: Writer, thing: dict[Any, Any], name: str) -> Tree:
    if type(thing) is dict and all(type(key) is str and not key.startswith("$") for key in thing):
        return {key: walk.write(value, f"{name}[{key!r}]") for key, value in thing.items()}
    _check_keys(thing, name)
    pairs = [[walk.write(key, name), walk.write(value, f"{name}[{key!r}]")] for key, value in thing.items()]
    return {"$dict": [type(thing).__name__, pairs]}


def read_dict(walk: Reader, fresh: Any, content: Tree, name: str) -> dict[Any, Any]:
    called, pairs = ("dict", content.items()) if isinstance(content, dict) else content
    kind = find_class(fresh, called, name)
    if kind not in MAPPINGS:
        raise Misfit(f"{name} is not a {called}")
    target = walk.begin_container(fresh, kind)
    old, new = dict(target), {}
    for key_tree, tree in pairs:
        key = walk.read(MISSING, key_tree, f"{name}'s key")
        new[key] = walk.read(old.get(key, MISSING), tree, f"{name}[{key!r}]")
    target.clear()
    target.update(new)
    return target


def _check_keys(keys: Iterable[Any], name: str) -> None:
    for key in keys:
        if not isinstance(key, KEYS):  # equal to nothing but itself, which a new process does not have
            raise refuse(describe(key), f"{name}'s key {key!r}")


# Values that take their class from the fresh one


def write_named(walk: Writer, thing: Any, name: str) -> Tree:
    entries = [walk.write(entry, f"{name}.{field}") for field, entry in zip(thing._fields, thing)]
    return {"$named": [type(thing).__name__, entries]}


def read_named(walk: Reader, fresh: Any, content: Tree, name: str) -> Any:
    called, entries = content
    kind = find_class(fresh, called, name)
    old = fresh if type(fresh) is kind else [MISSING] * len(kind._fields)
    places = zip(old, entries, kind._fields, strict=True)
    return tuple.__new__(kind, [walk.read(one, entry, f"{name}.{field}") for one, entry, field in places])


def write_enum(walk: Writer, thing: Enum, name: str) -> Tree:
    return {"$enum": [type(thing).__name__, thing.name]}


def read_enum(walk: Reader, fresh: Any, content: Tree, name: str) -> Any:
    called, member = content
    return find_class(fresh, called, name).__members__[member]


# Arrays and tensors


def is_array(thing: Any) -> bool:
    return type(thing) is np.ndarray and thing.dtype.kind in ARRAYS and thing.dtype.isnative


def read_array(walk: Reader, fresh: Any, content: Tree, name: str) -> np.ndarray:
    array = load_leaf(content, name)
    same = type(fresh) is np.ndarray and (fresh.shape, fresh.dtype) == (array.shape, array.dtype)
    if not same or not fresh.flags.writeable or not walk.may_fill(fresh):
        return walk.begin(np.array(array))
    np.copyto(fresh, array)
    return walk.begin(fresh)


def is_tensor(thing: Any) -> bool:
    return isinstance(thing, Tensor) and thing.layout is torch.strided and not thing.is_meta and thing.dtype in TENSORS


def write_tensor(walk: Writer, thing: Tensor, name: str) -> Tree:
    gradient = walk.write(thing.grad, f"{name}.grad") if thing.is_leaf else None
    return {"$tensor": [str(thing.device), thing.numpy(force=True), thing.requires_grad, gradient]}


def read_tensor(walk: Reader, fresh: Any, content: Tree, name: str) -> Tensor:
    device, leaf, trained, gradient = content
    tensor = torch.from_numpy(np.require(load_leaf(leaf, name), requirements=["C", "W"]))
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


def load_leaf(tree: Tree, name: str) -> np.ndarray:
    if not all(hasattr(tree, part) for part in ("dtype", "shape", "__array__")):
        raise Misfit(f"{name} is {describe(tree)}, expected an array")
    array = np.asarray(tree)
    if array.dtype.kind not in ARRAYS:
        raise Misfit(f"{name} is an array of {array.dtype}")
    return array
