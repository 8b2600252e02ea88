"""explore: name an agent's parts in a gin file, and train all seeds of it at once.

    import explore

    run = explore.run("gin/pins_deep_sea.gin", bindings=["environment.DeepSea.size = 20"], seeds=range(5))
    print(run.summary["overall"])
    agent = explore.load_agent(run.folder)

A plugin is a module with functions marked `@explore.hookimpl`; see `explore.hooks` for the hooks
and `explore.interfaces` for what a component of each slot must be.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from explore._messages import printable
from explore.hooks import hookimpl

if TYPE_CHECKING:
    from explore._running.run import load_agent, run
    from explore._storage.run_folder import Run
    from explore._sweeps.sweeper import sweep

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "hookimpl", "load_agent", "printable", "run", "sweep"]

_HOMES = {"Run": "_storage.run_folder", "load_agent": "_running.run", "run": "_running.run", "sweep": "_sweeps.sweeper"}


def __getattr__(name: str) -> Any:
    """What needs torch or numpy is imported on first use, so that `explore --help` is quick."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"explore.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'explore' has no attribute {name!r}")
