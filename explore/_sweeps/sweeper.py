"""Runs a sweep: checks every cell, starts what is missing, and says what became of each.

    SWEEP/sweep.toml   the sweep: `explore sweep SWEEP/sweep.toml` resumes it
          CELL/        a run folder like any other, one per cell
          .lock        held by the process that runs the sweep

A cell is the command `explore run ... --resume` in a process of its own, since gin's configuration is
global; a launcher starts it. So a cell has the bytes of the same run on its own, and the same command
resumes it, whatever happened to it.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

from explore._config.configuration import Config
from explore._config.discovery import Registry, discover
from explore._config.gin_files import find_file, format_binding, read_file
from explore._config.tracebacks import plugin_errors
from explore._messages import note, suggest
from explore._running.experiment import load
from explore._running.interrupts import Interrupts
from explore._running.provenance import provenance
from explore._running.run import as_integers, as_list
from explore._storage import files
from explore._storage.run_folder import Run
from explore._sweeps.grid import Cell, Sweep, read_sweep
from explore._sweeps.progress import CellState, show_progress
from explore.errors import Interrupted, SweepFailed, UserError
from explore.interfaces import Launcher, News, Task

FILE = "sweep.toml"
MANY = 64
"""More cells than these need `--yes`."""


def sweep(
    recipes: str | Path | Sequence[str | Path],
    *,
    vary: Sequence[str] = (),
    bindings: Sequence[str] = (),
    seeds: Iterable[int] | None = None,
    out: str | Path | None = None,
    plugins: Sequence[str] = (),
    jobs: int | None = None,
    launcher: str = "local",
    address: str | None = None,
    yes: bool = False,
    quiet: bool = False,
    allow_imports: bool = False,
) -> dict[str, Run]:
    """Runs a grid of recipes and values and returns its runs, all done, by the names of their cells.

    The arguments are the options of `explore sweep`; `recipes` may be the file of a sweep. What is in
    the folder `out` already is not run again. Raises `SweepFailed` if some cells failed, after the others.
    """
    asked, folder = _parse_request(as_list(recipes), out)
    texts = as_list(bindings)
    settings = [text for text in texts if text.strip().startswith("launcher.")]  # they are no part of a run
    asked = Sweep(
        asked.recipes,
        (*asked.vary, *as_list(vary)),
        (*asked.bind, *(text for text in texts if text not in settings)),
        asked.seeds if seeds is None else as_integers(seeds),
        tuple(dict.fromkeys((*asked.plugins, *as_list(plugins)))),
    )
    cells = asked.cells()
    if len(cells) > MANY and not yes:
        raise UserError(f"the grid has {len(cells)} cells; add --yes if you mean it")
    registry = discover(asked.plugins)
    for failure in registry.failed:
        note(str(failure))
    chosen = _build_launcher(registry, launcher, settings, jobs=jobs, address=address)
    _check_cells(cells, asked, registry, allow_imports)
    made_with = _digest_sources(asked, registry)
    _check_folder(folder, asked, made_with)
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(files.Lock(folder))
            if not (folder / FILE).exists():
                files.write(folder / FILE, asked.to_toml(made_with))
        except OSError as error:
            raise UserError(f"cannot write the sweep to {folder}: {error.strerror}; choose another --out") from error
        states = {cell.name: CellState(cell.name, folder / cell.name) for cell in cells}
        missing = [cell for cell in cells if states[cell.name].state != "done"]
        tasks = [_make_task(cell, folder, asked.plugins, allow_imports) for cell in missing]
        if not quiet and len(tasks) < len(cells):
            note(f"{len(cells) - len(tasks)} of {len(cells)} cells are done already")
        with Interrupts() as interrupts:
            _run(tasks, states, chosen, registry, interrupts, quiet)
            resume = _resume_command(folder, allow_imports, launcher=launcher, address=address, jobs=jobs)
            _conclude([*states.values()], interrupts.number, resume)
        if not quiet:
            print(f"{len(cells)} cells are done: {folder}", flush=True)
    return {cell.name: Run.open(folder / cell.name) for cell in cells}


def _parse_request(recipes: Sequence[str], out: str | Path | None) -> tuple[Sweep, Path]:
    """The sweep that is named, and its folder."""
    path = next((Path(recipe) for recipe in recipes if recipe.endswith(".toml")), None)
    if path is None and out is None:
        raise UserError("name the folder for the sweep: --out DIR")
    if path is not None and len(recipes) > 1:
        raise UserError(f"{path} is a whole sweep; name it alone")
    asked, folder = Sweep(tuple(recipes)), Path()
    if path is not None:
        asked, _ = read_sweep(path)
        folder = path.parent if path.name == FILE else Path("sweeps", path.stem)
    return asked, folder if out is None else Path(out).expanduser()


def _resume_command(folder: Path, allow_imports: bool, **options: Any) -> str:
    given = {key: value for key, value in options.items() if value not in (None, "local")}
    words = [word for key, value in given.items() for word in (f"--{key}", str(value))]
    return shlex.join(["explore", "sweep", str(folder / FILE), *words, *(["--allow-imports"] if allow_imports else [])])


# Checks, before anything is written


def _check_cells(cells: Sequence[Cell], asked: Sweep, registry: Registry, allow_imports: bool) -> None:
    """Raises `UserError` for the first cell whose configuration has a mistake."""
    places = {f'-b "{text}"': one.place for one in asked.varied for text in one.bindings()}
    for cell in cells:
        try:
            load(cell.recipe, cell.bindings, registry, allow_imports=allow_imports)
        except UserError as error:
            message = str(error)
            for written, place in places.items():
                message = message.replace(written, place)
            raise UserError(message) from error


def _digest_sources(asked: Sweep, registry: Registry) -> dict[str, str]:
    """Digests of the recipes, with what they include, and of the files of plugins, to notice changes."""
    found = {}
    for recipe in asked.recipes:
        statements = [repr(statement[:-1]) for statement, _ in read_file(find_file(recipe))]  # the last is its line
        found[recipe] = hashlib.sha256("\n".join(statements).encode()).hexdigest()
    plugins = provenance(registry)["plugins"]
    return found | {one["source"]: one["sha256"] for one in plugins if one["source"] in asked.plugins and one["sha256"]}


def _check_folder(folder: Path, asked: Sweep, made_with: dict[str, str]) -> None:
    """Raises `UserError` if a folder holds anything but this sweep."""
    if not (folder / FILE).exists():
        if os.path.lexists(folder) and (not folder.is_dir() or {file.name for file in folder.iterdir()} - {".lock"}):
            raise UserError(f"{folder} is something other than the folder of a sweep; choose another --out")
        return
    there, digests = read_sweep(folder / FILE)
    differing = there.find_differences(asked)
    if differing:
        raise UserError(f"{folder} holds another sweep ({' and '.join(differing)} differ); choose another --out")
    edited = [name for name, digest in made_with.items() if digests.get(name, digest) != digest]
    if edited:
        raise UserError(f"{folder} was made with another {edited[0]}, edited since; undo that, or choose another --out")


class _Root:
    """Stands for the experiment in a configuration that only builds a launcher."""

    def __init__(self, launcher: type[Launcher]):
        self.launcher = launcher()


def _build_launcher(registry: Registry, name: str, settings: Sequence[str], **options: Any) -> Launcher:
    """The launcher of this name, in any case, with its bindings and the options of the command line."""
    known = {one.name.lower(): one.selector for one in registry.components.values() if one.slot == "launcher"}
    selector = known.get(name.lower())
    if selector is None:
        raise UserError(f"--launcher {name}: there is no such launcher{suggest(name.lower(), known)}")
    given = [format_binding(f"{selector}.{key}", value) for key, value in options.items() if value is not None]
    config = Config(None, [f"experiment.launcher = @{selector}", *settings, *given], registry, root=_Root)
    launcher: Launcher = config.build().launcher
    for remark in config.unused():
        raise UserError(f"{remark}: the launcher is {selector}; choose another with --launcher")
    return launcher


# At work


def _make_task(cell: Cell, sweep: Path, plugins: Sequence[str], allow_imports: bool) -> Task:
    """The command of a cell, in words after `explore` that mean the same in any working folder."""
    recipe = str(Path(cell.recipe).absolute()) if os.path.isfile(cell.recipe) else cell.recipe
    folder = (sweep / cell.name).absolute()
    bound = [word for text in cell.bindings for word in ("-b", text)]
    given = [str(Path(plugin).absolute()) if plugin.endswith(".py") else plugin for plugin in plugins]
    loaded = [word for plugin in given for word in ("-p", plugin)]
    allowed = ["--allow-imports"] if allow_imports else []
    words = ("run", recipe, *bound, *loaded, *allowed, "--out", str(folder), "--resume", "--quiet")
    return Task(cell.name, words, folder)


def _run(
    tasks: Sequence[Task],
    states: dict[str, CellState],
    launcher: Launcher,
    registry: Registry,
    interrupts: Interrupts,
    quiet: bool,
) -> None:
    """Runs the tasks, keeps the states of their cells up to date, and passes on what the runs note, once each."""
    notes: set[str] = set()
    news_of = _launch(launcher, registry, tasks, lambda: interrupts.number is not None)
    with show_progress([*states.values()], quiet) as show, closing(news_of):
        for news in news_of:
            state = states[news.task.name]
            state.update(news, interrupts.number is not None)
            show(state)
            if news.code is not None:
                with suppress(UserError):  # it did not come as far as to have a folder
                    notes.update(Run.open(state.folder).info["notes"])
    for line in sorted(notes):
        note(line)


def _launch(
    launcher: Launcher, registry: Registry, tasks: Sequence[Task], asked_to_stop: Callable[[], bool]
) -> Generator[News, None, None]:
    """What the launcher reports; an error in the launcher of a plugin gets its name and line."""
    if not tasks:
        return
    with plugin_errors(registry):
        yield from launcher.launch(tasks, asked_to_stop)


def _conclude(states: Sequence[CellState], stopped: int | None, resume: str) -> None:
    """Raises `Interrupted` or `SweepFailed` unless all cells are done."""
    done = sum(state.state == "done" for state in states)
    failed = [state for state in states if state.state in ("failed", "killed")]
    width = max((len(state.name) for state in failed), default=0)
    for state in failed:
        note(f"failed: {state.name.ljust(width)}  {state.reason}")
    if stopped is not None and done < len(states):
        raise Interrupted(f"{done} of {len(states)} cells are done; to resume: {resume}", stopped)
    if done < len(states):
        how = f"{len(states) - done} of {len(states)} cells failed, {done} are done"
        raise SweepFailed(f"{how}; to try those again: {resume}")
