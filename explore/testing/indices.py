"""The index of an uncertainty module: how it is drawn and held, and what values do with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from explore._learning.preflight import make_up_observations
from explore._running.loop import play_episode
from explore._values.indexed_value import IndexedValue
from explore._values.term import has_own_values
from explore.interfaces import IndexDistribution, ScaleModule, Spec
from explore.streams import Generators, stream
from explore.testing import toy
from explore.testing.learning import agent_of
from explore.testing.promises import Subject

DRAWS = 3
MANY = 20_000  # draws, for moments


def check_index(subject: Subject, index: IndexDistribution) -> None:
    def generators(*lanes: int | None) -> Generators:
        return [None if lane is None else stream(lane, "draw") for lane in lanes]

    bits = (torch.arange(2 * 4 * index.bits) % 2).float().view(2, 4, index.bits)
    count = index.count or DRAWS
    ways: dict[str, tuple[Callable[[Generators], Tensor], int]] = {
        "draw": (lambda given: index.draw(given, 4, DRAWS), DRAWS),
        "draw_to_learn": (lambda given: index.draw_to_learn(given, bits[: len(given)], count), count),
        "draw_columns": (lambda given: index.draw_columns(given, bits[: len(given)])[1], 1),
    }
    for name, (draw, draws) in ways.items():
        with subject.attempt(f"in {name}"):
            both = draw(generators(0, 1))
        shape, size = list(both.shape), index.size
        subject.require(
            shape in ([2, 4, draws, size], [2, 1, draws, size], [1, 1, draws, size]),
            f"gives an index of shape {shape} in {name}",
            f"it must be [lanes, batch, draws, size] = {[2, 4, draws, size]}",
        )
        if len(both) == 1:
            continue  # all indices in turn, whatever is drawn
        subject.require(
            torch.equal(both, draw(generators(0, 1))) and torch.equal(both[1:], draw(generators(1))),
            f"does not draw the index of a seed from that seed's generator in {name}",
            "draw with explore.streams.uniform, normal or integers, which give each lane its own numbers",
        )
        with subject.attempt(f"in {name} where a generator is None, as of a lane that waits"):
            waiting = draw(generators(None, 1))
        subject.require(
            torch.equal(waiting[1:], both[1:]),
            f"draws another index for a seed if the seed before it waits, in {name}",
            "draw with explore.streams.uniform, normal or integers, which leave lanes out whose generator is None",
        )
    weights = index.weigh(bits, count)
    subject.require(
        list(weights.shape) == [2, 4, count] and bool((weights >= 0).all()),
        f"weighs {count} indices with numbers of shape {[*weights.shape]}, from {float(weights.min()):g} on",
        "weigh must give [lanes, batch, draws], none of them negative",
    )
    words = index.describe(index.draw(generators(0), 1, 1)[0, 0, 0].numpy())
    subject.require(
        isinstance(words, str), f"describes an index as {words!r}", "describe must return a string, maybe an empty one"
    )
    mean = index.mean()
    subject.require(
        list(mean.shape) == [index.size], f"gives a mean index of shape {[*mean.shape]}", f"it must be [{index.size}]"
    )
    if index.count is None:
        with subject.attempt("in perturb"):
            noise, drawn = torch.ones(2, 4, index.size), index.draw(generators(0, 1), 4, DRAWS)
            shape = list(index.perturb(noise, drawn).shape)
        subject.require(
            shape == [2, 4, DRAWS], f"gives perturbations of shape {shape}", "they must be [lanes, batch, draws]"
        )


@torch.no_grad()
def check_moments(subject: Subject, function: IndexedValue, number: int) -> None:
    """Of values that are features · index: mean and variance are those of values at drawn indices."""
    part = function.parts[number]
    if has_own_values(part):
        return
    generators = [stream(seed, "moments") for seed in function.seeds]
    obs = make_up_observations(function.spec, generators, 2)
    features = function.acting_features(obs)[number]
    assert isinstance(features, Tensor)
    index = part.index
    values = index.combine(features, index.draw(generators, 2, MANY))  # [lanes, batch, draws or 1, actions]
    mean = index.combine(features, index.mean().expand(1, 1, 1, -1)).squeeze(2)
    error = (values.mean(2) - mean).abs()
    scale = values.abs().amax((2,))
    subject.require(
        bool((error <= 6 * values.std(2, correction=0) / MANY**0.5 + 1e-4 * scale + 1e-6).all()),
        "has another mean over drawn indices than at the mean index",
        "mean() of an index distribution must be the expectation of what draw gives",
    )
    if not hasattr(index, "variance"):
        return
    with subject.attempt("in variance"):
        variance = index.variance(features)
    subject.require(bool((variance >= 0).all()), "gives a variance below 0", "it must be that of values over indices")
    std, found = variance.sqrt(), values.std(2, correction=0)
    subject.require(
        torch.allclose(found, std, rtol=0.1, atol=1e-5),
        f"says its values vary by {std.flatten()[0]:.4f} over indices, but they do by {found.flatten()[0]:.4f}",
        "variance must be that of features · index over what draw gives",
    )


@torch.no_grad()
def check_scales(subject: Subject, function: IndexedValue, number: int) -> None:
    """Never negative, whatever the parameters will be."""
    part = function.parts[number]
    if not isinstance(part, ScaleModule):
        return
    stack, generator = function.stacks[number], torch.Generator().manual_seed(0)
    generators = [stream(seed, "scales") for seed in function.seeds]
    for _ in range(4):
        stack.buffer.mul_(3 * torch.randn(stack.buffer.shape, generator=generator))  # zeros stay zeros
        obs = make_up_observations(function.spec, generators, 50)
        scales = function.terms[number].activate(stack.trained(obs))
        subject.require(
            not bool((scales < 0).any()),
            "gives a negative uncertainty for some parameters that training may lead to",
            "let its output go through explore.nn.softplus; scales that may be negative belong to an UncertaintyModule "
            "with index = GaussianAtHead(heads)",
        )


def check_index_is_held(subject: Subject, spec: Spec, parts: dict[str, Any]) -> None:
    seeds = (0, 1)
    agent = agent_of(spec, seeds, parts)
    environments = [toy.Walk(seed, spec) for seed in seeds]
    obs = make_up_observations(spec, [stream(seed, "made up") for seed in seeds], 1)
    learn, original_act = agent.learn, agent.act
    held: list[Tensor] = []
    sampled = torch.zeros(())

    def learn_and_look() -> None:
        nonlocal held, sampled
        learn()
        held, sampled = [part.clone() for part in agent.index], values()

    def values() -> Tensor:
        own = tuple(part.clone() for part in agent.index)  # lest this is what changes it
        return agent.function.values(agent.function.acting_features(obs), own)

    def act(observations: np.ndarray, active: Sequence[bool]) -> Sequence[int]:
        actions = original_act(observations, active)
        subject.require(
            all(torch.equal(part, old) for part, old in zip(agent.index, held)),
            "changes the index that is held for the episode",
            "do not assign to the index in values, or to what draw has returned",
        )
        subject.require(
            torch.equal(values(), sampled),
            "gives other values for the same observation and index later in an episode",
            "let values be a function of features, index and parameters alone",
        )
        return actions

    agent.learn, agent.act = learn_and_look, act
    episodes = []
    for _ in range(4):
        play_episode(agent, environments, 0.0)
        episodes.append(held)
    for number, part in enumerate(agent.function.parts):
        differ = any(not torch.equal(index[number], episodes[0][number]) for index in episodes[1:])
        subject.require(
            differ or part.index.count == 1,
            "draws the same index for every episode",
            "draw must take fresh numbers from the generators each time; with only one index, use NoIndex",
        )
