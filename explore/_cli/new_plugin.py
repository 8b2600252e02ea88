"""Writes the package of a new plugin: a component that works, to be changed into what is wanted.

`templates/` holds the package of a plugin called my-plugin, which gets another name here. A file is
taken from the folder of the slot, or if it is the same for all slots from beside that.
"""

from __future__ import annotations

import ast
import importlib.util
import keyword
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from explore._config.discovery import Registry, discover
from explore._messages import suggest
from explore._storage import files
from explore.errors import UserError
from explore.hooks import SLOTS

TEMPLATES = Path(__file__).parent / "templates"
FILES = ("pyproject.toml", "README.md", "my_plugin.py", "my_plugin.gin", "tests/test_my_plugin.py")


@dataclass(frozen=True)
class Package:
    """What a plugin and its parts are called: `cosine-heads`, `cosine_heads`, `CosineHeads`."""

    slot: str
    project: str
    module: str
    cls: str

    def render(self) -> dict[Path, str]:
        """The content of each file, by its path within the folder."""
        return {Path(self._rename(file)): self._rename(self._read_template(file)) for file in FILES}

    def find_obstacle(self, registry: Registry) -> str | None:
        """Why it cannot have these names, in words."""
        if keyword.iskeyword(self.module) or keyword.iskeyword(self.cls):
            return f"{self.module!r} is a keyword of Python"
        for one in registry.components.values():
            if one.selector.casefold() == f"{self.slot}.{self.cls}".casefold():  # `--launcher local` has no capitals
                return f"{one.selector} is supplied by {one.plugin} ({one.source}) already"
        for plugin in registry.plugins:
            if plugin.name == self.module:
                return f"another plugin is already called {self.module!r}: {plugin.source}"
        nodes = ast.walk(ast.parse(self._read_template("my_plugin.py")))
        if self.cls in (node.id for node in nodes if isinstance(node, ast.Name)):
            return f"its module needs the name {self.cls} for something else"
        return self._find_namesake()

    def _find_namesake(self) -> str | None:
        if self.module in sys.stdlib_module_names or importlib.util.find_spec(self.module):
            return f"there is a module {self.module!r} already"
        if any(metadata.distributions(name=self.project)):
            return f"there is a package {self.project!r} already"
        return None

    def _read_template(self, file: str) -> str:
        own = TEMPLATES / self.slot / file
        return (own if own.is_file() else TEMPLATES / file).read_text(encoding="utf-8")

    def _rename(self, text: str) -> str:
        names = {"my-plugin": self.project, "my_plugin": self.module, "MyPlugin": self.cls, "SLOT": self.slot}
        return re.sub("|".join(names), lambda match: names[match[0]], text)


def new_plugin(
    name: str, slot: str = "uncertainty", out: str | Path | None = None, plugins: Sequence[str] = ()
) -> tuple[list[Path], list[str]]:
    """Writes the package to a new folder, by default one of its name; returns its files, and what to type next.

    Raises `UserError`, and then leaves nothing behind.
    """
    package = _parse_name(name, slot)
    folder = Path(package.project if out is None else out)
    if os.path.lexists(folder):
        raise UserError(f"{folder} exists already; choose another folder with --out")
    obstacle = package.find_obstacle(discover(plugins))
    if obstacle:
        raise UserError(f"{obstacle}; choose another name")
    texts = package.render()
    paths = files.write_all(folder, texts)
    [commands] = re.findall(r"^```sh\n(.*?)^```$", texts[Path("README.md")], re.DOTALL | re.MULTILINE)
    return paths, commands.splitlines()


def _parse_name(name: str, slot: str) -> Package:
    if slot not in SLOTS:
        raise UserError(f"unknown slot {slot!r}{suggest(slot, SLOTS)}")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*([-_][A-Za-z0-9]+)*", name):
        raise UserError(f"{name!r} cannot name a plugin; write words of letters and digits, such as cosine-heads")
    parts = re.split("[-_]", name)
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", "_".join(parts)).lower()
    return Package(slot, words.replace("_", "-"), words, "".join(part[0].upper() + part[1:] for part in parts))
