"""Resumes a run from the latest checkpoint that is whole, if the result is the same as without the interruption."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from explore._config.configuration import Config
from explore._config.discovery import Registry, discover
from explore._messages import note
from explore._running.experiment import Experiment
from explore._running.provenance import describe_changed_bindings, describe_changes, list_user_plugins, provenance
from explore._running.request import Request, try_before_run
from explore._running.trainer import Trainer
from explore._state import Misfit
from explore._storage.checkpoints import Damaged
from explore._storage.episodes_csv import EpisodesFile
from explore._storage.run_folder import Run
from explore._storage.run_writer import RunWriter
from explore.errors import UserError


def resume_run(folder: Path, request: Request, force: bool) -> Run:
    """Resumes the run in a folder, and returns it when it is done."""
    with closing(RunWriter.open_for_resume(folder, request.quiet)) as writer:
        run = writer.run
        registry = discover(request.plugins) if force else discover_plugins_of(run, request.plugins)
        loaded = _load(run, request, registry)
        experiment: Experiment = loaded.build()
        for remark in loaded.unused():
            note(remark)
        after, checkpoint = find_checkpoint(run, to_resume=True) or (0, None)
        made_with = provenance(registry)
        differing = _list_differences(run, request, checkpoint, loaded.text(), made_with)
        _check_resumable(run, experiment, checkpoint, [] if force else differing)
        try_before_run(experiment, registry)
        with experiment.isolated():
            if checkpoint is not None:
                _restore(experiment, checkpoint, f"the checkpoint of episode {after} in {run.folder}")
            if _is_done(run, experiment, after):
                return run
            if experiment.episodes != run.info["episodes"] and "schedule." in loaded.text():
                note(f"schedules now run over {experiment.episodes} episodes, no longer {run.info['episodes']}")
            command = made_with.pop("command")
            writer.resume(
                after,
                checkpoint["rows"] if checkpoint is not None else None,
                config=loaded.text(),
                command=command,
                forced=differing,
                episodes=experiment.episodes,
                **(made_with if differing or checkpoint is None else {}),
            )
            note(f"{run.folder} is resumed after episode {after} of {experiment.episodes}")
            Trainer(experiment, writer, registry, request.resume_command(run.folder)).train()
    return run


def discover_plugins_of(run: Run, plugins: list[str]) -> Registry:
    """All plugins with these, which must include those of the run: what a folder says loads no code."""
    registry = discover(plugins)
    for plugin in list_user_plugins(run.info):
        if plugin.get("name") not in {known.name for known in registry.plugins}:
            name, source = plugin.get("name"), plugin.get("source")
            raise UserError(f"{run.folder} was made with the plugin {name}; add -p {source}")
    return registry


def find_checkpoint(run: Run, to_resume: bool = False) -> tuple[int, dict[str, Any]] | None:
    """The newest checkpoint that is whole, with its episode; None if there is none at all.

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
        return episode, content
    if damages:
        raise UserError(f"{'; '.join(damages)}; to begin again: {_command_to_begin(run)}")
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


def _load(run: Run, request: Request, registry: Registry) -> Config:
    own = run.folder / "config.gin"
    if request.config is None and not own.exists():
        raise UserError(f"{run.folder} is damaged: it has no config.gin")
    return request.load(registry, own)


def _list_differences(
    run: Run, request: Request, checkpoint: Mapping[str, Any] | None, config: str, made_with: Mapping[str, Any]
) -> list[str]:
    """What the results depend on that is not as it was, each in words."""
    if checkpoint is not None:
        return [*describe_changes(run.info, made_with), *describe_changed_bindings(checkpoint["config"], config)]
    return describe_changed_bindings(run.config, config) if request.config is not None or request.bindings else []


def _check_resumable(
    run: Run, experiment: Experiment, checkpoint: Mapping[str, Any] | None, differing: list[str]
) -> None:
    if checkpoint is None:
        done = int(max(run.episodes["episode"], default=0))
        if done > 1:  # the first checkpoint comes after the first episode; to begin again would remove the others
            lost = f"{run.folder} has {done} episodes but no checkpoint to resume from"
            raise UserError(f"{lost}; to begin again: {_command_to_begin(run)}")
    if differing:
        raise UserError(
            f"{run.folder} cannot be resumed exactly: it was made with {'; '.join(differing)}. "
            "Undo that, or resume it all the same with --force"
        )
    if list(experiment.columns) != run.info["columns"]:
        raise UserError(f"{run.folder} cannot be resumed: episodes.csv would have other columns")


def _restore(experiment: Experiment, checkpoint: Mapping[str, Any], where: str) -> None:
    try:
        experiment.load_state_dict(checkpoint)
        if experiment.progress.episode != checkpoint["episode"]:
            raise Misfit(f"it is at episode {experiment.progress.episode}")
    except (Misfit, Damaged) as error:
        raise UserError(f"{where} does not fit the configuration: {error}") from error


def _is_done(run: Run, experiment: Experiment, after: int) -> bool:
    """Whether nothing is left to do, which is noted."""
    if experiment.episodes < after:
        raise UserError(f"{run.folder} has {after} episodes already, experiment.episodes = {experiment.episodes}")
    if not (experiment.is_over and run.info["status"] == "done" and (run.folder / "summary.json").exists()):
        return False
    if after < experiment.episodes:
        note(f"{run.folder} is done, since every seed had solved its task by episode {after}")
    else:
        extension = f'-b "experiment.episodes = {2 * after}"'
        note(f"{run.folder} is done, with {after} episodes; to extend it, add for example {extension}")
    return True


def _command_to_begin(run: Run) -> str:
    return shlex.join(["explore", "run", str(run.folder / "config.gin")])
