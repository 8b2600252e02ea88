"""What `explore.agents` shows the author of an agent is an agent that keeps all promises of its slot."""

import textwrap

import torch
from building import FLOATS, live
from explore_plugins.ensemble import Ensemble
from explore_plugins.mean_net import MLP
from explore_plugins.objectives import SampledTD
from explore_plugins.priors import Additive
from explore_plugins.selections import SampledArgmax

from explore import agents, interfaces
from explore.streams import Streams
from explore.testing import check_agent

PARTS = {
    "value": MLP,
    "uncertainty": Ensemble,
    "prior": Additive,
    "acting": SampledArgmax,
    "objective": SampledTD,
}


def example():
    """The class in the documentation of the module."""
    code = agents.__doc__.split("with none:\n")[1].split("\nA checkpoint")[0]
    names = {name: getattr(module, name) for module in (agents, interfaces) for name in module.__all__}
    names |= {"torch": torch}
    exec(textwrap.dedent(code), names)
    return names["Sampling"]


def test_the_example_learns():
    agent = example()(FLOATS, Streams((0, 3)), torch.device("cpu"), **PARTS)
    before = agent.function.stacks[0].buffer[0].clone()
    losses = [row["loss"] for row in live(agent, 30)[3]]
    assert losses[0] is None and losses[-1] > 0
    assert not torch.equal(agent.function.stacks[0].buffer[0], before)


def test_the_example_keeps_all_promises_of_an_agent():
    check_agent(example(), **PARTS)
