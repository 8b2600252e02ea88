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
from explore.interfaces import ScaleModule, Spec, UncertaintyModule
from explore.streams import Generators, stream
from explore.testing import toy
from explore.testing.learning import agent_of
from explore.testing.promises import Subject

DRAWS = 3
MANY = 20_000  # draws, for moments


def check_index(subject: Subject, part: UncertaintyModule, spec: Spec) -> None:
    def generators(*lanes: int | None) -> Generators:
        return [None if lane is None else stream(lane, "draw") for lane in lanes]

    mask = (torch.arange(2 * 4 * part.mask_size) % 2).float().view(2, 4, part.mask_size)
    copies = max(1, getattr(part, "copies", 1))
    ways: dict[str, tuple[Callable[[Generators], Any], int]] = {
        "draw": (lambda given: part.draw(given, 4, DRAWS), DRAWS),
        "draw_for_learning": (lambda given: part.draw_for_learning(given, mask[: len(given)], copies), copies),
    }
    for name, (draw, draws) in ways.items():
        with subject.trying(f"in {name}"):
            both = draw(generators(0, 1))
        if both is None and name == "draw_for_learning":
            continue  # every member in turn
        shape = list(both.shape)
        subject.require(
            shape in ([2, 4, draws, part.size], [2, 1, draws, part.size]),
            f"gives an index of shape {shape} in {name}",
            f"it must be [lanes, batch, draws, size] = {[2, 4, draws, part.size]}",
        )
        subject.require(
            torch.equal(both, draw(generators(0, 1))) and torch.equal(both[1:], draw(generators(1))),
            f"does not draw the index of a seed from that seed's generator in {name}",
            "draw with explore.streams.uniform, normal or integers, which give each lane its own numbers",
        )
        with subject.trying(f"in {name} where a generator is None, as of a lane that waits"):
            waiting = draw(generators(None, 1))
        subject.require(
            torch.equal(waiting[1:], both[1:]),
            f"draws another index for a seed if the seed before it waits, in {name}",
            "draw with explore.streams.uniform, normal or integers, which leave lanes out whose generator is None",
        )
    words = part.describe_index(part.draw(generators(0), 1, 1)[0, 0, 0].numpy())
    subject.require(
        isinstance(words, str),
        f"describes an index as {words!r}",
        "describe_index must return a text, maybe an empty one",
    )
    mean = part.mean_index()
    subject.require(
        list(mean.shape) == [part.size], f"gives a mean index of shape {[*mean.shape]}", f"it must be [{part.size}]"
    )
    if part.continuous:
        with subject.trying("in perturbation"):
            noise, index = torch.ones(2, 4, part.size), part.draw(generators(0, 1), 4, DRAWS)
            shape = list(part.perturbation(noise, index).shape)
        subject.require(
            shape == [2, 4, DRAWS], f"gives perturbations of shape {shape}", "they must be [lanes, batch, draws]"
        )


@torch.no_grad()
def check_moments(subject: Subject, function: IndexedValue, number: int) -> None:
    """Of a part that is linear in the index: mean and variance are those of values at drawn indices."""
    part = function.parts[number]
    if not part.linear:
        return
    generators = [stream(seed, "moments") for seed in function.seeds]
    obs = make_up_observations(function.spec, generators, 2)
    features = function.acting_features(obs)[number]
    assert isinstance(features, Tensor)
    values = part.values(features, part.draw(generators, 2, MANY))  # [lanes, batch, draws or 1, actions]
    with subject.trying("in variance"):
        variance = part.variance(features)
    subject.require(bool((variance >= 0).all()), "gives a variance below 0", "it must be that of values over indices")
    std = variance.sqrt()
    mean = part.values(features, part.mean_index().expand(1, 1, 1, -1)).squeeze(2)
    error = (values.mean(2) - mean).abs()
    scale = values.abs().amax((2,))
    subject.require(
        bool((error <= 6 * values.std(2, correction=0) / MANY**0.5 + 1e-4 * scale + 1e-6).all()),
        "has another mean over drawn indices than at mean_index",
        "mean_index must be the expectation of what draw gives, and values linear in the index",
    )
    found = values.std(2, correction=0)
    subject.require(
        torch.allclose(found, std, rtol=0.1, atol=1e-5),
        f"says its values vary by {std.flatten()[0]:.4f} over indices, but they do by {found.flatten()[0]:.4f}",
        "variance must be that of values(features, index) over what draw gives",
    )


@torch.no_grad()
def check_scales(subject: Subject, function: IndexedValue, number: int) -> None:
    """Never negative, whatever the parameters will be."""
    part = function.parts[number]
    if not isinstance(part, ScaleModule) or part.signed:
        return
    stack, generator = function.stacks[number], torch.Generator().manual_seed(0)
    generators = [stream(seed, "scales") for seed in function.seeds]
    for _ in range(4):
        stack.buffer.mul_(3 * torch.randn(stack.buffer.shape, generator=generator))  # zeros stay zeros
        obs = make_up_observations(function.spec, generators, 50)
        scales = part.finish(stack.trained(obs))
        subject.require(
            not bool((scales < 0).any()),
            "gives a negative uncertainty for some parameters that training may lead to",
            "let its output go through explore.nn.softplus, or say `signed = True`",
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
            differ or not part.random,
            "draws the same index for every episode",
            "draw must take fresh numbers from the generators each time; with only one index, set random = False",
        )
