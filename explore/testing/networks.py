"""The checks of value networks and uncertainty modules."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from explore._learning.preflight import check_values, make_up_observations
from explore._values.indexed_value import IndexedValue
from explore.interfaces import Spec, UncertaintyModule, ValueNetwork
from explore.nn import Linear, apply_hidden
from explore.streams import stream
from explore.testing import toy
from explore.testing.bonuses import check_memories
from explore.testing.indices import DRAWS, check_index, check_index_is_held, check_moments, check_scales
from explore.testing.learning import agent_of, check_kernels, check_learning, learn
from explore.testing.lives import COMPANIES, SEED, check_company, check_resume
from explore.testing.promises import (
    LANES_APART,
    STANDARD,
    Options,
    Subject,
    join_names,
    shorten_traceback,
    try_component,
)

BATCHES = (1, 2, 5, 17)


@shorten_traceback
def check_value(cls: type[ValueNetwork], options: Options = STANDARD, /, **parameters: Any) -> None:
    """Raises `Nonconformance` unless a value network keeps all promises of its slot."""
    with try_component("value", cls, parameters) as subject:
        # As an ensemble: the network has more lanes than there are seeds.
        ensemble = partial(toy.part("uncertainty.Ensemble"), size=2)
        parts = toy.bsp() | {"uncertainty": ensemble} | options.agent | {"value": subject.build}
        for spec in options.specs():
            _check_outputs(subject, spec, parts)
            _check_layers(subject, spec, parts)
            _check_networks(subject, spec, parts)
        check_kernels(subject, options, parts)


@shorten_traceback
def check_uncertainty(cls: type[UncertaintyModule], options: Options = STANDARD, /, **parameters: Any) -> None:
    """Raises `Nonconformance` unless an uncertainty module keeps all promises of its slot."""
    with try_component("uncertainty", cls, parameters) as subject:
        parts = toy.bsp() | options.agent | {"uncertainty": subject.build}
        for spec in options.specs():
            _check_outputs(subject, spec, parts)
            function = _function(spec, (0, 1), parts)
            for number, part in enumerate(function.parts):
                if type(part) is subject.cls:
                    check_index(subject, part.index)
                    check_moments(subject, function, number)
                    check_scales(subject, function, number)
            _check_networks(subject, spec, parts)
        check_kernels(subject, options, parts)


def _function(spec: Spec, seeds: Sequence[int], parts: dict[str, Any]) -> IndexedValue:
    modules = parts["uncertainty"]
    return IndexedValue(
        spec, seeds, parts["value"], modules if isinstance(modules, list | tuple) else [modules], parts["prior"]()
    )


# What holds for every network


def _check_outputs(subject: Subject, spec: Spec, parts: dict[str, Any]) -> None:
    for lanes in (1, 2, 7):
        with subject.attempt(f"with {lanes} lanes and observations of shape {[*spec.observation.shape]}"):
            function = _function(spec, range(lanes), parts)
            check_values(function)  # as the core does before a run: shapes, signs, lanes
            for batch in BATCHES:
                _check_shapes(subject, function, _outputs(function, batch), batch)


def _check_networks(subject: Subject, spec: Spec, parts: dict[str, Any]) -> None:
    _check_initialisation(subject, spec, parts)
    _check_lanes(subject, spec, parts)
    check_memories(subject, spec, parts)
    check_learning(subject, spec, parts)
    _check_state(subject, spec, parts)
    check_index_is_held(subject, spec, parts)
    walk, agent = partial(toy.Walk, spec=spec), toy.indexed(**parts)
    with subject.attempt("in an agent that acts and learns"):
        check_company(subject, walk, agent)
    check_resume(subject, walk, agent)


@torch.no_grad()
def _outputs(function: IndexedValue, batch: int) -> dict[str, Tensor]:
    """What all networks of a function give for made-up observations, each `[lanes, batch, ...]`."""
    generators = [stream(seed, "made up") for seed in function.seeds]
    obs = make_up_observations(function.spec, generators, batch)
    index = function.indexer.draw(generators, batch, DRAWS)
    features = function.acting_features(obs)
    prior = function.prior_features(obs) if function.prior_parts else torch.zeros(len(obs), batch, 0)
    targets = function.target_features(obs, prior)
    return {
        "values": function.values(features, index),
        "mean": function.values(features, function.indexer.mean()),
        "std": function.std(features),
        "target values": function.values(targets, index),
        "prior": prior,
    }


def _check_shapes(subject: Subject, function: IndexedValue, found: Mapping[str, Tensor], batch: int) -> None:
    lanes, actions = len(function.seeds), function.spec.num_actions
    draws = 1 if function.indexer.count == 1 else DRAWS
    values = (lanes, batch, draws, actions)
    wanted = {
        "values": values, "mean": (lanes, batch, 1, actions), "std": (lanes, batch, actions), "target values": values,
    }  # fmt: skip
    for name, shape in wanted.items():
        tensor = found[name]
        subject.require(
            tuple(tensor.shape) == shape,
            f"gives {name} of shape {[*tensor.shape]} for {batch} observations of {lanes} seeds",
            f"they must be {[*shape]}",
        )
        subject.require(
            bool(tensor.isfinite().all()), f"gives {name} that are not finite", "look for log, sqrt or / of what is 0"
        )


def _check_initialisation(subject: Subject, spec: Spec, parts: dict[str, Any]) -> None:
    seeds = (0, 1)
    one, other = (_function(spec, seeds, parts) for _ in range(2))
    for stack, again in zip(one.stacks, other.stacks):
        subject.require(
            torch.equal(stack.buffer, again.buffer),
            "begins with other weights each time it is built for the same seeds",
            "draw them from explore.nn or explore.nn.per_lane, which take them from the seed's own stream",
        )
        for name, rows in stack.view_parameters(stack.buffer[0]).items():
            lanes = rows.unflatten(0, (len(seeds), -1))
            varied = len(lanes[0].unique()) > 2  # no zeros, ones or padding, but numbers that were drawn
            subject.require(
                not (varied and name in stack.trainable and torch.equal(*lanes)),
                f"begins with the same weights for every seed in {name}",
                "draw them from explore.nn or explore.nn.per_lane, which take them from the seed's own stream",
            )


def _check_lanes(subject: Subject, spec: Spec, parts: dict[str, Any]) -> None:
    alone = _function(spec, (SEED,), parts)
    for company in COMPANIES:
        function, lane = _function(spec, company, parts), company.index(SEED)
        for batch in BATCHES:
            for (name, expected), found in zip(_outputs(alone, batch).items(), _outputs(function, batch).values()):
                subject.require(
                    torch.equal(expected[0], found[lane]),
                    f"gives seed {SEED} other {name} beside seeds {join_names(company)} than alone, or other last bits",
                    f"{LANES_APART}; and mark with @explore.nn.exact only what its documentation says",
                )
    function = _function(spec, range(3), parts)
    before = _outputs(function, 5)
    for stack in function.stacks:
        stack.buffer.unflatten(1, (3, -1))[:, 1] *= -2.0
    for name, found in _outputs(function, 5).items():
        subject.require(
            torch.equal(found[[0, 2]], before[name][[0, 2]]),
            f"mixes lanes: a change in one seed's network changes the {name} of others",
            LANES_APART,
        )


def _check_state(subject: Subject, spec: Spec, parts: dict[str, Any]) -> None:
    with subject.attempt("when its state is saved and put back"):
        agent, other = (agent_of(spec, seeds, parts) for seeds in ((0, 1), (5, 6)))
        learn(agent, lanes=(0, 1), updates=2)
        other.function.load_state_dict(copy.deepcopy(agent.function.state_dict()))
        other.function.seeds = agent.function.seeds  # by which observations are made up
        found, expected = (_outputs(one.function, 5) for one in (other, agent))
    where = next((name for name in found if not torch.equal(found[name], expected[name])), None)
    subject.require(
        where is None,
        f"gives other {where} once its state_dict is loaded into one that was built for other seeds",
        "keep every tensor in a parameter, and numbers in plain attributes",
    )


# What holds for value networks


def _check_layers(subject: Subject, spec: Spec, parts: dict[str, Any]) -> None:
    function = _function(spec, (0, 1), parts | {"uncertainty": toy.part("uncertainty.Deterministic")})
    network = function.parts[0].network
    layers = list(network.as_layers())
    if not layers:
        return
    advice = "as_layers must list the layers that forward applies with ReLU between them, or return ()"
    subject.require(isinstance(layers[-1], Linear), "has a last layer that is no explore.nn.Linear", advice)
    obs = make_up_observations(spec, [stream(seed, "made up") for seed in (0, 1)], 4)
    *body, last = layers
    with subject.attempt("layer by layer"), torch.no_grad():
        same = torch.allclose(last(apply_hidden(body, obs)), network(obs), atol=1e-5)
    subject.require(same, "gives other values layer by layer than as a whole", advice)
