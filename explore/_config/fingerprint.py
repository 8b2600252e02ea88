"""Whether the code of a plugin is still what it was: a digest of its source files."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

INSTALLED = ("site-packages", "dist-packages")


def fingerprint(module: Any) -> str | None:
    """The SHA-256 of a module's file and of those beside or below it that it imports, directly or not.

    What lies beside a module that is installed as a single file is everybody's, and none of its own.
    """
    if not getattr(module, "__file__", None):
        return None
    top = sys.modules.get((getattr(module, "__package__", "") or "").partition(".")[0], module)
    folder = Path(getattr(top, "__file__", None) or module.__file__).resolve().parent
    sources: set[Path] = set()
    if folder.name in INSTALLED:
        sources.add(Path(module.__file__).resolve())
    else:
        _add_sources(module, folder, sources)
    digest = hashlib.sha256()
    for path in sorted(sources):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _add_sources(module: Any, folder: Path, found: set[Path]) -> None:
    path = Path(getattr(module, "__file__", None) or ".").resolve()
    if path in found or path.suffix != ".py" or not path.is_relative_to(folder):
        return
    if {*INSTALLED} & {*path.relative_to(folder).parts}:
        return
    found.add(path)
    for name in _list_imports(path.read_bytes(), getattr(module, "__package__", "") or ""):
        if name in sys.modules:
            _add_sources(sys.modules[name], folder, found)


@cache  # plugins of one package import the same files
def _list_imports(source: bytes, package: str) -> tuple[str, ...]:
    """The names of all modules that some code may import."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            with suppress(ImportError):  # more dots than there are packages
                base = importlib.util.resolve_name(base, package)
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(names)
