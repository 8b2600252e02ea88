"""What executes an agent is known before the run, told, and does not change in it."""

import numpy as np
import pytest
import torch
from building import BSP, CELLS, FLOATS, PINS, Walk, build, live
from explore_plugins.bonuses import RND, CoinFlips
from explore_plugins.epinet import Epinet
from explore_plugins.hypermodel import Hypermodel
from explore_plugins.mean_net import MLP
from explore_plugins.objectives import SampledTD
from explore_plugins.selections import EpsilonGreedy, SampledArgmax

from explore._native import library
from explore._native.function import NativeFunction
from explore._native.recorder import NotRecordable
from explore._storage.run_folder import describe_execution
from explore._values import native
from explore.interfaces import Agent

SAMPLED = PINS | {"objective": SampledTD, "target": SampledArgmax}
KINDS = {
    "PINs": PINS,
    "BSP": BSP,
    "a hypermodel": SAMPLED | {"uncertainty": Hypermodel, "double_q": True},
    "an epinet": SAMPLED | {"uncertainty": Epinet},
    "random actions": BSP | {"acting": EpsilonGreedy},
    "coin flips": PINS | {"bonus": CoinFlips, "bonus_scale": 0.5},
    "RND": PINS | {"bonus": RND, "replay_weight": 0.5},
    "single transitions": PINS | {"batch_size": 1, "batches_per_episode": 1, "learn_every": 1},
}


KIND = {True: np.int64, False: np.float32}
"""What the loop gives an agent, of integers and of other observations."""


class Sorting(MLP):
    """Does what the kernels do not have."""

    def forward(self, obs):
        return super().forward(obs).sort(-1).values


@pytest.fixture
def recorded(monkeypatch):
    """What is recorded, and fails if nothing can be."""
    names, record = [], native.NativeFunction

    def noting(function, *arguments):
        names.append(function.__qualname__)
        return record(function, *arguments)

    monkeypatch.setattr(native, "NativeFunction", noting)
    return names


@pytest.fixture
def no_compiler(monkeypatch, tmp_path):
    library.find_fill()  # the random numbers of this process stay the same
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv(library.SETTING, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    library._load.cache_clear()
    yield
    library._load.cache_clear()


@pytest.mark.parametrize("spec", [CELLS, FLOATS], ids=["integers", "floats"])
@pytest.mark.parametrize("parts", KINDS.values(), ids=KINDS)
def test_everything_is_recorded_before_a_run(parts, spec, recorded, kernels):
    agent = build(spec=spec, **parts)
    assert recorded
    before, execution = [*recorded], agent.execution()
    for _ in range(2):
        live(agent, 8, lambda seed: Walk(seed, spec))
        agent.begin_evaluation()
        agent.evaluate(np.stack([Walk(0, spec).reset().observation] * 2).astype(KIND[spec is CELLS]), [True, True])
    assert recorded == before
    assert agent.execution() == execution


def test_an_agent_whose_parts_the_kernels_know_runs_on_them(kernels):
    assert build(batch_size=32).execution() == {"native kernels": kernels}


def test_what_the_kernels_cannot_do_is_named_with_the_reason(kernels):
    execution = build(value=Sorting, batch_size=32).execution()
    assert execution.pop("native kernels") == kernels
    assert "PyTorch for updates" in execution
    assert set(execution.values()) == {"the kernels have no sort"}


@pytest.mark.parametrize(
    "look", [lambda x: float(x.sum()) > 1e6, lambda x: torch.equal(x, x + 1), lambda x: bool(x.sum() > 1e6)]
)
def test_a_branch_on_numbers_is_left_to_pytorch_even_if_all_examples_take_it(look, kernels):
    def branch(x):
        return [x * 2 if look(x) else x * 3]

    with pytest.raises(NotRecordable, match="what it does depends on the numbers it is given"):
        NativeFunction(branch, [torch.ones(1, 8, 4)])


def test_without_kernels_the_reason_is_told():
    with library.without_kernels():
        assert build().execution() == {"PyTorch": "they are switched off"}


def test_without_a_compiler_it_is_said_what_to_do(no_compiler):
    assert describe_execution(build().execution()) == (
        "PyTorch: there is no C++ compiler (g++, clang++, c++); install one, such as g++, to be many times faster"
    )


def test_an_empty_setting_is_none(kernels, monkeypatch):
    monkeypatch.setenv(library.SETTING, "")
    assert library.choose_variant() == kernels


def test_nothing_is_left_behind_where_kernels_come_from_the_cache(kernels, monkeypatch, tmp_path):
    monkeypatch.setattr(library.tempfile, "tempdir", str(tmp_path))
    library._load.cache_clear()
    assert library.load_library().path.parent == library.find_cache()
    assert [*tmp_path.iterdir()] == []


def test_an_agent_that_says_nothing_is_executed_by_pytorch():
    assert Agent.execution(None) == {"PyTorch": ""}


@pytest.mark.parametrize(
    ("execution", "line"),
    [
        ({"PyTorch": ""}, "PyTorch"),
        ({"native kernels": "avx2"}, "native kernels (avx2)"),
        (
            {"native kernels": "avx2", "PyTorch for updates": "the kernels have no sort"},
            "native kernels (avx2); PyTorch for updates: the kernels have no sort",
        ),
        ({}, ""),
    ],
)
def test_it_is_told_in_a_line(execution, line):
    assert describe_execution(execution) == line
