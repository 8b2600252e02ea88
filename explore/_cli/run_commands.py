"""`explore run` and `explore resume`."""

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
    add_plugins(parser)
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument("--allow-imports", action="store_true", help="let import statements in gin files run code")


def add_seeds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", metavar="SEEDS", help="e.g. 0-4 or 0,3,7")


class Run(Command):
    summary = "train the agent that a gin file describes, all seeds at once"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("config", metavar="CONFIG.gin", nargs="?", help="a file, or the name of a recipe")
        parser.add_argument("--out", metavar="DIR", help="the folder for the run; without --resume it must not exist")
        about = "resume the run in DIR (or that of --out) from its latest checkpoint"
        parser.add_argument("--resume", metavar="DIR", nargs="?", const="", help=about)
        parser.add_argument("--force", action="store_true", help="resume even if the results may differ")
        add_seeds(parser)
        add_experiment(parser)

    def run(self, arguments: argparse.Namespace) -> None:
        if arguments.resume is None:
            if arguments.config is None:
                raise UserError("name a configuration to run, or a folder: --resume DIR (see explore run --help)")
            if arguments.force:
                raise UserError("--force goes with --resume")
        elif arguments.resume:
            _place_resume(arguments)
        elif arguments.config is None and arguments.out is None:
            raise UserError("--resume what? Name the folder of the run: explore run --resume DIR")
        seeds = parse_seeds(arguments.seeds) if arguments.seeds is not None else None
        _run(arguments, arguments.config, arguments.out, seeds=seeds, resume=arguments.resume is not None)


class Resume(Command):
    summary = "resume a run from its latest checkpoint"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("folder", metavar="RUN", help="the folder of a run")
        parser.add_argument("--force", action="store_true", help="resume even if the results may differ")
        add_experiment(parser)

    def run(self, arguments: argparse.Namespace) -> None:
        _run(arguments, None, arguments.folder, seeds=None, resume=True)


def _place_resume(arguments: argparse.Namespace) -> None:
    """Puts what follows `--resume` where it belongs: it names a folder, or the configuration if none was named yet."""
    value, out = arguments.resume, arguments.out
    is_config = out is not None or (value.endswith(".gin") and not os.path.isdir(value))
    if arguments.config is None and is_config:
        arguments.config = value
    elif out is not None and os.path.realpath(out) != os.path.realpath(value):
        raise UserError(f"--resume {value} and --out {out} name two folders; one is enough")
    else:
        arguments.out = value


def _run(
    arguments: argparse.Namespace, config: str | None, out: str | None, *, seeds: tuple[int, ...] | None, resume: bool
) -> None:
    if any("\0" in name for name in (config, out) if name):
        raise UserError("there is a zero byte in a name")

    from explore._running.run import run

    run(
        config,
        bindings=arguments.bindings,
        seeds=seeds,
        out=out,
        resume=resume,
        force=arguments.force,
        plugins=arguments.plugins,
        quiet=arguments.quiet,
        allow_imports=arguments.allow_imports,
    )
