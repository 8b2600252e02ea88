"""The command `explore`. Heavy packages are imported by the commands, so that `--help` is quick."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from explore import __version__
from explore._messages import complain, suggest
from explore.errors import RunFailed, UserError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns 0, 1 (it failed), 2 (the user's mistake), 3 (part of a sweep failed), or a signal's."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    code = _exit_code(argv)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # the terminal is gone, or the disk of a log full
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # or Python would fail when it exits
    return code


def _exit_code(argv: Sequence[str] | None) -> int:
    try:
        arguments = _parser().parse_args(argv)
        arguments.command(arguments)
        sys.stdout.flush()  # a closed pipe shows here, not when Python exits
    except (UserError, RunFailed) as error:
        if isinstance(error, RunFailed) and error.__cause__ and os.environ.get("EXPLORE_TRACEBACK"):
            traceback.print_exception(error.__cause__)
        complain(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        complain(": ".join(["interrupted", *map(str, interrupt.args)]))
        return getattr(interrupt, "exit_code", 130)
    except BrokenPipeError:
        return 1
    except Exception as error:
        if os.environ.get("EXPLORE_TRACEBACK"):
            traceback.print_exc()
        complain(
            f"internal error: {type(error).__name__}: {error} (a bug in explore; set EXPLORE_TRACEBACK=1 to see where)"
        )
        return 1
    return 0


def parse_seeds(text: str) -> tuple[int, ...]:
    """The seeds of `0-4`, `0,3,7` or a mixture, in the order given."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part, re.ASCII)
        if not match:
            raise UserError(f"--seeds {text!r}: {part.strip()!r} is not a seed; write e.g. 0-4 or 0,3,7")
        if max(len(match[1]), len(match[2] or "")) > 30:
            raise UserError(f"--seeds: {part.strip()[:30]}... is too large a number")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UserError(f"--seeds {text!r}: the range {part.strip()!r} is empty; write {last}-{first}")
        seeds.extend(range(first, last + 1))
    repeated = [seed for seed, count in Counter(seeds).items() if count > 1]
    if repeated:
        raise UserError(f"--seeds {text!r}: {min(repeated)} is repeated; every seed is run once")
    return tuple(seeds)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="explore", description="Exploration methods in RL, composed from plugins by gin files.")
    parser.add_argument("--version", action="version", version=f"explore {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, function: Any, summary: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=summary, description=summary)
        added.set_defaults(command=function)
        added.add_argument(
            "-p",
            dest="plugins",
            metavar="PLUGIN",
            action="append",
            default=[],
            help="load a plugin too: a .py file or a module",
        )
        return added

    run = command("run", _run, "train the agent that a gin file describes, all seeds at once")
    run.add_argument("config", metavar="CONFIG.gin", nargs="?", help="a file, or the name of an installed recipe")
    run.add_argument("--out", metavar="DIR", help="the folder for the run; without --resume it must not exist")
    run.add_argument(
        "--resume",
        metavar="DIR",
        nargs="?",
        const="",
        help="go on with the run in DIR (or that of --out) from its latest checkpoint",
    )
    run.add_argument("--force", action="store_true", help="resume even if the outcome may then be another")
    _add_experiment_options(run)
    sweep = command("sweep", _sweep, "run a grid of recipes and values, cells side by side, all seeds of each at once")
    sweep.add_argument(
        "recipes", metavar="CONFIG.gin", nargs="+", help="files or names of recipes; or one FILE.toml, a sweep"
    )
    sweep.add_argument(
        "--vary", metavar="VALUES", action="append", default=[], help='"slot.Name.parameter = [v1, v2, ...]"'
    )
    sweep.add_argument("--out", metavar="DIR", help="the folder for the sweep; what is done in it is not run again")
    sweep.add_argument("--jobs", metavar="N", help="cells that run at a time; default: one per core")
    sweep.add_argument("--launcher", metavar="NAME", default="local", help="local (default), ray or a plugin's")
    sweep.add_argument("--address", metavar="ADDRESS", help="of the cluster that the launcher is to use")
    sweep.add_argument("--yes", action="store_true", help="run a grid of many cells")
    _add_experiment_options(sweep)
    compare = command("compare", _compare, "runs side by side: scores with intervals, episodes to solve, cost")
    compare.add_argument("folders", metavar="RUN_OR_SWEEP", nargs="+", help="folders of runs or sweeps, of one task")
    shape = compare.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print JSON instead of a table")
    shape.add_argument("--csv", action="store_true", help="print CSV instead of a table")
    report = command("report", _report, "runs as one page with pictures: learning, solving, cost, maps of beliefs")
    report.add_argument("folders", metavar="RUN_OR_SWEEP", nargs="+", help="folders of runs or sweeps, of any tasks")
    report.add_argument("--out", metavar="FILE.html", default="report.html", help="default: report.html")
    watch = command("watch", _watch, "pictures of a run while it is going, on a page that only this machine can see")
    watch.add_argument("folder", metavar="RUN", help="the folder of a run")
    watch.add_argument("--port", metavar="N", default="0", help="of the page; default: any that is free")
    watch.add_argument("--once", action="store_true", help="write one picture and end")
    watch.add_argument("--out", metavar="FILE.png", help="where to write it; default: watch.png")
    export = command("export-bsuite", _export_bsuite, "runs of bsuite's tasks as the CSV files that bsuite reads")
    export.add_argument("folders", metavar="RUN_OR_SWEEP", nargs="+", help="folders of runs or sweeps")
    export.add_argument("--out", metavar="DIR", required=True, help="a new folder for the files")
    command("plugins", _plugins, "what is installed, from where, and what failed to load")
    components = command("components", _components, "every component with its parameters and defaults")
    components.add_argument("slot", metavar="SLOT", nargs="?", help="only those of this slot")
    describe = command("describe", _describe, "the documentation and the parameters of a component")
    describe.add_argument("name", metavar="SLOT.NAME", help="e.g. uncertainty.SoftplusHeads")
    new = command("new-plugin", _new_plugin, "write the package of a new plugin: a component that works, and its test")
    new.add_argument("name", metavar="NAME", help="e.g. cosine-heads")
    new.add_argument("--slot", metavar="SLOT", default="uncertainty", help="of its component; default: uncertainty")
    new.add_argument("--out", metavar="DIR", help="a new folder for the package; default: NAME")
    return parser


def _add_experiment_options(parser: argparse.ArgumentParser) -> None:
    """What is said of an experiment, be it one run or the cells of a sweep."""
    binding = '"slot.Name.parameter = value"'
    parser.add_argument("-b", dest="bindings", metavar="BINDING", action="append", default=[], help=binding)
    parser.add_argument("--seeds", metavar="SEEDS", help="e.g. 0-4 or 0,3,7")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument("--allow-imports", action="store_true", help="let import statements in gin files run code")


def _run(arguments: argparse.Namespace) -> None:
    config, out = _config_and_folder(arguments)
    seeds = parse_seeds(arguments.seeds) if arguments.seeds is not None else None

    from explore._running.run import run

    run(
        config,
        bindings=arguments.bindings,
        seeds=seeds,
        out=out,
        resume=arguments.resume is not None,
        force=arguments.force,
        plugins=arguments.plugins,
        quiet=arguments.quiet,
        allow_imports=arguments.allow_imports,
    )


def _sweep(arguments: argparse.Namespace) -> None:
    seeds = parse_seeds(arguments.seeds) if arguments.seeds is not None else None
    if arguments.jobs is not None and not re.fullmatch(r"[1-9]\d{0,5}", arguments.jobs, re.ASCII):
        raise UserError(f"--jobs must be a whole number of at least 1, got {arguments.jobs!r}")

    from explore._sweeps.sweeper import sweep

    sweep(
        arguments.recipes,
        vary=arguments.vary,
        bindings=arguments.bindings,
        seeds=seeds,
        out=arguments.out,
        plugins=arguments.plugins,
        jobs=int(arguments.jobs) if arguments.jobs is not None else None,
        launcher=arguments.launcher,
        address=arguments.address,
        yes=arguments.yes,
        quiet=arguments.quiet,
        allow_imports=arguments.allow_imports,
    )


def _config_and_folder(arguments: argparse.Namespace) -> tuple[str | None, str | None]:
    """What to run, and where; `--resume` may be followed by the one or the other, or stand alone."""
    config, out, resume = arguments.config, arguments.out, arguments.resume
    if any("\0" in word for word in (config, out, resume) if word):
        raise UserError("there is a zero byte in a name")
    if resume is None and config is None:
        raise UserError("name a configuration to run, or a folder to go on with: --resume DIR (see explore run --help)")
    if resume is None and arguments.force:
        raise UserError("--force goes with --resume")
    if resume and config is None and (out is not None or (not os.path.isdir(resume) and resume.endswith(".gin"))):
        return resume, out
    if resume and out is not None and os.path.realpath(out) != os.path.realpath(resume):
        raise UserError(f"--resume {resume} and --out {out} name two folders; one is enough")
    if resume == "" and config is None and out is None:
        raise UserError("--resume what? Name the folder of the run: explore run --resume DIR")
    return config, resume or out


def _compare(arguments: argparse.Namespace) -> None:
    from explore._analysis.compare import COSTS, compare

    comparison = compare(arguments.folders)
    if arguments.json or arguments.csv:
        print(comparison.json() + "\n" if arguments.json else comparison.csv(), end="")
        return
    rows, console = comparison.table(), _console()
    tables = [_filled(rows)]
    if _width(tables[0], console) > console.width:
        costs = len(rows[0]) - sum(name in COSTS for name in rows[0])
        tables = [_filled([row[:costs] for row in rows]), _filled([[row[0], *row[costs:]] for row in rows])]
    for table in tables:
        _break_between_words(table, console)
        console.print(table)
    console.print(*["", *comparison.foot()], sep="\n")


def _report(arguments: argparse.Namespace) -> None:
    from explore._analysis.report import report

    print(report(arguments.folders, arguments.out))


def _watch(arguments: argparse.Namespace) -> None:
    if not re.fullmatch(r"\d{1,5}", arguments.port, re.ASCII) or int(arguments.port) > 65535:
        raise UserError(f"--port must be a whole number from 0 to 65535, got {arguments.port!r}")
    if arguments.out is not None and not arguments.once:
        raise UserError("--out goes with --once")

    from explore._analysis.watch import once, watch

    if arguments.once:
        print(once(arguments.folder, arguments.out or "watch.png"))
    else:
        watch(arguments.folder, int(arguments.port))


def _export_bsuite(arguments: argparse.Namespace) -> None:
    from explore._analysis.export import export_bsuite

    for path in export_bsuite(arguments.folders, arguments.out):
        print(path)


def _plugins(arguments: argparse.Namespace) -> None:
    from explore._config.discovery import discover

    registry = discover(arguments.plugins)
    table = _table("plugin", "source", "version", "components")
    for plugin in registry.plugins:
        supplied = ", ".join(component.selector for component in plugin.components) or "(watches runs)"
        table.add_row(plugin.name, plugin.source, plugin.version, supplied)
    console = _console()
    console.print(table)
    if registry.failed:
        table = _table("failed", "source", "reason")
        for failure in registry.failed:
            table.add_row(failure.name, failure.source, failure.reason)
        console.print()
        console.print(table)


def _components(arguments: argparse.Namespace) -> None:
    from explore._config.discovery import discover
    from explore._config.parameters import parameters
    from explore.hooks import SLOTS

    if arguments.slot is not None and arguments.slot not in SLOTS:
        raise UserError(f"unknown slot {arguments.slot!r}{suggest(arguments.slot, SLOTS)}")
    registry = discover(arguments.plugins)
    table = _table("component", "parameter", "default")
    for slot in [arguments.slot] if arguments.slot else SLOTS:
        for component in registry.components.values():
            if component.slot == slot:
                rows = [(name, _default(known)) for name, known in parameters(component.cls).items()] or [("", "")]
                for number, row in enumerate(rows):
                    table.add_row("" if number else component.selector, *row, end_section=row is rows[-1])
    _console().print(table)


def _describe(arguments: argparse.Namespace) -> None:
    import inspect

    from explore._config.configuration import ROOT
    from explore._config.discovery import discover
    from explore._config.parameters import parameters

    components = discover(arguments.plugins).components
    if arguments.name == ROOT:
        from explore._running.experiment import Experiment

        cls: type = Experiment
        origin = "the root of a configuration"
    elif arguments.name in components:
        component = components[arguments.name]
        cls, origin = component.cls, f"plugin {component.plugin}, {component.source}"
    else:
        raise UserError(f"unknown component {arguments.name!r}{suggest(arguments.name, [ROOT, *components])}")
    console = _console()
    console.print(f"{arguments.name} ({origin})\n")
    console.print(re.sub(r"\n*^Args:\n(?:[ ]+.*\n?|\n)+", "\n", inspect.getdoc(cls) or "", flags=re.MULTILINE).strip())
    known = parameters(cls).values()
    if known:
        table = _table("parameter", "default", "type", "meaning")
        for parameter in known:
            table.add_row(parameter.name, _default(parameter), parameter.annotation, parameter.documentation)
        console.print()
        console.print(table)


def _new_plugin(arguments: argparse.Namespace) -> None:
    from explore._cli.new_plugin import new_plugin

    paths, commands = new_plugin(arguments.name, arguments.slot, arguments.out, arguments.plugins)
    print(*paths, sep="\n")
    print("\nNext:", f"cd {shlex.quote(os.path.dirname(paths[0]))}", *commands, sep="\n  ")


def _default(parameter: Any) -> str:
    if parameter.required:
        return "(required)"
    return parameter.default.__name__ if isinstance(parameter.default, type) else repr(parameter.default)


def _console() -> Console:
    """Prints text as it is; lines are broken to fit a terminal only."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 100_000
    return Console(width=width, markup=False, highlight=False, emoji=False)


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=not sys.stdout.isatty())
    return table


def _filled(rows: Sequence[Sequence[str]]) -> Table:
    """A table of texts, the header first."""
    header, *lines = rows
    table = _table(*header)
    for line in lines:
        table.add_row(*line)
    return table


def _width(table: Table, console: Console) -> int:
    """Of a table that need not be broken."""
    return console.measure(table, options=console.options.update(width=100_000)).maximum


def _break_between_words(table: Table, console: Console) -> None:
    """Makes the widest columns as narrow as they need to be, but none narrower than its longest word."""
    texts = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    widths = [max(map(len, cells)) for cells in texts]
    words = [max(len(word) for cell in cells for word in cell.split()) for cells in texts]
    excess = _width(table, console) - console.width
    if 0 < excess <= sum(widths) - sum(words):
        for _ in range(excess):
            widest = max((k for k in range(len(widths)) if widths[k] > words[k]), key=widths.__getitem__)
            widths[widest] -= 1
        for column, width in zip(table.columns, widths):
            column.width = width
