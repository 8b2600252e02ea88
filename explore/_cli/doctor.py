"""What `explore doctor` looks at: what is installed, what executes agents, and whether it computes what it should."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np
import torch

from explore import __version__
from explore._analysis.report.plugin_sections import PLUGIN_SECTIONS
from explore._cli.plugin_commands import PLUGIN_COMMANDS
from explore._config.discovery import Registry, discover
from explore._messages import printable
from explore._native import library
from explore._running.loop import play_episode
from explore._running.provenance import PACKAGES, machine
from explore.interfaces import Spec, Streams
from explore.testing import toy

SEEDS, EPISODES = (0, 1, 2), 12
REPEATS, UPDATES = 8, 20
TOLERANCE = 1e-3


class Finding(NamedTuple):
    check: str
    result: str  # ok, note or failed
    details: str


def examine(plugins: Sequence[str], commands: Collection[str]) -> Iterator[Finding]:
    """Does one check after another; raises `UserError` if a plugin that is asked for cannot be loaded."""
    registry = discover(plugins)
    torch.set_num_threads(1)  # as runs do by default
    checks: dict[str, Callable[[], tuple[str, str]]] = {
        "versions": _list_versions,
        "plugins": lambda: _list_plugins(registry, commands),
        "processor": lambda: ("ok", f"{machine()}, {os.cpu_count()} cores"),
        "compiler": _find_compiler,
        "kernels": _find_kernels,
        "exactness": _check_exactness,
        "speed": _measure_speed,
    }
    for name, check in checks.items():
        try:
            result, details = check()
        except library.NotAvailable as reason:
            result, details = "failed", str(reason)
        except Exception as error:
            result, details = "failed", f"{type(error).__name__}: {error}"
        yield Finding(name, result, printable(details))


def _list_versions() -> tuple[str, str]:
    versions = {"explore": __version__, "Python": platform.python_version()}
    versions |= {package: metadata.version(package) for package in PACKAGES}
    return "ok", ", ".join(f"{name} {version}" for name, version in versions.items())


def _list_plugins(registry: Registry, commands: Collection[str]) -> tuple[str, str]:
    others = [f"{one.name} {one.version} ({one.source})" for one in registry.plugins if one.source != "built in"]
    failures = [*map(str, registry.failed), *PLUGIN_COMMANDS.load_all(commands)[1], *PLUGIN_SECTIONS.load_all()[1]]
    known = [f"{len(registry.plugins) - len(others)} built in", *others]
    return "failed" if failures else "ok", "; ".join(known + failures)


def _find_compiler() -> tuple[str, str]:
    try:
        path = library.find_compiler()
    except library.NotAvailable as reason:
        return "note", str(reason)
    return "ok", f"{path}: {library.ask_version(path)}"


def _find_kernels() -> tuple[str, str]:
    begun = time.time()
    try:
        kernels = library.load_library()
    except library.NotAvailable as reason:
        expected = os.environ.get(library.SETTING) == "off" or not _has(library.find_compiler)
        return "note" if expected else "failed", f"none, PyTorch does their work: {reason}"
    where = kernels.path.parent
    is_new = kernels.path.stat().st_mtime > begun - 0.1
    details = f"{kernels.variant}, in {where}" + (f", built in {time.time() - begun:.1f} s" if is_new else "")
    try:
        cache = library.find_cache()
    except OSError as reason:
        return "note", f"{details}; {reason}, so every process builds them anew"
    if where != cache:
        return "note", f"{details}; nothing can be written to {cache}, so every process builds them anew"
    return "ok", details


# The self-test.


def _check_exactness() -> tuple[str, str]:
    """A seed learns the same alone and beside others, and the kernels the same as PyTorch."""
    wrong = []
    hypermodel = {"uncertainty": toy.part("uncertainty.Hypermodel"), "objective": toy.part("objective.SampledTD")}
    tame = {"adam_epsilon": 1e-3}  # lest Adam blows rounding up to the size of a step
    at_random = {"acting": partial(toy.part("selection.EpsilonGreedy"), epsilon=1.0)}
    for name, spec, parts in (("PINs", toy.FLOATS, {}), ("a hypermodel", toy.CELLS, hypermodel)):
        together, alone = (_live(spec, seeds, parts) for seeds in (SEEDS, SEEDS[1:2]))
        if not np.array_equal(_ask(together)[:, 1:2], _ask(alone)):
            wrong.append(f"{name}: a seed learns something else beside others than alone")
        native = _live(spec, SEEDS, parts | tame | at_random)
        with library.without_kernels():
            plain = _live(spec, SEEDS, parts | tame | at_random)
        if not np.allclose(_ask(native), _ask(plain), rtol=TOLERANCE, atol=TOLERANCE):
            wrong.append(f"{name}: the kernels learn something else than PyTorch")
        wrong += [f"{name}: {what}: {why}" for what, why in native.execution().items() if "PyTorch for" in what]
    compared = ", and the same with the kernels as with PyTorch" if _has(library.load_library) else ""
    fine = f"PINs and a hypermodel learn the same bits alone and beside other seeds{compared}"
    return ("failed", "; ".join(wrong)) if wrong else ("ok", fine)


def _measure_speed() -> tuple[str, str]:
    with library.without_kernels():
        plain = _time_update()
    if not _has(library.load_library):
        return "ok", f"{plain:.2f} ms for an update of five seeds of PINs, with PyTorch"
    native = _time_update()
    return "ok", (
        f"{native:.2f} ms for an update of five seeds of PINs, {plain:.2f} ms with PyTorch: "
        f"{plain / native:.1f} times as fast"
    )


def _time_update() -> float:
    """Milliseconds for an update of PINs with the networks for Cartpole swing-up."""
    parts = {
        "value": partial(toy.part("value.MLP"), hidden=(50, 50, 50)),
        "uncertainty": partial(toy.part("uncertainty.SoftplusHeads"), heads=2, hidden=(50, 50, 50)),
        "batch_size": 64, "batches_per_episode": UPDATES, "min_replay": 64,
    }  # fmt: skip
    agent, seconds = _live(toy.FLOATS, range(5), parts, episodes=25), []
    for _ in range(REPEATS):
        start = time.perf_counter()
        agent.learn()
        seconds.append(time.perf_counter() - start)
    return min(seconds) / UPDATES * 1000


def _live(spec: Spec, seeds: Sequence[int], parts: dict[str, Any], episodes: int = EPISODES) -> Any:
    """An agent that has learned from made-up episodes; that of PINs if no parts are given."""
    agent = toy.indexed(**(toy.pins() | parts))(spec, Streams(seeds), torch.device("cpu"))
    environments = [toy.Walk(seed, spec) for seed in seeds]
    for _ in range(episodes):
        play_episode(agent, environments, 0.0)
    return agent


def _ask(agent: Any) -> np.ndarray:
    """Values and uncertainties, `[2, seeds, batch, actions]`."""
    one_hot = agent.function.spec is toy.CELLS
    obs = np.arange(9) if one_hot else np.random.RandomState(0).normal(size=(9, 2, 2)).astype(np.float32)
    return np.stack([agent.values(obs), agent.uncertainty(obs)])


def _has(find: Callable[[], object]) -> bool:
    try:
        find()
    except library.NotAvailable:
        return False
    return True
