"""A sweep as it is written down, and the cells of its grid: recipes times the values of all that varies.

    sweep = Sweep(("pins_deep_sea",), vary=("environment.DeepSea.size = [10, 20]",), seeds=(0, 1))
    [cell.name for cell in sweep.cells()]  # ["size=10", "size=20"]

Nothing is run here. The file of a sweep is TOML and holds the strings of the command line.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from gin import config_parser

from explore._config.gin_files import (
    Binding,
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

KEYS = {"recipes": list, "vary": list, "bind": list, "seeds": (str, list), "plugins": list, "made_with": dict}
"""What the file of a sweep may hold."""
LONGEST = 40  # letters of a value in the name of a cell
LONGEST_NAME = 200  # a file's name may have 255 bytes


@dataclass(frozen=True)
class Cell:
    """A point of the grid: a recipe with its bindings, and the name that says what is special about it."""

    name: str
    recipe: str
    bindings: tuple[str, ...]


@dataclass(frozen=True)
class Varied:
    """`--vary "slot.Name.parameter = [v1, v2]"`, read."""

    text: str
    target: str  # scope/slot.Name.parameter
    values: tuple[Any, ...]

    def bindings(self) -> list[str]:
        return [format_binding(self.target, value) for value in self.values]

    @property
    def place(self) -> str:
        return f'--vary "{to_one_line(self.text)}"'


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
        found = [_read(text) for text in self.vary]
        targets = [one.target for one in found]
        bound = {target: text for text in self.bind for target in _targets(text)}
        for one in found:
            if targets.count(one.target) > 1:
                raise UserError(f"{one.place}: {one.target} is varied twice; write one list with all values")
            if one.target in bound:
                raise UserError(f'{one.place}: {one.target} is bound by -b "{to_one_line(bound[one.target])}" too')
        if self.seeds is not None and "experiment.seeds" in targets:
            raise UserError("experiment.seeds is varied and set by --seeds too; leave one of them out")
        return found

    @property
    def size(self) -> int:
        """The number of cells."""
        return math.prod([len(self.recipes), *(len(one.values) for one in self.varied())])

    def cells(self) -> list[Cell]:
        """All cells, in the order in which they are run: the last of what varies changes fastest."""
        if not self.recipes:
            raise UserError("name a configuration to sweep over, or the file of a sweep")
        repeated = [recipe for recipe, count in Counter(self.recipes).items() if count > 1]
        if repeated:
            raise UserError(f"the configuration {repeated[0]} is named twice")
        varied = self.varied()
        seeds = [format_binding("experiment.seeds", self.seeds)] if self.seeds is not None else []
        recipes = _distinct([_recipe_name(recipe) for recipe in self.recipes], self.recipes)
        columns = [
            [f"{name}={value}" for value in _value_names(one.values)]
            for name, one in zip(_shortest([one.target for one in varied]), varied)
        ]
        cells = []
        for (name, recipe), *chosen in product(
            zip(recipes, self.recipes), *(zip(column, one.bindings()) for column, one in zip(columns, varied))
        ):
            parts = [name] if len(self.recipes) > 1 or not varied else []
            full = ",".join([*parts, *(part for part, _ in chosen)])
            if len(full) > LONGEST_NAME:
                full = _hashed(full, full, LONGEST_NAME - 20)
            cells.append(Cell(full, recipe, (*self.bind, *(text for _, text in chosen), *seeds)))
        return cells

    def text(self, made_with: dict[str, str] | None = None) -> str:
        """The file of the sweep; `made_with` are digests of the files that it was begun with."""
        lists = {"recipes": self.recipes, "vary": self.vary, "bind": self.bind, "plugins": self.plugins}
        lines = [f"{key} = {_toml_list(words)}" for key, words in lists.items() if words]
        if self.seeds is not None:
            lines.append(f"seeds = {list(self.seeds)}")
        if made_with:
            lines += ["", "[made_with]", *(f"{_toml(key)} = {_toml(digest)}" for key, digest in made_with.items())]
        return "\n".join(lines) + "\n"

    def differences(self, other: Sweep) -> list[str]:
        """The options in which another sweep differs from this one."""
        same = {
            "the configurations": self.recipes == other.recipes,
            "--vary": [(one.target, one.bindings()) for one in self.varied()]
            == [(one.target, one.bindings()) for one in other.varied()],
            "-b": self.bind == other.bind,
            "--seeds": self.seeds == other.seeds,
            "-p": self.plugins == other.plugins,
        }
        return [name for name, equal in same.items() if not equal]


def read_sweep(path: Path) -> tuple[Sweep, dict[str, str]]:
    """The sweep that a file holds, and the digests of what it was made with."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        near = suggest(path.name, (other.name for other in path.parent.glob("*.toml")))
        raise UserError(f"there is no sweep {path}{near}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {to_one_line(error)}") from None
    for key, value in content.items():
        if key not in KEYS:
            raise UserError(f"{path}: a sweep has no {key!r}{suggest(key, KEYS)}")
        wanted = "a table" if key == "made_with" else "a list of texts"
        entries = value.values() if isinstance(value, dict) else value
        right = isinstance(value, KEYS[key])  # type: ignore[arg-type]
        if key == "seeds":
            wanted, entries = "a text such as '0-4' or a list of whole numbers", ()
            right = right and (isinstance(value, str) or all(type(seed) is int for seed in value))
        if not right or not all(isinstance(entry, str) for entry in entries):
            raise UserError(f"{path}: {key} must be {wanted}")
    seeds = content.get("seeds")
    listed = {key: tuple(content.get(key, ())) for key in ("recipes", "vary", "bind", "plugins")}
    numbers = parse_seeds(seeds) if isinstance(seeds, str) else None if seeds is None else tuple(seeds)
    return Sweep(seeds=numbers, **listed), content.get("made_with", {})


