"""The checks of explore.testing: one for each slot, and every built-in component passes its own."""

from dataclasses import replace

import pytest
from building import PINS
from explore_plugins.softplus_heads import SoftplusHeads
from sample_components import QUICK

import explore.testing
from explore._config.discovery import discover
from explore.interfaces import BASE_CLASSES
from explore.testing import check_environment, check_uncertainty

NEEDED = {
    "schedule.Constant": {"value": 0.5},
    "schedule.Linear": {"start": 1.0, "end": 0.1},
    "environment.Bsuite": {"id": "catch/0"},
    "environment.CartpoleSwingup": {"max_time": 0.5},
    "agent.Indexed": PINS,
}
OBSERVATIONS = {"bonus.VisitCounts": ["integers"], "bonus.Features": ["floats"]}
"""Of components that refuse others."""
BUILT_INS = {name: one for name, one in discover().components.items() if one.source == "built in"}


def test_there_is_a_check_for_every_slot():
    assert {f"check_{slot}" for slot in BASE_CLASSES} == {
        name for name in explore.testing.__all__ if name.startswith("check_")
    }


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name == "launcher.Local" else name
        for name in BUILT_INS
        if name != "launcher.Ray"  # see test_launchers.py
    ],
)
def test_a_built_in_component_keeps_every_promise(name):
    if name == "observer.TensorBoard":
        pytest.importorskip("tensorboard")
    component = BUILT_INS[name]
    options = replace(QUICK, observations=OBSERVATIONS.get(name, QUICK.observations))
    getattr(explore.testing, f"check_{component.slot}")(component.cls, options, **NEEDED.get(name, {}))


@pytest.mark.parametrize("parameters", [{"train_heads": "masked"}, {"heads": 1, "hidden": ()}])
def test_parameters_are_bound_as_gin_would(parameters):
    check_uncertainty(SoftplusHeads, QUICK, **parameters)


@pytest.mark.parametrize("id", ["bandit_noise/3", "memory_len/2", "cartpole_noise/1", "umbrella_length/4"])
def test_environments_of_bsuite_keep_every_promise(id):
    check_environment(BUILT_INS["environment.Bsuite"].cls, id=id)
