"""Checks bindings against the components there are, before anything is built: each mistake with its place."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from explore._config.discovery import Registry
from explore._config.gin_files import Binding, Reference, enclosing_scopes, format_value, list_leaves
from explore._config.parameters import Parameter
from explore._messages import suggest
from explore.errors import UserError
from explore.hooks import SLOTS

ROOT = "experiment"


class Checker:
    """Raises `UserError` for a binding that names what does not exist or does not fit.

    `known` are the parameters of each component by its name.
    """

    def __init__(self, known: Mapping[str, Mapping[str, Parameter]], registry: Registry):
        self._known, self._registry = known, registry

    def check_name(self, name: str, where: str) -> None:
        if name in self._known:
            return
        slot, _, last = name.rpartition(".")
        if slot and slot not in SLOTS:
            raise UserError(f"{where}: unknown slot {slot!r} in {name!r}{suggest(slot, SLOTS)}")
        same_slot = [known for known in self._known if known.startswith(f"{slot}.")]
        same_name = [known for known in self._known if known.endswith(f".{last}")]
        near = f"; write {same_name[0]}" if same_name else suggest(name, same_slot or self._known)
        raise UserError(f"{where}: unknown component {name!r}{near}")

    def check(self, one: Binding) -> None:
        """Raises `UserError` if a binding names what does not exist or does not fit."""
        self.check_name(one.name, one.where)
        known = self._known[one.name]
        if one.parameter not in known:
            near = suggest(one.parameter, known)
            raise UserError(f"{one.where}: {one.name} has no parameter {one.parameter!r}{near}")
        parameter = known[one.parameter]
        fitting = self._list_fitting(parameter)
        for leaf in list_leaves(one.value):
            if isinstance(leaf, Reference):
                self.check_name(leaf.name, one.where)
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

    def _list_fitting(self, parameter: Parameter) -> list[str]:
        """The names of the components that a parameter takes."""
        return [
            selector
            for selector, component in self._registry.components.items()
            if issubclass(component.cls, parameter.classes)
        ]

    def check_scopes(self, written: Sequence[Binding]) -> None:
        """Raises `UserError` for a binding in a scope that no reference enters, which gin would ignore."""
        entered = {leaf.scope for one in written for leaf in list_leaves(one.value) if isinstance(leaf, Reference)}
        scopes = {prefix for scope in entered for prefix in enclosing_scopes(scope)}
        for one in written:
            if one.scope and one.scope not in scopes:
                near = suggest(one.scope, scopes - {""})
                raise UserError(f"{one.where}: no reference @{one.scope}/... enters the scope {one.scope!r}{near}")

    def check_complete(self, bindings: Collection[Binding]) -> None:
        """Raises `UserError` if a component that the experiment refers to lacks a value it needs."""
        chosen = {ROOT: ""}  # name -> the place that chose it
        for name in (names := [ROOT]):
            for parameter in self._known[name].values():
                bound = [one for one in bindings if one.key[1:] == (name, parameter.name)]
                if parameter.required and not bound:
                    example = next((f"@{fit}" for fit in self._list_fitting(parameter)), "...")
                    missing = f"{name}.{parameter.name}"
                    raise UserError(f"{chosen[name]}{missing} has no value; bind it, e.g. {missing} = {example}")
                for one in bound:
                    for leaf in list_leaves(one.value):
                        if isinstance(leaf, Reference) and leaf.name not in chosen:
                            chosen[leaf.name] = f"{one.where}: " if one.where else ""
                            names.append(leaf.name)
