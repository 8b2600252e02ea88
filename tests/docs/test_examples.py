"""The examples of the reference and of docstrings are components that keep their promises."""

import inspect
import re
import textwrap

import pytest
from pages import REFERENCE, TINY, write_files, write_plugins

import explore
from explore import interfaces, testing
from explore._config.discovery import discover
from explore.hooks import SLOTS
from explore.interfaces import BASE_CLASSES


def test_the_example_of_a_logger_writes_its_file(folder):
    write_files(REFERENCE, folder)
    explore.run("pins_deep_sea", bindings=TINY, plugins=["news.py"], out="run", quiet=True)
    assert (folder / "run" / "records.jsonl").read_text().startswith('{"seed": 0, "episode": 1, "return": ')


def test_the_example_of_an_environment_describes_its_task(folder):
    write_files(REFERENCE, folder)
    bindings = ["experiment.environment = @environment.Corridor", *TINY]
    run = explore.run("pins_deep_sea", bindings=bindings, plugins=["corridor.py"], out="run", quiet=True)
    description = explore.Run.open(run.folder).description
    assert (description.name, description.map_shape) == ("Corridor", (1, 20))
    assert [marker.name for marker in description.markers] == ["goal"]
    assert all(0 <= seed["score"] <= 1 for seed in run.summary["seeds"].values())
    assert len(run.snapshots.episodes()) > 0


def test_every_component_of_the_reference_keeps_the_promises_of_its_slot(folder):
    registry = discover(write_plugins(REFERENCE, folder))
    for component in registry.components.values():
        if component.source != "built in" and component.slot != "launcher":  # which takes long
            takes = ["floats"] if component.name == "TanhNet" else ["integers", "floats"]
            options = testing.Options(observations=takes, compile=False)
            getattr(testing, f"check_{component.slot}")(component.cls, options)


def examples():
    """Each base class of `explore.interfaces` whose docstring has an example, with its code."""
    for base in vars(interfaces).values():
        if inspect.isclass(base) and "Example:\n" in (base.__doc__ or ""):
            yield base, textwrap.dedent(base.__doc__.split("Example:\n")[1]).strip()


USES = {
    "explore_value_networks": "agent.Indexed.value = {}",
    "explore_uncertainty_modules": "agent.Indexed.uncertainty = {}",
    "explore_priors": "agent.Indexed.prior = {}",
    "explore_selections": "agent.Indexed.acting = {}",
    "explore_schedules": "objective.WassersteinTD.sigma = {}",
    "explore_observers": "experiment.observers = [{}]",
}


@pytest.mark.parametrize(
    ("base", "example"),
    [
        pytest.param(*both, id=both[0].__name__)
        for both in examples()
        if both[0] is not interfaces.Launcher  # tests/process/test_launchers.py runs that one
    ],
)
def test_the_example_in_a_docstring_is_a_plugin(folder, base, example):
    slot, hook = next((slot, SLOTS[slot]) for slot, slot_base in BASE_CLASSES.items() if issubclass(base, slot_base))
    name = re.match(r"class (\w+)", example)[1]
    imports = "import torch\nimport explore.nn\nfrom explore.interfaces import *\nfrom explore.nn import softplus\n"
    imports += "from explore.streams import normal"
    returned = f"@explore.hookimpl\ndef {hook}():\n    return [{name}]"
    (folder / "example.py").write_text(f"{imports}\n\n{example}\n\n{returned}\n")
    bindings = [USES[hook].format(f"@{slot}.{name}"), *TINY]
    if base is interfaces.ValueWrapper:  # whose example has no scales
        bindings.append("agent.Indexed.objective = @objective.SampledTD")
    run = explore.run("pins_deep_sea", bindings=bindings, plugins=["example.py"], out="run", quiet=True)
    assert f"@{slot}.{name}" in run.config
