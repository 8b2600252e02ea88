"""Finds plugins and the components they supply: built-ins, then entry points, then `-p`.

A plugin is loaded as a whole or not at all. A broken one that was found is listed in
`Registry.failed` and does not stop the others; one that the user named is an error.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pluggy
from explore_plugins import BUILT_INS

from explore import __version__, hooks
from explore._config.tracebacks import describe, find_line
from explore._messages import short_path, suggest, to_one_line
from explore.errors import UserError
from explore.experiments import Experiment
from explore.hooks import SLOTS

HOOKS = [name for name in vars(hooks) if name.startswith("explore_")]


@dataclass(frozen=True)
class Component:
    """A class that a plugin supplies for a slot."""

    slot: str
    name: str
    cls: type
    plugin: str
    source: str

    @property
    def selector(self) -> str:
        """Its name in a configuration, `slot.Name`."""
        return f"{self.slot}.{self.name}"


@dataclass(frozen=True)
class Plugin:
    """A plugin that has been loaded; one without components and experiments only watches runs."""

    name: str
    source: str  # "built in", "entry point (distribution version)" or what followed -p
    version: str
    module: Any = field(repr=False)
    components: tuple[Component, ...]
    experiments: tuple[Experiment, ...] = ()


class Failure(NamedTuple):
    """A plugin that could not be loaded, and why, in one line."""

    name: str
    source: str
    reason: str

    def __str__(self) -> str:
        return f"plugin {self.name} ({self.source}) is left out: {self.reason}"


class Registry:
    """What has been found: `components` by `slot.Name`, `experiments` by name, `plugins`, and the `failed` ones."""

    def __init__(self) -> None:
        self.components: dict[str, Component] = {}
        self.experiments: dict[str, Experiment] = {}
        self.plugins: list[Plugin] = []
        self.failed: list[Failure] = []
        self._manager = pluggy.PluginManager("explore")
        self._manager.add_hookspecs(hooks)

    @property
    def hook(self) -> Any:
        """Calls a hook of every plugin: `registry.hook.explore_run_started(run=run)`."""
        return self._manager.hook

    @contextmanager
    def register(self, plugins: Iterable[object]) -> Iterator[None]:
        """Has hooks call these objects too, for as long as it lasts."""
        plugins = list(plugins)
        for plugin in plugins:
            self._manager.register(plugin)
        try:
            yield
        finally:
            for plugin in plugins:
                self._manager.unregister(plugin)

    def add(self, name: str, source: str, version: str, load: Callable[[], Any]) -> None:
        """Loads a plugin, or raises `UserError` with the reason and changes nothing."""
        module = _call(load, "raises {} when imported")
        if self._manager.is_registered(module):
            return
        for other in self.plugins:
            if other.name == name:
                raise UserError(f"another plugin is already called {name!r}: {other.source}")
        implemented = self.list_hooks(module)
        components = self._read_components(name, source, implemented)
        experiments = self._read_experiments(name, implemented)
        try:
            self._manager.register(module, name)
        except pluggy.PluginValidationError as error:  # a hook with arguments that its spec lacks
            raise UserError(to_one_line(error)) from None
        self.components |= components
        self.experiments |= experiments
        version = getattr(module, "__version__", version)
        self.plugins.append(
            Plugin(name, source, version, module, tuple(components.values()), tuple(experiments.values()))
        )

    def list_hooks(self, module: Any) -> dict[str, Any]:
        """The functions by which a plugin implements hooks, by the names of these."""
        marked = {name: self._manager.parse_hookimpl_opts(module, name) for name in dir(module)}
        implemented = {opts["specname"] or name: getattr(module, name) for name, opts in marked.items() if opts}
        for name in implemented.keys() - set(HOOKS):
            raise UserError(f"there is no hook {name!r}{suggest(name, HOOKS)}")
        if not implemented:
            raise UserError("it defines no hook: mark a function such as explore_environments with @hookimpl")
        return implemented

    def _read_components(self, plugin: str, source: str, implemented: Mapping[str, Any]) -> dict[str, Component]:
        found: dict[str, Component] = {}
        for slot, hook in SLOTS.items():
            classes = _call(implemented[hook], hook + " raises {}") if hook in implemented else []
            if not isinstance(classes, list | tuple):
                raise UserError(f"{hook} must return a list of classes, not {classes!r}")
            for cls in classes:
                check_class(cls, slot)
                new = Component(slot, cls.__name__, cls, plugin, source)
                if owner := (self.components | found).get(new.selector):
                    supplier = f"{owner.plugin} ({owner.source})"
                    raise UserError(
                        f"{new.selector} is supplied by {supplier} already, so {plugin} cannot supply it too"
                    )
                found[new.selector] = new
        return found

    def _read_experiments(self, plugin: str, implemented: Mapping[str, Any]) -> dict[str, Experiment]:
        hook = "explore_experiments"
        listed = _call(implemented[hook], hook + " raises {}") if hook in implemented else []
        if not isinstance(listed, list | tuple) or not all(isinstance(one, Experiment) for one in listed):
            raise UserError(f"{hook} must return a list of explore.experiments.Experiment, not {listed!r:.80}")
        found: dict[str, Experiment] = {}
        for one in listed:
            if one.name in self.experiments or one.name in found:
                raise UserError(f"there is an experiment {one.name} already, so {plugin} cannot supply it too")
            found[one.name] = one
        return found


def discover(plugins: Sequence[str] = (), built_ins: Sequence[str] | None = None) -> Registry:
    """All plugins there are, or of those built in some; `plugins` are the user's own: `.py` files or modules' names."""
    registry = Registry()
    for name, source, version, load in _find_plugins(plugins, BUILT_INS if built_ins is None else built_ins):
        try:
            registry.add(name, source, version, load)
        except UserError as error:
            if source in plugins:
                raise UserError(f"plugin {source}: {error}") from error.__cause__
            registry.failed.append(Failure(name, source, str(error)))
    return registry


def _find_plugins(
    plugins: Sequence[str], built_ins: Sequence[str]
) -> Iterator[tuple[str, str, str, Callable[[], Any]]]:
    """The name, the source and the version of each plugin, and what loads it."""
    for name in built_ins:
        yield name, "built in", __version__, partial(importlib.import_module, name)
    for entry in sorted(importlib.metadata.entry_points(group="explore"), key=lambda entry: entry.name):
        assert entry.dist is not None
        source = f"entry point ({entry.dist.name} {entry.dist.version})"
        yield entry.name, source, entry.dist.version, entry.load
    for given in plugins:
        if given.endswith(".py"):
            yield Path(given).stem, given, "", partial(_import_file, Path(given))
        else:
            yield given, given, "", partial(_import_module, given)


def _import_file(path: Path) -> Any:
    if not path.is_file():
        near = suggest(path.name, (other.name for other in path.parent.glob("*.py")))
        raise UserError(f"there is no such file{near}")
    name = "explore_plugin_" + re.sub(r"\W", "_", path.stem)  # shadows no other module
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec and spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> Any:
    if not all(part.isidentifier() for part in name.split(".")):
        raise UserError("it is neither a file with its .py nor the name of a module")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name + ".").startswith(error.name + "."):
            raise UserError(f"there is no module {error.name!r}; name a file with its .py") from None
        raise


def _call(function: Callable[[], Any], complaint: str) -> Any:
    """Calls a plugin's code; what goes wrong in it becomes a `UserError` with its line."""
    try:
        return function()
    except UserError:
        raise
    except SyntaxError as error:
        where = f"{short_path(error.filename or '?')}:{error.lineno}"
        raise UserError(f"it does not parse: {error.msg} ({where})") from error
    except (Exception, SystemExit) as error:
        raise UserError(complaint.format(describe(error)) + find_line(error)) from error


def check_class(cls: Any, slot: str) -> None:
    """Raises `UserError` if a class cannot be a component of a slot."""
    from explore.interfaces import BASE_CLASSES  # with torch, which experiments are listed without

    hook, base = SLOTS[slot], BASE_CLASSES[slot]
    if not inspect.isclass(cls):
        raise UserError(f"{hook} must return classes, not {cls!r}")
    name = f"{slot}.{cls.__name__}"
    if not issubclass(cls, base):
        home = "explore.interfaces" if base.__module__.startswith("explore.") else "dm_env"
        raise UserError(f"{name} must be a subclass of {home}.{base.__name__}")
    if inspect.isabstract(cls):
        raise UserError(f"{name} lacks the methods {', '.join(sorted(vars(cls)['__abstractmethods__']))}")
    owner = next(owner for owner in cls.__mro__ if "__init__" in vars(owner))
    arguments = inspect.signature(vars(owner)["__init__"]).parameters.values()
    # A class without a constructor of its own has that of nn.Module or object, which take **kwargs.
    if not issubclass(base, owner) and any(argument.kind is argument.VAR_KEYWORD for argument in arguments):
        raise UserError(f"{name} takes **kwargs, which would hide misspelt parameters; name each of them")
