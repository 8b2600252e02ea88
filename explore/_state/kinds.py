"""What kind of thing it is: asked of what is captured, and of the fresh thing that a tree is put on."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import random
import re
import types
from collections import Counter, OrderedDict, defaultdict, deque
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
ARRAYS = "biufcU"  # the kinds of numpy's dtypes that are saved

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
"""What the configuration fixes: it is not saved, and the fresh one is left as it is."""

CONTAINERS = (list, tuple, dict, set, frozenset, deque)
PLAIN = (bool, int, float, complex, str, bytes, range, Enum, np.generic, np.ndarray, Tensor, *CONTAINERS)
"""Data, which can be made anew where the fresh object has none."""

KNOWN: dict[str, type] = {"TimeStep": dm_env.TimeStep, "StepType": dm_env.StepType}
MAPPINGS: dict[str, type] = {"OrderedDict": OrderedDict, "Counter": Counter, "defaultdict": defaultdict}
NUMBERS = "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128 bfloat16"
TENSORS: dict[str, torch.dtype] = {name: getattr(torch, name) for name in NUMBERS.split()}
GENERATORS = (np.random.RandomState, np.random.Generator, np.random.BitGenerator, torch.Generator)

TORCHS_OWN = frozenset(vars(nn.Module())) - {"training"}
HEAP_TYPE = 1 << 9  # in a class's flags: made by a class statement, or by an extension that imitates one
POINTER = np.dtype(np.intp).itemsize


class Unsavable(Exception):
    """A thing has state that cannot be saved; says which, and what to do."""


class Misfit(Exception):
    """A tree does not fit the thing it is put on. One line, whatever it quotes of a stranger's tree."""

    def __init__(self, message: str):
        super().__init__("".join(letter if letter.isprintable() else "?" for letter in message[:500]))


class _Missing:
    """Stands for what the fresh object does not have."""


MISSING = _Missing()


def live_tag(thing: Any) -> str | None:
    """The tag of what is not plain data and can only be filled, never made anew (but for generators)."""
    if isinstance(thing, GENERATORS) or type(thing) is random.Random:
        return "$generator"
    if isinstance(thing, (Enum, Tensor, *FIXED)):
        return None
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


def fixed_name(thing: Any) -> str | None:
    """What a fixed thing is called: one that has another name by now has changed after all."""
    if not isinstance(thing, (*FIXED, nn.Parameter)):
        return None
    if isinstance(thing, functools.partial):
        return f"partial of {fixed_name(thing.func)}"
    return str(getattr(thing, "__qualname__", type(thing).__name__))


def is_frozen(thing: Any) -> bool:
    return dataclasses.is_dataclass(thing) and type(thing).__dataclass_params__.frozen  # type: ignore[union-attr]


def attributes(thing: Any) -> dict[str, Any]:
    """What its dict and its slots hold, without asking its class, which may answer something else."""
    found = dict(_own_dict(thing) or {})
    for name, slot in _slots(type(thing)).items():
        try:
            found[name] = slot.__get__(thing)
        except AttributeError:
            continue
    hidden = TORCHS_OWN if isinstance(thing, nn.Module) else frozenset()
    return {name: value for name, value in found.items() if not _is_dunder(name) and name not in hidden}


def set_attribute(thing: Any, name: str, value: Any) -> None:
    if name in (slots := _slots(type(thing))):
        slots[name].__set__(thing, value)
    else:
        _own_dict(thing)[name] = value  # type: ignore[index]


def delete_attribute(thing: Any, name: str) -> None:
    if name in (slots := _slots(type(thing))):
        slots[name].__delete__(thing)
    else:
        del _own_dict(thing)[name]  # type: ignore[union-attr]


def can_be_added(thing: Any, name: str) -> bool:
    """Whether a tree may give it an attribute: none that changes what the object does."""
    of_class = inspect.getattr_static(type(thing), name, None)
    shadows = callable(of_class) or isinstance(of_class, classmethod)
    torchs = isinstance(thing, nn.Module) and name in TORCHS_OWN
    homeless = _own_dict(thing) is None and name not in _slots(type(thing))
    return not (_is_dunder(name) or shadows or torchs or homeless)


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


def describe(thing: Any) -> str:
    """For messages: "a list", "an array of object", "nothing"."""
    if thing is None or thing is MISSING:
        return "nothing"
    kind = f"array of {thing.dtype}" if type(thing) is np.ndarray else type(thing).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"
