"""Resumes a run from the latest checkpoint that is whole, if the result is the same as without the interruption."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from explore._config.discovery import Registry
from explore._messages import note
from explore._running.experiment import Experiment
from explore._running.provenance import describe_changed_bindings, describe_changes, list_user_plugins
from explore._state import Misfit
from explore._storage.checkpoints import Damaged
from explore._storage.episodes_csv import EpisodesFile
from explore._storage.run_folder import Run
from explore._storage.run_writer import RunWriter
from explore.errors import UserError


class Resumption:
    """An experiment, newly built with a configuration, that continues a run from its latest usable checkpoint."""

    def __init__(self, writer: RunWriter, experiment: Experiment, config: str, made_with: Mapping[str, Any]):
        self.writer, self.run, self.experiment = writer, writer.run, experiment
        self.config, self.made_with = config, made_with
        self.checkpoint = find_checkpoint(self.run, to_resume=True)
        self.after = self.checkpoint["episode"] if self.checkpoint else 0
        if self.checkpoint is None:
            self.changes = describe_changed_bindings(self.run.config, config)
        else:
            self.changes = describe_changes(self.run.info, made_with)
            self.changes += describe_changed_bindings(self.checkpoint["config"], config)

    def check(self, force: bool) -> None:
        """Raises `UserError` unless the results are those of an uninterrupted run, or `force` allows others."""
        run = self.run
        done = int(max(run.episodes["episode"], default=0))
        if self.checkpoint is None and done > 1:  # to begin again would remove episodes, the first one excepted
            raise UserError(f"{run.folder} has {done} episodes but no checkpoint to resume from; {_begin_again(run)}")
        if not force:
            refuse_changes(run, self.changes)
        if list(self.experiment.columns) != run.info["columns"]:
            raise UserError(f"{run.folder} cannot be resumed: episodes.csv would have other columns")

    def restore(self) -> bool:
        """Puts experiment and folder where the checkpoint was taken; False if there is nothing left to run."""
        run, episodes = self.run, self.experiment.episodes
        if self.checkpoint is not None:
            self._restore_experiment(self.checkpoint)
        if episodes < self.after:
            raise UserError(f"{run.folder} has {self.after} episodes already, experiment.episodes = {episodes}")
        if self.experiment.is_over and run.info["status"] == "done" and (run.folder / "summary.json").exists():
            note(f"{run.folder} is done, {self._describe_end()}")
            return False
        if episodes != run.info["episodes"] and "schedule." in self.config:
            note(f"schedules now run over {episodes} episodes, no longer {run.info['episodes']}")
        made_with = dict(self.made_with)
        command, execution = made_with.pop("command"), made_with.pop("execution")
        self.writer.resume(
            self.after,
            self.checkpoint["rows"] if self.checkpoint else None,
            config=self.config,
            command=command,
            forced=self.changes,
            execution=execution,
            episodes=episodes,
            **(made_with if self.changes or self.checkpoint is None else {}),
        )
        note(f"{run.folder} is resumed after episode {self.after} of {episodes}")
        return True

    def _restore_experiment(self, checkpoint: Mapping[str, Any]) -> None:
        try:
            self.experiment.load_state_dict(checkpoint)
            if self.experiment.progress.episode != self.after:
                raise Misfit(f"it is at episode {self.experiment.progress.episode}")
        except (Misfit, Damaged) as error:
            where = f"the checkpoint of episode {self.after} in {self.run.folder}"
            raise UserError(f"{where} does not fit the configuration: {error}") from error

    def _describe_end(self) -> str:
        if self.after < self.experiment.episodes:
            return f"since every seed had solved its task by episode {self.after}"
        extension = f'-b "experiment.episodes = {2 * self.after}"'
        return f"with {self.after} episodes; to extend it, add for example {extension}"


def refuse_changes(run: Run, changes: Sequence[str]) -> None:
    """Raises `UserError` if there are any."""
    if changes:
        raise UserError(
            f"{run.folder} cannot be resumed exactly: it was made with {'; '.join(changes)}. "
            "Undo that, or resume it all the same with --force"
        )


def check_plugins(run: Run, registry: Registry) -> None:
    """Raises `UserError` if a plugin of the run is missing: what a folder says loads no code."""
    for plugin in list_user_plugins(run.info):
        if plugin["name"] not in {known.name for known in registry.plugins}:
            raise UserError(f"{run.folder} was made with the plugin {plugin['name']}; add -p {plugin['source']}")


def find_checkpoint(run: Run, to_resume: bool = False) -> dict[str, Any] | None:
    """The newest checkpoint that is whole; None if there is none at all.

    `to_resume` skips those whose rows `episodes.csv` has lost. Notes which cannot be used, and raises
    `UserError` if none can, rather than let the run begin again.
    """
    damages = []
    try:
        episodes = run.checkpoints.episodes()
    except Damaged as error:
        raise UserError(str(error)) from error
    for episode in episodes:
        try:
            content = _read_checkpoint(run, episode, to_resume)
        except Damaged as error:
            damages.append(f"the checkpoint of episode {episode} cannot be used: {error}")
            continue
        for damage in damages:
            note(damage)
        return content
    if damages:
        raise UserError(f"{'; '.join(damages)}; {_begin_again(run)}")
    return None


def _read_checkpoint(run: Run, episode: int, to_resume: bool) -> dict[str, Any]:
    """Raises `Damaged` unless a checkpoint has what `RunWriter.add_checkpoint` wrote, as far as it is used here."""
    content = run.checkpoints.read(episode)
    rows = content.get("rows") if isinstance(content, dict) else None
    if not (
        isinstance(rows, dict)
        and type(rows.get("bytes")) is int
        and rows["bytes"] >= 0
        and isinstance(rows.get("sha256"), str)
        and isinstance(content.get("config"), str)
        and content.get("episode") == episode
    ):
        raise Damaged("it is not that of a run, or not of this episode")
    if to_resume and "task" not in content:
        raise Damaged("it holds the agent only: checkpoints were switched off")
    file = EpisodesFile(run.folder / "episodes.csv", run.info["columns"])
    if to_resume and not file.contains(rows):
        raise Damaged(f"{file.path} has lost or changed rows that were there")
    return dict(content)


def _begin_again(run: Run) -> str:
    return f"to begin again: {shlex.join(['explore', 'run', str(run.folder / 'config.gin')])}"
