"""The hooks a plugin may implement: one per slot, one for experiments, and three to watch a run.

A hook of a slot returns a list of classes; `explore.interfaces` holds the base class of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from explore._storage.run_folder import Run
    from explore.experiments import Experiment

__all__ = [
    "SLOTS", "explore_agents", "explore_bonuses", "explore_environments", "explore_episode_finished",
    "explore_experiments", "explore_launchers", "explore_objectives", "explore_observers", "explore_priors",
    "explore_run_finished", "explore_run_started", "explore_schedules", "explore_selections",
    "explore_uncertainty_modules", "explore_value_networks", "hookimpl",
]  # fmt: skip

_hookspec = pluggy.HookspecMarker("explore")
hookimpl = pluggy.HookimplMarker("explore")
"""Marks the functions of a plugin that implement hooks."""

SLOTS = {
    "value": "explore_value_networks",
    "uncertainty": "explore_uncertainty_modules",
    "prior": "explore_priors",
    "bonus": "explore_bonuses",
    "selection": "explore_selections",
    "objective": "explore_objectives",
    "environment": "explore_environments",
    "agent": "explore_agents",
    "schedule": "explore_schedules",
    "observer": "explore_observers",
    "launcher": "explore_launchers",
}
"""Slot -> its hook. `explore.interfaces.BASE_CLASSES` holds what its components must be subclasses of."""


@_hookspec
def explore_value_networks() -> list[type]:  # type: ignore[empty-body]
    """Value networks (slot `value`): subclasses of `interfaces.ValueNetwork`."""


@_hookspec
def explore_uncertainty_modules() -> list[type]:  # type: ignore[empty-body]
    """Uncertainty modules (slot `uncertainty`): subclasses of `interfaces.UncertaintyModule`."""


@_hookspec
def explore_priors() -> list[type]:  # type: ignore[empty-body]
    """Priors (slot `prior`): subclasses of `interfaces.Prior`."""


@_hookspec
def explore_bonuses() -> list[type]:  # type: ignore[empty-body]
    """Bonuses (slot `bonus`): subclasses of `interfaces.Bonus`."""


@_hookspec
def explore_selections() -> list[type]:  # type: ignore[empty-body]
    """Action selections (slot `selection`): subclasses of `interfaces.Selection`."""


@_hookspec
def explore_objectives() -> list[type]:  # type: ignore[empty-body]
    """Learning objectives (slot `objective`): subclasses of `interfaces.Objective`."""


@_hookspec
def explore_environments() -> list[type]:  # type: ignore[empty-body]
    """Environments (slot `environment`): subclasses of `dm_env.Environment`, built with `seed=`."""


@_hookspec
def explore_agents() -> list[type]:  # type: ignore[empty-body]
    """Agents (slot `agent`): subclasses of `interfaces.Agent`."""


@_hookspec
def explore_schedules() -> list[type]:  # type: ignore[empty-body]
    """Schedules (slot `schedule`): subclasses of `interfaces.Schedule`."""


@_hookspec
def explore_observers() -> list[type]:  # type: ignore[empty-body]
    """Observers (slot `observer`): subclasses of `interfaces.Observer`."""


@_hookspec
def explore_launchers() -> list[type]:  # type: ignore[empty-body]
    """Launchers (slot `launcher`): subclasses of `interfaces.Launcher`."""


@_hookspec
def explore_experiments() -> list[Experiment]:  # type: ignore[empty-body]
    """Experiments that `explore reproduce` runs and draws: objects of `experiments.Experiment`."""


@_hookspec
def explore_run_started(run: Run) -> None:
    """A run is about to begin its first episode; `run.folder` exists and holds `config.gin`."""


@_hookspec
def explore_episode_finished(run: Run, rows: Sequence[dict[str, Any]]) -> None:
    """All seeds have finished an episode; `rows` are their new lines of `episodes.csv`."""


@_hookspec
def explore_run_finished(run: Run, summary: dict[str, Any]) -> None:
    """The run is over: done, interrupted or failed (`run.status`); `summary` is `summary.json`."""
