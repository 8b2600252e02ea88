"""Finds the commands of plugins: those built in, then entry points of the group `explore.commands`."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from importlib.metadata import EntryPoint, entry_points

from explore_plugins import BUILT_IN_COMMANDS

from explore._messages import to_one_line
from explore.commands import Command
from explore.errors import UserError

GROUP = "explore.commands"


def find_commands(taken: Collection[str]) -> tuple[dict[str, EntryPoint], list[str]]:
    """The commands of plugins by name, none of them loaded, and a line about each whose name is taken."""
    found: dict[str, EntryPoint] = {}
    refused = []
    built_in = [EntryPoint(name, value, GROUP) for name, value in BUILT_IN_COMMANDS.items()]
    for entry in [*built_in, *sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, name_source(entry)))]:
        if entry.name not in taken and entry.name not in found:
            found[entry.name] = entry
        else:
            owner = name_source(found[entry.name]) if entry.name in found else "explore"
            refused.append(f"{_describe(entry)} is left out: {owner} has a command of this name already")
    return found, refused


def load_commands(taken: Collection[str]) -> tuple[dict[str, type[Command]], list[str]]:
    """The commands of plugins by name, and a line about each that is left out."""
    entries, failures = find_commands(taken)
    found = {}
    for name, entry in entries.items():
        try:
            found[name] = load_command(entry)
        except UserError as error:
            failures.append(str(error))
    return found, failures


def load_command(entry: EntryPoint) -> type[Command]:
    """Imports a command; raises `UserError` with the reason if that fails."""
    try:
        command = entry.load()
    except (Exception, SystemExit) as error:
        reason = to_one_line(f"{type(error).__name__}: {error}")
        raise UserError(f"{_describe(entry)} cannot be loaded: {reason}") from error
    if not (inspect.isclass(command) and issubclass(command, Command) and not inspect.isabstract(command)):
        raise UserError(f"{_describe(entry)} must be a subclass of explore.commands.Command that defines run")
    if not isinstance(getattr(command, "summary", None), str):
        raise UserError(f"{_describe(entry)} has no summary: a line for explore --help")
    return command


def name_source(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.module


def _describe(entry: EntryPoint) -> str:
    return f"the command {entry.name} of {name_source(entry)}"
