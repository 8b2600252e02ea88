"""Checks of components, for the tests of a plugin: one line says whether a component keeps what its slot promises.

    from explore.testing import check_uncertainty
    from wide_heads import WideHeads

    def test_wide_heads():
        check_uncertainty(WideHeads, heads=3)

There is one for each slot: `check_value`, `check_uncertainty`, `check_prior`, `check_bonus`,
`check_selection`, `check_objective`, `check_environment`, `check_agent`, `check_schedule`, `check_observer`
and `check_launcher`. Each takes the class and, by name, values for its parameters; it returns nothing, or
raises `Nonconformance`, an `AssertionError`, which says what is wrong and what to do. They need no test
framework, and take a few seconds.

What is tried, as far as it makes sense for the slot: shapes for 1, 2 and 7 lanes; that a seed gives the
same, to the bit, alone and in company; initial weights and random numbers that come from the seed alone;
gradients that reach every trained parameter and no frozen one; uncertainty that is never negative; an
index that is held within an episode; observations that are integers and floats; native kernels that learn the
same as PyTorch; and a run that is resumed from a checkpoint.

A component need not be able to do everything. `Options`, after the class, say what it is tried with:

    check_value(Convolution, Options(observations=[specs.Array((8, 8, 1), np.float32)]))
    check_objective(MyLoss, Options(agent={"uncertainty": MyModule}))
    check_agent(MyAgent, Options(environments=[partial(DeepSea, size=4)]))
"""

from explore.testing.agents import check_agent
from explore.testing.bonuses import check_bonus
from explore.testing.environments import check_environment
from explore.testing.networks import check_uncertainty, check_value
from explore.testing.objectives import check_objective, check_schedule
from explore.testing.priors import check_prior
from explore.testing.promises import Nonconformance, Options
from explore.testing.running import check_launcher, check_observer
from explore.testing.selections import check_selection

__all__ = [
    "Nonconformance", "Options", "check_agent", "check_bonus", "check_environment", "check_launcher", "check_objective",
    "check_observer", "check_prior", "check_schedule", "check_selection", "check_uncertainty", "check_value",
]  # fmt: skip
