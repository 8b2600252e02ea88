"""Experiments of papers: what there is of each, and running one, as sweeps, and drawing it.

    OUT/NAME/runs/seeds=0-4/GRID/     the folder of a sweep, with a run for each cell
             README.md                claim, table, figures, and how they were made
             figure-1.svg, ...        the figures; figures.png: all of them with their captions
             table.csv

More seeds are sweeps of their own beside those that are there, since a seed is the same in any company.
A cell that is done is not run again. Reading and drawing needs no torch.
"""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from explore_plugins import BUILT_IN_EXPERIMENTS
from gin import config_parser

from explore._config.discovery import Registry, discover
from explore._config.gin_files import find_file, format_binding, read_file, read_option, strip_scope
from explore._config.seeds import format_seeds, parse_seeds
from explore._config.tracebacks import plugin_errors
from explore._messages import note, suggest
from explore._storage import files
from explore._storage.run_folder import Run
from explore._sweeps.grid import Sweep, read_sweep
from explore.errors import Interrupted, RunFailed, SweepFailed, UserError
from explore.experiments import Experiment, Grid

if TYPE_CHECKING:
    from explore._analysis.report.data import ReportData
    from explore._analysis.report.drawing import Section

FOLDER = "reproduce"
BATCH = "seeds="  # how the folders of sweeps begin


class Part(NamedTuple):
    """A grid of an experiment with some seeds."""

    name: str
    sweep: Sweep
    folder: Path

    def done(self) -> int:
        """How many of its cells are."""
        count = 0
        for cell in self.sweep.cells():
            with suppress(UserError):  # not begun, or damaged, which the sweep reports
                count += Run.open(self.folder / cell.name).status == "done"
        return count

    def is_done(self) -> bool:
        """Whether all cells are, and those of just this sweep."""
        with suppress(UserError):
            there, _ = read_sweep(self.folder / "sweep.toml")
            return not there.find_differences(self.sweep) and self.done() == len(self.sweep.cells())
        return False


def list_experiments(plugins: Sequence[str] = ()) -> Registry:
    """The experiments of all plugins; of the built-in ones only these are imported."""
    registry = discover(plugins, BUILT_IN_EXPERIMENTS)
    for failure in registry.failed:
        note(str(failure))
    return registry


def find_experiment(registry: Registry, name: str) -> Experiment:
    if name not in registry.experiments:
        raise UserError(f"there is no experiment {name!r}{suggest(name, registry.experiments)}")
    return registry.experiments[name]


def find_folder(name: str, out: str | Path | None, scale: float = 1.0) -> Path:
    """Where an experiment is; sketches are apart from it."""
    return Path(out or FOLDER).expanduser() / (name if scale == 1 else f"{name}-sketch-{scale:g}")


def describe_state(experiment: Experiment, folder: Path, scale: float = 1.0) -> str:
    """How much of an experiment is done: "seeds 0-4: done", say."""
    states = []
    for seeds in _seeds_there(folder):
        parts = list(_list_parts(experiment, folder, seeds, scale, ()))
        done, cells = sum(part.done() for part in parts), sum(len(part.sweep.cells()) for part in parts)
        states.append(f"seeds {format_seeds(seeds)}: {'done' if done == cells else f'{done} of {cells} cells'}")
    return "; ".join(states) or "not begun"


def reproduce(
    name: str,
    *,
    seeds: Sequence[int] | None = None,
    scale: float = 1.0,
    out: str | Path | None = None,
    plugins: Sequence[str] = (),
    quiet: bool = False,
    **launching: Any,
) -> Path:
    """Runs what is missing of an experiment, draws it, and returns its page; `launching` goes to the sweeps.

    Raises `SweepFailed` if some cells failed, after the others have been run and drawn.
    """
    registry = list_experiments(plugins)
    experiment = find_experiment(registry, name)
    folder = find_folder(name, out, scale)
    command = _command(experiment, seeds, scale, out, plugins, launching)
    if scale != 1 and not quiet:
        note(f"this is a sketch: {', '.join(experiment.scaled)} times {scale:g}; it shows nothing of the claim")
    failed = []
    for batch in plan_batches(_seeds_there(folder), experiment.seeds if seeds is None else seeds):
        for part in _list_parts(experiment, folder, batch, scale, plugins):
            if not part.is_done():
                failed += _run(part, plugins, quiet, command, launching)
    if failed and not any(part.done() for part in _list_all_parts(experiment, folder, scale, plugins)):
        raise SweepFailed(f"no cell is done; to try again: {command}")
    page = draw(experiment, folder, scale, command, registry, plugins)
    if failed:
        raise SweepFailed(f"{'; '.join(failed)}; {page} shows the others; to try again: {command}")
    return page


