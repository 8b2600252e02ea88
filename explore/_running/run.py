"""A run: from the configuration to the folder, and from the folder on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from explore._config import configuration
from explore._config.discovery import Registry, discover
from explore._config.gin_files import format_binding
from explore._config.tracebacks import name_plugin_that_raised
from explore._messages import note
from explore._running.experiment import Experiment
from explore._running.provenance import changes, given_plugins, provenance, rebound
from explore._running.run_writer import RunWriter
from explore._state import Misfit, Unsavable, restore
from explore._storage.checkpoints import Damaged
from explore._storage.run_folder import Run
from explore.errors import FolderTaken, UserError
from explore.interfaces import Agent


def run(
    config: str | Path | None = None,
    *,
    bindings: Sequence[str] = (),
    seeds: Iterable[int] | None = None,
    out: str | Path | None = None,
    plugins: Sequence[str] = (),
    quiet: bool = False,
    allow_imports: bool = False,
    resume: bool = False,
    force: bool = False,
) -> Run:
    """Runs the experiment of a gin file and returns the run, done.

    The arguments are the options of `explore run`. With `resume` the run in the folder `out` goes on
    from its latest checkpoint; `config` is then only needed if it may not have begun yet.
    """
    bindings = _listed(bindings)
    if seeds is not None:
        numbers = tuple(int(seed) if isinstance(seed, np.integer) else seed for seed in seeds)
        bindings = [*bindings, format_binding("experiment.seeds", numbers)]
    wanted = _Wanted(config, bindings, _listed(plugins), allow_imports, quiet)
    folder = Path(out).expanduser() if out is not None else None
    if resume and folder is None and config is not None:
        folder = _latest(config)
    if config is None and not (resume and folder is not None):
        raise UserError("name a configuration to run, or a folder to resume")
    if resume and folder is not None and (config is None or (folder / "run.json").exists()):
        return _resume(folder, wanted, force)
    try:
        return _begin(folder, wanted, resume)
    except FolderTaken:
        if not resume or folder is None:
            raise
        return _resume(folder, wanted, force)  # another process was a little earlier


def load_agent(folder: str | Path, plugins: Sequence[str] = (), allow_imports: bool = False) -> Agent:
    """The agent of a run as it is in the latest checkpoint, to be asked for values, uncertainty and actions."""
    run = Run.open(Path(folder))
    registry = _plugins_of(run, _listed(plugins))
    nobody = ["experiment.observers = ()"]  # as nothing is run
    loaded = configuration.load(run.folder / "config.gin", nobody, registry, allow_imports=allow_imports)
    patience = 20 if run.status == "running" else 0  # a checkpoint may be replaced while it is read
    while True:
        agent: Agent = loaded.build().agent
        try:
            found = _latest_checkpoint(run)
            if found is None:
                raise UserError(f"{run.folder} has no checkpoint, so there is no agent to load")
            restore(agent, found[1].get("agent"), "agent")
            return agent
        except UserError:
            if not patience:
                raise
        except (Misfit, Damaged) as error:
            if not patience:
                raise UserError(f"the agent of {run.folder} does not fit its configuration: {error}") from error
        patience -= 1


class _Wanted(NamedTuple):
    """What to run."""

    config: str | Path | None  # None: that of the folder
    bindings: list[str]
    plugins: list[str]
    allow_imports: bool
    quiet: bool

    def load(self, registry: Registry, otherwise: Path = Path()) -> configuration.Config:
        given = otherwise if self.config is None else self.config
        return configuration.load(given, self.bindings, registry, allow_imports=self.allow_imports)

    def resuming(self, folder: Path) -> str:
        """The command that goes on with the run in a folder."""
        place = f"./{folder}" if str(folder).startswith("-") else str(folder)
        words = ["explore", "run", "--resume", place, *(word for plugin in self.plugins for word in ("-p", plugin))]
        return shlex.join([*words, *(["--allow-imports"] if self.allow_imports else [])])


def _begin(folder: Path | None, wanted: _Wanted, resume: bool) -> Run:
    """Runs an experiment from its first episode on."""
    assert wanted.config is not None
    registry = discover(wanted.plugins)
    loaded = wanted.load(registry)
    experiment: Experiment = loaded.build()
    notes = loaded.unused()
    for remark in [*map(str, registry.failed), *notes]:
        note(remark)
    _check_savable(experiment, registry)
    run = Run.create(
        folder,
        name=_name(wanted.config),
        config=loaded.text(),
        task=experiment.description,
        columns=experiment.columns,
        seeds=experiment.seeds,
        episodes=experiment.episodes,
        provenance=provenance(registry),
        notes=notes,
        quiet=wanted.quiet,
    )
    if resume:
        note(f"there is nothing to resume yet: the run begins in {run.folder}")
    with closing(run), experiment.isolated():
        RunWriter(experiment, run, registry, wanted.resuming(run.folder)).run_to_the_end()
    return run


def _resume(folder: Path, wanted: _Wanted, force: bool) -> Run:
    with closing(Run.open_for_resume(folder, wanted.quiet)) as run:
        _continue(run, wanted, force)
    return run


def _continue(run: Run, wanted: _Wanted, force: bool) -> None:
    """Goes on with a run from its latest checkpoint that is whole."""
    registry = discover(wanted.plugins) if force else _plugins_of(run, wanted.plugins)
    if wanted.config is None and not (run.folder / "config.gin").exists():
        raise UserError(f"{run.folder} is damaged: it has no config.gin")
    loaded = wanted.load(registry, run.folder / "config.gin")
    experiment: Experiment = loaded.build()
    for remark in loaded.unused():
        note(remark)
    after, checkpoint = _latest_checkpoint(run, with_rows=True) or (0, None)
    if checkpoint is None:
        _check_young(run)
    now = provenance(registry)
    differing: list[str] = []
    if checkpoint is not None:
        differing = [*changes(run.info, now), *rebound(checkpoint["config"], loaded.text())]
    elif wanted.config is not None or wanted.bindings:
        differing = rebound(run.config, loaded.text())
    if differing and not force:
        raise UserError(
            f"{run.folder} cannot be resumed exactly: it was made with {'; '.join(differing)}. "
            "Undo that, or go on all the same with --force"
        )
    if list(experiment.columns) != run.info["columns"]:
        raise UserError(f"{run.folder} cannot be resumed: episodes.csv would have other columns")
    _check_savable(experiment, registry)
    with experiment.isolated():
        if checkpoint is not None:
            _put_back(experiment, checkpoint, f"the checkpoint of episode {after} in {run.folder}")
        if experiment.episodes < after:
            raise UserError(f"{run.folder} has {after} episodes already, experiment.episodes = {experiment.episodes}")
        if experiment.is_over and run.info["status"] == "done" and (run.folder / "summary.json").exists():
            note(f"{run.folder} is done, {_why_over(experiment)}")
            return
        if experiment.episodes != run.info["episodes"] and "schedule." in loaded.text():
            note(f"schedules now run over {experiment.episodes} episodes, no longer {run.info['episodes']}")
        rows = checkpoint["rows"] if checkpoint is not None else None
        run.resume(after, rows, config=loaded.text(), episodes=experiment.episodes, provenance=now, forced=differing)
        note(f"{run.folder} goes on after episode {after} of {experiment.episodes}")
        RunWriter(experiment, run, registry, wanted.resuming(run.folder)).run_to_the_end()


def _why_over(experiment: Experiment) -> str:
    episode = experiment.progress.episode
    if episode < experiment.episodes:
        return f"since every seed had solved its task by episode {episode}"
    return f'with {episode} episodes; to go on with it, add for example -b "experiment.episodes = {2 * episode}"'


def _plugins_of(run: Run, plugins: list[str]) -> Registry:
    """What there is with these plugins, which must be those of the run: a folder's own word loads no code."""
    registry = discover(plugins)
    for plugin in given_plugins(run.info):
        if plugin.get("name") not in {known.name for known in registry.plugins}:
            name, source = plugin.get("name"), plugin.get("source")
            raise UserError(f"{run.folder} was made with the plugin {name}; add -p {source}")
    return registry


