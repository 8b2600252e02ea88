"""Everything there is, is documented: hooks, recipes, parameters, commands, modules."""

import inspect
import re
from pathlib import Path

import pytest
from explore_plugins import BUILT_IN_COMMANDS
from pages import DOCS, REFERENCE, REPOSITORY, blocks
from parameter_table import PAGE, TABLE, parameter_table

from explore import hooks
from explore._cli.parser import COMMANDS
from explore._config.gin_files import list_recipes

RECIPES, HOOK_TABLE, DESIGN = (
    DOCS / f"{name}.md" for name in ("reference/gin", "reference/hooks", "concepts/architecture")
)
HOOKS = [name for name in vars(hooks) if name.startswith("explore_")]


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_documented_and_implemented_by_an_example_that_is_run(hook):
    arguments = ", ".join(inspect.signature(getattr(hooks, hook)).parameters)
    assert f"| `{hook}({arguments})` |" in HOOK_TABLE.read_text()
    assert any(f"def {hook}({arguments}):" in block for page in REFERENCE for block in blocks(page, "python"))


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_named_in_a_test(hook):
    assert any(hook in path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))


def test_every_command_is_listed():
    listed = set(re.findall(r"^\| `explore ([\w-]+)", (DOCS / "reference" / "commands.md").read_text(), re.MULTILINE))
    assert listed == {*COMMANDS, *BUILT_IN_COMMANDS}


def test_every_recipe_is_listed():
    listed = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ", RECIPES.read_text().split("## Recipes")[1], re.MULTILINE)
    named = {name for cell in listed for name in re.findall(r"`(\w+)`", cell)}
    assert list_recipes().keys() - named == set()


def test_the_table_of_parameters_is_complete():
    assert TABLE.search(PAGE.read_text())[0] == parameter_table(), (
        "rewrite it with: python tests/docs/parameter_table.py"
    )


def test_every_parameter_has_a_meaning():
    assert [line for line in parameter_table().splitlines() if line.endswith("|  |")] == []


def test_every_module_has_its_place_in_the_design():
    modules = [path.name for path in (REPOSITORY / "explore").glob("*.py") if not path.name.startswith("__")]
    modules += [f"{path.parent.name}/" for path in (REPOSITORY / "explore").glob("*/__init__.py")]
    assert [name for name in modules if f"`{name}`" not in DESIGN.read_text()] == []
