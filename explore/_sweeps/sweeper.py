"""Runs a sweep: checks every cell, starts what is missing, and says what became of each.

    SWEEP/sweep.toml   the sweep: `explore sweep SWEEP/sweep.toml` goes on with it
          CELL/        a run folder like any other, one per cell
          .lock        held by the process that runs the sweep

A cell is the command `explore run ... --resume` in a process of its own, since gin's configuration is
global; a launcher starts it. So a cell has the bytes of the same run on its own, and whatever
happened to it, the same command goes on with it.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import signal
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
from gin import config_parser

from explore._config import configuration
from explore._config.discovery import Registry, discover
from explore._config.gin_files import find_file, format_value, is_literal, read_file, read_text
from explore._config.parameters import parameters
from explore._config.tracebacks import name_plugin_that_raised
from explore._messages import note, suggest, to_one_line
from explore._running.interrupts import Interrupts
from explore._running.provenance import provenance
from explore._storage import files
from explore._storage.run_folder import Run
from explore._sweeps.grid import Cell, Sweep, read_sweep
from explore._sweeps.progress import State, display
from explore.errors import Interrupted, RunFailed, SweepFailed, UserError
from explore.interfaces import Launcher, News, Task

FILE = "sweep.toml"
MANY = 64
"""More cells than these want a `--yes`."""


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
    asked, folder = _asked(_listed(recipes), out)
    settings, bindings = _settings(_listed(bindings))
    asked = Sweep(
        asked.recipes,
        (*asked.vary, *_listed(vary)),
        (*asked.bind, *bindings),
        tuple(int(seed) if isinstance(seed, np.integer) else seed for seed in seeds)
        if seeds is not None
        else asked.seeds,
        tuple(dict.fromkeys((*asked.plugins, *_listed(plugins)))),
    )
    if asked.size > MANY and not yes:
        raise UserError(f"the grid has {asked.size} cells; add --yes if you mean it")
    registry = discover(asked.plugins)
    for failure in registry.failed:
        note(str(failure))
    chosen = _launcher(registry, launcher, settings, jobs=jobs, address=address)
    cells = asked.cells()
    _check(cells, asked, registry, allow_imports)
    made_with = _digests(asked, registry)
    _check_folder(folder, asked, made_with)
    going_on = _going_on(folder, allow_imports, launcher=launcher, address=address, jobs=jobs)
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(files.Lock(folder))
            if not (folder / FILE).exists():
                files.write(folder / FILE, asked.text(made_with))
        except OSError as error:
            raise UserError(f"cannot write the sweep to {folder}: {error.strerror}; choose another --out") from error
        _run(folder, cells, chosen, registry, asked, quiet, allow_imports, going_on)
    return {cell.name: Run.open(folder / cell.name) for cell in cells}


def _asked(recipes: Sequence[str], out: str | Path | None) -> tuple[Sweep, Path]:
    """The sweep that is named, and its folder."""
    given = [recipe for recipe in recipes if recipe.endswith(".toml")]
    if any("\0" in word for word in (*recipes, str(out))):
        raise UserError("there is a zero byte in a name")
    if not given:
        if out is None:
            raise UserError("name the folder for the sweep: --out DIR")
        return Sweep(tuple(recipes)), Path(out).expanduser()
    if len(recipes) > 1:
        raise UserError(f"{given[0]} is a whole sweep; name it alone")
    path = Path(given[0])
    asked, _ = read_sweep(path)
    if out is None:
        return asked, path.parent if path.name == FILE else Path("sweeps", path.stem)
    return asked, Path(out).expanduser()


# Checks, before anything is written


def _check(cells: Sequence[Cell], asked: Sweep, registry: Registry, allow_imports: bool) -> None:
    """Raises `UserError` for the first cell whose configuration has a mistake."""
    places = {f'-b "{text}"': one.place for one in asked.varied() for text in one.bindings()}
    for cell in cells:
        try:
            configuration.load(cell.recipe, cell.bindings, registry, allow_imports=allow_imports)
        except UserError as error:
            message = str(error)
            for written, place in places.items():
                message = message.replace(written, place)
            raise UserError(message) from error


def _digests(asked: Sweep, registry: Registry) -> dict[str, str]:
    """What the recipes say, with what they include, and the files of plugins: as digests, to see changes."""
    found = {}
    for recipe in asked.recipes:
        statements = [
            repr(tuple(part for part in statement if not isinstance(part, config_parser.Location)))
            for statement, _ in read_file(find_file(recipe))
        ]
        found[recipe] = hashlib.sha256("\n".join(statements).encode()).hexdigest()
    plugins = provenance(registry)["plugins"]
    return found | {one["source"]: one["sha256"] for one in plugins if one["source"] in asked.plugins and one["sha256"]}


def _check_folder(folder: Path, asked: Sweep, made_with: dict[str, str]) -> None:
    """Raises `UserError` if a folder holds anything but this sweep."""
    if not os.path.lexists(folder):
        return
    if not os.path.isdir(folder):
        raise UserError(f"{folder} is not a folder; choose another --out")
    if (folder / "run.json").exists():
        raise UserError(f"{folder} holds a run, not a sweep; choose another --out")
    if not (folder / FILE).exists():
        if any(entry.name != ".lock" for entry in folder.iterdir()):
            raise UserError(f"{folder} holds something else than a sweep; choose another --out")
        return
    there, digests = read_sweep(folder / FILE)
    differing = there.differences(asked)
    if differing:
        raise UserError(f"{folder} holds another sweep ({' and '.join(differing)} differ); choose another --out")
    edited = [name for name, digest in made_with.items() if digests.get(name, digest) != digest]
    if edited:
        raise UserError(f"{folder} was made with another {edited[0]}, edited since; undo that, or choose another --out")


# Launchers


def _settings(bindings: Sequence[str]) -> tuple[dict[tuple[str, str], tuple[Any, str]], list[str]]:
    """The bindings of launchers' parameters, which are no part of a run: by launcher and parameter; and the rest."""
    settings, rest = {}, []
    for text in bindings:
        place = f'-b "{to_one_line(text)}"'
        statements = [statement for statement, _ in read_text(text, lambda line, place=place: place, Path())]  # type: ignore[misc]
        if len(statements) == 1 and str(getattr(statements[0], "selector", "")).startswith("launcher."):
            _, name, parameter, value, *_ = statements[0]
            settings[name, parameter] = value, place
        else:
            rest.append(text)
    return settings, rest


