"""`explore sweep` and `explore reproduce`."""

from __future__ import annotations

import argparse

from explore._cli.run_commands import add_experiment, add_plugins, add_seeds
from explore.commands import Command
from explore.errors import UserError


class Sweep(Command):
    summary = "run a grid of recipes and values, cells side by side, all seeds of each at once"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("recipes", metavar="CONFIG.gin", nargs="+", help="files or names of recipes; or one FILE.toml, a sweep")
        add("--vary", metavar="VALUES", action="append", default=[], help='"slot.Name.parameter = [v1, v2, ...]"')
        add("--out", metavar="DIR", help="the folder for the sweep; cells that are done are not run again")
        add("--jobs", metavar="N", type=_parse_jobs, help="cells that run at a time; default: one per core")
        add("--launcher", metavar="NAME", default="local", help="local (default), ray or a plugin's")
        add("--address", metavar="ADDRESS", help="of the cluster that the launcher is to use")
        add("--yes", action="store_true", help="run a grid of many cells")
        add_seeds(parser)
        add_experiment(parser)

    def run(self, arguments: argparse.Namespace) -> None:
        from explore._sweeps.sweeper import sweep

        sweep(**vars(arguments))


def _parse_jobs(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) < 1_000_000:
        raise UserError(f"--jobs must be an integer of at least 1, got {text!r}")
    return int(text)


class Reproduce(Command):
    summary = "a figure or table of a paper, from runs to its page; without a name, the list"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("name", metavar="NAME", nargs="?", help="an experiment; without it, all are listed")
        about = "make episodes and what goes with them fewer, e.g. 0.01: a sketch in a folder of its own"
        add("--scale", metavar="X", type=_parse_scale, default=1.0, help=about)
        add("--out", metavar="DIR", help="the folder of experiments; default: reproduce")
        add("--jobs", metavar="N", type=_parse_jobs, help="cells that run at a time; default: one per core")
        add("--launcher", metavar="NAME", default="local", help="local (default), ray or a plugin's")
        add("--address", metavar="ADDRESS", help="of the cluster that the launcher is to use")
        add("--quiet", action="store_true", help="show no progress")
        add_seeds(parser)
        add_plugins(parser)

    def run(self, arguments: argparse.Namespace) -> None:
        from explore._sweeps.reproduce import describe_state, find_folder, list_experiments, reproduce

        if arguments.name is not None:
            print(reproduce(**vars(arguments)))
            return

        from explore._cli.tables import print_rows

        rows = [("experiment", "core-hours", "state", "what it is to show")]
        for name, one in list_experiments(arguments.plugins).experiments.items():
            state = describe_state(one, find_folder(name, arguments.out, arguments.scale), arguments.scale)
            rows.append((name, f"{one.core_hours:g}", state, one.claim))
        print_rows(rows)


def _parse_scale(text: str) -> float:
    try:
        scale = float(text)
    except ValueError:
        scale = 0.0
    if not 0 < scale <= 1:
        raise UserError(f"--scale must be a number above 0 and at most 1, got {text!r}")
    return scale
