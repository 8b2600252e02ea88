"""The parser of the command line. Commands import heavy packages when they run, so that `--help` is quick."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from explore import __version__
from explore._cli import lookup_commands, read_commands, run_commands, sweep_commands
from explore._cli.plugin_commands import PLUGIN_COMMANDS
from explore._messages import note
from explore.commands import Command
from explore.errors import UserError

COMMANDS: dict[str, type[Command]] = {
    "run": run_commands.Run,
    "resume": run_commands.Resume,
    "extend": run_commands.Extend,
    "sweep": sweep_commands.Sweep,
    "reproduce": sweep_commands.Reproduce,
    "compare": read_commands.Compare,
    "report": read_commands.Report,
    "watch": read_commands.Watch,
    "recipes": lookup_commands.Recipes,
    "plugins": lookup_commands.Plugins,
    "components": lookup_commands.Components,
    "describe": lookup_commands.Describe,
    "doctor": lookup_commands.Doctor,
    "new-plugin": lookup_commands.NewPlugin,
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")


def build_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of these arguments; plugins' commands are looked up unless the first is a command of the core."""
    parser = _Parser(prog="explore", description="Exploration methods in RL, composed from plugins by gin files.")
    parser.add_argument("--version", action="version", version=f"explore {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, command in (COMMANDS | _plugin_commands(argv)).items():
        one = command()
        added = commands.add_parser(name, help=one.summary, description=one.summary)
        added.set_defaults(_command=one)
        one.add_arguments(added)
    return parser


def _plugin_commands(argv: Sequence[str]) -> dict[str, type[Command]]:
    if argv and argv[0] in COMMANDS:
        return {}
    if argv and argv[0] in (entries := PLUGIN_COMMANDS.find(COMMANDS)[0]):
        return {argv[0]: PLUGIN_COMMANDS.load(entries[argv[0]])}
    found, failures = PLUGIN_COMMANDS.load_all(COMMANDS)
    for failure in failures:
        note(failure)
    return found
