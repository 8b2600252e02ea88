"""From a gin file to the objects it names, and back to a file that repeats them.

    config = Config("gin/pins_cartpole.gin", ["experiment.episodes = 10"], discover(), root=Experiment)
    experiment = config.build()
    config.text()  # the complete configuration, defaults included

gin's parser reads the files, and gin fills the parameters when components are called. Between
the two every name is checked here, because gin forgets where a binding was written and lets
misspelt scopes pass.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import gin
from gin import config_parser

from explore._config.building import Place, list_foreign, register
from explore._config.checks import ROOT, Checker
from explore._config.discovery import Registry
from explore._config.gin_files import (
    Binding,
    Macro,
    Reference,
    add_scope,
    enclosing_scopes,
    find_file,
    format_binding,
    is_literal,
    list_leaves,
    map_leaves,
    read_file,
    read_option,
)
from explore._config.parameters import parameters
from explore._config.tracebacks import describe, name_plugin_that_raised
from explore._messages import suggest, to_one_line
from explore.errors import RunFailed, UserError


def _import(statement: config_parser.ImportStatement, where: str, allowed: bool) -> str:
    text = statement.format()
    if not allowed:
        raise UserError(f"{where}: '{text}' would run code; allow it with --allow-imports")
    try:
        with gin.unlock_config():  # it may register something with gin
            importlib.import_module(statement.module)
    except Exception as error:
        raise UserError(f"{where}: '{text}' raises {type(error).__name__}: {to_one_line(error)}") from error
    return text


def _read(config: str | Path | None, bindings: Sequence[str]) -> list[tuple[Any, str]]:
    """The statements of a file (or a recipe by its name), and then those of `-b`."""
    statements = list(read_file(find_file(config))) if config is not None else []
    if config is not None and not statements:
        raise UserError(f"{config} is empty: it binds nothing")
    for text in bindings:
        bound = list(read_option("-b", text))
        if not bound:
            raise UserError(f'-b "{to_one_line(text)}" binds nothing; write slot.Name.parameter = value')
        statements += bound
    return statements


class Config:
    """A checked configuration: `build` makes its objects, `text` and `unused` tell what became of it.

    `root` is the class of what `experiment` stands for. gin is global, so only the components of the
    latest `build` of a process can still be called.
    """

    def __init__(
        self,
        config: str | Path | None,
        bindings: Sequence[str],
        registry: Registry,
        *,
        root: type,
        allow_imports: bool = False,
    ):
        statements = _read(config, bindings)
        self._registry = registry
        self._imports = [
            _import(statement, where, allow_imports)
            for statement, where in statements
            if isinstance(statement, config_parser.ImportStatement)
        ]
        self._known: dict[str, Callable[..., Any]] = {ROOT: root}
        self._known |= {selector: component.cls for selector, component in registry.components.items()}
        if self._imports:
            self._known |= list_foreign()
        self._parameters = {name: parameters(target) for name, target in self._known.items()}
        checker = Checker(self._parameters, registry)
        self._macros: dict[str, tuple[Any, str]] = {}  # name -> value and place
        self._used_macros: set[str] = set()
        self._built: dict[Place, set[str]] = {}  # the parameters of each that gin filled
        self._made: dict[Place, Any] = {}  # the latest object of each component

        written = []
        for statement, where in statements:
            if isinstance(statement, config_parser.BlockDeclaration):
                checker.check_name(statement.selector, where)
            elif isinstance(statement, config_parser.BindingStatement):
                scope, name, parameter, value, _ = statement
                if parameter:
                    written.append(Binding(scope, name, parameter, value, where))
                else:
                    self._macros[add_scope(scope, name)] = value, where
        written = [replace(one, value=self._resolve(one.value, one.where)) for one in written]
        for one in written:
            checker.check(one)
        checker.check_scopes(written)
        bound = {one.key: one for one in written}  # the last one counts
        self._bindings = {one.key: one for one in self._list_defaults() if one.key not in bound} | bound
        checker.check_complete(self._bindings.values())

    def build(self) -> Any:
        """Builds the experiment with all its components; a mistake of the user is a `UserError`."""
        selectors = {name: self._selector(name) for name in self._known}
        own = (ROOT, *self._registry.components)
        self._made, failures = register({selectors[name]: (name, self._known[name]) for name in own})
        gin.parse_config([str(replace(one, name=selectors[one.name])) for one in self._bindings.values()])
        gin.finalize()
        try:
            root = gin.get_configurable(selectors[ROOT])()
        except Exception as error:
            place, raised = failures[0] if failures else (None, error)
            if (explained := self._explain(raised, place)) is None:
                raise
            raise explained from raised
        names = {selector: name for name, selector in selectors.items()}
        filled = gin.config._OPERATIVE_CONFIG.items()  # public only as a text, without what gin cannot write
        self._built = {(scope, names[selector]): set(used) for (scope, selector), used in filled if selector in names}
        return root

    def text(self) -> str:
        """The complete configuration of what was built, in the order of building, without what has no effect."""
        blocks = ["\n".join(self._imports)] if self._imports else []
        for place, bindings in groupby(self._list_filled(), key=lambda filled: filled[0]):
            kept = [one for _, one, reason in bindings if not reason]
            width = max((len(one.parameter) for one in kept), default=0)
            lines = [f"  {format_binding(one.parameter.ljust(width), one.value)}" for one in kept]
            if lines:
                blocks.append("\n".join([f"{add_scope(*place)}:", *lines]))
        return "\n\n".join(blocks) + "\n"

    def unused(self) -> list[str]:
        """The bindings that had no effect on what was built, each with its place."""
        filled = [(one.key, reason) for _, one, reason in self._list_filled()]
        used = {key for key, reason in filled if not reason}
        reasons = {key: f": {reason}" for key, reason in filled if reason}
        notes = [
            f"{one.where}: {one} has no effect in this run{reasons.get(one.key, '')}"
            for one in self._bindings.values()
            if one.where and one.key not in used
        ]
        for name in sorted(self._macros.keys() - self._used_macros):
            where = self._macros[name][1]
            notes.append(f"{where}: the macro {name} is not used (a parameter is bound as slot.Name.{name})")
        return notes

    def _list_filled(self) -> Iterator[tuple[Place, Binding, str]]:
        """What filled the parameters of each component (scope, name) that was built; and if without effect, why."""
        for (scope, name), filled in self._built.items():
            idle: dict[str, str] = getattr(self._made.get((scope, name)), "unused_parameters", dict)()
            for parameter in self._parameters[name]:
                one = self._find_binding(scope, name, parameter)
                if one and parameter in filled:
                    yield (scope, name), one, idle.get(parameter, "")

    def _resolve(self, value: Any, where: str, within: tuple[str, ...] = ()) -> Any:
        """A value with its macros replaced by theirs."""

        def change(leaf: Any) -> Any:
            if not isinstance(leaf, Macro):
                return leaf
            if leaf.name not in self._macros:
                raise UserError(f"{where}: unknown macro {leaf.name!r}{suggest(leaf.name, self._macros)}")
            if leaf.name in within:
                raise UserError(f"{where}: the macro {leaf.name!r} stands for itself")
            self._used_macros.add(leaf.name)
            return self._resolve(self._macros[leaf.name][0], where, (*within, leaf.name))

        return map_leaves(value, change)

    def _list_defaults(self) -> Iterator[Binding]:
        """Default values as bindings, so that a component that is a default can be configured too."""
        references = {one.cls: Reference("", one.selector) for one in self._registry.components.values()}
        for name, known in self._parameters.items():
            for parameter in known.values():
                value = map_leaves(
                    parameter.default,
                    lambda leaf: references.get(leaf, leaf) if isinstance(leaf, type) else leaf,
                )
                if is_literal(value):
                    yield Binding("", name, parameter.name, value)

    def _find_binding(self, scope: str, name: str, parameter: str) -> Binding | None:
        """The binding in force in a scope: that of the innermost scope which has one."""
        found = (self._bindings.get((prefix, name, parameter)) for prefix in enclosing_scopes(scope))
        return next((one for one in found if one), None)

    def _selector(self, name: str) -> str:
        """What a name is called in gin: a third party's component carries its plugin's name too."""
        if name == ROOT:
            return f"explore.{ROOT}"
        component = self._registry.components.get(name)
        if component is None or component.source == "built in":
            return name
        return f"{re.sub(r'[^A-Za-z0-9_.]|^(?=[0-9])', '_', component.plugin)}.{name}"

    def _explain(self, raised: Exception, place: Place | None) -> Exception | None:
        """What a constructor raised, as the user's mistake with its place; None if it is a bug of ours."""
        message = to_one_line(raised)
        if isinstance(raised, UserError | RunFailed):
            return type(raised)(message)
        if isinstance(raised, RecursionError):
            return self._find_circle()
        if place is None:
            return UserError(f"an imported module raises {describe(raised)}") if self._imports else None
        scope, name = place
        where = self._place(name, scope, message)
        if isinstance(raised, MemoryError | RuntimeError) and "alloc" in message:
            return UserError(f"{where}{name} needs more memory than there is: {message}")
        if isinstance(raised, ValueError | TypeError):
            return UserError(f"{where}{name}: {message}")
        failure = name_plugin_that_raised(raised, self._registry)
        return UserError(f"{where}{failure}") if failure is not raised else None

    def _find_circle(self) -> UserError | None:
        for one in self._bindings.values():
            if any(isinstance(leaf, Reference) and leaf.name == one.name for leaf in list_leaves(one.value)):
                return UserError(f"{one.where}: {one.name} refers to itself, so it could never be built")
        return None

    def _place(self, name: str, scope: str, message: str) -> str:
        """Where the parameter or the component that a message begins with was bound, else where `name` was."""
        subject = message.split(" ")[0].rstrip(":,")
        owner, _, parameter = subject.rpartition(".")
        one = self._find_binding(scope, owner or name, parameter)
        if one and one.where:
            return f"{one.where}: "
        named = [known for known in self._known if subject in (known, known.rpartition(".")[2])]
        for chosen in (*named, name):
            for prefix in enclosing_scopes(scope):
                for one in reversed(self._bindings.values()):
                    if one.where and Reference(prefix, chosen) in list_leaves(one.value):
                        return f"{one.where}: "
        return ""
