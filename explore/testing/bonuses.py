"""The check of a bonus, and of memories that uncertainty modules hold."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor

from explore._learning.preflight import make_up_batch, make_up_observations
from explore._state import capture
from explore.interfaces import Bonus, Spec, Transitions
from explore.streams import stream
from explore.testing import toy
from explore.testing.learning import agent_of, check_learning, learn
from explore.testing.lives import check_company, check_resume
from explore.testing.promises import (
    LANES_APART,
    STANDARD,
    Options,
    Subject,
    difference,
    shorten_traceback,
    try_component,
)

ROWS = 6


@shorten_traceback
def check_bonus(cls: type[Bonus], options: Options = STANDARD, /, **parameters: Any) -> None:
    """Raises `Nonconformance` unless a bonus keeps all promises of its slot.

    It is tried with PINs, in rewards and in replay.
    """
    with try_component("bonus", cls, parameters) as subject:
        parts = toy.pins() | {"bonus": subject.build, "bonus_scale": 0.5, "replay_weight": 0.5} | options.agent
        for spec in options.specs():
            with subject.attempt("in learning"):
                check_memories(subject, spec, parts)
            check_learning(subject, spec, parts)
            walk, agent = partial(toy.Walk, spec=spec), toy.indexed(**parts)
            with subject.attempt("in an agent that acts and learns"):
                check_company(subject, walk, agent)
            check_resume(subject, walk, agent)


def check_memories(subject: Subject, spec: Spec, parts: dict[str, Any]) -> None:
    """What a lane observes changes that lane only, and what is padded changes nothing."""
    agent = agent_of(spec, range(3), parts)
    function, learner = agent.function, agent.learner
    if not function.memories:
        return
    generators = [stream(seed, "observing") for seed in function.seeds]
    obs = make_up_observations(spec, generators, ROWS)
    batch = make_up_batch(obs, generators, agent.replay, spec.num_actions)
    learn(agent, lanes=range(3), updates=2)  # so that what begins at 0 is something
    for network, transitions in zip(function.networks, learner.show(batch, function.networks)):
        transitions.there = torch.ones_like(batch.reward)
        network.observe(transitions)
    before = _buffers(agent)
    for network, transitions in zip(function.networks, learner.show(batch, function.networks)):
        transitions.there = torch.zeros_like(batch.reward)
        network.observe(transitions)
    subject.require(
        not difference(capture(before, ""), capture(_buffers(agent), "")),
        "takes padding for transitions",
        "multiply what is observed by transitions.there, which is 0 where a lane has no more transitions",
    )
    for network, transitions in zip(function.networks, learner.show(batch, function.networks)):
        transitions.there = torch.zeros_like(batch.reward)
        transitions.there[1] = 1.0
        network.observe(_negate_others(transitions))
    for name, buffer in _buffers(agent).items():
        others = torch.equal(buffer[[0, 2]], before[name][[0, 2]])
        subject.require(others, f"mixes lanes: what one seed observes changes {name} of others", LANES_APART)


def _negate_others(transitions: Transitions) -> Transitions:
    changed = copy.copy(transitions)
    changed.reward = transitions.reward * torch.tensor([[-3.0], [1.0], [5.0]])
    return changed


def _buffers(agent: Any) -> dict[str, Tensor]:
    return {
        f"{number}.{name}": buffer.clone()
        for number, memory in enumerate(agent.function.memories)
        for name, buffer in memory.named_buffers()
    }
