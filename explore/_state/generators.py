"""The state of random generators: numpy's, Python's and torch's."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from explore._state.kinds import Misfit

BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
POSITIONS = {"pos": 624, "buffer_pos": 4, "has_uint32": 1, "has_gauss": 1}  # numpy does not look, and reads there


def state_of(generator: Any) -> Any:
    """In plain data and arrays."""
    read, _ = _access(generator)
    return read(generator)


def set_state(generator: Any, state: Any, name: str) -> None:
    """Raises `Misfit` for a state of another form than the generator's own."""
    read, write = _access(generator)
    _check_alike(state, read(generator), name)
    write(generator, state)


MOST_CHILDREN = 1_000_000


def new_generator(called: str, state: Any, name: str) -> Any:
    """One that can take the state, where there is none: these classes are known, whoever wrote the tree."""
    if called == "Generator":
        inside = state.get("bit_generator") if isinstance(state, dict) else None
        return np.random.Generator(getattr(np.random, inside)(0)) if inside in BIT_GENERATORS else torch.Generator()
    if called in ("RandomState", *BIT_GENERATORS):
        return getattr(np.random, called)(0)
    if called == "Random":
        return random.Random(0)
    raise Misfit(f"{name} is a generator of an unknown kind, {called!r}")


def _numpys(generator: np.random.BitGenerator) -> dict[str, Any]:
    return {**generator.state, "children": generator.seed_seq.n_children_spawned}  # type: ignore[attr-defined]


def _set_numpys(generator: np.random.BitGenerator, state: dict[str, Any]) -> None:
    generator.state = {key: value for key, value in state.items() if key != "children"}
    more = state["children"] - generator.seed_seq.n_children_spawned  # type: ignore[attr-defined]
    if not 0 <= more <= MOST_CHILDREN:
        raise ValueError(f"it cannot have {state['children']} children")
    generator.seed_seq.spawn(more)  # type: ignore[attr-defined]


def _pythons(generator: random.Random) -> dict[str, Any]:
    version, words, gauss = generator.getstate()
    return {"version": version, "words": np.array(words, np.int64), "gauss": gauss}


def _set_pythons(generator: random.Random, state: dict[str, Any]) -> None:
    generator.setstate((state["version"], tuple(state["words"].tolist()), state["gauss"]))


ACCESS: dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], None]]] = {
    np.random.RandomState: (lambda g: g.get_state(legacy=False), lambda g, state: g.set_state(state)),
    np.random.Generator: (lambda g: _numpys(g.bit_generator), lambda g, state: _set_numpys(g.bit_generator, state)),
    np.random.BitGenerator: (lambda g: _numpys(g), lambda g, state: _set_numpys(g, state)),
    torch.Generator: (lambda g: g.get_state().numpy(), lambda g, state: g.set_state(torch.from_numpy(state))),
    random.Random: (_pythons, _set_pythons),
}
"""How a state is read and written."""


def _access(generator: Any) -> tuple[Callable[[Any], Any], Callable[[Any, Any], None]]:
    return next(access for kind, access in ACCESS.items() if isinstance(generator, kind))


def _check_alike(state: Any, own: Any, name: str) -> None:
    kinds = {type(state), type(own)}
    if len(kinds) > 1 and kinds != {float, type(None)}:  # Python's may have half a pair of normal numbers left
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
