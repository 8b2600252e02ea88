"""Objects: their attributes, what `state_dict` gives, and what the configuration fixes.

Only ever the fresh ones: of an object, a tree can change no more than the attributes.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import re
import types
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from dm_env import specs
from torch import Tensor, nn

from explore._state.walk import ADVICE, MALFORMED, MISSING, Misfit, Reader, Tree, Writer, describe, in_one_line

FIXED = (
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType),
    *(types.WrapperDescriptorType, types.MethodDescriptorType, types.ModuleType, types.EllipsisType, type),
    *(functools.partial, type(functools.cache(len)), np.ufunc, np.dtype, torch.dtype, torch.device),
    *(specs.Array, re.Pattern, logging.Logger, PurePath),
)
"""What the configuration fixes: it is not saved, and the fresh one is left as it is."""

PARTS = {"_parameters": nn.Parameter, "_buffers": Tensor, "_modules": nn.Module}
"""Attributes of a torch module, and what they hold."""
TORCHS_OWN = frozenset(vars(nn.Module())) - {"training", *PARTS}
HEAP_TYPE, NOT_CALLABLE = 1 << 9, 1 << 7  # flags of a class: made by a class statement or like one; without `__new__`


# What the configuration fixes


def is_fixed(thing: Any) -> bool:
    return isinstance(thing, FIXED)


def write_fixed(walk: Writer, thing: Any, name: str) -> Tree:
    return {"$fixed": [name_fixed(thing)]}


def read_fixed(walk: Reader, fresh: Any, content: Tree, name: str) -> Any:
    (called,) = content
    if not isinstance(fresh, (*FIXED, nn.Parameter)):
        raise Misfit(f"{name} holds a {called} that a newly built one does not have{ADVICE}")
    if (there := name_fixed(fresh)) != called:
        raise Misfit(f"{name} is {called}, where a newly built one has {there}{ADVICE}")
    return fresh


def name_fixed(thing: Any) -> str:
    """What a fixed thing is called: one that has another name by now has changed after all."""
    if isinstance(thing, functools.partial):
        return f"partial of {name_fixed(thing.func)}"
    return str(getattr(thing, "__qualname__", type(thing).__name__))


# What saves itself


def saves_itself(thing: Any) -> bool:
    # Asked of the class, as a wrapper that passes on all it does not know would answer with the wrapped one's.
    methods = [getattr(type(thing), method, None) for method in ("state_dict", "load_state_dict")]
    return all(map(callable, methods)) and methods != [nn.Module.state_dict, nn.Module.load_state_dict]


def write_state(walk: Writer, thing: Any, name: str) -> Tree:
    return {"$state": [type(thing).__name__, walk.write_data(thing.state_dict(), f"{name}.state_dict()")]}


def read_state(walk: Reader, fresh: Any, content: Tree, name: str) -> Any:
    called, tree = content
    _check_live(walk, fresh, "$state", called, name)
    walk.begin(fresh)
    state = walk.read_data(tree, f"{name}.state_dict()")
    try:
        fresh.load_state_dict(state)
    except MALFORMED as error:
        raise Misfit(f"{name} does not load its state: {in_one_line(error)}") from error
    return fresh


# What is made of attributes


def is_object(thing: Any) -> bool:
    """Whether its class and all below it are written in Python: an extension's may keep more where nobody sees it."""
    return not isinstance(thing, Tensor) and all(
        cls.__flags__ & (HEAP_TYPE | NOT_CALLABLE) == HEAP_TYPE
        and not isinstance(vars(cls).get("__new__"), types.BuiltinFunctionType)
        for cls in type(thing).__mro__
        if cls not in (object, types.SimpleNamespace)
    )


def write_object(walk: Writer, thing: Any, name: str) -> Tree:
    trees = {key: walk.write(value, f"{name}.{key}") for key, value in list_attributes(thing).items()}
    return {"$object": [type(thing).__name__, trees]}


def read_object(walk: Reader, fresh: Any, content: Tree, name: str) -> Any:
    called, trees = content
    frozen = dataclasses.is_dataclass(fresh) and type(fresh).__dataclass_params__.frozen  # type: ignore[union-attr]
    _check_live(walk, fresh, "$object", called, name, claim=not frozen)
    # A frozen one may be a constant of a whole module: its place gets another one.
    target = walk.begin(object.__new__(type(fresh)) if frozen else fresh)
    before, walk.is_constant = walk.is_constant, frozen
    old = list_attributes(fresh)
    parts = {part: [*old[part]] for part in PARTS} if isinstance(fresh, nn.Module) else {}
    for key, tree in trees.items():
        if key not in old and not _can_be_added(target, key):
            raise Misfit(f"{name}.{key} cannot be an attribute of a {called}")
        object.__setattr__(target, key, walk.read(old.get(key, MISSING), tree, f"{name}.{key}"))
    for key in list_attributes(target).keys() - trees.keys():
        object.__delattr__(target, key)
    for part, keys in parts.items():
        _check_part(vars(target)[part], keys, PARTS[part], f"{name}.{part}")
    walk.is_constant = before
    return target


def list_attributes(thing: Any) -> dict[str, Any]:
    """What its dict and its slots hold, without asking its class, which may answer something else."""
    state = object.__getstate__(thing)
    own, slots = state if isinstance(state, tuple) else (state, None)
    hidden = TORCHS_OWN if isinstance(thing, nn.Module) else frozenset()
    return {key: value for key, value in {**(own or {}), **(slots or {})}.items() if not _is_hidden(key, hidden)}


def _is_hidden(name: str, hidden: frozenset[str]) -> bool:
    return name in hidden or (name.startswith("__") and name.endswith("__"))


def _can_be_added(thing: Any, name: str) -> bool:
    """Whether a tree may give it an attribute: none that changes what the object does."""
    of_class = inspect.getattr_static(type(thing), name, None)
    if isinstance(of_class, types.MemberDescriptorType):
        return True  # an empty slot
    does = callable(of_class) or isinstance(of_class, classmethod) or hasattr(of_class, "__set__")
    return not (does or _is_hidden(name, TORCHS_OWN if isinstance(thing, nn.Module) else frozenset()))


def _check_part(part: dict[str, Any], keys: list[str], kind: type, name: str) -> None:
    """Raises `Misfit` unless a module has the parameters, buffers or children that it was built with."""
    if [*part] != keys:
        raise Misfit(f"{name} has {[*part]}, expected {keys}")
    for key, value in part.items():
        if value is not None and not isinstance(value, kind):
            raise Misfit(f"{name}[{key!r}] is {describe(value)}, expected a {kind.__name__}")


def _check_live(walk: Reader, fresh: Any, tag: str, called: str, name: str, claim: bool = True) -> None:
    if fresh is MISSING or fresh is None:
        raise Misfit(f"{name} holds a {called} that a newly built one does not have{ADVICE}")
    kind = walk.kinds.find(fresh)
    if type(fresh).__name__ != called or kind is None or kind.tag != tag:
        raise Misfit(f"{name} is a {called}, expected {describe(fresh)}")
    if claim and not walk.claim(fresh):
        raise Misfit(f"{name} is a {called} of its own, but a newly built one has it in two places")
