"""Trains an experiment into the folder of a run: rows, snapshots and checkpoints as it goes, and how it ended."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from typing import Any

from explore._config.discovery import Registry
from explore._config.tracebacks import plugin_errors
from explore._messages import note
from explore._running.experiment import Experiment
from explore._running.interrupts import Interrupts
from explore._running.observer_plugin import ObserverPlugin
from explore._running.summary import summarise
from explore._state import Unsavable, capture
from explore._storage.run_writer import RunWriter
from explore.errors import Interrupted, RunFailed, UserError


class Trainer:
    """Trains an experiment, newly built or restored; `resume_command` is what a user types to resume the run."""

    def __init__(self, experiment: Experiment, writer: RunWriter, registry: Registry, resume_command: str):
        self.experiment, self.writer, self.registry = experiment, writer, registry
        self.resume_command, self.run = resume_command, writer.run
        self.started = time.perf_counter() - writer.episodes.seconds
        self.saved = self.run.resumed_after  # the episode of the latest checkpoint
        self.saved_at = time.perf_counter()

    def train(self) -> None:
        """Trains to the end, and records it: the run is then done, interrupted or failed."""
        observers = map(ObserverPlugin, self.experiment.observers)
        with self.registry.register(observers), plugin_errors(self.registry), Interrupts() as interrupts:
            try:
                with plugin_errors(self.registry):
                    self._train(interrupts)
                    summary = self._summarise()
            except KeyboardInterrupt as interrupt:
                self._finish("interrupted", self._summarise())
                raise Interrupted(self._describe_stop(), getattr(interrupt, "number", signal.SIGINT)) from None
            except (Exception, SystemExit) as error:
                reason = str(error) if isinstance(error, RunFailed) else f"{type(error).__name__}: {error}"
                with suppress(Exception):  # such as a full disk; the first failure is the one to tell
                    self._finish("failed", self._summarise(), reason)
                if self.run.resumed_after and not isinstance(error, RunFailed | UserError):
                    checkpoint = f"the checkpoint of episode {self.run.resumed_after}, from which the run was resumed,"
                    raise RunFailed(f"{reason} (a bug in explore, or {checkpoint} is forged)") from error
                raise
            self._finish("done", summary)

    def _train(self, interrupts: Interrupts) -> None:
        self._remove_last_snapshot()
        self.registry.hook.explore_run_started(run=self.run)
        for rows in self.experiment.train():
            self._record(rows)
            if interrupts.number is not None:
                break
            if self._checkpoint_is_due():
                self._save()
        if self.experiment.progress.episode > self.saved:
            self._save()
        if interrupts.number is not None and not self.experiment.is_over:
            raise Interrupted(number=interrupts.number)

    def _remove_last_snapshot(self) -> None:
        """Where a run ended there is a snapshot, which a longer run would not have."""
        after = self.run.resumed_after
        if after and not (self.experiment.is_over or self.experiment.snapshot_is_due):
            self.writer.remove_snapshot(after)

    def _record(self, rows: list[dict[str, Any]]) -> None:
        seconds = round(time.perf_counter() - self.started, 3)
        rows = [{**row, "seconds": seconds} for row in rows]
        self.writer.add_rows(rows)
        if snapshot := self.experiment.take_snapshot():
            self.writer.add_snapshot(self.experiment.progress.episode, snapshot)
        self.registry.hook.explore_episode_finished(run=self.run, rows=rows)

    def _checkpoint_is_due(self) -> bool:
        """The first is due after the first episode, to show early whether it can be written."""
        minutes, every = self.experiment.checkpoint_minutes, self.experiment.checkpoint_every
        by_time = minutes is not None and time.perf_counter() >= self.saved_at + 60 * minutes
        by_episodes = every is not None and self.experiment.progress.episode % every == 0
        return self.experiment.has_checkpoints and (not self.saved or by_time or by_episodes)

    def _save(self) -> None:
        """Writes a checkpoint; without checkpoints, the state of the agent if it has one, for `load_agent`."""
        experiment, episode = self.experiment, self.experiment.progress.episode
        try:
            if experiment.has_checkpoints:
                state = experiment.state_dict()
            else:
                state = {"agent": capture(experiment.agent, "agent")}
            self.writer.add_checkpoint(episode, state)
        except Unsavable as error:
            if experiment.has_checkpoints:
                raise RunFailed(f"the state after episode {episode} cannot be saved: {error}") from error
            note(f"the agent is not saved: {error}")
        self.saved, self.saved_at = episode, time.perf_counter()

    def _summarise(self) -> dict[str, Any]:
        judges = dict(zip(self.experiment.seeds, self.experiment.judges))
        steps = int(self.experiment.progress.steps.sum())
        return summarise(judges, task=self.experiment.description.name, steps=steps, cost=self.experiment.agent.cost())

    def _finish(self, status: str, summary: dict[str, Any], reason: str | None = None) -> None:
        try:
            self.writer.finish(status, summary, reason, seconds=time.perf_counter() - self.started)
        finally:
            self.registry.hook.explore_run_finished(run=self.run, summary=summary)

    def _describe_stop(self) -> str:
        """Where an interrupted run stands, and how to resume it."""
        if not self.experiment.has_checkpoints:
            return f"the results are in {self.run.folder}"
        if not self.saved:
            return f"before the first checkpoint; to begin again: {self.resume_command}"
        return f"saved after episode {self.saved} of {self.experiment.episodes}; to resume: {self.resume_command}"
