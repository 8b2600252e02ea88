"""What the checks of every slot have in common: how a component is built, tried, and told what it breaks."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ParamSpec

import dm_env
import numpy as np
import torch

from explore._config.discovery import check_class
from explore._config.parameters import SUPPLIED, parameters
from explore._config.tracebacks import find_line
from explore._state import Misfit, Tree, Unsavable, capture, restore
from explore._storage.checkpoints import Damaged
from explore._values.stack import HARMLESS
from explore.errors import RunFailed, UserError
from explore.interfaces import Spec
from explore.streams import global_generators
from explore.testing import toy

GIVEN = {
    "value": ("spec",), "uncertainty": ("spec",), "bonus": ("spec",), "environment": ("seed",),
    "agent": ("spec", "streams", "device"),
}  # fmt: skip
"""Slot -> what the core supplies to a constructor."""

KINDS = {"integers": toy.CELLS, "floats": toy.FLOATS}
"""Of observations."""

LANES_APART = "let no mean, norm, sort or sum run over the first axis, which is that of the seeds"


Parameters = ParamSpec("Parameters")


class Nonconformance(AssertionError):
    """A component breaks a promise of its slot: what is wrong, and what to do."""


@dataclass(frozen=True)
class Options:
    """How a component is tried; the second argument of a check, so that no parameter's name is taken.

    `observations` are those it takes: "integers" (one-hot), "floats", or observation specs. `agent` holds
    parameters of `agent.Indexed`, by gin's names, for what a component needs beside it. `environments` are
    for agents: classes, or partials of them, of which at least one must be accepted.
    """

    observations: Sequence[str | dm_env.specs.Array] = ("integers", "floats")
    agent: dict[str, Any] = field(default_factory=dict)
    environments: Sequence[Callable[..., dm_env.Environment]] = ()

    def __post_init__(self) -> None:
        if not self.observations or any(isinstance(one, str) and one not in KINDS for one in self.observations):
            raise ValueError(f"observations must be some of {join_names(KINDS)} or specs, got {self.observations!r}")

    def specs(self) -> list[Spec]:
        """What a network gets to know of environments with these observations."""
        return [KINDS[one] if isinstance(one, str) else Spec(one, toy.ACTIONS) for one in self.observations]


STANDARD = Options()


class Subject:
    """A component that is tried: its name, what builds it as gin would, and how it is told what is wrong."""

    def __init__(self, slot: str, cls: Any, bound: Mapping[str, Any]):
        given = functools.partial(cls, **bound)  # which flattens partials
        self.slot = slot
        self.cls: Any = given.func
        self.name = getattr(self.cls, "__name__", repr(cls))
        self.build = given
        try:
            check_class(self.cls, slot)
        except UserError as error:
            raise Nonconformance(str(error)) from None
        self._check_constructor(given.keywords)

    def _check_constructor(self, bound: Mapping[str, Any]) -> None:
        supplied, known = GIVEN.get(self.slot, ()), parameters(self.cls)
        arguments = list(inspect.signature(self.cls).parameters)
        taken = [name for name in arguments if name in SUPPLIED]
        self.require(
            tuple(taken) == supplied == tuple(arguments[: len(supplied)]),
            f"takes {join_names(taken)} from the core, which supplies {join_names(supplied)} to such components",
            f"its constructor must take {join_names(supplied)} before its own parameters" if supplied else "drop them",
        )
        for name in bound:
            self.require(name in known, f"has no parameter {name!r}", f"it has {join_names(list(known))}")
        missing = [name for name, one in known.items() if one.required and name not in bound]
        example = ", ".join(f"{name}=..." for name in missing)
        self.require(
            not missing, f"needs a value for {join_names(missing)}", f"call check_{self.slot}({self.name}, {example})"
        )

    def require(self, ok: bool, wrong: str, remedy: str) -> None:
        """Raises `Nonconformance` unless the promise is kept."""
        if not ok:
            raise Nonconformance(f"{self.name} {wrong}: {remedy}")

    @contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """Reports what is raised inside as a failure of the component."""
        try:
            yield
        except Nonconformance:
            raise
        except (ValueError, UserError, RunFailed, Unsavable, Misfit, Damaged) as error:
            message = str(error).strip().splitlines()[0]
            if self.name in message:  # the core's own sentence: what matters is what has led to it, if anything
                raise Nonconformance(message) from error.__cause__
            raise Nonconformance(f"{self.name}, {what}: {message}") from error
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            where = find_line(error, inspect.getfile(self.cls))
            raise Nonconformance(f"{self.name} fails {what}{where}: {reason}") from error


@contextmanager
def try_component(slot: str, cls: Any, bound: Mapping[str, Any]) -> Iterator[Subject]:
    """Tries a component with one thread, as in a run, and checks that it leaves the global generators alone."""
    toy.components()  # importing them all may draw from a global generator
    subject = Subject(slot, cls, bound)
    threads, before = torch.get_num_threads(), capture(global_generators(), "generators")
    torch.set_num_threads(1)
    try:
        with subject.attempt("as the core uses it"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", HARMLESS)  # again, as pytest has filters of its own
            yield subject
    finally:
        torch.set_num_threads(threads)
        after = capture(global_generators(), "generators")
        used = [name for name, state in after.items() if difference(state, before[name])]
        restore(global_generators(), before, "generators")
        # Also if something else went wrong: global random numbers are the most likely cause.
        subject.require(
            not used or slot == "launcher",  # which is no part of a run
            f"draws from the global generator of {join_names(used)}, which ties seeds together",
            "take random numbers from np.random.default_rng(seed), with the seed it is built with"
            if slot == "environment"
            else "take random numbers from what the core passes (generators, streams, seed) with explore.streams, "
            "and those of initial weights from explore.nn",
        )


def shorten_traceback(check: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Leaves this package out of the traceback of a check, which then ends where the component failed."""

    @functools.wraps(check)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        __tracebackhide__ = True  # heeded by pytest
        try:
            return check(*args, **kwargs)
        except Nonconformance as error:
            complaint = error
        raise complaint.with_traceback(None) from complaint.__cause__

    return checked


def difference(one: Tree, other: Tree, path: str = "") -> str:
    """The path to where two states first differ, to the bit; "" if they do not."""
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return path or "their keys"
        below = [(one[key], other[key], path if key.startswith("$") else f"{path}.{key}".strip(".")) for key in one]
    elif isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return path or "their lengths"
        below = [(entry, other[number], f"{path}[{number}]") for number, entry in enumerate(one)]
    else:
        return "" if _bits(one) == _bits(other) else path or "their values"
    return next(filter(None, (difference(*three) for three in below)), "")


def _bits(leaf: Any) -> Any:
    if hasattr(leaf, "__array__"):
        array = np.asarray(leaf)
        return array.dtype.str, array.shape, array.tobytes()
    return type(leaf), repr(leaf)  # which tells -0.0 from 0.0, and NaN from nothing


def join_names(names: Iterable[Any]) -> str:
    return ", ".join(map(str, names)) or "nothing"
