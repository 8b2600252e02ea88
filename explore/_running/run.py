"""`explore.run` and `explore.load_agent`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from explore._config.configuration import Config
from explore._config.discovery import discover
from explore._config.gin_files import format_binding, name_run
from explore._messages import note
from explore._running.experiment import Experiment, load
from explore._running.extend import check_the_same, extend_run, resume_parts
from explore._running.preflight import try_before_run
from explore._running.provenance import provenance
from explore._running.resume import Resumption, check_plugins, find_checkpoint
from explore._running.trainer import Trainer
from explore._state import Misfit, restore
from explore._storage.checkpoints import Damaged
from explore._storage.parts import list_parts, make_first_part
from explore._storage.run_folder import Run
from explore._storage.run_writer import RunWriter, find_latest
from explore.errors import FolderTaken, UserError
from explore.interfaces import Agent


@dataclass(frozen=True)
class Request:
    """The options of `explore run`."""

    config: str | Path | None  # None: that of the folder
    folder: Path | None
    bindings: list[str]
    plugins: list[str]
    quiet: bool
    allow_imports: bool
    resume: bool
    force: bool
    whole: Run | None = None  # the run of which this one is a part

    @property
    def resumes(self) -> bool:
        """Whether there is a run to resume, so that none begins."""
        return self.folder is not None and self.resume and (self.config is None or (self.folder / "run.json").exists())

    @property
    def has_parts(self) -> bool:
        """Whether seeds were added to the run that is to be resumed."""
        return self.resumes and self.folder is not None and bool(list_parts(Run.open(self.folder).folder))

    def resume_command(self, folder: Path) -> str:
        folder = self.whole.folder if self.whole else folder
        place = f"./{folder}" if str(folder).startswith("-") else str(folder)
        words = ["explore", "resume", place, *(word for plugin in self.plugins for word in ("-p", plugin))]
        return shlex.join([*words, *(["--allow-imports"] if self.allow_imports else [])])


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
    from its latest checkpoint; `config` is then only needed if it may not have begun yet. Without `out` it is
    the latest run of that name.
    """
    if config is None and not (resume and out is not None):
        raise UserError("name a configuration to run, or a folder to resume")
    bindings = as_list(bindings)
    if seeds is not None:
        bindings.append(format_binding("experiment.seeds", as_integers(seeds)))
    folder = Path(out).expanduser() if out is not None else None
    if resume and folder is None and config is not None:
        folder = find_latest(name_run(config))
    request = Request(config, folder, bindings, as_list(plugins), quiet, allow_imports, resume, force)
    try:
        return _run(request)
    except FolderTaken:
        if not resume:
            raise
        return _run(request)  # another process began it a little earlier


def extend(
    folder: str | Path,
    seeds: Iterable[int],
    *,
    plugins: Sequence[str] = (),
    quiet: bool = False,
    allow_imports: bool = False,
) -> Run:
    """Adds seeds to a finished run; returns it, as if all its seeds had been run at once."""
    request = Request(None, Path(folder).expanduser(), [], as_list(plugins), quiet, allow_imports, True, False)
    return extend_run(request, as_integers(seeds), _run)


def _run(request: Request) -> Run:
    """Runs an experiment from its first episode on, or from a checkpoint."""
    if request.has_parts:
        return resume_parts(request, _run)
    with ExitStack() as stack:
        writer = None
        if request.resumes:
            assert request.folder is not None
            writer = stack.enter_context(closing(RunWriter.open_for_resume(request.folder, request.quiet)))
        registry = discover(request.plugins)
        if writer is not None and not request.force:
            check_plugins(writer.run, registry)
        config = request.config if request.config is not None or writer is None else writer.run.folder / "config.gin"
        loaded = load(config, request.bindings, registry, allow_imports=request.allow_imports)
        experiment = loaded.build()
        for remark in [*map(str, registry.failed), *loaded.unused()]:
            note(remark)
        made_with = provenance(registry, experiment.agent.execution())
        resumption = None
        if writer is not None:
            resumption = Resumption(writer, experiment, loaded.text(), made_with)
            resumption.check(request.force)
        try_before_run(experiment, registry)
        if writer is None:
            writer = _begin(request, loaded, experiment, made_with)
            stack.enter_context(closing(writer))
        stack.enter_context(experiment.isolate())
        if resumption is None or resumption.restore():
            _note_fall_back(writer.run)
            Trainer(experiment, writer, registry, request.resume_command(writer.run.folder)).train()
    return writer.run


def _begin(request: Request, loaded: Config, experiment: Experiment, made_with: Mapping[str, Any]) -> RunWriter:
    """The writer of a new run."""
    config, notes = loaded.text(), loaded.unused()
    if request.whole is not None:
        check_the_same(request.whole, made_with, loaded.build)
        make_first_part(request.whole)
    writer = RunWriter.create(
        request.folder,
        name=name_run(request.config or ""),
        config=config,
        quiet=request.quiet,
        task=experiment.description,
        columns=experiment.columns,
        seeds=experiment.seeds,
        episodes=experiment.episodes,
        notes=notes,
        **made_with,
    )
    if request.resume:
        note(f"there is nothing to resume yet: the run begins in {writer.run.folder}")
    return writer


def _note_fall_back(run: Run) -> None:
    """Says what is executed by PyTorch as the kernels cannot; without `quiet`, the display says it."""
    if run.quiet and any(name.startswith("PyTorch") and reason for name, reason in run.info["execution"].items()):
        note(f"{run.info['name']} runs with {run.execution}")


def load_agent(folder: str | Path, plugins: Sequence[str] = (), allow_imports: bool = False) -> Agent:
    """The agent of a run as it is in the latest checkpoint, to be asked for values, uncertainty and actions."""
    run = Run.open(folder)
    registry = discover(as_list(plugins))
    check_plugins(run, registry)
    unobserved = ["experiment.observers = ()"]  # as nothing is run
    loaded = load(run.folder / "config.gin", unobserved, registry, allow_imports=allow_imports)
    for _ in range(19 if run.status == "running" else 0):  # a checkpoint may be replaced while it is read
        with suppress(UserError):
            return _restore_agent(run, loaded)
    return _restore_agent(run, loaded)


def _restore_agent(run: Run, loaded: Config) -> Agent:
    agent: Agent = loaded.build().agent
    found = find_checkpoint(run)
    if found is None and list_parts(run.folder):
        raise UserError(f"seeds were added to {run.folder}; load the agent of a part, such as {run.folder / 'parts/1'}")
    if found is None:
        raise UserError(f"{run.folder} has no checkpoint, so there is no agent to load")
    try:
        restore(agent, found.get("agent"), "agent")
    except (Misfit, Damaged) as error:
        raise UserError(f"the agent of {run.folder} does not fit its configuration: {error}") from error
    return agent


def as_list(texts: str | Path | Iterable[str | Path]) -> list[str]:
    return [str(texts)] if isinstance(texts, str | Path) else [str(text) for text in texts]


def as_integers(seeds: Iterable[int]) -> tuple[int, ...]:
    """Seeds that may be numpy's integers."""
    return tuple(np.array(list(seeds)).tolist())
