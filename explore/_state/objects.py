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
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from dm_env import specs
from torch import Tensor, nn

from explore._state.tree import ADVICE, MALFORMED, MISSING, Misfit, Tree, check_data, describe, in_one_line, refuse

if TYPE_CHECKING:
    from explore._state.walk import Reader, Writer

CONSTANTS = (Enum, range, bytes, complex, torch.Size)
FIXED = (
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType),
    *(types.WrapperDescriptorType, types.MethodDescriptorType, types.ModuleType, types.EllipsisType, type),
    *(functools.partial, type(functools.cache(len)), np.ufunc, np.dtype, torch.dtype, torch.device),
    *(specs.Array, re.Pattern, logging.Logger, PurePath, *CONSTANTS),
)
"""What the configuration fixes: it is not saved, and the fresh one is left as it is."""

PARTS = {"_parameters": nn.Parameter, "_buffers": Tensor, "_modules": nn.Module}
"""Attributes of a torch module, and what they hold."""
TORCHS_OWN = frozenset(vars(nn.Module())) - {"training", *PARTS}


# What the configuration fixes


def is_fixed(cls: type) -> bool:
    return issubclass(cls, FIXED)


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
    return repr(thing) if isinstance(thing, CONSTANTS) else str(getattr(thing, "__qualname__", type(thing).__name__))


# What saves itself


def saves_itself(cls: type) -> bool:
    # Asked of the class, as a wrapper that passes on all it does not know would answer with the wrapped one's.
    methods = [getattr(cls, method, None) for method in ("state_dict", "load_state_dict")]
    return all(map(callable, methods)) and methods != [nn.Module.state_dict, nn.Module.load_state_dict]


def write_state(walk: Writer, thing: Any, name: str) -> Tree:
    tree = walk.write_data(thing.state_dict(), f"{name}.state_dict()")
    check_data(tree, f"{name}.state_dict()")
    return {"$state": [type(thing).__name__, tree]}


def read_state(walk: Reader, fresh: Any, content: Tree, name: str) -> Any:
    called, tree = content
    _check_there(walk, fresh, called, name, saves_itself)
    walk.begin(fresh)
    state = walk.read_data(tree, f"{name}.state_dict()")
    try:
        fresh.load_state_dict(state)
    except MALFORMED as error:
        raise Misfit(f"{name} does not load its state: {in_one_line(error)}") from error
    return fresh


# What is made of attributes


def is_object(cls: type) -> bool:
    """Whether it is made of attributes alone: an extension's class, which may keep more, has a `__new__` of its own."""
    return "__dict__" in dir(cls) and not any(
        isinstance(vars(base).get("__new__"), types.BuiltinFunctionType) for base in cls.__mro__[:-1]
    )


def write_object(walk: Writer, thing: Any, name: str) -> Tree:
    if isinstance(object.__getstate__(thing), tuple):
        raise refuse(thing, name)
    trees = {key: walk.write(value, f"{name}.{key}") for key, value in list_attributes(thing).items()}
    return {"$object": [type(thing).__name__, trees]}


def read_object(walk: Reader, fresh: Any, content: Tree, name: str) -> Any:
    called, trees = content
    frozen = dataclasses.is_dataclass(fresh) and type(fresh).__dataclass_params__.frozen  # type: ignore[union-attr]
    _check_there(walk, fresh, called, name, is_object, claim=not frozen)
    # A frozen one may be a constant of a whole module: its place gets another one.
    target = walk.begin(object.__new__(type(fresh)) if frozen else fresh)
    before, walk.is_constant = walk.is_constant, frozen
    old = list_attributes(fresh)
    parts = {part: [*old[part]] for part in PARTS} if isinstance(fresh, nn.Module) else {}
    for key, tree in trees.items():
        if key not in old and not _can_be_added(fresh, key):
            raise Misfit(f"{name}.{key} cannot be an attribute of a {called}")
        vars(target)[key] = walk.read(old.get(key, MISSING), tree, f"{name}.{key}")
    for key in list_attributes(target).keys() - trees.keys():
        del vars(target)[key]
    walk.is_constant = before
    for part, keys in parts.items():
        now = vars(fresh)[part]
        if [*now] != keys or not all(value is None or isinstance(value, PARTS[part]) for value in now.values()):
            raise Misfit(f"{name}.{part} has {[*now]}, expected {keys}, each a {PARTS[part].__name__}")
    return target


def list_attributes(thing: Any) -> dict[str, Any]:
    return {key: value for key, value in vars(thing).items() if not _is_hidden(thing, key)}


def _can_be_added(thing: Any, name: str) -> bool:
    """Whether a tree may give it an attribute: none that changes what the object does."""
    of_class = inspect.getattr_static(type(thing), name, None)
    does = callable(of_class) or isinstance(of_class, classmethod) or hasattr(of_class, "__set__")
    return not (does or _is_hidden(thing, name))


def _is_hidden(thing: Any, name: str) -> bool:
    own = isinstance(thing, nn.Module) and name in TORCHS_OWN
    return own or (name.startswith("__") and name.endswith("__"))


def _check_there(walk: Reader, fresh: Any, called: str, name: str, fits: Any, claim: bool = True) -> None:
    if fresh is MISSING or fresh is None:
        raise Misfit(f"{name} holds a {called} that a newly built one does not have{ADVICE}")
    if type(fresh).__name__ != called or not fits(type(fresh)):
        raise Misfit(f"{name} is a {called}, expected {describe(fresh)}")
    if claim and not walk.claim(fresh):
        raise Misfit(f"{name} is a {called} of its own, but a newly built one has it in two places")
