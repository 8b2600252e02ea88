"""What gin can set of a component: its parameters with their types, defaults and documentation."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from explore._config.gin_files import Reference
from explore.interfaces import BASE_CLASSES

ARGUMENTS = re.compile(r"^Args:\n((?:[ ]+.*\n?|\n)+)", re.MULTILINE)
"""The block of a docstring that describes parameters."""
SUPPLIED = ("spec", "streams", "seed", "device")  # a component gets these from the core, not from gin


@dataclass(frozen=True)
class Parameter:
    """A parameter of a component that gin can set."""

    name: str
    annotation: str
    default: Any
    documentation: str
    hint: Any  # its type, `Any` if it has none

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def classes(self) -> tuple[type, ...]:
        """What a component bound to it must be a subclass of one of."""
        return tuple(dict.fromkeys(_classes(self.hint)))

    def fits(self, value: Any) -> bool:
        """Whether a value is of the parameter's type, references to components being of any."""
        return (value is None and self.default is None) or _fits(value, self.hint)

    @property
    def kind(self) -> str:
        """Its type in words."""
        return _describe(self.hint)


def parameters(target: Callable[..., Any]) -> dict[str, Parameter]:
    """The parameters of a component (or of the experiment) by name, without what the core supplies."""
    function, cls = (target.__init__, target) if isinstance(target, type) else (target, object)  # type: ignore[misc]
    is_component = issubclass(cls, tuple(BASE_CLASSES.values()))
    skipped = ("self", *SUPPLIED) if is_component else ("self",)
    try:
        hints = typing.get_type_hints(function)
    except NameError:  # names that are imported for type checkers only
        hints = {}
    documentation: dict[str, str] = {}
    for owner in reversed(cls.__mro__) if isinstance(target, type) else [target]:
        documentation |= _argument_docs(inspect.cleandoc(owner.__doc__ or ""))
    found = {}
    for name, argument in inspect.signature(function).parameters.items():
        if name in skipped or argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            continue
        annotation = "" if argument.annotation is argument.empty else argument.annotation
        text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        text = re.sub(r"collections\.abc\.|explore\.interfaces\.(\w+\.)?", "", text)
        hint = hints.get(name, Any)
        found[name] = Parameter(name, text, argument.default, documentation.get(name, ""), hint)
    return found


def _classes(hint: Any) -> list[type]:
    """The X of every `type[X]` in a type hint."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is type:
        return [argument for argument in arguments if isinstance(argument, type)]
    return [cls for argument in arguments for cls in _classes(argument)]


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


KINDS: dict[Any, tuple[str, str, Callable[[Any], bool]]] = {
    int: ("an integer", "integers", _is_integer),
    float: ("a number", "numbers", lambda it: isinstance(it, float) or (_is_integer(it) and abs(it) < 2**1023)),
    bool: ("True or False", "True or False", lambda it: isinstance(it, bool)),
    str: ("a string in quotes", "strings in quotes", lambda it: isinstance(it, str)),
    types.NoneType: ("None", "None", lambda it: it is None),
}
"""Type -> what one is called, what several are called, and whether a value is one."""


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, argument) for argument in arguments)
    if isinstance(value, Reference):
        return origin is type or value.called or hint is Any
    if origin in (Sequence, list, tuple):
        return isinstance(value, list | tuple) and all(_fits(item, arguments[0]) for item in value)
    if hint in KINDS:
        return KINDS[hint][2](value)
    return origin is not type  # gin has no literals of other types


def _describe(hint: Any, many: bool = False) -> str:
    """A type in words."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_describe(argument, many) for argument in arguments)
    if origin in (Sequence, list, tuple):
        return f"a list of {_describe(arguments[0], many=True)}"
    return str(KINDS.get(hint, ("a component", "components"))[many])


def _argument_docs(docstring: str) -> dict[str, str]:
    """The block `Args:` of a docstring: name -> text."""
    block = ARGUMENTS.search(docstring)
    found: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc(block[1]).splitlines() if block else ():
        start = re.match(r"(\w+):\s*(.*)", line)
        if start:
            name, line = start.groups()
        found[name] = f"{found.get(name, '')} {line.strip()}".strip()
    return found
