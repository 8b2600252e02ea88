"""The tests themselves: where they are, what they share, and that each file can be read at one sitting."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FILES = sorted(TESTS.rglob("*.py"))
LONG = 500


def test_tests_lie_in_a_folder_that_says_what_they_are():
    folders = {path.parent.relative_to(TESTS).as_posix() for path in FILES if path.name.startswith("test_")}
    assert folders == {"unit", "process", "fuzz", "learning", "docs"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_file_imports_a_test(path):
    """What two of them need is in a module beside conftest.py."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    assert not [name for name in imported if name and name.startswith("test_")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_file_is_long(path):
    assert len(path.read_text().splitlines()) <= LONG
