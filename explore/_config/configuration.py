"""From a gin file to the objects it names, and back to a file that repeats them.

    config = load("gin/pins_cartpole.gin", ["experiment.episodes = 10"], discover())
    experiment = config.build()
    config.text()  # the complete configuration, defaults included

gin's parser reads the files, and gin fills the parameters when components are called. Between
the two every name is checked here, because gin forgets where a binding was written and lets
misspelt scopes pass.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gin
from gin import config_parser

from explore._config.discovery import Registry
from explore._config.gin_files import (
    Binding,
    Macro,
    Reference,
    add_scope,
    find_file,
    format_binding,
    format_value,
    is_literal,
    list_leaves,
    map_leaves,
    read_file,
    read_text,
)
from explore._config.parameters import Parameter, parameters
from explore._config.tracebacks import find_line
from explore._messages import suggest, to_one_line
from explore.errors import RunFailed, UserError
from explore.hooks import SLOTS

ROOT = "experiment"


def load(
    config: str | Path | None,
    bindings: Sequence[str],
    registry: Registry,
    *,
    allow_imports: bool = False,
    root: type | None = None,
) -> Config:
    """Reads and checks a file (or a recipe by its name) and then the bindings of `-b`.

    `root` is what `experiment` stands for, by default `explore._running.experiment.Experiment`.
    """
    if root is None:
        from explore._running.experiment import Experiment  # which imports this module

        root = Experiment
    statements = list(read_file(find_file(config))) if config is not None else []
    if config is not None and not statements:
        raise UserError(f"{config} is empty: it binds nothing")
    for text in bindings:
        place = f'-b "{to_one_line(text)}"'
        bound = list(read_text(text, lambda line, place=place: place, Path()))  # type: ignore[misc]
        if not bound:
            raise UserError(f"{place} binds nothing; write slot.Name.parameter = value")
        statements += bound
    return Config(statements, registry, root, allow_imports)


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


class Config:
    """A checked configuration: `build` makes its objects, `text` and `unused` tell what became of it.

    gin is global, so only the components of the latest `build` of a process can still be called.
    """

    def __init__(self, statements: Sequence[tuple[Any, str]], registry: Registry, root: type, allow_imports: bool):
        self._registry = registry
        self._imports = [
            _import(statement, where, allow_imports)
            for statement, where in statements
            if isinstance(statement, config_parser.ImportStatement)
        ]
        self._known: dict[str, Callable[..., Any]] = {ROOT: root}
        self._known |= {selector: component.cls for selector, component in registry.components.items()}
        if self._imports:
            self._known |= _foreign()
        self._parameters = {name: parameters(target) for name, target in self._known.items()}
        self._macros: dict[str, tuple[Any, str]] = {}  # name -> value and place
        self._used_macros: set[str] = set()
        self._built: dict[tuple[str, str], set[str]] = {}  # (scope, name) -> parameters that gin filled

        written = []
        for statement, where in statements:
            if isinstance(statement, config_parser.BlockDeclaration):
                self._check_name(statement.selector, where)
            elif isinstance(statement, config_parser.BindingStatement):
                scope, name, parameter, value, _ = statement
                if parameter:
                    written.append(Binding(scope, name, parameter, value, where))
                else:
                    self._macros[add_scope(scope, name)] = value, where
        written = [replace(one, value=self._resolved(one.value, one.where)) for one in written]
        for one in written:
            self._check(one)
        self._check_scopes(written)
        bound = {one.key: one for one in written}  # the last one counts
        self._bindings = {one.key: one for one in self._defaults() if one.key not in bound} | bound
        self._check_complete()

    def build(self) -> Any:
        """Builds the experiment with all its components; a mistake of the user is a `UserError`."""
        self._set_up_gin()
        try:
            root = gin.get_configurable(self._selector(ROOT))()
        except RecursionError as error:
            for one in self._bindings.values():
                if any(isinstance(leaf, Reference) and leaf.name == one.name for leaf in list_leaves(one.value)):
                    raise UserError(f"{one.where}: {one.name} refers to itself, so it could never be built") from error
            raise
        except Exception as error:
            explained = self._explained(error)
            if explained is None:
                raise
            raise explained from error
        names = {self._selector(name): name for name in self._known}
        filled = gin.config._OPERATIVE_CONFIG.items()  # public only as a text, without what gin cannot write
        self._built = {(scope, names[selector]): set(used) for (scope, selector), used in filled if selector in names}
        return root

    def text(self) -> str:
        """The complete configuration of what was built, in the order of building."""
        blocks = ["\n".join(self._imports)] if self._imports else []
        for (scope, name), used in self._built.items():
            effective = [self._effective(scope, name, parameter) for parameter in self._parameters[name]]
            values = {one.parameter: one.value for one in effective if one and one.parameter in used}
            width = max(map(len, values), default=0)
            lines = [f"  {format_binding(parameter.ljust(width), value)}" for parameter, value in values.items()]
            if lines:
                blocks.append("\n".join([f"{add_scope(scope, name)}:", *lines]))
        return "\n\n".join(blocks) + "\n"

    def unused(self) -> list[str]:
        """The bindings that had no effect on what was built, each with its place."""
        effective = [
            self._effective(scope, name, parameter) for (scope, name), used in self._built.items() for parameter in used
        ]
        used = {one.key for one in effective if one}
        notes = [
            f"{one.where}: {one} has no effect in this run"
            for one in self._bindings.values()
            if one.where and one.key not in used
        ]
        for name in sorted(self._macros.keys() - self._used_macros):
            where = self._macros[name][1]
            notes.append(f"{where}: the macro {name} is not used (a parameter is bound as slot.Name.{name})")
        return notes

    # Checks

    def _resolved(self, value: Any, where: str, within: tuple[str, ...] = ()) -> Any:
        """A value with its macros replaced by theirs."""

        def change(leaf: Any) -> Any:
            if not isinstance(leaf, Macro):
                return leaf
            if leaf.name not in self._macros:
                raise UserError(f"{where}: unknown macro {leaf.name!r}{suggest(leaf.name, self._macros)}")
            if leaf.name in within:
                raise UserError(f"{where}: the macro {leaf.name!r} stands for itself")
            self._used_macros.add(leaf.name)
            return self._resolved(self._macros[leaf.name][0], where, (*within, leaf.name))

        return map_leaves(value, change)

    def _check_name(self, name: str, where: str) -> None:
        if name in self._known:
            return
        slot, _, last = name.rpartition(".")
        if slot and slot not in SLOTS:
            raise UserError(f"{where}: unknown slot {slot!r} in {name!r}{suggest(slot, SLOTS)}")
        same_slot = [known for known in self._known if known.startswith(f"{slot}.")]
        same_name = [known for known in self._known if known.endswith(f".{last}")]
        near = f"; write {same_name[0]}" if same_name else suggest(name, same_slot or self._known)
        raise UserError(f"{where}: unknown component {name!r}{near}")

    def _check(self, one: Binding) -> None:
        """Raises `UserError` if a binding names what does not exist or does not fit."""
        self._check_name(one.name, one.where)
        known = self._parameters[one.name]
        if one.parameter not in known:
            near = suggest(one.parameter, known)
            raise UserError(f"{one.where}: {one.name} has no parameter {one.parameter!r}{near}")
        parameter = known[one.parameter]
        fitting = self._fitting(parameter)
        for leaf in list_leaves(one.value):
            if isinstance(leaf, Reference):
                self._check_name(leaf.name, one.where)
                if leaf.called and leaf.name in self._registry.components:
                    right = replace(leaf, called=False)
                    raise UserError(f"{one.where}: write {right} without parentheses: the core calls it when needed")
                if parameter.classes and leaf.name not in fitting:
                    takes = ", ".join(fitting) or "what no plugin has"
                    raise UserError(
                        f"{one.where}: {leaf.name} does not fit {one.name}.{one.parameter}, which takes {takes}"
                    )
        if not parameter.fits(one.value):
            examples = f" ({', '.join('@' + name for name in fitting)})" if parameter.classes else ""
            given = format_value(one.value)
            raise UserError(f"{one.where}: {one.name}: {one.parameter} must be {parameter.kind}{examples}, got {given}")

    def _fitting(self, parameter: Parameter) -> list[str]:
        """The names of the components that a parameter takes."""
        return [
            selector
            for selector, component in self._registry.components.items()
            if issubclass(component.cls, parameter.classes)
        ]

    def _check_scopes(self, written: list[Binding]) -> None:
        """Raises `UserError` for a binding in a scope that no reference enters, which gin would ignore."""
        entered = {leaf.scope for one in written for leaf in list_leaves(one.value) if isinstance(leaf, Reference)}
        scopes = {prefix for scope in entered for prefix in _prefixes(scope)}
        for one in written:
            if one.scope and one.scope not in scopes:
                near = suggest(one.scope, scopes - {""})
                raise UserError(f"{one.where}: no reference @{one.scope}/... enters the scope {one.scope!r}{near}")

    def _check_complete(self) -> None:
        """Raises `UserError` if a component that the experiment refers to lacks a value it needs."""
        chosen = {ROOT: ""}  # name -> the place that chose it
        for name in (names := [ROOT]):
            for parameter in self._parameters[name].values():
                bound = [one for one in self._bindings.values() if one.key[1:] == (name, parameter.name)]
                if parameter.required and not bound:
                    example = next((f"@{fit}" for fit in self._fitting(parameter)), "...")
                    missing = f"{name}.{parameter.name}"
                    raise UserError(f"{chosen[name]}{missing} has no value; bind it, e.g. {missing} = {example}")
                for one in bound:
                    for leaf in list_leaves(one.value):
                        if isinstance(leaf, Reference) and leaf.name not in chosen:
                            chosen[leaf.name] = f"{one.where}: " if one.where else ""
                            names.append(leaf.name)

    # gin

    def _defaults(self) -> Iterator[Binding]:
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

    def _effective(self, scope: str, name: str, parameter: str) -> Binding | None:
        """The binding in force in a scope: that of the innermost scope which has one."""
        found = (self._bindings.get((prefix, name, parameter)) for prefix in _prefixes(scope))
        return next((one for one in found if one), None)

    def _selector(self, name: str) -> str:
        """What a name is called in gin: a third party's component carries its plugin's name too."""
        if name == ROOT:
            return f"explore.{ROOT}"
        component = self._registry.components.get(name)
        if component is None or component.source == "built in":
            return name
        return f"{re.sub(r'[^A-Za-z0-9_.]|^(?=[0-9])', '_', component.plugin)}.{name}"

    def _set_up_gin(self) -> None:
        gin.clear_config()
        for selector, target in _registered.items():  # gin can only add; a name may now mean another class
            gin.config._REGISTRY.pop(selector)
            gin.config._INVERSE_REGISTRY.pop(target)
        _registered.clear()
        for name in (ROOT, *self._registry.components):
            module, _, last = self._selector(name).rpartition(".")
            gin.register(last, module=module)(self._known[name])
            _registered[self._selector(name)] = self._known[name]
        gin.parse_config([str(replace(one, name=self._selector(one.name))) for one in self._bindings.values()])
        gin.finalize()

    def _explained(self, error: Exception) -> Exception | None:
        """What a constructor raised, as the user's mistake with its place; None if it is a bug of ours."""
        call = _GIN_NOTE.search(str(error))
        if call is None:
            return None
        message = to_one_line(str(error)[: call.start()])
        if isinstance(error, UserError | RunFailed):
            return UserError(message) if isinstance(error, UserError) else RunFailed(message)
        name = next((name for name, target in self._known.items() if str(target) == call["target"]), "")
        where = self._place(name, call["scope"] or "", message)
        component = self._registry.components.get(name)
        if name and isinstance(error, MemoryError | RuntimeError) and "alloc" in message:
            return UserError(f"{where}{name} needs more memory than there is: {message}")
        if name and isinstance(error, ValueError | TypeError):
            return UserError(f"{where}{name}: {message}")
        if component and component.source != "built in":
            line = find_line(error, inspect.getfile(component.cls))
            return UserError(
                f"{where}{name} of plugin {component.plugin} raises {type(error).__name__}: {message}{line}"
            )
        return None

    def _place(self, name: str, scope: str, message: str) -> str:
        """Where the parameter or the component that a message begins with was bound, else where `name` was."""
        subject = message.split(" ")[0].rstrip(":,")
        owner, _, parameter = subject.rpartition(".")
        one = self._effective(scope, owner or name, parameter)
        if one and one.where:
            return f"{one.where}: "
        named = [known for known in self._known if subject in (known, known.rpartition(".")[2])]
        for chosen in (*named, name):
            for prefix in _prefixes(scope):
                for one in reversed(self._bindings.values()):
                    if one.where and Reference(prefix, chosen) in list_leaves(one.value):
                        return f"{one.where}: "
        return ""


_registered: dict[str, Any] = {}
"""What the latest `Config.build` registered with gin, by gin's name."""

_GIN_NOTE = re.compile(
    r"(\n  No values supplied by Gin(?:.*\n){3})?\s*In call to configurable '.*?' \((?P<target>.*)\)"
    r"(?: in scope '(?P<scope>.*?)')?(?:\n|$)"
)
"""What gin appends to the message of an exception at each configurable it passes, innermost first."""


def _foreign() -> dict[str, Callable[..., Any]]:
    """What imported modules have registered with gin themselves; gin has no public list of it."""
    return {
        name: entry.wrapped
        for name, entry in gin.config._REGISTRY.items()
        if name not in _registered and not name.startswith("gin.")
    }


def _prefixes(scope: str) -> list[str]:
    """A scope and those around it, innermost first: `a/b` -> `a/b`, `a`, ``."""
    parts = scope.split("/") if scope else []
    return ["/".join(parts[:end]) for end in range(len(parts), -1, -1)]