def _latest_checkpoint(run: Run, with_rows: bool = False) -> tuple[int, dict[str, Any]] | None:
    """The newest checkpoint that is whole, with its episode; None if there is none at all.

    `with_rows` passes over those whose rows `episodes.csv` has lost. Says which are of no use, and
    raises `UserError` if all are, rather than to let the run begin anew.
    """
    damages = []
    try:
        episodes = run.checkpoints.episodes()
    except Damaged as error:
        raise UserError(str(error)) from error
    for episode in episodes:
        try:
            content = run.checkpoints.read(episode)
            _check_content(content, episode)
            if with_rows and "task" not in content:
                raise Damaged("it holds the agent only: checkpoints were switched off")
            if with_rows and not run.rows.has(content["rows"]):
                raise Damaged(f"{run.folder / 'episodes.csv'} has lost or changed rows that were there")
        except Damaged as error:
            damages.append(f"the checkpoint of episode {episode} is of no use: {error}")
            continue
        for damage in damages:
            note(damage)
        return episode, content
    if damages:
        raise UserError(f"{'; '.join(damages)}; to begin anew: {_anew(run)}")
    return None


def _check_content(content: Any, episode: int) -> None:
    """Raises `Damaged` unless a checkpoint looks as `_save` makes it, as far as it is read here."""
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


