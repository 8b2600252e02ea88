"""The examples run and stand alone, the framework computes what they compute, and a page quotes them."""

import ast
import copy
import re
import runpy
import sys
from functools import partial
from itertools import product
from pathlib import Path

import dm_env
import numpy as np
import pytest
import torch
from building import append
from explore_plugins.deep_sea import DeepSea
from explore_plugins.ensemble import Ensemble
from explore_plugins.hypermodel import Hypermodel
from explore_plugins.mean_net import MLP
from explore_plugins.objectives import SampledTD, WassersteinTD
from explore_plugins.priors import Additive
from explore_plugins.selections import MeanArgmax, SampledArgmax
from explore_plugins.softplus_heads import SoftplusHeads
from explore_plugins.tabular_wtd import TabularWTD
from tabular import NUMBERS, build, tell
from torch import nn

from examples import bsp, hyperagent, pins, wtd
from explore.agents import IndexedValue, Learner, Replay
from explore.interfaces import Spec
from explore.nn import Linear
from explore.streams import normal, stream, uniform

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))
PAGE = REPOSITORY / "docs" / "concepts" / "paper.md"
INPUTS, ACTIONS, BATCH, MEMBERS, HEADS = 5, 3, 32, 4, 6
SEEDS, LANE = (4, 9), 1  # an example is compared with the second of two lanes


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_imports_neither_explore_nor_another_example(path):
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module for node in imports if isinstance(node, ast.ImportFrom)}
    packages = {module.split(".")[0] for module in modules}
    assert packages <= {"argparse", "copy", "itertools", "numpy", "torch"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_has_at_most_150_lines(path):
    assert len(path.read_text().splitlines()) <= 150


@pytest.mark.parametrize("name, episodes", [("pins", 900), ("bsp", 900), ("hyperagent", 150), ("wtd", 150)])
def test_an_example_learns_a_shallow_sea(name, episodes, monkeypatch, capsys):
    path = next(path for path in EXAMPLES if path.stem == name)
    monkeypatch.setattr(sys, "argv", [str(path), "--size", "3", "--seeds", "1", "--episodes", str(episodes)])
    runpy.run_path(str(path), run_name="__main__")
    *_, first, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"seed 0: learned after \d+ episodes", first)
    assert last == "learned Deep-sea N = 3 in 1 of 1 seeds"


@pytest.mark.parametrize("module", [pins, bsp, hyperagent, wtd])
def test_deep_sea_pays_for_going_right_along_the_diagonal_and_rewards_only_its_end(module):
    size, random = 4, np.random.default_rng(0)
    sea = module.DeepSea(size, random) if module is wtd else module.DeepSea(size)

    def returns(moves):
        sea.reset()
        rewards = []
        for row, move in enumerate(moves):
            right = sea.right[row][sea.column]
            step = sea.step(right if move == "r" else 1 - right)
            rewards.append(step[0] if module is wtd else step[1])
        assert sea.row == size
        return sum(rewards)

    assert returns("rrrr") == pytest.approx(1 - 0.01 * 3 / 4)
    assert returns("rrrl") == pytest.approx(-0.01 * 3 / 4)
    assert returns("llll") == 0
    assert returns("rlrr") == pytest.approx(-0.01 / 4)  # off the diagonal nothing costs and nothing pays


@pytest.mark.parametrize("module", [pins, bsp, hyperagent, wtd])
def test_an_example_charges_what_deep_sea_does_with_the_papers_costs(module):
    size, random = 4, np.random.default_rng(0)
    example = module.DeepSea(size, random) if module is wtd else module.DeepSea(size)
    framework = DeepSea(0, size=size, move_costs="diagonal")
    for moves in product((False, True), repeat=size):
        example.reset()
        framework.reset()
        for row, right in enumerate(moves):
            column = example.column
            step = example.step(int(right == example.right[row][column]))
            reward = framework.step(int(right == framework._right[row][column])).reward
            assert (step[0] if module is wtd else step[1]) == reward


# The page "The paper in this code"


def split_table(table):
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table.splitlines()]


def rows_of_the_page():
    """The example that a table is about, the code it quotes, and the names of the framework beside it."""
    for table in re.findall(r"(?:^\|.*\n)+", PAGE.read_text(), re.MULTILINE):
        header, _, *rows = split_table(table)
        if header[-1] == "framework":
            for row in rows:
                yield header[-2].strip("`"), *(re.findall("`(.*?)`", cell) for cell in row[-2:])


def test_what_the_page_quotes_is_in_the_examples():
    rows = list(rows_of_the_page())
    assert {example for example, _, _ in rows} == {f"examples/{path.name}" for path in EXAMPLES}
    for example, quotes, _ in rows:
        assert len(quotes) == 1 and quotes[0] in (REPOSITORY / example).read_text(), quotes


DEFINITIONS = ast.ClassDef | ast.FunctionDef


