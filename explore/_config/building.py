"""Builds components through gin, and remembers what was made and what was being made when something failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gin

_registered: dict[str, type] = {}
"""What was registered with gin last, by gin's name for it."""


def register(classes: Mapping[str, tuple[str, Any]]) -> dict[tuple[str, str], Any]:
    """Makes these classes, each under gin's name for it and with ours, all that gin can build.

    Returns a dict that will hold the latest object of each, by (scope, name).
    """
    gin.clear_config()
    for selector, stand_in in _registered.items():  # gin can only add; a name may now mean another class
        gin.config._REGISTRY.pop(selector)
        gin.config._INVERSE_REGISTRY.pop(stand_in)
    _registered.clear()
    made: dict[tuple[str, str], Any] = {}
    for selector, (name, cls) in classes.items():
        module, _, last = selector.rpartition(".")
        _registered[selector] = _make_stand_in(cls, name, made)
        gin.register(last, module=module)(_registered[selector])
    return made


def _make_stand_in(cls: type, name: str, made: dict[tuple[str, str], Any]) -> type:
    """A subclass that makes objects of `cls` and keeps the latest; an exception gets the attribute `making`."""

    def make(stand_in: type, *args: Any, **kwargs: Any) -> Any:
        place = gin.current_scope_str(), name
        try:
            made[place] = cls(*args, **kwargs)
        except Exception as error:
            if not hasattr(error, "making"):  # the innermost counts
                error.making = place  # type: ignore[attr-defined]
            raise
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
