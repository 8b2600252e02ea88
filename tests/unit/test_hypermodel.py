"""Hypermodels: HyperAgent's update equals a plain loop over transitions and indices."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from building import CELLS, FLOATS, Walk, build, live
from explore_plugins.hypermodel import Hypermodel
from explore_plugins.mean_net import MLP
from explore_plugins.objectives import SampledTD, WassersteinTD
from explore_plugins.priors import Additive, NoPrior
from explore_plugins.selections import SampledArgmax
from torch import Tensor, nn

from explore import nn as nn_lanes
from explore._values.indexed_value import IndexedValue
from explore.interfaces import ValueNetwork
from explore.streams import normal, stream

D, DRAWS, BATCH, BETA, DISCOUNT, RATE, EPSILON = 3, 4, 6, 10.0, 0.9, 1e-2, 1e-3
HYPER = {
    "value": partial(MLP, hidden=(8, 6), init="glorot_normal"),
    "uncertainty": partial(Hypermodel, dimension=D),
    "prior": partial(Additive, scale=BETA),
    "acting": SampledArgmax,
    "target": SampledArgmax,
    "discount": DISCOUNT,
    "learning_rate": RATE,
    "adam_epsilon": EPSILON,
    "batch_size": BATCH,
}


class PlainHypermodel(nn.Module):
    """One lane's ⟨h(s), A z + c⟩, in float64."""

    def __init__(self, module: Hypermodel, lane: int):
        super().__init__()
        layers = module.network.net.layers
        self.weights = nn.ParameterList(layer.matrix[lane].detach().double().clone() for layer in layers)
        self.biases = nn.ParameterList(
            layer.bias[lane, 0, : layer.outputs].detach().double().clone() for layer in layers
        )
        assert not self.biases[-1].any()
        self.biases[-1].requires_grad_(False)
        self.a = nn.Parameter(module.hyper.matrix[lane].detach().double().clone())  # [H, actions * d]

    def forward(self, obs: Tensor, z: Tensor) -> Tensor:
        h = obs
        for weight, bias in list(zip(self.weights, self.biases))[:-1]:
            h = torch.relu(h @ weight + bias)
        actions = self.weights[-1].shape[1]
        return torch.stack(
            [sum(h[j] * (self.a[j, a * D : (a + 1) * D] @ z + self.weights[-1][j, a]) for j in range(len(h)))
             for a in range(actions)]
        )  # fmt: skip


def on_sphere(numbers: np.ndarray) -> Tensor:
    vector = torch.from_numpy(numbers).double()
    return vector / vector.norm()


@pytest.mark.parametrize("target_index", ["same", "fresh"])
@pytest.mark.parametrize("double_q", [False, True])
@pytest.mark.parametrize("clip, noise", [(None, 0.0), (0.5, 0.3)])
@pytest.mark.parametrize("spec", [FLOATS, CELLS], ids=["floats", "cells"])
def test_updates_are_those_of_a_plain_loop(spec, target_index, double_q, clip, noise):
    seeds, lane = (4, 9), 1
    objective = partial(SampledTD, indices=DRAWS, target_index=target_index, noise=noise)
    settings = HYPER | {"objective": objective, "double_q": double_q, "gradient_clip": clip, "min_replay": 10**6}
    agent = build(seeds, spec, **settings, mask_probability=1.0)
    live(agent, 8, partial(Walk, spec=spec))  # nothing is learned yet
    stack = agent.function.stacks[0]
    trained, prior, target = (PlainHypermodel(m, lane) for m in (stack.trained, stack.prior, stack.target))
    optimiser = torch.optim.Adam([p for p in trained.parameters() if p.requires_grad], RATE, eps=EPSILON)
    norms = []
    agent.learner.complete(agent.replay, [0, 1], [stream(s, "mask") for s in seeds])
    for phase in range(3):  # the target stays where it is
        batch = agent.replay.sample([0, 1], BATCH, [stream(s, "replay", phase) for s in seeds])
        selecting, drawing = ([stream(s, name, phase) for s in seeds] for name in ("ties", "draws"))
        losses = agent.learner.learn(batch, BATCH, [0, 1], 0.0, selecting, drawing)

        rng = [stream(seeds[lane], "draws", phase)]
        z = normal(rng, BATCH, DRAWS, D)[0].numpy()
        z_target = normal(rng, BATCH, 1, D)[0].numpy() if target_index == "fresh" else z
        loss = torch.zeros((), dtype=torch.float64)
        for i in range(BATCH):
            obs, next_obs = batch.obs[lane, i], batch.next_obs[lane, i]
            if spec is CELLS:
                obs, next_obs = (nn.functional.one_hot(o, 9) for o in (obs, next_obs))
            obs, next_obs = obs.flatten().double(), next_obs.flatten().double()
            action = int(batch.action[lane, i])
            for k in range(DRAWS):
                index, at = on_sphere(z[i, k]), on_sphere(z_target[i, k if target_index == "same" else 0])
                with torch.no_grad():
                    frozen = BETA * prior(next_obs, at)
                    judge = (trained if double_q else target)(next_obs, at) + frozen
                    bootstrap = (target(next_obs, at) + frozen)[judge.argmax()]
                    y = float(batch.reward[lane, i]) + DISCOUNT * float(batch.discount[lane, i]) * bootstrap
                    if noise:
                        y += noise * on_sphere(batch.stored[1][lane, i, :D].numpy()) @ index
                    shift = BETA * prior(obs, index)[action]
                loss = loss + (trained(obs, index)[action] + shift - y).square() / DRAWS / BATCH
        optimiser.zero_grad()
        loss.backward()
        if clip is not None:
            norms.append(nn.utils.clip_grad_norm_([p for p in trained.parameters() if p.requires_grad], clip))
        optimiser.step()
        assert float(losses["loss"][lane]) == pytest.approx(loss.item(), rel=2e-4)
    found = PlainHypermodel(stack.trained, lane)
    for (name, expected), parameter in zip(trained.named_parameters(), found.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-3, atol=1e-5, msg=name)
    assert all(norm > clip for norm in norms)  # or nothing would have been clipped


