"""Reads gin files: statements, each with the place where it is written.

gin's own parser reads the text, but it forgets where a binding was written, includes files relative
to the working folder, and runs imports; here references and macros stay as they are written, and
nothing is run.
"""

from __future__ import annotations

import math
import os
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gin import config_parser

from explore._messages import short_path, suggest, to_one_line
from explore.errors import UserError

NOTATION = "a string is written in quotes, a component as @slot.Name, and True, False and None with a capital letter"


@dataclass(frozen=True)
class Reference:
    """`@scope/slot.Name` in a value."""

    scope: str
    name: str
    called: bool = False

    def __repr__(self) -> str:
        return f"@{add_scope(self.scope, self.name)}{'()' if self.called else ''}"


@dataclass(frozen=True)
class Macro:
    """`%name` in a value."""

    name: str


@dataclass(frozen=True)
class Binding:
    """`scope/slot.Name.parameter = value`, and the place where it is written ("" for a default)."""

    scope: str
    name: str
    parameter: str
    value: Any
    where: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.scope, self.name, self.parameter

    def __str__(self) -> str:
        return format_binding(add_scope(self.scope, f"{self.name}.{self.parameter}"), self.value)


def format_binding(parameter: str, value: Any) -> str:
    """The text of a binding, e.g. `format_binding("experiment.seeds", (0, 1))`."""
    return f"{parameter} = {format_value(value)}"


def add_scope(scope: str, name: str) -> str:
    return f"{scope}/{name}" if scope else name


def enclosing_scopes(scope: str) -> list[str]:
    """A scope and those around it, innermost first: `a/b` -> `a/b`, `a`, ``."""
    parts = scope.split("/") if scope else []
    return ["/".join(parts[:end]) for end in range(len(parts), -1, -1)]


def format_value(value: Any) -> str:
    """A value as gin reads it; raises `ValueError` for what gin cannot read."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{format_value(key)}: {format_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(format_value, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(format_value, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, float) and math.isinf(value):
        return "1e999" if value > 0 else "-1e999"  # gin has no word for infinity
    if not is_literal(value):
        raise ValueError(f"gin has no literal for {value!r}")
    return repr(value)


def is_literal(value: Any) -> bool:
    """Whether gin can write a value down."""
    plain = (type(None), bool, int, float, str, Reference)
    return all(type(leaf) in plain and repr(leaf) != "nan" for leaf in list_leaves(value))


def map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """A value with `change` applied to everything that is not a container."""
    if type(value) is dict:
        return {map_leaves(key, change): map_leaves(item, change) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map_leaves(item, change) for item in value)
    return change(value)


def list_leaves(value: Any) -> list[Any]:
    found: list[Any] = []
    map_leaves(value, found.append)
    return found


class _Delegate(config_parser.ParserDelegate):
    """Keeps references and macros as they are written."""

    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> Reference:
        scope, _, name = scoped_configurable_name.rpartition("/")
        return Reference(scope, name, evaluate)

    def macro(self, macro_name: str) -> Macro:
        return Macro(macro_name)


Statements = Iterator[tuple[Any, str]]
"""gin's statements, each with the place where it is written."""


def list_recipes() -> dict[str, Path]:
    """The configurations that come with the package, by name."""
    here = Path(__file__).parent
    installed = here / "recipes"
    folder = installed if installed.is_dir() else here.parents[1] / "gin"
    return {path.stem: path for path in sorted(folder.glob("*.gin"))}


def find_file(config: str | Path, folder: Path = Path()) -> Path:
    """A file, relative to a folder, or a recipe by its name."""
    path, stem = folder / config, Path(config).name.removesuffix(".gin")
    recipes = list_recipes()
    if os.path.isfile(path):
        return path
    if Path(config).parent == Path() and stem in recipes:
        return recipes[stem]
    if os.path.isdir(path):
        raise UserError(f"{config} is a folder; name the file, e.g. {path / 'config.gin'}")
    beside = {other.stem for other in path.parent.glob("*.gin")}
    raise UserError(f"there is no configuration {str(config)!r}{suggest(stem, recipes.keys() | beside)}")


def name_run(config: str | Path) -> str:
    """What a run of a configuration is called: as the file, or as the folder of another run."""
    path = Path(config)
    return path.resolve().parent.name if path.name == "config.gin" else path.stem


def read_file(path: Path, includers: tuple[Path, ...] = ()) -> Statements:
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors put a mark of the encoding first
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{short_path(path)} cannot be read: {error}") from None
    place = short_path(path)
    return read_text(text, lambda line: f"{place}:{line}", path.parent, (*includers, path.resolve()))


def read_text(text: str, place: Callable[[int], str], folder: Path, includers: tuple[Path, ...] = ()) -> Statements:
    """The statements of a text; those of an included file stand in place of its `include`.

    A file is included from the folder of the one that includes it, or from the recipes.
    """
    for statement in _parse(text, place):
        where = place(statement.location.line_num)
        if not isinstance(statement, config_parser.IncludeStatement):
            yield statement, where
            continue
        try:
            path = find_file(statement.filename, folder)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
        if path.resolve() in includers:
            raise UserError(f"{where}: {short_path(path)} includes itself")
        yield from read_file(path, includers)


def read_option(option: str, text: str) -> Statements:
    """The statements that follow an option of the command line, such as `-b`."""
    place = f'{option} "{to_one_line(text)}"'
    return read_text(text, lambda line: place, Path())


def _parse(text: str, place: Callable[[int], str]) -> list[Any]:
    """gin's statements, none of which has a value that gin could not write."""
    try:
        statements = list(config_parser.ConfigParser(text, _Delegate()))
    except SyntaxError as error:
        problem = error.msg.splitlines()[-1].strip()  # an earlier line has Python's own words
        raise UserError(f"{place(error.lineno or 1)}: syntax error: {problem} ({NOTATION})") from None
    except tokenize.TokenError as error:
        message, (line, _) = error.args
        raise UserError(f"{place(line)}: syntax error: {message}") from None
    except (RecursionError, TypeError) as error:  # brackets within brackets, a list as the key of a dict
        raise UserError(f"{place(1)}: syntax error: {to_one_line(error)}") from None
    for statement in statements:
        if isinstance(statement, config_parser.BindingStatement) and not _is_value(statement.value):
            name = add_scope(statement.scope, f"{statement.selector}.{statement.arg_name}".rstrip("."))
            where = place(statement.location.line_num)
            raise UserError(f"{where}: {name} is bound to what is neither a number, a string, True, False nor None")
    return statements


def _is_value(value: Any) -> bool:
    return is_literal(map_leaves(value, lambda leaf: None if isinstance(leaf, Macro) else leaf))


def read_bindings(text: str) -> dict[str, str]:
    """The values, as text, that a complete configuration binds, by `scope/slot.Name.parameter`; and its imports."""
    found = {}
    for statement in _parse(text, lambda line: f"config.gin:{line}"):
        if isinstance(statement, config_parser.BindingStatement):
            name = add_scope(statement.scope, f"{statement.selector}.{statement.arg_name}")
            if not is_literal(statement.value):
                raise UserError(f"{name} is bound to a macro, so this is no complete configuration")
            found[name] = format_value(statement.value)
        elif isinstance(statement, config_parser.ImportStatement):
            found[statement.format()] = "done"
    return found


def strip_scope(name: str) -> str:
    """A parameter without the scope it is bound in."""
    return name.rpartition("/")[2]
