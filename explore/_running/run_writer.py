"""An experiment at work: its rows, checkpoints and end recorded, those who watch told, signals heeded."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from typing import Any

from explore._config.discovery import Registry
from explore._config.tracebacks import name_plugin_that_raised
from explore._messages import note
from explore._running.experiment import Experiment
from explore._running.interrupts import Interrupts
from explore._state import Unsavable, capture
from explore._storage.run_folder import Run, summarise
from explore.errors import Interrupted, RunFailed


class RunWriter:
    """Runs an experiment into the folder of a run; `resuming` is the command that goes on with it."""

    def __init__(self, experiment: Experiment, run: Run, registry: Registry, resuming: str):
        self.experiment, self.run, self.registry, self.resuming = experiment, run, registry, resuming
        self.config = run.config
        self.started = time.perf_counter() - run.rows.seconds
        self.saved = run.resumed_after  # the episode of the latest checkpoint
        self.saved_at = time.perf_counter()

    def run_to_the_end(self) -> None:
        with Interrupts() as interrupts:
            try:
                if self.run.resumed_after and not (self.experiment.is_over or self.experiment.snapshot_is_due):
                    self.run.snapshots.remove(self.run.resumed_after)  # it was of an end that is none any more
                self._tell("run_started", run=self.run)
                self._train(interrupts)
                summary = self._summary()
            except KeyboardInterrupt as interrupt:
                self._finish("interrupted", self._summary())
                raise Interrupted(self._where(), getattr(interrupt, "number", signal.SIGINT)) from None
            except (Exception, SystemExit) as error:
                failure = error if isinstance(error, RunFailed) else self._explained(error)
                reason = str(failure) if isinstance(failure, RunFailed) else f"{type(error).__name__}: {error}"
                with suppress(Exception):  # the disk is full, say: what came first is what to tell
                    self._finish("failed", self._summary(), reason)
                if failure is error:
                    raise
                raise failure from error
            self._finish("done", summary)

    def _explained(self, error: BaseException) -> BaseException:
        failure = name_plugin_that_raised(error, self.registry)
        if failure is error and self.run.resumed_after:
            checkpoint = f"the checkpoint of episode {self.run.resumed_after} that the run went on from"
            return RunFailed(f"{type(error).__name__}: {error} (a bug in explore, or {checkpoint} is forged)")
        return failure

    def _train(self, interrupts: Interrupts) -> None:
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

    def _record(self, rows: list[dict[str, Any]]) -> None:
        seconds = round(time.perf_counter() - self.started, 3)
        rows = [{**row, "seconds": seconds} for row in rows]
        self.run.add(rows)
        if snapshot := self.experiment.snapshot():
            self.run.add_snapshot(self.experiment.progress.episode, snapshot)
        self._tell("episode_finished", run=self.run, rows=rows)

    def _checkpoint_is_due(self) -> bool:
        """The first comes after the first episode, to show early whether it can be written."""
        minutes, every = self.experiment.checkpoint_minutes, self.experiment.checkpoint_every
        by_time = minutes is not None and time.perf_counter() >= self.saved_at + 60 * minutes
        by_episodes = every is not None and self.experiment.progress.episode % every == 0
        return self.experiment.has_checkpoints and (not self.saved or by_time or by_episodes)

    def _save(self) -> None:
        """Writes a checkpoint; of an experiment without checkpoints, what there is to be had of the agent."""
        experiment, folder = self.experiment, self.run.folder / "checkpoint"
        episode = experiment.progress.episode
        try:
            if experiment.has_checkpoints:
                state = experiment.state_dict()
            else:
                state = {"agent": capture(experiment.agent, "agent")}
            facts = {"episode": episode, "config": self.config, "rows": self.run.rows.mark()}
            self.run.checkpoints.write(episode, facts | state)
        except Unsavable as error:
            if experiment.has_checkpoints:
                raise RunFailed(f"the state after episode {episode} cannot be saved: {error}") from error
            note(f"the agent is not saved: {error}")
        except OSError as error:
            raise RunFailed(f"cannot write the checkpoint to {folder}: {error.strerror}") from error
        self.saved, self.saved_at = episode, time.perf_counter()

    def _summary(self) -> dict[str, Any]:
        judges = dict(zip(self.experiment.seeds, self.experiment.judges))
        steps = int(self.experiment.progress.steps.sum())
        return summarise(judges, task=self.experiment.description.name, steps=steps, cost=self.experiment.agent.cost())

    def _finish(self, status: str, summary: dict[str, Any], reason: str | None = None) -> None:
        try:
            self.run.finish(status, summary, reason, seconds=time.perf_counter() - self.started)
        finally:
            self._tell("run_finished", run=self.run, summary=summary)

    def _tell(self, what: str, **news: Any) -> None:
        """Calls the lifecycle hook and the observers; a plugin whose code fails there ends the run, and is named."""
        try:
            getattr(self.registry.hook, f"explore_{what}")(**news)
            for observer in self.experiment.observers:
                getattr(observer, what)(**news)
        except (Exception, SystemExit) as error:
            failure = name_plugin_that_raised(error, self.registry)
            if failure is error:
                raise
            raise failure from error

    def _where(self) -> str:
        """Where an interrupted run stands, and how to go on with it."""
        if not self.experiment.has_checkpoints:
            return f"what there is lies in {self.run.folder}"
        if not self.saved:
            return f"before the first checkpoint; to begin again: {self.resuming}"
        return f"saved after episode {self.saved} of {self.experiment.episodes}; to go on: {self.resuming}"
