"""One trial of a value function and its learner on made-up data, so that mistakes show before hours are spent.

A component that fails, or gives what it should not, is named in a `ValueError`. Everything here draws from
streams of its own and changes nothing that a run depends on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import dm_env
import numpy as np
import torch
from torch import Tensor, nn

from explore._learning.learner import Learner
from explore._learning.replay import Batch, Replay
from explore._learning.trees import flatten
from explore._state import capture, restore
from explore._values.acting import ActionSelector
from explore._values.indexed_value import IndexedValue
from explore._values.native import FEW_ROWS
from explore._values.term import Term, has_own_values
from explore.errors import RunFailed
from explore.interfaces import (
    Beliefs,
    Bits,
    Bonus,
    IndexDistribution,
    Memory,
    Network,
    ScaleModule,
    Spec,
    Stored,
    Transitions,
    UncertaintyModule,
    ValueWrapper,
    select_actions,
)
from explore.streams import Generators, normal, stream, uniform

BATCH, DRAWS = 32, 3


@torch.no_grad()
def check_learner(
    learner: Learner, selectors: Sequence[ActionSelector], replay: Replay, batch_size: int, batches: int = 1
) -> None:
    """Tries the value function, then the selections of actions, then the target's selection, the objective, and what
    networks do with transitions. All that the kernels will execute is recorded, so that `function.execution()` is
    known; `batches` is how many minibatches of `batch_size` a learning phase will have."""
    function, rows = learner.function, 4
    check_values(function)
    generators = [stream(seed, "rehearsal") for seed in function.seeds]
    obs = make_up_observations(function.spec, generators, rows).to(function.device)
    features = function.acting_features(obs[:, :1])
    for selection in (selector.selection for selector in selectors):
        beliefs = Beliefs(function, features, function.indexer.draw(generators, 1, 1), generators, 0.0)
        _try_transitions(type(selection).__name__, select_actions, selection, beliefs, 1)
    batch = make_up_batch(obs, generators, replay, function.spec.num_actions)
    check_networks(learner, batch)
    _check_objective(learner, batch, generators)
    _record(learner, selectors, replay, batch_size, batches)


def _check_objective(learner: Learner, batch: Batch, generators: Generators) -> None:
    name, expected, lanes, rows = type(learner.objective).__name__, list(learner.losses), *batch.reward.shape
    _, _, _, prepared, _ = _try_transitions(name, learner.prepare, batch, generators)
    for what, tensor in ((what, tensor) for what, tree in prepared.items() for tensor in flatten(tree)[0]):
        if tensor.dim() < 2 or len(tensor) not in (1, lanes) or tensor.shape[1] not in (1, rows):
            raise ValueError(
                f"{name} prepares {what} of shape {[*tensor.shape]} for {rows} transitions of {lanes} seeds: it must "
                "be [lanes, batch, ...], as it is cut into minibatches along the second axis"
            )
    found = _try_transitions(name, learner.evaluate_losses, batch, generators)
    if list(found) != expected:
        raise ValueError(f"{name} gives the losses {list(found)}, but names {expected} in its `losses`")
    for loss, tensor in found.items():
        _check_shape(f"{name} gives {loss}", tensor, "[lanes]", [lanes])


def _record(
    learner: Learner, selectors: Sequence[ActionSelector], replay: Replay, batch_size: int, batches: int
) -> None:
    """Has everything recorded that the kernels can execute."""
    function = learner.function
    if function.recording is None:
        return
    generators = [stream(seed, "recording") for seed in function.seeds]
    obs = make_up_observations(function.spec, generators, batch_size * min(batches, 2))
    index = function.indexer.draw(generators, 1, 1)
    for selector in selectors:
        selector.hold(np.ascontiguousarray(obs[:, 0].numpy()), index)
    if function.prior_parts:
        for rows in (1, FEW_ROWS + 1):
            function.prior_features(make_up_observations(function.spec, generators, rows))
    batch = make_up_batch(obs, generators, replay, function.spec.num_actions)
    _try_transitions(type(learner.objective).__name__, learner.record, batch, batch_size, generators)


def check_networks(learner: Learner, batch: Batch) -> None:
    """Tries what networks observe, and their own losses, with nothing changed afterwards."""
    function, lanes = learner.function, len(learner.function.seeds)
    before = copy.deepcopy(capture(function.memories, "memories"))
    for network, transitions in zip(function.networks, learner.show(batch, function.networks)):
        name = type(network).__name__
        transitions.there = torch.ones_like(batch.reward)
        _check_observe(network, name, transitions)
        losses = _try_transitions(f"{name}.loss", network.loss, transitions)
        if tuple(losses) != tuple(network.losses):
            raise ValueError(
                f"{name} gives the losses {list(losses)}, but names {list(network.losses)} in its `losses`"
            )
        for loss, tensor in losses.items():
            _check_shape(f"{name} gives {loss}", tensor, "[lanes]", [lanes])
        if isinstance(network, Bonus):
            _check_bonus(network, name, batch.obs, [lanes, batch.obs.shape[1], function.spec.num_actions])
    restore(function.memories, before, "memories")


def _check_observe(network: Network, name: str, transitions: Transitions) -> None:
    before = dict(vars(network))
    _try_transitions(f"{name}.observe", network.observe, transitions)
    changed = [attribute for attribute, kept in vars(network).items() if before.get(attribute) is not kept]
    if changed and not isinstance(network, Memory):
        raise ValueError(
            f"{name}.observe changes {changed[0]}, which copies of it such as its target network do not see; keep "
            "what changes in a Memory"
        )


def _check_bonus(bonus: Bonus, name: str, obs: Tensor, shape: list[int]) -> None:
    new = _evaluate(bonus, name, obs)
    _check_shape(f"{name} gives 1/n", new, "[lanes, batch, actions]", shape)
    if not bool((new >= 0).all() and new.isfinite().all()):
        raise ValueError(f"{name} gives 1/n that is negative or not finite; transitions are weighed by it")


def check_values(function: IndexedValue) -> None:
    """Tries every network of a value function, and the index of every part."""
    for term in function.terms:
        _check_part(term.part, term, function)
        if term.prior_part is not None and not term.runs_as_one:
            _check_part(term.prior_part, term, function)


def make_up_observations(spec: Spec, generators: Sequence[np.random.Generator], batch: int) -> Tensor:
    """Observations `[lanes, batch, ...]` that a network must be able to take."""
    if isinstance(spec.observation, dm_env.specs.DiscreteArray):
        high = int(spec.observation.num_values)
        return torch.stack([torch.from_numpy(g.integers(high, size=batch)) for g in generators])
    return normal(generators, batch, *spec.observation.shape)


def make_up_batch(obs: Tensor, generators: Generators, replay: Replay, actions: int) -> Batch:
    """Transitions between observations `[lanes, batch, ...]`, of the shape that this replay gives."""
    rows = obs.shape[1]
    return Batch(
        obs=obs,
        action=(uniform(generators, rows) * actions).long(),
        reward=normal(generators, rows),
        discount=torch.ones(len(generators), rows),
        next_obs=obs.flip(1),
        stored=[_make_up_stored(one, generators, rows) for one in replay.stored],
        prior=normal(generators, rows, *replay.prior.shape[2:]).abs(),
        next_prior=normal(generators, rows, *replay.prior.shape[2:]).abs(),
    )


def _make_up_stored(one: Stored, generators: Generators, rows: int) -> Tensor:
    if type(one) is Bits:  # so that every member and head learns
        return torch.ones(len(generators), rows, one.count)
    drawn = [one.read(one.draw(generator or stream(0, "made up"), rows)) for generator in generators]
    return torch.from_numpy(np.stack(drawn))


def _check_part(part: UncertaintyModule, term: Term, function: IndexedValue) -> None:
    """Outputs of the right shapes, finite, the same each time, and of each lane by itself."""
    name, lanes, actions = type(part).__name__, len(function.seeds), function.spec.num_actions
    generators = [stream(seed, "check") for seed in function.seeds]
    obs = make_up_observations(function.spec, generators, BATCH).to(function.device)
    _check_index(part.index, type(part.index).__name__, function.seeds)
    if isinstance(part, ValueWrapper):
        copies = max([lanes, *(len(parameter) for parameter in part.network.parameters())]) // lanes
        each = obs.repeat_interleave(copies, 0)
        shape = {"lanes": len(each), "batch": BATCH, "actions": actions}
        _check_network(part.network, type(part.network).__name__, part.network, each, shape)
    if has_own_values(part):
        values: Any = part.values
        index = part.index.draw(generators, BATCH, DRAWS).to(function.device)
        shape = {"lanes": lanes, "batch": BATCH, "draws": DRAWS, "actions": actions}
        _check_network(part, name, lambda obs: values(part(obs), index), obs, shape)
        return
    heads = "heads" if isinstance(part, ScaleModule) else "size"
    shape = {"lanes": lanes, "batch": BATCH, "actions": actions, heads: part.index.size}
    features = _check_network(part, name, part, obs, shape)
    features = _try_method(name, "activate", term.activate, features)
    if hasattr(part.index, "variance"):
        variance = _try_method(type(part.index).__name__, "variance", part.index.variance, features)
        _check_shape(f"{name} gives a variance", variance, "[lanes, batch, actions]", [lanes, BATCH, actions])
    if isinstance(part, ScaleModule) and bool((features < 0).any()):
        raise ValueError(f"{name} gives negative uncertainties; they must be at least 0 (softplus its output)")


def _check_index(index: IndexDistribution, name: str, seeds: Sequence[int]) -> None:
    drawn = _try_method(name, "draw", index.draw, [stream(seed, "check index") for seed in seeds], 2, DRAWS)
    _check_shape(f"{name} draws indices", drawn, "[lanes, *shape, size]", [len(seeds), 2, DRAWS, index.size])
    _check_shape(f"{name} has a mean", _try_method(name, "mean", index.mean), "[size]", [index.size])


@torch.no_grad()
def _check_network(
    network: nn.Module, name: str, function: Callable[[Tensor], Tensor], obs: Tensor, shape: dict[str, int]
) -> Tensor:
    """What a function of the network's parameters gives, if it keeps what is asked of it."""
    found = _evaluate(function, name, obs)
    _check_shape(f"{name} gives values", found, f"[{', '.join(shape)}]", [*shape.values()])
    if not bool(found.isfinite().all()):
        raise ValueError(f"{name} gives values that are not finite numbers")
    if not torch.equal(found, _evaluate(function, name, obs)):
        raise ValueError(f"{name} gives other values for the same observations each time; it must not be random")
    before = [parameter.clone() for parameter in network.parameters()]
    for parameter in network.parameters():
        parameter[0] += 1
    changed = _evaluate(function, name, obs)
    for parameter, old in zip(network.parameters(), before):
        parameter.copy_(old)
    if not torch.allclose(changed[1:], found[1:]):
        raise ValueError(
            f"{name} mixes lanes: a change in the first seed's network changes another seed's values; let no "
            "mean, norm, sort or sum run over the first axis"
        )
    return found


