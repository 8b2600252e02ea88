"""The state of random generators: numpy's, Python's and torch's."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from explore._state.tree import MISSING, Misfit, Tree, describe

if TYPE_CHECKING:
    from explore._state.walk import Reader, Writer

LIMITS = {"pos": 624, "buffer_pos": 4, "children": 1_000_000}
"""The highest of numbers that numpy does not check before it uses them."""


class Access(NamedTuple):
    """How a generator is made where there is none, and how its state is read and set, in plain data and arrays."""

    kind: type
    make: Callable[[], Any]
    get_state: Callable[[Any], Any]
    set_state: Callable[[Any, Any], None]


def _get_numpys(generator: np.random.Generator) -> dict[str, Any]:
    bits: Any = generator.bit_generator
    return {**bits.state, "children": bits.seed_seq.n_children_spawned}


def _set_numpys(generator: np.random.Generator, state: dict[str, Any]) -> None:
    bits: Any = generator.bit_generator
    bits.seed_seq.spawn(state["children"] - bits.seed_seq.n_children_spawned)  # which may be below 0
    bits.state = {key: value for key, value in state.items() if key != "children"}


# fmt: off
ACCESS = {
    "Generator": Access(np.random.Generator, np.random.default_rng, _get_numpys, _set_numpys),
    "RandomState": Access(np.random.RandomState, np.random.RandomState,
                          lambda g: g.get_state(legacy=False), lambda g, state: g.set_state(state)),
    "Random": Access(random.Random, random.Random, random.Random.getstate, random.Random.setstate),
    "torch.Generator": Access(torch.Generator, torch.Generator,
                              lambda g: g.get_state().numpy(), lambda g, state: g.set_state(torch.from_numpy(state))),
}
# fmt: on
NAMES = {access.kind: name for name, access in ACCESS.items()}


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
    if _form(state) != _form(access.get_state(fresh)) or not _is_within_limits(state):
        raise Misfit(f"{name} is not the state of a {called} like this one")
    access.set_state(fresh, state)
    return walk.begin(fresh)


def _form(state: Any) -> Any:
    """What the states of a generator have in common; numpy would take others."""
    if isinstance(state, dict):
        return {key: _form(entry) for key, entry in state.items()}
    if isinstance(state, tuple):
        return [*map(_form, state)]
    if isinstance(state, np.ndarray):
        return state.dtype, state.shape
    return state if isinstance(state, str) else float if state is None else type(state)  # the other of two normals


def _is_within_limits(state: Any) -> bool:
    numbers = {**state, **state["state"]} if isinstance(state, dict) else {}
    return all(0 <= numbers.get(key, 0) <= highest for key, highest in LIMITS.items())
