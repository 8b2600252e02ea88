"""Observers as plugins, so that pluggy calls all that watch a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from explore._storage.run_folder import Run
from explore.hooks import hookimpl
from explore.interfaces import Observer


class ObserverPlugin:
    """An observer as pluggy knows plugins; it is told after the plugins that watch every run."""

    def __init__(self, observer: Observer):
        self.observer = observer

    @hookimpl(trylast=True)
    def explore_run_started(self, run: Run) -> None:
        self.observer.run_started(run)

    @hookimpl(trylast=True)
    def explore_episode_finished(self, run: Run, rows: Sequence[dict[str, Any]]) -> None:
        self.observer.episode_finished(run, rows)

    @hookimpl(trylast=True)
    def explore_run_finished(self, run: Run, summary: dict[str, Any]) -> None:
        self.observer.run_finished(run, summary)
