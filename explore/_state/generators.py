"""The state of random generators: numpy's, Python's and torch's."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from explore._state.walk import MISSING, Misfit, Reader, Tree, Writer, describe

LIMITS = {"pos": 624, "buffer_pos": 4, "has_uint32": 1, "has_gauss": 1, "children": 1_000_000}
"""The highest of numbers that numpy does not check before it uses them."""


class Access(NamedTuple):
    """How a state is read and written, in plain data and arrays; and how a generator is made where there is none."""

    kind: type
    make: Callable[[], Any]
    get_state: Callable[[Any], Any]
    set_state: Callable[[Any, Any], None]


def _get_numpys(generator: np.random.Generator) -> dict[str, Any]:
    bits = generator.bit_generator
    return {**bits.state, "children": bits.seed_seq.n_children_spawned}  # type: ignore[attr-defined]


def _set_numpys(generator: np.random.Generator, state: dict[str, Any]) -> None:
    bits = generator.bit_generator
    bits.state = {key: value for key, value in state.items() if key != "children"}
    more = state["children"] - bits.seed_seq.n_children_spawned  # type: ignore[attr-defined]
    if more < 0:
        raise ValueError(f"it cannot have {state['children']} children")
    bits.seed_seq.spawn(more)  # type: ignore[attr-defined]


def _get_pythons(generator: random.Random) -> dict[str, Any]:
    version, words, gauss = generator.getstate()  # gauss: the other of a pair of normal numbers, or None
    return {"version": version, "words": np.array(words, np.int64), "gauss": math.nan if gauss is None else gauss}


def _set_pythons(generator: random.Random, state: dict[str, Any]) -> None:
    gauss = None if math.isnan(state["gauss"]) else state["gauss"]
    generator.setstate((state["version"], tuple(state["words"].tolist()), gauss))


ACCESS = {
    "Generator": Access(np.random.Generator, np.random.default_rng, _get_numpys, _set_numpys),
    "RandomState": Access(
        np.random.RandomState, np.random.RandomState, lambda g: g.get_state(legacy=False), lambda g, s: g.set_state(s)
    ),
    "Random": Access(random.Random, random.Random, _get_pythons, _set_pythons),
    "torch.Generator": Access(
        torch.Generator, torch.Generator, lambda g: g.get_state().numpy(), lambda g, s: g.set_state(torch.from_numpy(s))
    ),
}
NAMES = {access.kind: name for name, access in ACCESS.items()}


def is_generator(thing: Any) -> bool:
    return type(thing) in NAMES


def write_generator(walk: Writer, thing: Any, name: str) -> Tree:
    called = NAMES[type(thing)]
    return {"$generator": [called, walk.write_data(ACCESS[called].get_state(thing), name)]}


def read_generator(walk: Reader, fresh: Any, content: Tree, name: str) -> Any:
    called, tree = content
    access, state = ACCESS[called], walk.read_data(tree, name)
    if fresh is MISSING or fresh is None or not walk.claim(fresh):
        fresh = access.make()
    elif type(fresh) is not access.kind:
        raise Misfit(f"{name} is a {called}, expected {describe(fresh)}")
    _check_form(state, access.get_state(fresh), name)
    access.set_state(fresh, state)
    return walk.begin(fresh)


def _check_form(state: Any, own: Any, name: str) -> None:
    """Raises `Misfit` for a state of another form than the generator's own, which numpy would take."""
    if isinstance(own, dict) and isinstance(state, dict) and state.keys() == own.keys():
        for key in own:
            _check_form(state[key], own[key], f"{name}.{key}")
    elif isinstance(own, dict) or _form(state) != _form(own):
        raise Misfit(f"{name} is {_form(state)}, expected {_form(own)}")
    elif isinstance(own, int) and not 0 <= state <= LIMITS.get(name.rpartition(".")[2], 2**128 - 1):
        raise Misfit(f"{name} is {state}, which is not a state of this generator")


def _form(leaf: Any) -> str:
    if isinstance(leaf, np.ndarray):
        return f"an array of {leaf.dtype} of shape {leaf.shape}"
    if isinstance(leaf, dict):
        return f"a dict of {', '.join(map(str, leaf))}"
    return repr(leaf) if isinstance(leaf, str) else describe(leaf)  # such as the name of a bit generator