def function(prior=Additive, value=HYPER["value"], **settings):
    return IndexedValue(FLOATS, (0, 5), value, [partial(Hypermodel, **settings)], prior())


def test_rows_of_the_priors_a_and_its_c_as_one_vector_have_length_1():
    stack = function(dimension=D).stacks[0]
    for module, unit in ((stack.prior, True), (stack.trained, False)):
        rows = module.hyper.matrix.unflatten(-1, (-1, D)).norm(dim=-1)
        c = module.network.net.layers[-1].matrix.flatten(1).norm(dim=1)
        assert torch.allclose(rows, torch.ones_like(rows)) == unit
        assert torch.allclose(c, torch.ones_like(c)) == unit
        assert not module.hyper.bias.any() and not module.network.net.layers[-1].bias.any()


def test_a_is_drawn_as_a_layer_from_z_to_the_weights():
    wide = IndexedValue(
        FLOATS, (0,), partial(MLP, hidden=(400,)), [partial(Hypermodel, dimension=50)], NoPrior()
    ).stacks[0]  # fmt: skip
    assert wide.trained.hyper.matrix.std().item() == pytest.approx((2 / (50 + 400 * 3)) ** 0.5, rel=0.03)


def test_an_index_is_uniform_on_the_sphere():
    (index,) = function(dimension=D).indexer.draw([stream(s, "test") for s in (0, 5)], 20_000)
    z, one = index[..., :D], index[..., D]
    torch.testing.assert_close(z.norm(dim=-1), torch.ones(2, 20_000))
    assert (one == 1).all() and (z.mean(1).abs() < 0.02).all()
    torch.testing.assert_close(z.square().mean(1), torch.full((2, D), 1 / D), atol=0.01, rtol=0)


def test_mean_std_and_scales_are_those_of_the_values():
    q = function(dimension=D)
    features = q.acting_features(torch.randn(2, 4, 2, 2, generator=torch.Generator().manual_seed(0)))
    values = q.values(features, q.indexer.draw([stream(s, "test") for s in (0, 5)], 4, 40_000))
    torch.testing.assert_close(values.std(2), q.std(features), rtol=0.03, atol=1e-6)
    torch.testing.assert_close(q.parts[0].scales(features[0]).squeeze(-1), q.std(features))
    mean = q.values(features, q.indexer.mean())
    torch.testing.assert_close(q.parts[0].means(features[0]).squeeze(-1), mean.squeeze(2))
    assert ((values.mean(2) - mean.squeeze(2)).abs() < 5 * q.std(features) / 200).all()


def test_wasserstein_td_matches_its_mean_and_its_standard_deviation():
    agent = build((4,), **(HYPER | {"objective": partial(WassersteinTD, sigma=0.7), "min_replay": 10**6}))
    live(agent, 6)
    agent.learner.complete(agent.replay, [0], [stream(4, "mask")])
    batch = agent.replay.sample([0], BATCH, [stream(4, "replay")])
    stack = agent.function.stacks[0]
    trained, prior = PlainHypermodel(stack.trained, 0), PlainHypermodel(stack.prior, 0)

    def moments(obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of every action: values at 0 and along the axes of z."""
        z0, axes = torch.zeros(D).double(), torch.eye(D).double()
        mean = trained(obs, z0) + BETA * prior(obs, z0)
        along = torch.stack([trained(obs, e) + BETA * prior(obs, e) - mean for e in axes])
        return mean, (along.square().sum(0) / D).sqrt()

    z = normal([stream(4, "draws")], BATCH, 1, D)[0].numpy()
    expected = {"mean_loss": 0.0, "uncertainty_loss": 0.0}
    with torch.no_grad():
        for i in range(BATCH):
            obs, next_obs = (o[0, i].flatten().double() for o in (batch.obs, batch.next_obs))
            at, action = on_sphere(z[i, 0]), int(batch.action[0, i])
            best = (trained(next_obs, at) + BETA * prior(next_obs, at)).argmax()
            discount = DISCOUNT * float(batch.discount[0, i])
            (mean, std), (next_mean, next_std) = moments(obs), moments(next_obs)
            mean_target = float(batch.reward[0, i]) + discount * next_mean[best]
            expected["mean_loss"] += float((mean[action] - mean_target) ** 2) / BATCH
            expected["uncertainty_loss"] += float((std[action] - 0.7 - discount * next_std[best]) ** 2) / BATCH
    found = agent.learner.learn(batch, BATCH, [0], 0.0, [stream(4, "ties")], [stream(4, "draws")])
    for name, number in expected.items():
        assert float(found[name][0]) == pytest.approx(number, rel=1e-3)


class Hidden(ValueNetwork):
    def __init__(self, spec):
        super().__init__()
        self.net = nn_lanes.MLP(spec.observation, (4,), spec.num_actions)

    def forward(self, obs):
        return self.net(obs)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"dimension": 0}, "dimension must be at least 1, got 0"),
        (
            {"value": Hidden},
            "Hypermodel looks at the layers of the value network, which value.Hidden does",
        ),
        ({"value": partial(MLP, hidden=())}, r"needs a value network with a hidden layer, which value\.MLP has not"),
    ],
)
def test_what_it_cannot_be_built_on_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        function(**settings)
