"""For which lanes networks are being built, and what executes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from explore.streams import stream

Lanes = tuple[Sequence[np.random.Generator], str | None]

_current: ContextVar[Lanes | None] = ContextVar("lanes", default=None)
_pads: ContextVar[bool] = ContextVar("rows are added", default=True)
_outside: Lanes = ([stream(0, "outside a run")], None)  # a single lane


@contextmanager
def lanes(generators: Sequence[np.random.Generator], init: str | None = None) -> Iterator[None]:
    """Networks built inside have one lane per generator; `init` replaces their own initialiser."""
    token = _current.set((generators, init))
    try:
        yield
    finally:
        _current.reset(token)


def current_lanes() -> Lanes:
    """The generators of the lanes, and the initialiser that replaces that of networks."""
    return _current.get() or _outside


def generators() -> Sequence[np.random.Generator]:
    """The generators of the lanes that networks are being built for, for what `explore.streams` draws."""
    return current_lanes()[0]


@contextmanager
def without_padding() -> Iterator[None]:
    """Inside, networks add no rows to batches, as kernels need none to treat all lanes alike."""
    token = _pads.set(False)
    try:
        yield
    finally:
        _pads.reset(token)


def pads() -> bool:
    """Whether batches are filled up with rows that make PyTorch treat all lanes alike."""
    return _pads.get()