def _launcher(
    registry: Registry, name: str, settings: dict[tuple[str, str], tuple[Any, str]], **options: Any
) -> Launcher:
    """The launcher of this name, capitals or not, with what the user set of it."""
    known = {one.name: one for one in registry.components.values() if one.slot == "launcher"}
    found = next((one for one in known.values() if one.name.casefold() == name.casefold()), None)
    if found is None:
        near = suggest(name.lower(), (other.lower() for other in known))
        raise UserError(f"--launcher {name}: there is no such launcher{near}")
    given = {(found.selector, key): (value, f"--{key} {value}") for key, value in options.items() if value is not None}
    takes = parameters(found.cls)
    arguments = {}
    for (selector, parameter), (value, place) in (settings | given).items():
        if selector != found.selector:
            raise UserError(f"{place}: the launcher is {found.selector}; choose another with --launcher")
        if parameter not in takes:
            raise UserError(f"{place}: {found.selector} has no parameter {parameter!r}{suggest(parameter, takes)}")
        if not is_literal(value) or not takes[parameter].fits(value):
            shown = format_value(value) if is_literal(value) else value
            raise UserError(f"{place}: {found.selector}: {parameter} must be {takes[parameter].kind}, got {shown}")
        arguments[parameter] = value
    try:
        return found.cls(**arguments)
    except (ValueError, TypeError) as error:
        raise UserError(f"{found.selector}: {error}") from error


# At work


def _run(
    folder: Path,
    cells: Sequence[Cell],
    launcher: Launcher,
    registry: Registry,
    asked: Sweep,
    quiet: bool,
    allow_imports: bool,
    going_on: str,
) -> None:
    """Runs the cells that are not done; raises `Interrupted` or `SweepFailed` unless all are in the end."""
    states = {cell.name: State(cell.name, folder / cell.name) for cell in cells}
    for state in states.values():
        if _is_done(state.folder):
            state.state = "done"
            state.look()
    tasks = [
        Task(cell.name, _words(cell, folder, asked.plugins, allow_imports), (folder / cell.name).absolute())
        for cell in cells
        if states[cell.name].state != "done"
    ]
    if not quiet and len(tasks) < len(cells):
        note(f"{len(cells) - len(tasks)} of {len(cells)} cells are done already")
    told: set[str] = set()
    with Interrupts() as interrupts:
        news_of = _news(launcher, registry, tasks, lambda: interrupts.number is not None)
        with display(list(states.values()), quiet) as shown, closing(news_of):
            for news in news_of:
                state = states[news.task.name]
                _take_in(state, news, interrupts.number is not None)
                shown.show(state)
                told |= _remarks(news.text) if news.code is not None else set()
        for remark in sorted(told):
            note(remark)
        _conclude(folder, list(states.values()), interrupts.number, quiet, going_on)


