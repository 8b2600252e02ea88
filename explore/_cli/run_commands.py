"""`explore run`, `explore resume` and `explore extend`."""

from __future__ import annotations

import argparse
import os

from explore._config.seeds import parse_seeds
from explore.commands import Command
from explore.errors import UserError


def add_plugins(parser: argparse.ArgumentParser) -> None:
    about = "load a plugin too: a .py file or a module"
    parser.add_argument("-p", dest="plugins", metavar="PLUGIN", action="append", default=[], help=about)


def add_experiment(parser: argparse.ArgumentParser) -> None:
    """Options of an experiment, be it a run or the cells of a sweep."""
    binding = '"slot.Name.parameter = value"'
    parser.add_argument("-b", dest="bindings", metavar="BINDING", action="append", default=[], help=binding)
    add_manner(parser)


def add_manner(parser: argparse.ArgumentParser) -> None:
    """Options that change no result."""
    add_plugins(parser)
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument("--allow-imports", action="store_true", help="let import statements in gin files run code")


def add_seeds(parser: argparse.ArgumentParser, required: bool = False) -> None:
    parser.add_argument("--seeds", metavar="SEEDS", type=parse_seeds, required=required, help="e.g. 0-4 or 0,3,7")


def add_force(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="resume even if the results may differ")


class Run(Command):
    summary = "train the agent that a gin file describes, all seeds at once"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("config", metavar="CONFIG.gin", nargs="?", help="a file, or the name of a recipe")
        parser.add_argument("--out", metavar="DIR", help="the folder for the run; without --resume it must not exist")
        about = "resume the run in DIR (or that of --out) from its latest checkpoint"
        parser.add_argument("--resume", metavar="DIR", nargs="?", const="", help=about)
        add_force(parser)
        add_seeds(parser)
        add_experiment(parser)

    def run(self, arguments: argparse.Namespace) -> None:
        config, out, resume = arguments.config, arguments.out, arguments.resume
        if resume is None and config is None:
            raise UserError("name a configuration to run, or a folder: --resume DIR (see explore run --help)")
        if resume is None and arguments.force:
            raise UserError("--force goes with --resume")
        if resume and config is None and out is not None:
            config = resume  # of `--resume CONFIG --out DIR`
        elif resume and out is not None and os.path.realpath(out) != os.path.realpath(resume):
            raise UserError(f"--resume {resume} and --out {out} name two folders; one is enough")
        out = out or resume or None
        if resume is not None and config is None and not out:
            raise UserError("--resume what? Name the folder of the run: explore run --resume DIR")

        from explore._running.run import run

        run(**vars(arguments) | {"config": config, "out": out, "resume": resume is not None})


class Resume(Command):
    summary = "resume a run from its latest checkpoint"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("out", metavar="RUN", help="the folder of a run")
        add_force(parser)
        add_experiment(parser)

    def run(self, arguments: argparse.Namespace) -> None:
        from explore._running.run import run

        run(**vars(arguments), resume=True)


class Extend(Command):
    summary = "add seeds to a finished run, as if all had been run at once"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("folder", metavar="RUN", help="the folder of a run that is done")
        add_seeds(parser, required=True)
        add_manner(parser)

    def run(self, arguments: argparse.Namespace) -> None:
        from explore._running.run import extend

        extend(**vars(arguments))
