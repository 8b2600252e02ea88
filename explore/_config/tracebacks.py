"""Whose code raised an exception, and on which line."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING

from explore._messages import short_path, to_one_line
from explore.errors import RunFailed, UserError

if TYPE_CHECKING:
    from explore._config.discovery import Registry

SKIPPED = re.compile(rf"<frozen |[/\\]importlib[/\\]|{re.escape(str(Path(__file__).parent))}")


@contextmanager
def plugin_errors(registry: Registry) -> Iterator[None]:
    """Within it, what a plugin's code raises becomes a `RunFailed` with the plugin's name and the line."""
    try:
        yield
    except (Exception, SystemExit) as error:
        failure = name_plugin_that_raised(error, registry)
        if failure is error:
            raise
        raise failure from error


def name_plugin_that_raised(error: BaseException, registry: Registry) -> BaseException:
    """The failure to report if it was a plugin's code that raised, else the exception itself."""
    if isinstance(error, UserError | RunFailed):
        return error
    frames = list(traceback.walk_tb(error.__traceback__))[::-1]  # innermost first
    owners = _list_owners(registry)
    for file in (frame.f_code.co_filename for frame, _ in frames):
        if file in owners:
            running = [name for frame, _ in frames for code, name in owners[file] if _is_of(frame, code)]
            name = (running or [name for _, name in owners[file]])[0]
            return RunFailed(f"{name} raises {describe(error)}{find_line(error, file)}")
    if isinstance(error, SystemExit):
        return RunFailed(f"something called for the end of the program: {describe(error)}")
    return error


def describe(error: BaseException) -> str:
    """The type and the message of an exception in one line."""
    return to_one_line(f"{type(error).__name__}: {error}")


def find_line(error: BaseException, file: str | None = None) -> str:
    """Where in `file` an exception was raised (default: the outermost file outside this package), as ` (file:line)`."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not SKIPPED.search(one.filename)]
    file = file or next((frame.filename for frame in frames), "")
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f" ({short_path(file)}:{lines[-1]})" if lines else ""


def _list_owners(registry: Registry) -> dict[str, list[tuple[type | CodeType, str]]]:
    """For each file of plugins that are not built in: their classes and hooks in it, with their names."""
    owners: dict[str, list[tuple[type | CodeType, str]]] = {}
    for component in registry.components.values():
        if component.source != "built in":
            file = getattr(sys.modules.get(component.cls.__module__), "__file__", None) or ""
            owners.setdefault(file, []).append((component.cls, f"{component.selector} of plugin {component.plugin}"))
    for plugin in (plugin for plugin in registry.plugins if plugin.source != "built in"):
        for hook, function in registry.list_hooks(plugin.module).items():
            if code := getattr(function, "__code__", None):
                owners.setdefault(code.co_filename, []).append((code, f"{hook} of plugin {plugin.name}"))
    return owners


def _is_of(frame: FrameType, code: type | CodeType) -> bool:
    """Whether a frame is that of a function, or of a method of a class."""
    return code in (frame.f_code, type(frame.f_locals.get("self")))
