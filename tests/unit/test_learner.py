"""The learner equals plain loops over seeds and transitions, written from the paper's equations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from building import BSP, CELLS, FLOATS, PINS, Walk, build, live
from explore_plugins.deterministic import Deterministic
from explore_plugins.ensemble import Ensemble
from explore_plugins.indexed_agent import Indexed
from explore_plugins.objectives import SampledTD, WassersteinTD
from explore_plugins.priors import NoPrior
from explore_plugins.schedules import Linear as LinearSchedule
from explore_plugins.selections import MeanArgmax, SampledArgmax
from explore_plugins.softplus_heads import LinearHeads, SoftplusHeads
from torch import Tensor, nn
from torch.nn.functional import softplus

from explore._learning.adam import Adam
from explore._learning.replay import Batch
from explore._values.stack import Stack
from explore.interfaces import Spec
from explore.nn import MLP, Linear, lanes
from explore.streams import normal, stream, uniform

SEEDS, EPISODES, BATCH_SIZE, TARGET_PERIOD = (0, 3), 8, 8, 2
DISCOUNT, LEARNING_RATE, BETA1, BETA2 = 0.9, 1e-2, 2.0, 3.0
HEADS = 3


class Falling(LinearSchedule):
    def __init__(self):
        super().__init__(start=2.0, end=0.5)


@dataclass
class Transition:
    obs: Tensor
    action: int
    reward: float
    terminal: bool
    next_obs: Tensor
    mask: list[bool]
    noise: list[float]


def transitions(batch: Batch, lane: int, parts: int, cells: int | None) -> Iterator[Transition]:
    # Of every part its bits and then, if the objective asks for it, of every part its noise.
    nothing = torch.zeros(*batch.reward.shape, 0)
    mask, noise = (torch.cat([nothing, *kept], -1) for kept in (batch.stored[:parts], batch.stored[parts:]))
    for i in range(batch.obs.shape[1]):
        obs, next_obs = batch.obs[lane, i], batch.next_obs[lane, i]
        if cells is not None:
            obs, next_obs = (nn.functional.one_hot(o, cells) for o in (obs, next_obs))
        yield Transition(
            obs.flatten().double(), int(batch.action[lane, i]), float(batch.reward[lane, i]),
            float(batch.discount[lane, i]) == 0, next_obs.flatten().double(),
            (mask[lane, i] == 1).tolist(), noise[lane, i].tolist(),
        )  # fmt: skip


def plain_network(lane_network: nn.Module, row: int) -> nn.Sequential:
    """One row of a lane-aware network as an ordinary one."""
    modules: list[nn.Module] = []
    for layer in lane_network.modules():
        if isinstance(layer, Linear):
            one = nn.Linear(layer.inputs, layer.outputs, dtype=torch.float64)
            one.load_state_dict({"weight": layer.matrix[row].T, "bias": layer.bias[row, 0, : layer.outputs]})
            modules += [one, nn.ReLU()]
    return nn.Sequential(*modules[:-1])


class PlainNetwork:
    """A network of one seed joined with its frozen prior, and its target: (f + β p)(s, ·)."""

    def __init__(self, stack: Stack, row: int, beta: float, output: Callable[[Tensor], Tensor] = lambda x: x):
        self.trained, self.target = plain_network(stack.trained, row), plain_network(stack.target, row)
        self.prior = plain_network(stack.prior, row) if len(stack.buffer) == 3 else None
        self.beta, self.output = beta, output

    def __call__(self, obs: Tensor) -> Tensor:
        return self.output(self.trained(obs)) + self._prior(obs)

    @torch.no_grad()
    def at_target(self, obs: Tensor) -> Tensor:
        return self.output(self.target(obs)) + self._prior(obs)

    @torch.no_grad()
    def _prior(self, obs: Tensor) -> Tensor | float:
        return self.beta * self.output(self.prior(obs)) if self.prior else 0.0


class PlainSeed:
    """The networks of one seed: means (ν of PINs, or the members f_k) and, if there are any, scales m."""

    def __init__(self, agent: Indexed, lane: int):
        means, *scales = agent.function.stacks
        members = agent.function.parts[0].index.size
        self.means = [PlainNetwork(means, lane * members + k, BETA1) for k in range(members)]
        self.scale = PlainNetwork(scales[0], lane, BETA2, lambda x: softplus(x).view(-1, HEADS)) if scales else None
        self.networks = [*self.means, self.scale] if self.scale else self.means
        self.adam = torch.optim.Adam([p for net in self.networks for p in net.trained.parameters()], LEARNING_RATE)
        self.drawing = stream(agent.streams.seeds[lane], "learning index")
        self.phases = 0

    def step(self, loss: Tensor) -> None:
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()

    def end_of_phase(self) -> None:
        self.phases += 1
        if self.phases % TARGET_PERIOD == 0:
            for network in self.networks:
                network.target.load_state_dict(network.trained.state_dict())


def draw_numbers(numbers: Callable[..., Tensor], seed: PlainSeed, *shape: int) -> np.ndarray:
    return numbers([seed.drawing], *shape)[0].numpy()


def split_mask(mask: list[bool], members: int) -> tuple[list[bool], list[bool]]:
    """The bits of the members and of the heads; a single mean trains on everything and has none."""
    return ([True], mask) if members == 1 else (mask[:members], mask[members:])


def choose_head(mask: list[bool], keys: np.ndarray) -> int:
    """u ~ Unif of the set bits, or of all where none is set: the one with the largest random key."""
    allowed = [u for u in range(len(keys)) if mask[u]] or range(len(keys))
    return max(allowed, key=lambda u: keys[u])


def wasserstein_phase(
    seed: PlainSeed, data: list[Transition], sigma: float, train_heads: str, sampled: bool
) -> dict[str, float]:
    """Supplement A; with `sampled`, the next action is ã of supplement B."""
    members = len(seed.means)
    member_keys = draw_numbers(uniform, seed, len(data)) if members > 1 else np.zeros(len(data))
    keys = draw_numbers(uniform, seed, len(data), HEADS)
    z = draw_numbers(normal, seed, len(data))
    totals = {"mean_loss": 0.0, "uncertainty_loss": 0.0}
    for start in range(0, len(data), BATCH_SIZE):
        mean_loss = scale_loss = torch.zeros((), dtype=torch.float64)
        for i in range(start, start + BATCH_SIZE):
            t = data[i]
            member_mask, head_mask = split_mask(t.mask, members)
            head = choose_head(head_mask, keys[i])
            next_means = [f.at_target(t.next_obs) for f in seed.means]
            next_scale = seed.scale.at_target(t.next_obs)
            if sampled:
                next_values = next_means[int(member_keys[i] * members)] + float(z[i]) * next_scale[:, head]
            else:
                next_values = sum(next_means) / members
            next_action = int(next_values.argmax())
            for k in range(members):
                y = t.reward if t.terminal else t.reward + DISCOUNT * next_means[k][next_action]
                mean_loss = mean_loss + member_mask[k] * (seed.means[k](t.obs)[t.action] - y) ** 2 / BATCH_SIZE
            for u in range(HEADS):
                y = sigma if t.terminal else sigma + DISCOUNT * next_scale[next_action, u]
                trains = u == head if train_heads == "one" else head_mask[u]
                scale_loss = scale_loss + trains * (seed.scale(t.obs)[t.action, u] - y) ** 2 / BATCH_SIZE
        seed.step(mean_loss + scale_loss)
        totals["mean_loss"] += mean_loss.item()
        totals["uncertainty_loss"] += scale_loss.item()
    seed.end_of_phase()
    return {name: total / (len(data) // BATCH_SIZE) for name, total in totals.items()}


def bootstrapped_phase(seed: PlainSeed, data: list[Transition], noise: float, sampled: bool) -> dict[str, float]:
    """Bootstrapped DQN: Σ_k M[k] (f_k + β p_k - y_k)²; `sampled`: each member's own best next action."""
    members, total = len(seed.means), 0.0
    for start in range(0, len(data), BATCH_SIZE):
        loss = torch.zeros((), dtype=torch.float64)
        for t in data[start : start + BATCH_SIZE]:
            mask, _ = split_mask(t.mask, members)
            next_values = [f.at_target(t.next_obs) for f in seed.means]
            for k in range(members):
                next_action = int((next_values[k] if sampled else sum(next_values)).argmax())
                y = t.reward + (noise * t.noise[k] if noise else 0)
                if not t.terminal:
                    y = y + DISCOUNT * next_values[k][next_action]
                loss = loss + mask[k] * (seed.means[k](t.obs)[t.action] - y) ** 2 / BATCH_SIZE
        seed.step(loss)
        total += loss.item()
    seed.end_of_phase()
    return {"loss": total / (len(data) // BATCH_SIZE)}


def sampled_phase(
    seed: PlainSeed, data: list[Transition], noise: float, indices: int, sampled: bool
) -> dict[str, float]:
    """TD at indices drawn for each transition: Q_i = f_k + m^u z, for every member k `indices` times."""
    members, total = len(seed.means), 0.0
    z = draw_numbers(normal, seed, len(data), members * indices)
    keys = draw_numbers(uniform, seed, len(data), members * indices, HEADS)
    for start in range(0, len(data), BATCH_SIZE):
        loss = torch.zeros((), dtype=torch.float64)
        for i in range(start, start + BATCH_SIZE):
            t = data[i]
            member_mask, head_mask = split_mask(t.mask, members)
            next_means = [f.at_target(t.next_obs) for f in seed.means]
            next_scale = seed.scale.at_target(t.next_obs)
            for draw in range(members * indices):
                k, index = draw // indices, float(z[i, draw])
                head = choose_head(head_mask, keys[i, draw])
                next_values = next_means[k] + index * next_scale[:, head]
                next_action = int((next_values if sampled else sum(next_means)).argmax())
                y = t.reward if t.terminal else t.reward + DISCOUNT * next_values[next_action]
                if noise:
                    y = y + noise * index * t.noise[members + head] + (noise * t.noise[k] if members > 1 else 0)
                value = seed.means[k](t.obs)[t.action] + index * seed.scale(t.obs)[t.action, head]
                loss = loss + member_mask[k] * (value - y) ** 2 / indices / BATCH_SIZE
        seed.step(loss)
        total += loss.item()
    seed.end_of_phase()
    return {"loss": total / (len(data) // BATCH_SIZE)}


def assert_learns_like(
    plain_phase: Callable[[PlainSeed, list[Transition], float], dict[str, float]],
    monkeypatch: pytest.MonkeyPatch,
    spec: Spec = FLOATS,
    **parts: Any,
) -> None:
    """A run of the agent equals plain loops that are given the same weights and transitions."""
    settings = {"target_period": TARGET_PERIOD, "discount": DISCOUNT, "learning_rate": LEARNING_RATE}
    settings |= {"batch_size": BATCH_SIZE, "mask_probability": 0.4}
    agent = build(SEEDS, spec, **(parts | settings))
    seeds = [PlainSeed(agent, lane) for lane in range(len(SEEDS))]
    phases: list[tuple[Batch, list[int], float]] = []
    learn = agent.learner.learn

    def spied_learn(batch, batch_size, lanes, progress, **streams):
        phases.append((batch, list(lanes), progress))
        return learn(batch, batch_size, lanes, progress, **streams)

    monkeypatch.setattr(agent.learner, "learn", spied_learn)
    rows = live(agent, EPISODES, partial(Walk, spec=spec))
    assert any(len(lanes) == 1 for _, lanes, _ in phases)  # one seed starts later than the other
    cells = spec.observation.num_values if spec is CELLS else None
    for lane, plain in enumerate(seeds):
        parts = len(agent.function.parts)
        mine = [
            (list(transitions(batch, lane, parts, cells)), progress)
            for batch, lanes, progress in phases
            if lane in lanes
        ]
        seen = [t for data, _ in mine for t in data]
        assert {t.terminal for t in seen} == {True, False}
        assert {any(t.mask[-HEADS:]) for t in seen} == {True, False} or not seen[0].mask
        for (data, progress), row in zip(mine, rows[SEEDS[lane]][-len(mine) :], strict=True):
            for name, loss in plain_phase(plain, data, progress).items():
                assert row[name] == pytest.approx(loss, rel=1e-4)
        assert plain.phases >= 2 * TARGET_PERIOD
        assert_same_weights(PlainSeed(agent, lane), plain)


def assert_same_weights(found: PlainSeed, expected: PlainSeed) -> None:
    for ours, theirs in zip(found.networks, expected.networks, strict=True):
        for copy in ("trained", "target"):
            pairs = zip(getattr(ours, copy).parameters(), getattr(theirs, copy).parameters(), strict=True)
            for weight, expected_weight in pairs:
                torch.testing.assert_close(weight, expected_weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spec", [FLOATS, CELLS], ids=["floats", "cells"])
@pytest.mark.parametrize("target", [MeanArgmax, SampledArgmax])
@pytest.mark.parametrize("train_heads", ["one", "masked"])
@pytest.mark.parametrize("members", [1, 3])
def test_pins_learn_as_in_supplement_a(spec, target, train_heads, members, monkeypatch):
    def plain_phase(seed, data, progress):
        return wasserstein_phase(seed, data, 2.0 - 1.5 * progress, train_heads, target is SampledArgmax)

    heads = partial(SoftplusHeads, heads=HEADS, hidden=(7,), train_heads=train_heads)
    uncertainty = [heads] if members == 1 else [heads, partial(Ensemble, size=members)]
    objective = partial(WassersteinTD, sigma=Falling)
    assert_learns_like(plain_phase, monkeypatch, spec, uncertainty=uncertainty, objective=objective, target=target)


@pytest.mark.parametrize("spec", [FLOATS, CELLS], ids=["floats", "cells"])
@pytest.mark.parametrize("target", [MeanArgmax, SampledArgmax])
@pytest.mark.parametrize("noise", [0.0, 0.7])
@pytest.mark.parametrize("prior", [BSP["prior"], NoPrior], ids=["BSP_3", "BS_3"])
def test_ensembles_learn_as_bootstrapped_dqn(spec, target, noise, prior, monkeypatch):
    def plain_phase(seed, data, progress):
        return bootstrapped_phase(seed, data, noise, target is SampledArgmax)

    parts = BSP | {"prior": prior, "objective": partial(SampledTD, noise=noise), "target": target}
    assert_learns_like(plain_phase, monkeypatch, spec, **parts)


@pytest.mark.parametrize("target", [MeanArgmax, SampledArgmax])
def test_without_uncertainty_it_is_dqn(target, monkeypatch):
    def plain_phase(seed, data, progress):
        return bootstrapped_phase(seed, data, noise=0.0, sampled=True)

    assert_learns_like(plain_phase, monkeypatch, uncertainty=Deterministic, objective=SampledTD, target=target)


@pytest.mark.parametrize("target", [MeanArgmax, SampledArgmax])
@pytest.mark.parametrize("noise, indices", [(0.0, 1), (0.7, 2)])
@pytest.mark.parametrize("members", [1, 3])
def test_pins_learn_by_td_at_sampled_indices(target, noise, indices, members, monkeypatch):
    def plain_phase(seed, data, progress):
        return sampled_phase(seed, data, noise, indices, target is SampledArgmax)

    uncertainty = [PINS["uncertainty"]] + ([partial(Ensemble, size=members)] if members > 1 else [])
    objective = partial(SampledTD, noise=noise, indices=indices)
    assert_learns_like(plain_phase, monkeypatch, uncertainty=uncertainty, objective=objective, target=target)


def test_adam_is_torchs_for_each_lane_by_itself():
    with lanes([stream(lane, "init") for lane in range(3)]):
        stack = Stack(MLP(4, (5,), 3), None, 3, torch.device("cpu"))
    plain = [nn.Parameter(row.clone()) for row in stack.buffer[0]]
    theirs = [torch.optim.Adam([row], LEARNING_RATE) for row in plain]
    ours = Adam([stack], LEARNING_RATE)
    random = torch.Generator().manual_seed(0)
    for chosen in ([0], [0, 1], [1, 2], [2], [0, 1, 2], [0, 2]):
        ours.choose(chosen, seen=0)
        for _ in range(3):
            gradient = torch.randn(stack.gradient.shape, generator=random)
            stack.gradient.copy_(gradient)
            ours.step()
            assert not stack.gradient.any()
            for lane in chosen:
                plain[lane].grad = gradient[lane]
                theirs[lane].step()
            torch.testing.assert_close(stack.buffer[0], torch.stack(plain).detach())


def test_gradients_are_clipped_over_all_networks_of_a_lane():
    with lanes([stream(lane, "init") for lane in range(6)]):  # three members for each of two seeds
        members = Stack(MLP(4, (5,), 3), None, 2, torch.device("cpu"))
    with lanes([stream(lane, "init") for lane in range(2)]):
        heads = Stack(MLP(4, (7,), 2), None, 2, torch.device("cpu"))
    stacks, random = [members, heads], torch.Generator().manual_seed(0)
    lane_rows = [[(members, 3 * lane + k) for k in range(3)] + [(heads, lane)] for lane in range(2)]
    plain = [[nn.Parameter(stack.buffer[0][row].clone()) for stack, row in rows] for rows in lane_rows]
    theirs = [torch.optim.Adam(rows, LEARNING_RATE, eps=1e-3) for rows in plain]
    ours = Adam(stacks, LEARNING_RATE, epsilon=1e-3, clip=2.0)
    ours.choose([0, 1], seen=0)
    for scale in (1.0, 0.01):  # far above the limit, and below it
        for stack in stacks:
            stack.gradient.copy_(scale * torch.randn(stack.gradient.shape, generator=random))
        for rows, parameters, adam in zip(lane_rows, plain, theirs):
            for (stack, row), parameter in zip(rows, parameters):
                parameter.grad = stack.gradient[row].clone()
            norm = nn.utils.clip_grad_norm_(parameters, 2.0)
            assert (norm > 2.0) == (scale == 1.0)
            adam.step()
        ours.step()
        for rows, parameters in zip(lane_rows, plain):
            for (stack, row), parameter in zip(rows, parameters):
                torch.testing.assert_close(stack.buffer[0][row], parameter.detach())


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("linear", [False, True])
def test_what_heads_give_is_joined_with_their_prior_outside_or_inside_the_softplus(inside, linear):
    if linear and inside:
        pytest.skip("there is no softplus to be inside of")
    heads = LinearHeads if linear else partial(SoftplusHeads, prior_inside=inside)
    agent = build(uncertainty=partial(heads, heads=HEADS, hidden=(7,)))
    live(agent, 4)
    obs = torch.randn(2, 5, 2, 2, generator=torch.Generator().manual_seed(0))
    stack = agent.function.stacks[1]
    _, found = agent.function.acting_features(obs)
    for lane in range(2):
        m, prior = (plain_network(net, lane)(obs[lane].flatten(1).double()) for net in (stack.trained, stack.prior))
        joined = {
            (False, False): softplus(m) + BETA2 * softplus(prior),
            (True, False): softplus(m + BETA2 * prior),
            (False, True): m + BETA2 * prior,
        }[inside, linear]
        torch.testing.assert_close(found[lane].double(), joined.view(5, 3, HEADS), rtol=1e-4, atol=1e-5)
    assert bool((found < 0).any()) == linear