def plan_batches(there: Sequence[tuple[int, ...]], asked: Sequence[int]) -> list[tuple[int, ...]]:
    """The seeds of each sweep to run: those that hold some of what is asked for, and a new one for the rest."""
    known = {seed for batch in there for seed in batch}
    rest = tuple(sorted({*asked} - known))  # as the name of their folder says
    return [batch for batch in there if {*asked} & {*batch}] + ([rest] if rest else [])


def scale_grid(grid: Grid, scaled: Sequence[str], scale: float) -> Grid:
    """A grid with whole numbers made smaller, at least 1: those that its recipes bind and it does not vary."""
    if scale == 1:
        return grid
    varied = {one.target for one in Sweep(tuple(grid.recipes), tuple(grid.vary)).varied}
    found: dict[str, int] = {}
    for recipe in grid.recipes:
        values = _read_numbers(recipe, grid.bind)
        for name in scaled:
            if name in values and name not in varied:
                found[name] = min(values[name], found.get(name, values[name]))
    smaller = [format_binding(name, max(1, round(number * scale))) for name, number in found.items()]
    return replace(grid, bind=[*grid.bind, *smaller])


def _read_numbers(recipe: str, bind: Sequence[str]) -> dict[str, int]:
    """The whole numbers that a recipe and bindings bind, by parameter; the last one counts."""
    statements = [*read_file(find_file(recipe)), *(one for text in bind for one in read_option("-b", text))]
    return {
        f"{one.selector}.{one.arg_name}": one.value
        for one, _ in statements
        if isinstance(one, config_parser.BindingStatement) and not one.scope and type(one.value) is int
    }


def _seeds_there(folder: Path) -> list[tuple[int, ...]]:
    return sorted(parse_seeds(path.name.removeprefix(BATCH)) for path in (folder / "runs").glob(f"{BATCH}*"))


def _list_parts(
    experiment: Experiment, folder: Path, seeds: Sequence[int], scale: float, plugins: Sequence[str]
) -> Iterator[Part]:
    batch = folder / "runs" / f"{BATCH}{format_seeds(seeds).replace(' ', '')}"
    for name, grid in experiment.grids.items():
        small = scale_grid(grid, experiment.scaled, scale)
        recipes, vary, bind, loaded = map(tuple, (small.recipes, small.vary, small.bind, dict.fromkeys(plugins)))
        yield Part(name, Sweep(recipes, vary, bind, tuple(seeds), loaded), batch / name)


def _list_all_parts(experiment: Experiment, folder: Path, scale: float, plugins: Sequence[str]) -> list[Part]:
    there = _seeds_there(folder)
    return [part for seeds in there for part in _list_parts(experiment, folder, seeds, scale, plugins)]


