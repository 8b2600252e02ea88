"""The examples of the reference and of docstrings are components that keep their promises."""

import inspect
import re
import textwrap
from functools import partial

import numpy as np
import pytest
from dm_env import specs
from pages import DOCS, REFERENCE, TINY, blocks, write_files, write_plugins

import explore
from explore import interfaces, testing
from explore._config.discovery import discover
from explore.hooks import SLOTS
from explore.interfaces import BASE_CLASSES

IMAGE = specs.Array((4, 4), np.float32)


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
    takes = {"TanhNet": ["floats"], "ConvNet": [IMAGE], "FirstVisits": ["integers"]}
    beside = {"TwoActionsTD": {"uncertainty": registry.components["uncertainty.CountedNoise"].cls}}
    for component in registry.components.values():
        if component.source != "built in" and component.slot != "launcher":  # which takes long
            name = component.name
            options = {"observations": takes.get(name, ["integers", "floats"]), "agent": beside.get(name, {})}
            getattr(testing, f"check_{component.slot}")(component.cls, testing.Options(**options))


def test_heads_share_the_convolutions_of_the_value_network(folder):
    write_files(REFERENCE, folder)
    components = discover(["shared_trunk.py"]).components
    value, heads = (components[name].cls for name in ("value.ConvNet", "uncertainty.SharedHeads"))
    objective = partial(components["objective.WassersteinTD"].cls, sigma=1.0)
    options = testing.Options(observations=[IMAGE], agent={"value": value, "objective": objective})
    testing.check_uncertainty(heads, options)


def test_the_loops_of_your_own_run(capsys):
    one_seed, several_seeds = blocks(DOCS / "howto" / "own_loop.md", "python")
    names = {}
    exec(one_seed, names)
    exec(several_seeds, names)
    values, uncertainty = re.findall(r"\[\[\[(.*?)\]\]\]", capsys.readouterr().out)
    assert len(values.split()) == len(uncertainty.split()) == 2


def examples():
    """Each base class of `explore.interfaces` whose docstring has an example, with its code."""
    for base in vars(interfaces).values():
        if inspect.isclass(base) and "Example:\n" in (base.__doc__ or ""):
            yield base, textwrap.dedent(base.__doc__.split("Example:\n")[1]).strip()


USES = {
    "explore_value_networks": "agent.Indexed.value = {}",
    "explore_uncertainty_modules": "agent.Indexed.uncertainty = {}",
    "explore_priors": "agent.Indexed.prior = {}",
    "explore_bonuses": "agent.Indexed.bonus = {}",
    "explore_selections": "agent.Indexed.acting = {}",
    "explore_schedules": "objective.WassersteinTD.sigma = {}",
    "explore_observers": "experiment.observers = [{}]",
}


PARTS = {  # of examples that are no component: what has them
    interfaces.IndexDistribution: """
class {name}Heads(UncertaintyModule):
    def __init__(self, spec):
        super().__init__()
        self.index = {name}(3)
        self.net = explore.nn.MLP(spec.observation, (8,), spec.num_actions * 3)

    def forward(self, obs):
        return self.net(obs).unflatten(-1, (-1, 3))
""",
    interfaces.Memory: """
class {name}Heads(UncertaintyModule):
    def __init__(self, spec):
        super().__init__()
        self.index, self.memory = Gaussian(1), {name}(spec)
        self.net = explore.nn.MLP(spec.observation, (8,), spec.num_actions)

    def forward(self, obs):
        return self.net(obs).unsqueeze(-1)
""",
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
    name = re.match(r"class (\w+)", example)[1]
    if base in PARTS:
        base, example, name = interfaces.UncertaintyModule, example + PARTS[base].format(name=name), f"{name}Heads"
    slot, hook = next((slot, SLOTS[slot]) for slot, slot_base in BASE_CLASSES.items() if issubclass(base, slot_base))
    imports = "import math\nimport torch\nimport explore.nn\nfrom explore.interfaces import *\n"
    imports += "from explore.nn import softplus\nfrom explore.streams import normal, uniform"
    returned = f"@explore.hookimpl\ndef {hook}():\n    return [{name}]"
    (folder / "example.py").write_text(f"{imports}\n\n{example}\n\n{returned}\n")
    bindings = [USES[hook].format(f"@{slot}.{name}"), *TINY]
    if base in (interfaces.UncertaintyModule, interfaces.ValueWrapper):  # whose examples have no scales
        bindings += ["agent.Indexed.objective = @objective.SampledTD", "agent.Indexed.prior = @prior.NoPrior"]
    if base is interfaces.Bonus:
        bindings += ["agent.Indexed.bonus_scale = 0.1", "agent.Indexed.replay_weight = 0.5"]
    run = explore.run("pins_deep_sea", bindings=bindings, plugins=["example.py"], out="run", quiet=True)
    assert f"@{slot}.{name}" in run.config