def test_what_the_page_names_is_in_the_framework():
    defined = set()
    for path in (path for folder in ("explore", "plugins") for path in (REPOSITORY / folder).rglob("*.py")):
        for one in [node for node in ast.parse(path.read_text()).body if isinstance(node, DEFINITIONS)]:
            defined |= {one.name} | {f"{one.name}.{own.name}" for own in one.body if isinstance(own, DEFINITIONS)}
    named = {name for _, _, names in rows_of_the_page() for name in names}
    assert named - {"double_q"} - defined == set()


def lines_of_the_algorithms():
    """The example beside each algorithm, the lines of the paper that a row is about, and the code it quotes."""
    for number, table in re.findall(r"^## Algorithm (\d).*\n+((?:^\|.*\n)+)", PAGE.read_text(), re.MULTILINE):
        header, _, *rows = split_table(table)
        for cell, _, quote, _ in rows:
            lines = {int(line) for line in re.findall(r"\d+", cell.split("(")[0])}
            yield int(number), header[2].strip("`"), lines, quote


def test_the_page_has_each_line_of_the_algorithms_that_says_something():
    found = {}
    for number, _, lines, _ in lines_of_the_algorithms():
        found[number] = found.get(number, set()) | lines
    assert found == {1: {*range(1, 14)} - {7, 8}, 2: {*range(1, 10)} - {8}, 3: {*range(1, 9)}}  # the others are `end`s


def test_the_examples_name_the_lines_that_the_page_names():
    compared = 0
    for _, example, lines, quote in lines_of_the_algorithms():
        [code, *_] = [line for line in (REPOSITORY / example).read_text().splitlines() if quote.strip("`") in line]
        if comment := re.search(r"# lines? (\d+)(?: and (\d+))?", code):
            compared += 1
            assert {int(line) for line in comment.groups() if line} >= lines, code
    assert compared >= 20


# The framework against the examples, from the same weights and the same draws


class Framework:
    """What these tests ask of the framework: networks, a minibatch, and what is learned from it."""

    def __init__(self, value, uncertainty, scale, objective, target, **settings):
        spec = Spec(dm_env.specs.Array((INPUTS,), np.float32), ACTIONS)
        self.function = IndexedValue(spec, SEEDS, value, [uncertainty], Additive(scale))
        self.learner = partial(Learner, self.function, objective, target, discount=0.99, **settings)
        learner = self.learner(learning_rate=1e-3)
        replay = Replay(spec.observation, len(SEEDS), 1000, stored=learner.stored, prior=self.function.prior_shape)
        random = np.random.default_rng(0)
        for lane in range(len(SEEDS)):
            replay.start(lane, random.standard_normal(INPUTS))
            for step in range(50):
                timestep = dm_env.termination if step % 5 == 4 else dm_env.transition
                action, reward, obs = random.integers(ACTIONS), random.normal(), random.standard_normal(INPUTS)
                append(replay, lane, action, timestep(reward, obs))
        learner.complete(replay, [0, 1], [stream(seed, "mask") for seed in SEEDS])
        self.batch = replay.sample([0, 1], BATCH, [stream(seed, "replay") for seed in SEEDS])
        self.learn(learning_rate=0.1)  # so that the target networks are not the trained ones

    def learn(self, learning_rate=1e-3):
        """One step of a new Adam; returns the losses."""
        selecting, drawing = ([stream(seed, name) for seed in SEEDS] for name in ("ties", "draws"))
        losses = self.learner(learning_rate=learning_rate).learn(self.batch, BATCH, [0, 1], 0.0, selecting, drawing)
        return [float(losses[name][LANE]) for name in self.learner.args[1].losses]

    def transitions(self):
        """(s, a, r, γ, s') of the minibatch and, where there are any, its bootstrap masks."""
        everything = [getattr(self.batch, name) for name in ("obs", "action", "reward", "discount", "next_obs")]
        masks = [kept for kept in self.batch.stored if kept.shape[-1]]
        return [tensor[LANE] for tensor in (*everything, *masks)]

    def layers(self, copies, part, row=LANE):
        """Weights `[inputs, outputs]` and biases of a part's trained, target or prior network."""
        function = self.function
        modules = {"trained": function.parts, "target": function.target_parts, "prior": function.prior_parts}
        layers = [layer for layer in modules[copies][part].modules() if isinstance(layer, Linear)]
        return [(layer.matrix[row], layer.bias[row, 0, : layer.outputs]) for layer in layers]


@torch.no_grad()
def copy_weights(framework, example, names, fill):
    """Gives an example's networks, one for each of the framework's parts, their weights."""
    for part, name in enumerate(names):
        trained, target = getattr(example, name), getattr(example, f"{name}_target")
        fill(trained.network, partial(framework.layers, "trained", part))
        fill(target.network, partial(framework.layers, "target", part))
        for either in (trained, target):
            fill(either.prior, partial(framework.layers, "prior", part))