def _read(text: str) -> Varied:
    place = f'--vary "{to_one_line(text)}"'
    example = 'write e.g. --vary "environment.DeepSea.size = [10, 20]"'
    statements = [statement for statement, _ in read_text(text, lambda line: place, Path())]
    if len(statements) != 1 or not isinstance(statements[0], config_parser.BindingStatement):
        raise UserError(f"{place} must bind one parameter to a list; {example}")
    scope, name, parameter, value, _ = statements[0]
    if not parameter:
        raise UserError(f"{place}: {name!r} is not a parameter; {example}")
    target = add_scope(scope, f"{name}.{parameter}")
    if not isinstance(value, list):
        raise UserError(f"{place}: the values of {target} must be a list in square brackets; {example}")
    if not value:
        raise UserError(f"{place}: the list is empty, so there is nothing to run; {example}")
    if any(isinstance(leaf, Macro) for leaf in list_leaves(value)):
        raise UserError(f"{place}: write the values themselves; a macro (%) has no value here")
    texts = Counter(map(format_value, value))
    repeated = [text for text, count in texts.items() if count > 1]
    if repeated:
        raise UserError(f"{place}: {repeated[0]} is listed twice")
    return Varied(text, target, tuple(value))


def _targets(text: str) -> list[str]:
    """What a binding of the command line binds."""
    return [
        str(Binding(statement.scope, statement.selector, statement.arg_name, None)).removesuffix(" = None")
        for statement, _ in read_text(text, lambda line: f'-b "{to_one_line(text)}"', Path())
        if isinstance(statement, config_parser.BindingStatement)
    ]


# Names that are short, differ, and can be those of folders


def _shortest(targets: Sequence[str]) -> list[str]:
    """Each parameter by as many of its last words as it takes to tell it from the others."""
    words = [re.split(r"[./]", target) for target in targets]
    names = []
    for mine in words:
        others = [other for other in words if other is not mine]
        lengths = range(1, len(mine) + 1)
        length = next((n for n in lengths if all(other[-n:] != mine[-n:] for other in others)), len(mine))
        names.append(".".join(mine[-length:]))
    return _distinct(names, targets)


def _value_names(values: Sequence[Any]) -> list[str]:
    return _distinct([_safe(_brief(value)) for value in values], [format_value(value) for value in values])


def _brief(value: Any) -> str:
    """A value without slots and quotes."""
    plain = map_leaves(value, lambda leaf: leaf.name.rpartition(".")[2] if _is_plain(leaf) else leaf)
    return plain if isinstance(plain, str) else format_value(plain).replace(" ", "")


def _is_plain(leaf: Any) -> bool:
    return isinstance(leaf, Reference) and not leaf.scope


def _recipe_name(recipe: str) -> str:
    path = Path(recipe)
    return _safe(path.resolve().parent.name if path.name == "config.gin" else path.stem)


def _safe(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", text, flags=re.ASCII).strip("._")


def _distinct(names: Sequence[str], meant: Sequence[str]) -> list[str]:
    """The names, with a hash of what is meant where they are too long, empty, or alike but for capitals."""
    counts = Counter(name.casefold() for name in names)
    return [
        name if name and len(name) <= LONGEST and counts[name.casefold()] == 1 else _hashed(name, text, LONGEST - 16)
        for name, text in zip(names, meant)
    ]


def _hashed(name: str, meant: str, length: int) -> str:
    return f"{name[:length]}-{hashlib.sha256(meant.encode()).hexdigest()[:8]}".lstrip("-")


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_list(texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return f"[{_toml(texts[0])}]"
    return "[\n" + "".join(f"    {_toml(text)},\n" for text in texts) + "]"
