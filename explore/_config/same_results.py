"""Which parameters may differ between configurations that give the same results."""

from __future__ import annotations

from explore._config.gin_files import read_bindings, strip_scope

_RECORDING = ("experiment.checkpoint_", "experiment.snapshots", "experiment.observers", "observer.")
WHEN_RESUMED = (*_RECORDING, "experiment.episodes")
WITHIN_A_CONFIGURATION = (*_RECORDING, "experiment.seeds")
"""How the names begin of parameters that may change when a run is resumed, and among runs that are compared as one."""


def relevant_bindings(config: str, ignored: tuple[str, ...]) -> dict[str, str]:
    """The bindings of a complete configuration, but for the parameters that are ignored."""
    return {name: value for name, value in read_bindings(config).items() if not strip_scope(name).startswith(ignored)}