def _news(
    launcher: Launcher, registry: Registry, tasks: Sequence[Task], asked_to_stop: Callable[[], bool]
) -> Generator[News, None, None]:
    """What the launcher tells; what goes wrong in somebody's launcher is told with its name and line."""
    if not tasks:
        return
    try:
        yield from launcher.launch(tasks, asked_to_stop)
    except (UserError, RunFailed):
        raise
    except Exception as error:
        raise name_plugin_that_raised(error, registry) from error.__cause__


def _is_done(folder: Path) -> bool:
    try:
        return Run.open(folder).status == "done"
    except UserError:  # not begun, or damaged, of which the cell itself tells
        return False


def _words(cell: Cell, folder: Path, plugins: Sequence[str], allow_imports: bool) -> tuple[str, ...]:
    """The command of a cell, which means the same in any working folder."""
    recipe = str(Path(cell.recipe).absolute()) if os.path.isfile(cell.recipe) else cell.recipe
    bound = [word for text in cell.bindings for word in ("-b", text)]
    given = [str(Path(plugin).absolute()) if plugin.endswith(".py") else plugin for plugin in plugins]
    loaded = [word for plugin in given for word in ("-p", plugin)]
    allowed = ["--allow-imports"] if allow_imports else []
    out = str((folder / cell.name).absolute())
    return ("run", recipe, *bound, *loaded, *allowed, "--out", out, "--resume", "--quiet")


def _take_in(state: State, news: News, stopping: bool) -> None:
    """Brings a state up to date with the news."""
    state.reason = ""
    if news.code is None:
        state.state, state.reason = "running", news.text
        return
    state.look()
    if news.code == 0:
        state.state = "done"
    elif stopping and (news.code < 0 or news.code > 128):
        state.state = "interrupted"
    elif news.code < 0:
        state.state, state.reason = "killed", f"killed by {_signal(-news.code)}, again and again"
    else:
        lines = [line for line in news.text.splitlines() if line.strip()] or [f"exit code {news.code}"]
        complaints = [line for line in lines if line.startswith("explore: ")]
        last = (complaints or lines)[-1]
        state.state, state.reason = "failed", last.removeprefix("explore: ").removeprefix("error: ")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _remarks(text: str) -> set[str]:
    """What cells have to say of their configuration."""
    start = "explore: note: "
    lines = {line.removeprefix(start) for line in text.splitlines() if line.startswith(start)}
    return {line for line in lines if line.endswith("has no effect in this run") or ": the macro " in line}


def _conclude(folder: Path, states: Sequence[State], stopped: int | None, quiet: bool, going_on: str) -> None:
    """Says how the sweep ended."""
    done = sum(state.state == "done" for state in states)
    failed = [state for state in states if state.state in ("failed", "killed")]
    width = max((len(state.name) for state in failed), default=0)
    for state in failed:
        note(f"failed: {state.name.ljust(width)}  {state.reason}")
    if stopped is not None and done < len(states):
        raise Interrupted(f"{done} of {len(states)} cells are done; to go on: {going_on}", stopped)
    if done < len(states):
        how = f"{len(states) - done} of {len(states)} cells failed, {done} are done"
        raise SweepFailed(f"{how}; to try those again: {going_on}")
    if not quiet:
        print(f"{done} cells are done: {folder}", flush=True)


def _going_on(folder: Path, allow_imports: bool, **options: Any) -> str:
    """The command that goes on with a sweep."""
    given = {key: value for key, value in options.items() if value not in (None, "local")}
    words = [word for key, value in given.items() for word in (f"--{key}", str(value))]
    return shlex.join(["explore", "sweep", str(folder / FILE), *words, *(["--allow-imports"] if allow_imports else [])])


def _listed(given: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(given)] if isinstance(given, str | Path) else [str(one) for one in given]
