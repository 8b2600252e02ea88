"""What packages add to explore by entry points, such as commands: found first, and imported only where it is used."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from explore._messages import to_one_line
from explore.errors import UserError


@dataclass(frozen=True)
class Group:
    """An entry-point group: what is built in comes first, and a name belongs to the first that has it."""

    name: str
    kind: str  # what an entry is, in messages
    built_in: Mapping[str, str]  # module:name, by the names of entries
    find_fault: Callable[[Any], str | None]  # why an object that was loaded is not of this kind

    def find(self, taken: Collection[str] = ()) -> tuple[dict[str, EntryPoint], list[str]]:
        """The entries by name, none of them imported, and a line about each whose name is taken."""
        found: dict[str, EntryPoint] = {}
        refused = []
        built_in = [EntryPoint(name, value, self.name) for name, value in self.built_in.items()]
        others = sorted(entry_points(group=self.name), key=lambda entry: (entry.name, _source(entry)))
        for entry in [*built_in, *others]:
            if entry.name not in taken and entry.name not in found:
                found[entry.name] = entry
            else:
                owner = _source(found[entry.name]) if entry.name in found else "explore"
                refused.append(f"{self.describe(entry)} is left out: {owner} has a {self.kind} of this name already")
        return found, refused

    def load(self, entry: EntryPoint) -> Any:
        """Imports an entry; raises `UserError` with the reason if it cannot be used."""
        try:
            loaded = entry.load()
        except (Exception, SystemExit) as error:
            reason = to_one_line(f"{type(error).__name__}: {error}")
            raise UserError(f"{self.describe(entry)} cannot be loaded: {reason}") from error
        if fault := self.find_fault(loaded):
            raise UserError(f"{self.describe(entry)} {fault}")
        return loaded

    def load_all(self, taken: Collection[str] = ()) -> tuple[dict[str, Any], list[str]]:
        """Imports all entries; returns them by name, and a line about each that is left out."""
        entries, failures = self.find(taken)
        found = {}
        for name, entry in entries.items():
            try:
                found[name] = self.load(entry)
            except UserError as error:
                failures.append(str(error))
        return found, failures

    def describe(self, entry: EntryPoint) -> str:
        """An entry as messages name it."""
        return f"the {self.kind} {entry.name} of {_source(entry)}"


def _source(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.module
