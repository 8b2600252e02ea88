"""A sweep as it is written down, and the cells of its grid: recipes times the values of all that varies.

    sweep = Sweep(("pins_deep_sea",), vary=("environment.DeepSea.size = [10, 20]",), seeds=(0, 1))
    [cell.name for cell in sweep.cells()]  # ["size=10", "size=20"]

Nothing runs here. The file of a sweep is TOML and holds the strings of the command line.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from gin import config_parser

from explore._config.gin_files import (
    Macro,
    Reference,
    add_scope,
    format_binding,
    format_value,
    list_leaves,
    map_leaves,
    read_text,
)
from explore._config.seeds import parse_seeds
from explore._messages import suggest, to_one_line
from explore.errors import UserError

KEYS = {
    **dict.fromkeys(("recipes", "vary", "bind", "plugins"), "a list of strings"),
    "seeds": "a string such as '0-4' or a list of integers",
    "made_with": "a table",
}
"""What the file of a sweep may hold."""
LONGEST = 40  # characters of a value in the name of a cell
LONGEST_NAME = 200  # a file's name may have 255 bytes


@dataclass(frozen=True)
class Cell:
    """A point of the grid: a recipe with its bindings, and a name made of the values that vary."""

    name: str
    recipe: str
    bindings: tuple[str, ...]


@dataclass(frozen=True)
class Varied:
    """`--vary "slot.Name.parameter = [v1, v2]"`, parsed."""

    place: str  # as messages show it
    target: str  # scope/slot.Name.parameter
    values: tuple[Any, ...]

    def bindings(self) -> list[str]:
        return [format_binding(self.target, value) for value in self.values]


@dataclass(frozen=True)
class Sweep:
    """A grid of runs; the fields are the options of `explore sweep`, `vary` and `bind` as they are written."""

    recipes: tuple[str, ...]
    vary: tuple[str, ...] = ()
    bind: tuple[str, ...] = ()
    seeds: tuple[int, ...] | None = None
    plugins: tuple[str, ...] = ()

    def varied(self) -> list[Varied]:
        """What varies; raises `UserError` for what makes no grid."""
        varied = [_parse(text) for text in self.vary]
        targets = Counter(one.target for one in varied)
        bound = {target: text for text in self.bind for target in _bound_targets(text)}
        for one in varied:
            if targets[one.target] > 1:
                raise UserError(f"{one.place}: {one.target} is varied twice; write one list with all values")
            if one.target in bound:
                raise UserError(f'{one.place}: {one.target} is bound by -b "{to_one_line(bound[one.target])}" too')
        if self.seeds is not None and "experiment.seeds" in targets:
            raise UserError("experiment.seeds is varied and set by --seeds too; leave one of them out")
        return varied

    @property
    def size(self) -> int:
        """The number of cells."""
        return math.prod([len(self.recipes), *(len(one.values) for one in self.varied())])

    def cells(self) -> list[Cell]:
        """All cells, in the order in which they run: what varies last changes fastest."""
        if not self.recipes:
            raise UserError("name a configuration to sweep over, or the file of a sweep")
        repeated = _find_repeated(self.recipes)
        if repeated:
            raise UserError(f"the configuration {repeated} is named twice")
        varied = self.varied()
        recipes = zip(_distinguish([_name_recipe(recipe) for recipe in self.recipes], self.recipes), self.recipes)
        axes = [
            [(f"{name}={value}", text) for value, text in zip(_name_values(one.values), one.bindings())]
            for name, one in zip(_shorten([one.target for one in varied]), varied)
        ]
        seeds = [format_binding("experiment.seeds", self.seeds)] if self.seeds is not None else []
        cells = []
        for (recipe_name, recipe), *point in product(recipes, *axes):
            parts = [recipe_name] if len(self.recipes) > 1 or not varied else []
            name = ",".join([*parts, *(part for part, _ in point)])
            if len(name) > LONGEST_NAME:
                name = _add_hash(name, name, LONGEST_NAME - 20)
            cells.append(Cell(name, recipe, (*self.bind, *(text for _, text in point), *seeds)))
        return cells

    def to_toml(self, made_with: dict[str, str] | None = None) -> str:
        """The file of the sweep; `made_with` are digests of the files that it was begun with."""
        lists = {"recipes": self.recipes, "vary": self.vary, "bind": self.bind, "plugins": self.plugins}
        lines = [f"{key} = {_toml(words)}" for key, words in lists.items() if words]
        if self.seeds is not None:
            lines.append(f"seeds = {list(self.seeds)}")
        if made_with:
            lines += ["", "[made_with]", *(f"{_toml(key)} = {_toml(digest)}" for key, digest in made_with.items())]
        return "\n".join(lines) + "\n"

    def find_differences(self, other: Sweep) -> list[str]:
        """The options in which another sweep differs from this one."""
        mine, others = (
            {
                "the configurations": sweep.recipes,
                "--vary": [(one.target, one.bindings()) for one in sweep.varied()],
                "-b": sweep.bind,
                "--seeds": sweep.seeds,
                "-p": sweep.plugins,
            }
            for sweep in (self, other)
        )
        return [name for name in mine if mine[name] != others[name]]


def read_sweep(path: Path) -> tuple[Sweep, dict[str, str]]:
    """The sweep that a file holds, and the digests of what it was made with."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        near = suggest(path.name, (other.name for other in path.parent.glob("*.toml")))
        raise UserError(f"there is no sweep {path}{near}") from None
    except (OSError, RecursionError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {to_one_line(error)}") from None
    for key, value in content.items():
        if key not in KEYS:
            raise UserError(f"{path}: a sweep has no {key!r}{suggest(key, KEYS)}")
        if not _fits(key, value):
            raise UserError(f"{path}: {key} must be {KEYS[key]}")
    seeds = content.get("seeds")
    listed = {key: tuple(content.get(key, ())) for key in ("recipes", "vary", "bind", "plugins")}
    numbers = parse_seeds(seeds) if isinstance(seeds, str) else None if seeds is None else tuple(seeds)
    return Sweep(seeds=numbers, **listed), content.get("made_with", {})


def _fits(key: str, value: Any) -> bool:
    if key == "made_with":
        return isinstance(value, dict) and all(isinstance(digest, str) for digest in value.values())
    if key == "seeds":
        return isinstance(value, str) or (isinstance(value, list) and all(type(seed) is int for seed in value))
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _parse(text: str) -> Varied:
    place = f'--vary "{to_one_line(text)}"'
    example = 'write e.g. --vary "environment.DeepSea.size = [10, 20]"'
    statements = [statement for statement, _ in read_text(text, lambda line: place, Path())]
    if len(statements) != 1 or not isinstance(statements[0], config_parser.BindingStatement):
        raise UserError(f"{place} must bind one parameter to a list; {example}")
    scope, name, parameter, values, _ = statements[0]
    if not parameter:
        raise UserError(f"{place}: {name!r} is not a parameter; {example}")
    target = add_scope(scope, f"{name}.{parameter}")
    if not isinstance(values, list):
        raise UserError(f"{place}: the values of {target} must be a list in square brackets; {example}")
    if not values:
        raise UserError(f"{place}: the list is empty, so there is nothing to run; {example}")
    if any(isinstance(leaf, Macro) for leaf in list_leaves(values)):
        raise UserError(f"{place}: write the values themselves; a macro (%) has no value here")
    repeated = _find_repeated(map(format_value, values))
    if repeated:
        raise UserError(f"{place}: {repeated} is listed twice")
    return Varied(place, target, tuple(values))


def _find_repeated(texts: Iterable[str]) -> str | None:
    return next((text for text, count in Counter(texts).items() if count > 1), None)


def _bound_targets(text: str) -> list[str]:
    return [
        add_scope(statement.scope, f"{statement.selector}.{statement.arg_name}")
        for statement, _ in read_text(text, lambda line: f'-b "{to_one_line(text)}"', Path())
        if isinstance(statement, config_parser.BindingStatement)
    ]


# Names that are short, differ, and can be those of folders


def _shorten(targets: Sequence[str]) -> list[str]:
    """Each parameter by as many of its last words as it takes to tell it from the others."""
    words = [re.split(r"[./]", target) for target in targets]
    names = []
    for mine in words:
        others = [other for other in words if other is not mine]
        lengths = range(1, len(mine) + 1)
        length = next((n for n in lengths if all(other[-n:] != mine[-n:] for other in others)), len(mine))
        names.append(".".join(mine[-length:]))
    return _distinguish(names, targets)


def _name_values(values: Sequence[Any]) -> list[str]:
    return _distinguish([_abbreviate(value) for value in values], [format_value(value) for value in values])


def _abbreviate(value: Any) -> str:
    """A value without slots, quotes and what a folder cannot be called."""
    plain = map_leaves(
        value,
        lambda leaf: leaf.name.rpartition(".")[2] if isinstance(leaf, Reference) and not leaf.scope else leaf,
    )
    return _to_file_name(plain if isinstance(plain, str) else format_value(plain).replace(" ", ""))


def _name_recipe(recipe: str) -> str:
    path = Path(recipe)
    return _to_file_name(path.resolve().parent.name if path.name == "config.gin" else path.stem)


def _to_file_name(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", text, flags=re.ASCII).strip("._")


def _distinguish(names: Sequence[str], origins: Sequence[str]) -> list[str]:
    """The names, with a hash of their origin where they are too long, empty, or differ in capitals only."""
    counts = Counter(name.casefold() for name in names)
    return [
        name if 0 < len(name) <= LONGEST and counts[name.casefold()] == 1 else _add_hash(name, origin, LONGEST - 16)
        for name, origin in zip(names, origins)
    ]


def _add_hash(name: str, origin: str, length: int) -> str:
    return f"{name[:length]}-{hashlib.sha256(origin.encode()).hexdigest()[:8]}".lstrip("-")


def _toml(value: str | Sequence[str]) -> str:
    """JSON with DEL escaped is TOML."""
    indent = 4 if not isinstance(value, str) and len(value) > 1 else None
    return json.dumps(value, ensure_ascii=False, indent=indent).replace("\x7f", "\\u007f")
