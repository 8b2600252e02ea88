"""What gin can set of a component: its parameters with their types, defaults and documentation."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from explore.interfaces import SLOTS, Agent

SUPPLIED = ("spec", "streams", "seed", "device")  # a component gets these from the core, not from gin
AGENT_SLOTS = {slot: slot for slot in SLOTS} | dict.fromkeys(("acting", "target", "evaluation"), "selection")
"""What the parameters of agents and of the experiment take, where they have no annotation."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a component that gin can set."""

    name: str
    annotation: str
    default: Any
    documentation: str
    classes: tuple[type, ...]  # a component must be a subclass of one of these
    literals: bool  # whether anything else than components and None may be bound

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


def parameters(target: Callable[..., Any]) -> dict[str, Parameter]:
    """The parameters of a component (or of the experiment) by name, without what the core supplies."""
    function, cls = (target.__init__, target) if isinstance(target, type) else (target, object)  # type: ignore[misc]
    is_component = issubclass(cls, tuple(base for _, base in SLOTS.values()))
    skipped = ("self", *SUPPLIED) if is_component else ("self",)
    slots = {"greedy": "selection"} if is_component and not issubclass(cls, Agent) else AGENT_SLOTS
    try:
        hints = typing.get_type_hints(function)
    except NameError:  # names that are imported for type checkers only
        hints = {}
    documentation = _argument_docs(inspect.getdoc(target) or "")
    found = {}
    for name, argument in inspect.signature(function).parameters.items():
        if name in skipped or argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            continue
        annotation = "" if argument.annotation is argument.empty else argument.annotation
        text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        text = text.replace("collections.abc.", "").replace("explore.interfaces.", "")
        hint = hints.get(name, type[SLOTS[slots[name]][1]] if name in slots else Any)
        found[name] = Parameter(name, text, argument.default, documentation.get(name, ""), *_expected(hint))
    return found


def _expected(hint: Any) -> tuple[tuple[type, ...], bool]:
    """The X of every `type[X]` in a type hint, and whether it admits other values than components."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is type and isinstance(arguments[0], type):
        return (arguments[0],), False
    if hint in (type(None), ...):
        return (), False
    parts = [_expected(argument) for argument in arguments]
    classes = tuple(dict.fromkeys(cls for part, _ in parts for cls in part))
    return classes, not classes or any(literals for _, literals in parts)


def _argument_docs(docstring: str) -> dict[str, str]:
    """The block `Args:` of a docstring: name -> text."""
    block = re.search(r"^Args:\n((?:[ ]+.*\n?|\n)+)", docstring, re.MULTILINE)
    found: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc(block[1]).splitlines() if block else ():
        start = re.match(r"(\w+):\s*(.*)", line)
        if start:
            name, line = start.groups()
        found[name] = f"{found.get(name, '')} {line.strip()}".strip()
    return found