def assert_same_update(framework, build, names, fill, *draws):
    """The losses of a minibatch and the parameters after a step of Adam are the same."""
    example, after = build(INPUTS, ACTIONS), build(INPUTS, ACTIONS)
    copy_weights(framework, example, names, fill)
    before = [copy.deepcopy(getattr(example, name).network.state_dict()) for name in names]
    found, expected = framework.learn(), example.update(*framework.transitions(), *draws)
    losses = [loss.item() for loss in (expected if isinstance(expected, tuple) else [expected])]
    np.testing.assert_allclose(found, losses, rtol=1e-4)
    copy_weights(framework, after, names, fill)
    for name, old in zip(names, before):
        for key, weight in getattr(example, name).network.state_dict().items():
            torch.testing.assert_close(getattr(after, name).network.state_dict()[key], weight, rtol=1e-4, atol=1e-6)
            assert not torch.equal(weight, old[key])
            assert not torch.equal(weight, getattr(example, f"{name}_target").network.state_dict()[key])


def fill_perceptron(network, layers):
    """The framework's last layer of heads is `[actions, heads]`, that of the example `[heads, actions]`."""
    plain = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    for mine, (weight, bias) in zip(plain, layers(), strict=True):
        mine.weight.copy_(weight.T)
        mine.bias.copy_(bias)
    for parameter in plain[-1].parameters():
        parameter.copy_(parameter.unflatten(0, (ACTIONS, -1)).transpose(0, 1).flatten(0, 1))


def fill_members(network, layers):
    for k in range(MEMBERS):
        (network.weight_1[k], network.bias_1[k, 0]), (network.weight_2[k], network.bias_2[k, 0]) = layers(
            row=LANE * MEMBERS + k
        )


def fill_hypermodel(network, layers):
    *body, (c, _), (a, _) = layers()
    for mine, (weight, bias) in zip(network.h[::2], body, strict=True):
        mine.weight.copy_(weight.T)
        mine.bias.copy_(bias)
    network.c.copy_(c.T.flatten())
    network.A.copy_(a.unflatten(1, (ACTIONS, -1)).transpose(0, 1).flatten(0, 1))


def test_pins_learn_as_the_example_does():
    mean, heads = partial(MLP, hidden=(12,)), partial(SoftplusHeads, heads=HEADS, hidden=(16,))
    framework = Framework(mean, heads, pins.BETA_1, WassersteinTD(pins.SIGMA), MeanArgmax())
    [keys] = uniform([stream(SEEDS[LANE], "draws")], BATCH, HEADS)
    example = partial(pins.PINs, mean_hidden=(12,), uncertainty_hidden=(16,), heads=HEADS)
    assert_same_update(framework, example, ["nu", "m"], fill_perceptron, keys)


def test_bootstrapped_dqn_learns_as_the_example_does():
    member, ensemble = partial(MLP, hidden=(12,)), partial(Ensemble, size=MEMBERS)
    framework = Framework(member, ensemble, bsp.BETA, SampledTD(), SampledArgmax())
    assert_same_update(framework, partial(bsp.BSP, hidden=12, members=MEMBERS), ["f"], fill_members)


def test_hyperagent_learns_as_the_example_does():
    features = partial(MLP, hidden=(hyperagent.HIDDEN, hyperagent.HIDDEN))
    hypermodel = partial(Hypermodel, dimension=hyperagent.DIMENSION)
    objective = SampledTD(indices=hyperagent.DRAWS, target_index="fresh")
    settings = {"epsilon": hyperagent.EPSILON, "clip": hyperagent.LONGEST_GRADIENT, "double_q": True}
    framework = Framework(features, hypermodel, hyperagent.BETA, objective, SampledArgmax(), **settings)
    random = stream(SEEDS[LANE], "draws")
    shapes = [(BATCH, draws, hyperagent.DIMENSION) for draws in (hyperagent.DRAWS, 1)]
    numbers = [normal([random], *shape)[0] for shape in shapes]
    draws = [z / z.norm(dim=-1, keepdim=True) for z in numbers]
    assert_same_update(framework, hyperagent.HyperAgent, ["q"], fill_hypermodel, *draws)


def test_tabular_wasserstein_td_plans_as_the_example_does():
    settings = {"sigma": 0.5, "prior_mean": 2.0, "beta": 3.0}
    framework, example = build(TabularWTD, seeds=(4,), **settings), wtd.WTD(3, 3, 2, **settings)
    index, random = stream(4, "index"), np.random.default_rng(0)
    for _ in range(10):
        example.plan(index.standard_normal(example.shape))
        framework.begin_episode(NUMBERS[0, [0]], 0.0)
        tables = zip((framework.mean, framework.std, framework.values), (example.nu, example.m, example.q))
        for found, expected in tables:
            np.testing.assert_allclose(found[0], expected[:-1], rtol=1e-12)
        x = 0
        for h in range(3):
            a = example.act(h, x)
            assert framework.act(NUMBERS[h, [x]], [True]) == [a]
            r, x_next = float(random.integers(2)), int(random.integers(3))
            example.observe(h, x, a, r, x_next)
            tell(framework, h, x, a, [(r, x_next)])
            x = x_next
