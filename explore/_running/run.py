"""`explore.run` and `explore.load_agent`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from explore._config import configuration
from explore._config.discovery import discover
from explore._config.gin_files import format_binding
from explore._messages import note
from explore._running.experiment import Experiment
from explore._running.provenance import provenance
from explore._running.request import Request, try_before_run
from explore._running.resume import discover_plugins_of, find_checkpoint, resume_run
from explore._running.trainer import Trainer
from explore._state import Misfit, restore
from explore._storage.checkpoints import Damaged
from explore._storage.run_folder import Run
from explore._storage.run_writer import RunWriter
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

    The arguments are the options of `explore run`. With `resume` the run in the folder `out` is resumed
    from its latest checkpoint; `config` is then only needed if it may not have begun yet.
    """
    bindings = _as_list(bindings)
    if seeds is not None:
        numbers = tuple(int(seed) if isinstance(seed, np.integer) else seed for seed in seeds)
        bindings = [*bindings, format_binding("experiment.seeds", numbers)]
    request = Request(config, bindings, _as_list(plugins), allow_imports, quiet)
    folder = Path(out).expanduser() if out is not None else None
    if resume and folder is None and config is not None:
        folder = _find_latest(config)
    if config is None and not (resume and folder is not None):
        raise UserError("name a configuration to run, or a folder to resume")
    if resume and folder is not None and (config is None or (folder / "run.json").exists()):
        return resume_run(folder, request, force)
    try:
        return _begin(folder, request, resume)
    except FolderTaken:
        if not resume or folder is None:
            raise
        return resume_run(folder, request, force)  # another process was a little earlier


def load_agent(folder: str | Path, plugins: Sequence[str] = (), allow_imports: bool = False) -> Agent:
    """The agent of a run as it is in the latest checkpoint, to be asked for values, uncertainty and actions."""
    run = Run.open(folder)
    registry = discover_plugins_of(run, _as_list(plugins))
    nobody = ["experiment.observers = ()"]  # as nothing is run
    loaded = configuration.load(run.folder / "config.gin", nobody, registry, allow_imports=allow_imports)
    patience = 20 if run.status == "running" else 0  # a checkpoint may be replaced while it is read
    while True:
        agent: Agent = loaded.build().agent
        try:
            found = find_checkpoint(run)
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


def _begin(folder: Path | None, request: Request, resume: bool) -> Run:
    """Runs an experiment from its first episode on."""
    assert request.config is not None
    registry = discover(request.plugins)
    loaded = request.load(registry)
    experiment: Experiment = loaded.build()
    notes = loaded.unused()
    for remark in [*map(str, registry.failed), *notes]:
        note(remark)
    try_before_run(experiment, registry)
    writer = RunWriter.create(
        folder,
        name=_name_of(request.config),
        config=loaded.text(),
        quiet=request.quiet,
        task=experiment.description,
        columns=experiment.columns,
        seeds=experiment.seeds,
        episodes=experiment.episodes,
        notes=notes,
        **provenance(registry),
    )
    run = writer.run
    if resume:
        note(f"there is nothing to resume yet: the run begins in {run.folder}")
    with closing(writer), experiment.isolated():
        Trainer(experiment, writer, registry, request.resume_command(run.folder)).train()
    return run


def _find_latest(config: str | Path) -> Path | None:
    """The latest folder that runs of a configuration got when none was named."""
    pattern = re.compile(rf"{re.escape(_name_of(config))}(?:-(\d+))?")
    matches = [match for path in Path("runs").glob("*/") if (match := pattern.fullmatch(path.name))]
    latest = max(matches, key=lambda match: int(match[1] or 1), default=None)
    return Path("runs", latest[0]) if latest else None


def _name_of(config: str | Path) -> str:
    """What a run of a configuration is called."""
    return Path(config).resolve().parent.name if Path(config).name == "config.gin" else Path(config).stem


def _as_list(texts: Sequence[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else [str(text) for text in texts]
