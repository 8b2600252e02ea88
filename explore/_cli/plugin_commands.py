"""The commands of plugins: those built in, then entry points of the group `explore.commands`."""

from __future__ import annotations

import inspect
from typing import Any

from explore_plugins import BUILT_IN_COMMANDS

from explore._entry_points import Group
from explore.commands import Command


def _find_fault(command: Any) -> str | None:
    if not (inspect.isclass(command) and issubclass(command, Command) and not inspect.isabstract(command)):
        return "must be a subclass of explore.commands.Command that defines run"
    return None if isinstance(getattr(command, "summary", None), str) else "has no summary: a line for explore --help"


PLUGIN_COMMANDS = Group("explore.commands", "command", BUILT_IN_COMMANDS, _find_fault)
