"""What is public is listed in `__all__`, documented, and nothing else."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest
from pages import DOCS, PUBLIC_MODULES

API = DOCS / "reference" / "api"


def exported(module):
    """The classes and functions that a module defines, or imports from modules of its own."""
    for statement in ast.parse(Path(module.__file__).read_text()).body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield statement.name
        elif isinstance(statement, ast.ImportFrom) and f"{statement.module}.".startswith(f"{module.__name__}."):
            yield from (alias.asname or alias.name for alias in statement.names)


def undocumented(name, value):
    """The public class or function `name`, and public methods and properties of a class, that have no docstring."""
    if inspect.isroutine(value) and not inspect.getdoc(value):
        yield name
    if inspect.isclass(value):
        if not value.__doc__:
            yield name
        for key, member in vars(value).items():
            documented = inspect.getdoc(getattr(value, key))
            if (inspect.isroutine(member) or isinstance(member, property)) and key[0] != "_" and not documented:
                yield f"{name}.{key}"


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_a_public_module_exports_what_it_lists(name):
    module = importlib.import_module(name)
    assert [key for key in module.__all__ if not hasattr(module, key)] == []
    assert {key for key in exported(module) if not key.startswith("_")} <= set(module.__all__)


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_every_public_name_has_a_docstring(name):
    module = importlib.import_module(name)
    assert module.__doc__
    public = {key: getattr(module, key) for key in getattr(module, "__all__", ())}
    assert [missing for key, value in public.items() for missing in undocumented(key, value)] == []


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_every_public_module_has_a_page_in_the_reference(name):
    page = API / f"{name.removeprefix('explore.')}.md"
    assert f".. automodule:: {name}\n   :members:" in page.read_text()
    assert f"`{name}`]({page.name})" in (API / "index.md").read_text()
