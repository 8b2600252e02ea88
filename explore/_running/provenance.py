"""What a run is made with: versions, plugins and the machine; and what has changed since.

The same seed gives the same bytes only if all these are the same, so a run is not resumed with
others unless the user insists.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

import explore_plugins
import torch

from explore import __version__
from explore._config.discovery import Registry
from explore._config.same_results import WHEN_RESUMED, relevant_bindings
from explore._storage.run_folder import describe_execution

PACKAGES = ("torch", "numpy", "bsuite", "dm-env", "gin-config", "pluggy")
HARMLESS = ("gin-config", "pluggy")  # they compute nothing
INSTALLED = ("site-packages", "dist-packages")


def provenance(registry: Registry, execution: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The entries of `run.json` that say what a run is made with; `execution` is what its agent says of that."""
    versions = {"python": platform.python_version(), "explore": __version__}
    versions |= {package: metadata.version(package) for package in PACKAGES}
    return {
        "command": sys.argv,
        "platform": platform.platform(),
        "machine": machine(),
        "versions": versions,
        "code": _digest_own_code(),
        "plugins": [
            {"name": p.name, "version": p.version, "source": p.source, "sha256": fingerprint(p.module)}
            for p in registry.plugins
        ],
        "execution": dict(execution or {}),
    }


def _digest_own_code() -> str:
    """A digest of the code of explore and its built-in plugins: in a checkout the version says little."""
    folders = Path(__file__).parents[1], Path(explore_plugins.__file__).parent
    return _digest(file for folder in folders for file in folder.rglob("*.py"))


def fingerprint(module: Any) -> str | None:
    """The SHA-256 of a plugin's code: all of its package, or its file with what that imports from beside it.

    The files beside an installed file belong to other packages.
    """
    if not getattr(module, "__file__", None):
        return None
    file = Path(module.__file__).resolve()
    package = sys.modules.get((module.__package__ or "").partition(".")[0])
    if init := getattr(package, "__file__", None):
        return _digest(Path(init).resolve().parent.rglob("*.py"))
    finder = _Finder([] if file.parent.name in INSTALLED else [str(file.parent)])
    finder.run_script(str(file))
    files = [getattr(found, "__file__", None) for found in finder.modules.values()]
    return _digest(Path(name) for name in files if name)


class _Finder(ModuleFinder):
    def find_module(self, name: str, path: Any, parent: Any = None) -> Any:
        try:
            return super().find_module(name, path, parent)
        except AttributeError as error:  # a folder without __init__.py, such as one of recipes, has no code
            raise ImportError(name) from error


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def machine() -> str:
    """The properties of the processor that decide how numbers are rounded."""
    vendor = ""
    if Path("/proc/cpuinfo").is_file():
        lines = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines())
        vendor = next((value.strip() for key, _, value in lines if key.strip() == "vendor_id"), "")
    return " ".join(filter(None, (platform.machine(), vendor, torch.backends.cpu.get_cpu_capability())))


def describe_changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The differences between two provenances that change results, each in words: `torch 2.12.0 (now 2.13.0)`."""
    (old, old_code), (new, new_code) = _read_versions(then), _read_versions(now)
    changed = [name for name in old if old[name] != new.get(name)]
    edited = [name for name in old_code if name not in changed and old_code[name] != new_code.get(name)]
    described = [f"{name} {old[name]} (now {new.get(name, 'missing')})" for name in changed]
    return described + [f"{name} (edited since)" for name in edited] + _describe_other_execution(then, now)


def _describe_other_execution(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Native kernels are one path, whatever instructions they use: they give the same bits. PyTorch is another."""
    old, new = then.get("execution"), now.get("execution")
    if not old or not new or set(old) == set(new):
        return []
    reasons = {name: reason if name.startswith("PyTorch") else "" for name, reason in new.items()}
    return [f"{'; '.join(old)} (now {describe_execution(reasons)})"]


def _read_versions(info: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The versions of all that changes results, and digests of the code that may change without its version."""
    plugins = {f"plugin {plugin['name']}": plugin for plugin in _list_foreign(info)}
    versions = {name: version for name, version in info["versions"].items() if name not in HARMLESS}
    versions |= {"processor": info.get("machine")} | {name: plugins[name].get("version") for name in plugins}
    return versions, {"explore": info.get("code")} | {name: plugins[name].get("sha256") for name in plugins}


def describe_changed_bindings(before: str, after: str) -> list[str]:
    """The parameters that differ between two configurations: `value.MLP.hidden = (50,) (now (64,))`."""
    old, new = (relevant_bindings(config, WHEN_RESUMED) for config in (before, after))
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return [f"{name} = {old.get(name, '(not set)')} (now {new.get(name, '(not set)')})" for name in names]


def list_user_plugins(info: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The plugins that the user named with `-p` when the run was made."""
    return [plugin for plugin in _list_foreign(info) if not str(plugin.get("source")).startswith("entry point")]


def _list_foreign(info: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [plugin for plugin in info["plugins"] if plugin.get("source") != "built in"]
