"""A sweep as it is written down, and the cells of its grid: recipes times the values of all that varies.

    sweep = Sweep(("pins_deep_sea",), vary=("environment.DeepSea.size = [10, 20]",), seeds=(0, 1))
    [cell.name for cell in sweep.cells()]  # ["size=10", "size=20"]

Nothing runs here. The file of a sweep is TOML and holds the strings of the command line.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
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
    name_run,
    read_option,
)
from explore._config.seeds import parse_seeds
from explore._messages import suggest, to_one_line
from explore.errors import UserError

OPTIONS = {"recipes": "the configurations", "vary": "--vary", "bind": "-b", "seeds": "--seeds", "plugins": "-p"}
"""The fields of a sweep, and what each is called on the command line."""
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

    @cached_property
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

    def cells(self) -> list[Cell]:
        """All cells, in the order in which they run: what varies last changes fastest."""
        if not self.recipes:
            raise UserError("name a configuration to sweep over, or the file of a sweep")
        repeated = _find_repeated(self.recipes)
        if repeated:
            raise UserError(f"the configuration {repeated} is named twice")
        names = [_to_file_name(name_run(recipe)) for recipe in self.recipes]
        recipes = zip(_distinguish(names, self.recipes), self.recipes)
        axes = []
        for name, one in zip(_shorten([one.target for one in self.varied]), self.varied):
            values = _distinguish([_abbreviate(value) for value in one.values], list(map(format_value, one.values)))
            axes.append([(f"{name}={value}", binding) for value, binding in zip(values, one.bindings())])
        seeds = [format_binding("experiment.seeds", self.seeds)] if self.seeds is not None else []
        names, points = [], []
        for (recipe_name, recipe), *point in product(recipes, *axes):
            parts = [recipe_name] if len(self.recipes) > 1 or not axes else []
            names.append(",".join([*parts, *(part for part, _ in point)]))
            points.append((recipe, (*self.bind, *(binding for _, binding in point), *seeds)))
        return [Cell(name, *point) for name, point in zip(_distinguish(names, names, LONGEST_NAME), points)]

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
        return [option for field, option in OPTIONS.items() if getattr(self, field) != getattr(other, field)]


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
        kind, fits = KEYS[key]
        if not fits(value):
            raise UserError(f"{path}: {key} must be {kind}")
    made_with = content.pop("made_with", {})
    if isinstance(content.get("seeds"), str):
        content["seeds"] = parse_seeds(content["seeds"])
    return Sweep(**{"recipes": ()} | {key: tuple(value) for key, value in content.items()}), made_with


def _are_all(kind: type, values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)


KEYS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("recipes", "vary", "bind", "plugins"), ("a list of strings", partial(_are_all, str))),
    "seeds": (
        "a string such as '0-4' or a list of integers",
        lambda value: isinstance(value, str) or _are_all(int, value),
    ),
    "made_with": ("a table of strings", lambda value: isinstance(value, dict) and _are_all(str, [*value.values()])),
}
"""What the file of a sweep may hold: each entry with what it must be."""


def _parse(text: str) -> Varied:
    place = f'--vary "{to_one_line(text)}"'
    statements = [statement for statement, _ in read_option("--vary", text)]
    if len(statements) == 1 and isinstance(statements[0], config_parser.BindingStatement):
        scope, name, parameter, values, _ = statements[0]
    else:
        parameter = values = None
    if not parameter or not isinstance(values, list) or not values:
        example = 'write e.g. --vary "environment.DeepSea.size = [10, 20]"'
        raise UserError(f"{place} must bind one parameter to a list of values in square brackets; {example}")
    if any(isinstance(leaf, Macro) for leaf in list_leaves(values)):
        raise UserError(f"{place}: write the values themselves; a macro (%) has no value here")
    repeated = _find_repeated(map(format_value, values))
    if repeated:
        raise UserError(f"{place}: {repeated} is listed twice")
    return Varied(place, add_scope(scope, f"{name}.{parameter}"), tuple(values))


def _find_repeated(texts: Iterable[str]) -> str | None:
    return next((text for text, count in Counter(texts).items() if count > 1), None)


def _bound_targets(text: str) -> list[str]:
    return [
        add_scope(statement.scope, f"{statement.selector}.{statement.arg_name}")
        for statement, _ in read_option("-b", text)
        if isinstance(statement, config_parser.BindingStatement)
    ]


# Names that are short, differ, and can be those of folders


def _shorten(targets: Sequence[str]) -> list[str]:
    """Each parameter by as many of its last words as it takes to tell it from the others."""
    dotted = [target.replace("/", ".") for target in targets]
    names = []
    for target in dotted:
        words = target.split(".")
        endings = [".".join(words[start:]) for start in reversed(range(len(words)))]
        unique = [end for end in endings if sum(f".{other}".endswith(f".{end}") for other in dotted) == 1]
        names.append([*unique, target][0])
    return _distinguish(names, targets)


def _abbreviate(value: Any) -> str:
    """A value without slots, quotes and what a folder cannot be called."""
    plain = map_leaves(
        value,
        lambda leaf: leaf.name.rpartition(".")[2] if isinstance(leaf, Reference) and not leaf.scope else leaf,
    )
    return _to_file_name(plain if isinstance(plain, str) else format_value(plain).replace(" ", ""))


def _to_file_name(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", text, flags=re.ASCII).strip("._")


def _distinguish(names: Sequence[str], origins: Sequence[str], longest: int = LONGEST) -> list[str]:
    """The names, with a hash of their origin where they are too long, empty, or differ in capitals only."""
    counts = Counter(name.casefold() for name in names)
    return [
        name
        if 0 < len(name) <= longest and counts[name.casefold()] == 1
        else f"{name[: longest - 16]}-{hashlib.sha256(origin.encode()).hexdigest()[:8]}".lstrip("-")
        for name, origin in zip(names, origins)
    ]


def _toml(value: str | Sequence[str]) -> str:
    """JSON with DEL escaped is TOML."""
    indent = 4 if not isinstance(value, str) and len(value) > 1 else None
    return json.dumps(value, ensure_ascii=False, indent=indent).replace("\x7f", "\\u007f")
