"""`explore sweep`."""

from __future__ import annotations

import argparse

from explore._cli.run_commands import add_experiment, add_seeds
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