def _command(
    experiment: Experiment, seeds: Sequence[int] | None, scale: float, out: Any, plugins: Sequence[str], more: Any
) -> str:
    """What to type for the same again."""
    options = {"seeds": format_seeds(experiment.seeds if seeds is None else seeds).replace(" ", ""), "out": out}
    options |= {"scale": f"{scale:g}" if scale != 1 else None}
    options |= {name: value for name, value in more.items() if value != "local"}
    words = [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
    return shlex.join(["explore", "reproduce", experiment.name, *words, *(w for one in plugins for w in ("-p", one))])


def _run(part: Part, plugins: Sequence[str], quiet: bool, command: str, launching: Any) -> list[str]:
    """Runs what is missing of a part; returns what failed, and lets an interrupt say how to go on."""
    from explore._sweeps.sweeper import sweep

    asked = part.sweep
    if not quiet:
        note(f"{part.name}, seeds {format_seeds(asked.seeds or ())}: {len(asked.cells())} cells")
    try:
        sweep(asked.recipes, vary=asked.vary, bindings=asked.bind, seeds=asked.seeds, plugins=plugins,
              out=part.folder, yes=True, quiet=quiet, **launching)  # fmt: skip
    except SweepFailed as error:
        return [f"{part.name}: {str(error).partition('; to try')[0]}"]
    except Interrupted as stop:
        done = str(stop).partition("; to resume")[0]
        raise Interrupted(f"{part.name}: {done}; to resume: {command}", stop.number) from stop
    return []


# Drawing, from files


def draw(
    experiment: Experiment, folder: Path, scale: float, command: str, registry: Registry, plugins: Sequence[str] = ()
) -> Path:
    """Draws what is done of an experiment and returns its page."""
    from explore._analysis.report.drawing import Section
    from explore._analysis.report.style import png, styled, svg

    data = read(experiment, _list_all_parts(experiment, folder, scale, plugins))
    with styled(), plugin_errors(registry):
        section = experiment.draw(data)
    if not isinstance(section, Section):
        raise RunFailed(f"draw of {experiment.name} must return a Section, got {section!r:.80}")
    texts: dict[str, Any] = {}
    for number, picture in enumerate(section.pictures, start=1):
        text = svg(picture.figure, picture.caption, f"figure-{number}")
        texts[f"figure-{number}.svg"] = text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"
    if section.pictures:
        texts["figures.png"] = png(section.pictures, _title(section, scale))
    if section.table:
        text_of_table = io.StringIO()
        csv.writer(text_of_table, lineterminator="\n").writerows(section.table)
        texts["table.csv"] = text_of_table.getvalue()
    texts["README.md"] = _page(experiment, section, data, scale, command)
    try:
        for name, content in texts.items():
            files.write(folder / name, content)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}; choose another --out") from error
    return folder / "README.md"


def read(experiment: Experiment, parts: Sequence[Part]) -> ReportData:
    """The runs that are done, their methods called as the experiment says; raises `UserError` if there are none."""
    from explore._analysis.groups import read_finished_runs
    from explore._analysis.report.data import gather

    names = {
        part.folder / cell.name: _name_method(part.sweep, cell.name, cell.recipe, experiment)
        for part in parts
        for cell in part.sweep.cells()
    }
    data = gather(*read_finished_runs(folder for folder in names if (folder / "run.json").exists()))
    if not data.results:
        raise UserError(f"there is no finished run of {experiment.name}: {'; '.join(data.left_out)}")
    for result in data.results:
        result.method = names[result.configuration.runs[0].folder]
    return data


def _name_method(sweep: Sweep, cell: str, recipe: str, experiment: Experiment) -> str:
    """The parts of a cell's name that are of its method, as the experiment calls them."""
    targets = [strip_scope(one.target) for one in sweep.varied]
    values = cell.split(",")[-len(targets) :] if targets else []
    of_method = [v for t, v in zip(targets, values) if not t.startswith(("environment.", "experiment."))]
    several = len({one for grid in experiment.grids.values() for one in grid.recipes}) > 1
    if several or not of_method:
        of_method.insert(0, Path(recipe).stem)
    return ", ".join(experiment.labels.get(one, one.replace("=", " = ")) for one in of_method)


def _title(section: Section, scale: float) -> str:
    return section.title + (f" (a sketch at scale {scale:g})" if scale != 1 else "")


def _page(experiment: Experiment, section: Section, data: ReportData, scale: float, command: str) -> str:
    parts = [f"# {_title(section, scale)}", f"Claim: {experiment.claim}", *section.text]
    if scale != 1:
        parts.insert(1, f"**A sketch, which shows nothing of the claim**: {', '.join(experiment.scaled)} × {scale:g}.")
    if section.table:
        header, *rows = [[cell.replace("|", "\\|") for cell in row] for row in section.table]
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)))
    for number, picture in enumerate(section.pictures, start=1):
        parts += [f"![figure {number}](figure-{number}.svg)", picture.caption]
    runs = [run for result in data.results for run in result.configuration.runs]
    hours = sum(run.info.get("seconds") or 0 for run in runs) / 3600
    versions = {f"{name} {run.info['versions'].get(name)}" for run in runs for name in ("explore", "torch")}
    seeds = format_seeds({seed for result in data.results for seed in result.seeds})
    made = f"Made of {len(runs)} runs of {hours:.2f} hours in all with seeds {seeds}, {', '.join(sorted(versions))}, by"
    parts += [made, f"```\n{command}\n```", *(f"Left out: {line}." for line in data.left_out)]
    return "\n\n".join(parts) + "\n"