def _check_shape(what: str, tensor: Tensor, axes: str, shape: list[int]) -> None:
    if list(tensor.shape) != shape:
        raise ValueError(f"{what} of shape {list(tensor.shape)}, expected {axes} = {shape}")


def _evaluate(function: Callable[[Tensor], Tensor], name: str, obs: Tensor) -> Tensor:
    output = _try(function, obs, lacks=f"{name} lacks a method that it needs, such as forward",
                  fails=f"{name} fails on observations of shape {list(obs.shape)}")  # fmt: skip
    if not isinstance(output, Tensor):
        raise ValueError(f"{name} must return a tensor, got {type(output).__name__}")
    return output


def _try_method(name: str, method: str, function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    return _try(function, *arguments, lacks=f"{name} lacks the method {method}", fails=f"{name}.{method} fails")


def _try(function: Callable[..., Any], *arguments: Any, lacks: str, fails: str) -> Any:
    try:
        return function(*arguments)
    except NotImplementedError as error:
        raise ValueError(lacks) from error
    except Exception as error:
        raise ValueError(f"{fails}: {_in_a_line(error)}") from error


def _try_transitions(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (ValueError, RunFailed):
        raise
    except Exception as error:
        raise ValueError(f"{name} fails on made-up transitions: {_in_a_line(error)}") from error


def _in_a_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
