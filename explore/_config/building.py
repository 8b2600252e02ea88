"""Builds components through gin, and remembers what was made and what was being made when something failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gin

_registered: dict[str, type] = {}
"""What was registered with gin last, by gin's name for it."""


Place = tuple[str, str]
"""The scope and the name of a component."""


def register(classes: Mapping[str, tuple[str, Any]]) -> tuple[dict[Place, Any], list[tuple[Place, Exception]]]:
    """Makes these classes, each under gin's name for it and with ours, all that gin can build.

    Returns what will hold the latest object of each, and the exceptions of what could not be made, innermost first.
    """
    gin.clear_config()
    for selector, stand_in in _registered.items():  # gin can only add; a name may now mean another class
        gin.config._REGISTRY.pop(selector)
        gin.config._INVERSE_REGISTRY.pop(stand_in)
    _registered.clear()
    made: dict[Place, Any] = {}
    failures: list[tuple[Place, Exception]] = []
    for selector, (name, cls) in classes.items():
        module, _, last = selector.rpartition(".")
        _registered[selector] = _make_stand_in(cls, name, made, failures)
        gin.register(last, module=module)(_registered[selector])
    return made, failures


def _make_stand_in(cls: type, name: str, made: dict[Place, Any], failures: list[tuple[Place, Exception]]) -> type:
    """A subclass that makes objects of `cls` and keeps the latest, or the exception: gin raises a copy of that."""

    def make(stand_in: type, *args: Any, **kwargs: Any) -> Any:
        place = gin.current_scope_str(), name
        try:
            made[place] = cls(*args, **kwargs)
        except Exception as error:
            failures.append((place, error))
            raise
        failures.clear()  # of parts that it did without
        return made[place]

    names = {key: getattr(cls, key) for key in ("__module__", "__name__", "__qualname__", "__doc__")}
    return type(type(cls).__name__, (type(cls),), {"__call__": make})(cls.__name__, (cls,), names)


def list_foreign() -> dict[str, Callable[..., Any]]:
    """What imported modules have registered with gin themselves; gin has no public list of it."""
    return {
        name: entry.wrapped
        for name, entry in gin.config._REGISTRY.items()
        if name not in _registered and not name.startswith("gin.")
    }
