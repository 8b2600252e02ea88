"""Who imports whom: the plan of the house, as docs/concepts/architecture.md draws it."""

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
ANYBODY = {
    "errors",
    "hooks",
    "commands",
    "tasks",
    "experiments",
    "_messages",
    "_entry_points",
}  # may be imported from everywhere
NETWORKS = {"interfaces", "nn", "streams"}
ALLOWED = {
    "_cli": {"_sweeps", "_analysis", "_running", "_config", "_storage", "_native", "_state", "testing", *NETWORKS},
    "_sweeps": {"_analysis", "_running", "_config", "_storage", *NETWORKS},
    "_analysis": {"_config", "_storage"},
    "_running": {"_learning", "_values", "_native", "_state", "_config", "_storage", *NETWORKS},
    "_learning": {"_values", "_native", "_state", *NETWORKS},
    "_values": {"_native", "_state", *NETWORKS},
    "_native": set(),
    "_config": {"interfaces"},
    "_storage": set(),
    "_state": {"streams"},
    "interfaces": {"nn", "streams"},
    "nn": {"streams"},
}
"""Package -> the packages that it imports from, beside its own."""
TORCH_FREE = (
    "_storage",
    "_analysis",
    "_messages",
    "_entry_points",
    "errors",
    "hooks",
    "commands",
    "tasks",
    "reports",
    "experiments",
)
TEXT_OF_CONFIGURATIONS = {f"explore._config.{name}" for name in ("gin_files", "same_results", "seeds")}
"""The part of `_config` that reads configurations as text and imports no torch."""


def modules(folder: Path) -> dict[str, Path]:
    """The modules of a package below `folder`, by their dotted names."""
    found = {}
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        if "templates" not in parts:
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path) -> Iterator[str]:
    """The modules of explore that a file imports when it runs, in functions too; not those for type checkers only."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for statement in branch.body
        for node in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "explore")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "explore":
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if node.module == "explore" and is_module(submodule) else str(node.module)


def is_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def package(module: str) -> str:
    """`explore._values.stack` -> `_values`; `explore` itself -> ``."""
    return ([*module.split("."), ""])[1]


@pytest.mark.parametrize("importer", ALLOWED)
def test_a_package_imports_only_from_those_below_it(importer):
    for module, path in modules(REPOSITORY / "explore").items():
        if package(module) == importer:
            others = {package(imported) for imported in imports(path)} - {importer, "", *ANYBODY}
            assert others <= ALLOWED[importer], f"{module} imports from {sorted(others - ALLOWED[importer])}"


def test_every_private_package_has_its_place_in_the_plan():
    private = {path.parent.name for path in (REPOSITORY / "explore").glob("_*/__init__.py")}
    assert private <= ALLOWED.keys()


def test_no_package_imports_in_a_circle():
    below = {name: set(allowed) for name, allowed in ALLOWED.items()}
    while below:
        lowest = [name for name, allowed in below.items() if not allowed & below.keys()]
        assert lowest, f"a circle among {sorted(below)}"
        for name in lowest:
            del below[name]


@pytest.mark.parametrize("plugin", modules(REPOSITORY / "plugins" / "explore_plugins"))
def test_a_built_in_plugin_imports_public_names_only(plugin):
    path = modules(REPOSITORY / "plugins" / "explore_plugins")[plugin]
    private = [name for name in imports(path) if any(part.startswith("_") for part in name.split("."))]
    assert private == []


def test_analysis_reads_configurations_as_text_only():
    read = {name for path in modules(REPOSITORY / "explore" / "_analysis").values() for name in imports(path)}
    assert {name for name in read if package(name) == "_config"} <= TEXT_OF_CONFIGURATIONS


def test_no_task_or_method_is_known_by_name_to_what_draws_and_lists_runs():
    readers = [*(REPOSITORY / "explore" / "_analysis").rglob("*.py"), REPOSITORY / "plugins/explore_plugins/display.py"]
    names = re.compile(r"deep.?sea|swing.?up|cartpole|treasure|theorem|regret|bsuite", re.IGNORECASE)
    assert [(path.name, found) for path in readers if (found := names.findall(path.read_text()))] == []


def test_reading_files_imports_no_torch():
    names = [name for name in modules(REPOSITORY / "explore") if package(name) in TORCH_FREE]
    names += TEXT_OF_CONFIGURATIONS
    program = (
        f"import importlib, sys\nfor name in {names}: importlib.import_module(name)\nprint('torch' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert told.stdout.strip() == "False"
