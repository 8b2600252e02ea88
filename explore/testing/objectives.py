"""The checks of an objective and of a schedule."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from explore._config.parameters import parameters
from explore._learning.preflight import make_up_batch, make_up_observations
from explore.interfaces import Objective, Schedule, Spec
from explore.streams import stream
from explore.testing import toy
from explore.testing.learning import agent_of, check_kernels, copy_buffers, learn
from explore.testing.lives import check_company, check_resume
from explore.testing.promises import LANES_APART, STANDARD, Options, Subject, shorten_traceback, try_component

ROWS = 7


@shorten_traceback
def check_objective(cls: type[Objective], options: Options = STANDARD, /, **bound: Any) -> None:
    """Raises `Nonconformance` unless an objective keeps all promises of its slot.

    It is tried on every built-in uncertainty module that its `check` accepts, or on
    `options.agent["uncertainty"]`.
    """
    with try_component("objective", cls, bound) as subject:
        accepted = list(_list_accepted(subject, options))
        for parts in accepted:
            for spec in options.specs():
                with subject.attempt(f"on {_names(parts['uncertainty'])}"):
                    _check_losses(subject, spec, parts)
                    _check_gradients(subject, spec, parts)
                    check_company(subject, partial(toy.Walk, spec=spec), toy.indexed(**parts))
        for spec in options.specs():
            check_resume(subject, partial(toy.Walk, spec=spec), toy.indexed(**accepted[0]))
        check_kernels(subject, options, accepted[0])


def _list_accepted(subject: Subject, options: Options) -> Iterator[dict[str, Any]]:
    """The parts of agents that the objective takes."""
    modules = [_small(one.cls) for one in toy.components().values() if one.slot == "uncertainty"]
    candidates = [*modules, [toy.pins()["uncertainty"], toy.bsp()["uncertainty"]]]
    if "uncertainty" in options.agent:
        candidates = [options.agent["uncertainty"]]
    reason, found = "", False
    for module in candidates:
        parts = toy.bsp() | options.agent | {"uncertainty": module, "objective": subject.build}
        function = agent_of(options.specs()[0], (0, 1), parts | {"objective": toy.part("objective.SampledTD")}).function
        try:
            subject.build().check(function)
        except ValueError as refusal:
            reason = str(refusal)
            continue
        found = True
        yield parts
    subject.require(
        found,
        f"accepts none of {_names(candidates)} ({reason})",
        'name what it needs with Options(agent={"uncertainty": ...})',
    )


def _small(cls: type) -> Any:
    """A module with few weights, as far as its parameters are called as those of others are."""
    few = {"hidden": (7,), "heads": 3, "size": 3}
    return partial(cls, **{name: few[name] for name in parameters(cls) if name in few})


def _names(modules: Any) -> str:
    if isinstance(modules, list | tuple):
        return " and ".join(map(_names, modules))
    return str(getattr(modules, "func", modules).__name__)


def _check_losses(subject: Subject, spec: Spec, parts: dict[str, Any]) -> None:
    """Those of made-up transitions; that they are as named, and one for each lane, the core checks."""
    for lanes in (1, 2, 7):
        agent = agent_of(spec, range(lanes), parts)
        generators = [stream(seed, "phase") for seed in range(lanes)]
        obs = make_up_observations(spec, generators, ROWS)
        batch = make_up_batch(obs, generators, agent.replay, spec.num_actions)
        prepared = agent.learner.prepare(batch, generators)[3]
        for name, tensors in prepared.items():
            for tensor in tensors if isinstance(tensors, tuple) else (tensors,):
                _check_prepared(subject, name, tensor)
        before = copy_buffers(agent.function)
        losses = learn(agent, range(lanes), updates=2)
        for name in agent.objective.losses:
            subject.require(
                bool(losses[name].isfinite().all()), f"gives {name} that is not finite", "look for log, sqrt or / of 0"
            )
        moved = [
            (stack.buffer[0] != old[0]).view(lanes, -1).any(1) for stack, old in zip(agent.function.stacks, before)
        ]
        subject.require(
            bool(torch.stack(moved).any(0).all()),
            "trains nothing: its loss has no gradient",
            "loss must depend on `features`, without detach()",
        )


def _check_prepared(subject: Subject, name: str, tensor: Tensor) -> None:
    subject.require(
        not tensor.requires_grad,
        f"prepares {name} with a gradient",
        "targets are fixed: take them from phase.next_features, which have none",
    )


def _check_gradients(subject: Subject, spec: Spec, parts: dict[str, Any]) -> None:
    """The loss of one seed has a gradient in that seed's networks only."""
    lanes = 3
    agent = agent_of(spec, range(lanes), parts)
    generators = [stream(seed, "gradient") for seed in range(lanes)]
    obs = make_up_observations(spec, generators, ROWS)
    batch = make_up_batch(obs, generators, agent.replay, spec.num_actions)
    losses = agent.learner.evaluate_losses(batch, generators)
    torch.stack(list(losses.values()))[:, 1].sum().backward()
    reached = [stack.gradient.view(lanes, -1).any(1) for stack in agent.function.stacks]
    others = torch.stack(reached).any(0)[[0, 2]]
    subject.require(
        not bool(others.any()), "mixes lanes: the loss of one seed has a gradient in another's network", LANES_APART
    )


@shorten_traceback
def check_schedule(cls: type[Schedule], options: Options = STANDARD, /, **bound: Any) -> None:
    """Raises `Nonconformance` unless a schedule keeps all promises of its slot."""
    with try_component("schedule", cls, bound) as subject:
        shares = [number / 20 for number in range(21)]
        schedule = subject.build()
        with subject.attempt("when it is called with a share from 0 to 1"):
            values = [schedule(share) for share in shares]
            backwards = [subject.build()(share) for share in reversed(shares)][::-1]
            again = [schedule(share) for share in shares]
        for share, value in zip(shares, values):
            subject.require(
                isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value),
                f"gives {value!r} when {share:.0%} of the run is over",
                "it must be a finite number",
            )
        subject.require(
            values == again == backwards,
            "gives other numbers for the same share of the run",
            "let it depend on `progress` alone: it is asked before the run, and again when a run is resumed",
        )
