"""Trees, and what is said of things that make none and of trees that do not fit."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import dm_env
import numpy as np

Tree = Any
"""None, bool, int, finite float, str, list[Tree], dict[str, Tree], or an array."""

LIVE = ("$object", "$state", "$fixed", "$tuple", "$sequence", "$dict")
"""Tags of what takes its class from the fresh object in its place; their content begins with the class's name."""
KNOWN = {cls.__name__: cls for cls in (tuple, dm_env.TimeStep, list, set, dict, OrderedDict, Counter)}
"""Classes that need not be found on the fresh object."""
MISSING: Any = object()  # stands for what the fresh object does not have
MALFORMED = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
ADVICE = "; give the object that holds it state_dict and load_state_dict"


class Unsavable(Exception):
    """A thing has state that cannot be saved; says which, and what to do."""


class Misfit(Exception):
    """A tree does not fit the thing it is put on. One line, whatever it quotes of a stranger's tree."""

    def __init__(self, message: str):
        super().__init__("".join(letter if letter.isprintable() else "?" for letter in message[:500]))


def find_class(fresh: Any, called: str, name: str) -> Any:
    """The class of this name: the fresh thing's own or one that is known. No other is ever looked for."""
    if type(fresh).__name__ == called:
        return type(fresh)
    if called not in KNOWN:
        raise Misfit(f"{name} holds a {called} that a newly built one does not have{ADVICE}")
    return KNOWN[called]


def skeleton(state: Mapping[str, Tree]) -> dict[str, dict[str, str]]:
    """What is left of some trees without data: the classes of objects, by tree and place."""
    return {name: dict(_list_classes(tree, name)) for name, tree in state.items()}


def check_fits(tree: Tree, fresh: Mapping[str, str], name: str) -> None:
    """Raises `Unsavable` if a tree could not be put back on what has this skeleton when it is newly built."""
    for place, called in _list_classes(tree, name):
        if (there := fresh.get(place)) != called:
            raise Unsavable(
                f"{_shorten(place)} holds a {called} where a newly built one has {f'a {there}' if there else 'none'}, "
                "so it could not be put back; give whatever holds it state_dict and load_state_dict"
            )


def check_data(tree: Tree, name: str) -> None:
    """Raises `Unsavable` if a tree needs any object to be put back on."""
    for place, called in _list_classes(tree, name):
        raise Unsavable(f"{_shorten(place)} holds a {called}, which is not plain data and cannot be saved")


def _list_classes(tree: Tree, place: str) -> Iterator[tuple[str, str]]:
    """The classes that must be found on the fresh object, each with its place."""
    for key, entry in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        if key in LIVE and entry[0] not in KNOWN:
            yield place, entry[0]
        yield from _list_classes(entry, f"{place}.{key}")


def _shorten(place: str) -> str:
    return re.sub(r"\.\$\w+(\.\d+)?", "", place)


def describe(thing: Any) -> str:
    """For messages: "a list", "an array of object", "nothing"."""
    if thing is None or thing is MISSING:
        return "nothing"
    kind = f"array of {thing.dtype}" if type(thing) is np.ndarray else type(thing).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


def refuse(thing: Any, name: str) -> Unsavable:
    return Unsavable(f"{name} is {describe(thing)}, which cannot be saved{ADVICE}")


def in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