def _put_back(experiment: Experiment, checkpoint: Mapping[str, Any], where: str) -> None:
    try:
        experiment.load_state_dict(checkpoint)
        if experiment.progress.episode != checkpoint["episode"]:
            raise Misfit(f"it is at episode {experiment.progress.episode}")
    except (Misfit, Damaged) as error:
        raise UserError(f"{where} does not fit the configuration: {error}") from error


def _check_young(run: Run) -> None:
    """Raises `UserError` if a run without a checkpoint had one: to begin anew would throw its rows away."""
    done = int(max(run.episodes["episode"], default=0))
    if done > 1:  # the first checkpoint comes after the first episode
        raise UserError(
            f"{run.folder} has {done} episodes but no checkpoint to go on from; to begin anew: {_anew(run)}"
        )


def _anew(run: Run) -> str:
    return shlex.join(["explore", "run", str(run.folder / "config.gin")])


def _check_savable(experiment: Experiment, registry: Registry) -> None:
    if experiment.has_checkpoints:
        try:
            experiment.check_savable()
        except Unsavable as error:
            settings = {"minutes": experiment.checkpoint_minutes, "every": experiment.checkpoint_every}
            on = [f"experiment.checkpoint_{name}" for name, value in settings.items() if value is not None]
            off = " ".join(f'-b "{name} = None"' for name in on)
            raise UserError(f"{error}; or do without checkpoints: {off}") from error
        except (Exception, SystemExit) as error:
            raise name_plugin_that_raised(error, registry) from error.__cause__


def _latest(config: str | Path) -> Path | None:
    """The latest folder that runs of a configuration got when none was named."""
    pattern = re.compile(rf"{re.escape(_name(config))}(?:-(\d+))?")
    matches = [match for path in Path("runs").glob("*/") if (match := pattern.fullmatch(path.name))]
    latest = max(matches, key=lambda match: int(match[1] or 1), default=None)
    return Path("runs", latest[0]) if latest else None


def _name(config: str | Path) -> str:
    """What a run of a configuration is called."""
    return Path(config).resolve().parent.name if Path(config).name == "config.gin" else Path(config).stem


def _listed(texts: Sequence[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else [str(text) for text in texts]
