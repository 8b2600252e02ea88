"""The parts of an indexed value function: built for all lanes, and refused if they could not be trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dm_env
import numpy as np
import torch
from torch import Tensor, nn

from explore import nn as lane_nn
from explore.interfaces import Members, Prior, ScaleModule, Spec, UncertaintyModule, ValueNetwork, ValueWrapper
from explore.streams import normal, stream

Factory = Callable[[Spec], UncertaintyModule]


def build_parts(
    spec: Spec,
    seeds: Sequence[int],
    value: Callable[[Spec], ValueNetwork],
    uncertainty: Sequence[Factory],
    prior: Prior,
) -> tuple[list[UncertaintyModule], list[UncertaintyModule]]:
    """The parts, first that with the value network, and the frozen modules of their priors, if there is one.

    Networks are drawn lane by lane from the streams of their purpose.
    """
    factories = list(enumerate(uncertainty))
    modules = [_build_module(factory, spec, seeds, "init", position) for position, factory in factories]
    holders = [module for module in modules if isinstance(module, ValueWrapper)]
    if len(holders) > 1:
        names = " and ".join(type(module).__name__ for module in holders)
        raise ValueError(f"uncertainty has {names}: each is built on the value network, so only one can be named")
    if not holders:
        factories.append((-1, lambda spec: Members(1)))
        modules.append(Members(1))
    pairs = sorted(zip(modules, factories), key=lambda pair: not isinstance(pair[0], ValueWrapper))
    parts = [_attach_network(module, spec, seeds, value, "init") for module, _ in pairs]
    twins = []
    for part, (position, factory) in pairs if prior.has_twin else ():

        def twin(spec: Spec, part: UncertaintyModule = part, factory: Factory = factory) -> UncertaintyModule:
            return part.twin(spec) or factory(spec)

        built = _build_module(twin, spec, seeds, "prior", position, prior.init)
        twins.append(_attach_network(built, spec, seeds, value, "prior", prior.init))
    return parts, twins


def _build_module(
    factory: Factory, spec: Spec, seeds: Sequence[int], purpose: str, position: int, init: str | None = None
) -> UncertaintyModule:
    with lane_nn.lanes([stream(seed, purpose, "uncertainty", position) for seed in seeds], init):
        return factory(spec)


def _attach_network(
    module: UncertaintyModule,
    spec: Spec,
    seeds: Sequence[int],
    value: Callable[[Spec], ValueNetwork],
    purpose: str,
    init: str | None = None,
) -> UncertaintyModule:
    """The module, which gets its value network if it holds one."""
    if isinstance(module, ValueWrapper):
        rows = [(seed, copy) for seed in seeds for copy in range(module.copies)]
        with lane_nn.lanes([stream(seed, purpose, "value", copy) for seed, copy in rows], init):
            network = value(spec)
        with lane_nn.lanes([stream(seed, purpose, "attached", copy) for seed, copy in rows], init):
            try:
                module.attach(network, spec)
            finally:  # whatever it failed at, this is why
                if getattr(module, "network", None) is not network:
                    raise ValueError(f"{type(module).__name__}.attach must begin with super().attach(network, spec)")
    return module


def count_networks(part: UncertaintyModule, seeds: Sequence[int]) -> int:
    """How many networks the part has in all lanes."""
    return len(seeds) * (part.copies if isinstance(part, ValueWrapper) else 1)


def check_parts(parts: Sequence[UncertaintyModule], spec: Spec, seeds: Sequence[int]) -> None:
    """A network whose output has the wrong shape, or that mixes lanes, is refused before it is trained."""
    batch, draws = 32, 3
    generators = [stream(seed, "check") for seed in seeds]
    obs = make_up_observations(spec, generators, batch)
    for part in parts:
        rows, name = count_networks(part, seeds), type(part).__name__
        _check_index(part, name, seeds)
        if isinstance(part, ValueWrapper):
            network = part.network
            each = obs.repeat_interleave(part.copies, 0)
            _check(network, type(network).__name__, rows, network, each, ["lanes", "batch", "actions"], spec)
            if isinstance(part, Members):
                continue  # which adds nothing of its own
        if part.linear:
            axes = ["lanes", "batch", "actions", "heads" if isinstance(part, ScaleModule) else "size"]
            found = _check(part, name, rows, part, obs, axes, spec, part.size)
            variance = _call(name, "variance", part.variance, part.finish(found))
            if list(variance.shape) != [*found.shape[:3]]:
                shape = f"expected [lanes, batch, actions] = {[*found.shape[:3]]}"
                raise ValueError(f"{name} gives a variance of shape {[*variance.shape]}, {shape}")
            if isinstance(part, ScaleModule) and not part.signed and bool((part.finish(found) < 0).any()):
                raise ValueError(f"{name} gives negative uncertainties; they must be at least 0 (softplus its output)")
        else:
            index = part.draw(generators, batch, draws)

            def values(obs: Tensor, part: UncertaintyModule = part, index: Tensor = index) -> Tensor:
                return part.values(part(obs), index)

            _check(part, name, rows, values, obs, ["lanes", "batch", "draws", "actions"], spec, draws)


def _check_index(part: UncertaintyModule, name: str, seeds: Sequence[int]) -> None:
    """An index of the wrong length is refused too."""
    if not isinstance(getattr(part, "size", None), int) or part.size < 1:
        raise ValueError(f"{name} has no size: set self.size, the length of its index, when it is built or attached")
    found = _call(name, "draw", part.draw, [stream(seed, "check index") for seed in seeds], 2, 3)
    mean = _call(name, "mean_index", part.mean_index)
    if list(found.shape) != [len(seeds), 2, 3, part.size]:
        expected = f"[lanes, *shape, size] = {[len(seeds), 2, 3, part.size]}"
        raise ValueError(f"{name} draws indices of shape {list(found.shape)}, expected {expected}")
    if list(mean.shape) != [part.size]:
        raise ValueError(f"{name} has a mean index of shape {list(mean.shape)}, expected [size] = {[part.size]}")


def _call(name: str, method: str, function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    try:
        return function(*arguments)
    except NotImplementedError as error:
        raise ValueError(f"{name} lacks the method {method}") from error
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"{name}.{method} fails: {reason}") from error


def _check(
    network: nn.Module,
    name: str,
    rows: int,
    function: Callable[[Tensor], Tensor],
    obs: Tensor,
    axes: Sequence[str],
    spec: Spec,
    other: int = 0,
) -> Tensor:
    """What a function of the network's gives, if it is of the shape that these axes have, and each lane's own."""
    for module in network.modules():
        for attribute, kept in vars(module).items():
            layers = isinstance(kept, list | tuple) and any(isinstance(entry, nn.Module) for entry in kept)
            if layers and not isinstance(module, lane_nn.Lifted):
                raise ValueError(f"{name} keeps layers in a plain list, {attribute}; use torch.nn.ModuleList")
    for parameter, tensor in network.named_parameters():
        if tensor.dim() < 1 or len(tensor) != rows:
            raise ValueError(
                f"{name} has no axis of lanes in {parameter}: build its layers with explore.nn, or lift it "
                "with explore.nn.per_lane"
            )
    lengths = {"lanes": len(obs), "batch": obs.shape[1], "actions": spec.num_actions}
    shape = [lengths.get(axis, other) for axis in axes]
    found = _output(function, name, obs)
    if list(found.shape) != shape:
        expected = f"[{', '.join(axes)}] = {shape}"
        raise ValueError(f"{name} gives values of shape {list(found.shape)}, expected {expected}")
    if not bool(found.isfinite().all()):
        raise ValueError(f"{name} gives values that are not finite numbers")
    if not torch.equal(found, _output(function, name, obs)):
        raise ValueError(f"{name} gives other values for the same observations each time; it must not be random")
    if not _lanes_are_apart(network, name, function, obs, found):
        raise ValueError(
            f"{name} mixes lanes: a change in the first seed's network changes another seed's values; let no "
            "mean, norm, sort or sum run over the first axis"
        )
    return found


@torch.no_grad()
def _lanes_are_apart(
    network: nn.Module, name: str, function: Callable[[Tensor], Tensor], obs: Tensor, output: Tensor
) -> bool:
    before = [parameter.clone() for parameter in network.parameters()]
    for parameter in network.parameters():
        parameter[0] += 1
    changed = _output(function, name, obs)
    for parameter, old in zip(network.parameters(), before):
        parameter.copy_(old)
    return torch.allclose(changed[1:], output[1:])


@torch.no_grad()
def _output(function: Callable[[Tensor], Tensor], name: str, obs: Tensor) -> Tensor:
    try:
        output = function(obs)
    except NotImplementedError as error:
        raise ValueError(f"{name} lacks a method that it needs, such as forward") from error
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"{name} fails on observations of shape {list(obs.shape)}: {reason}") from error
    if not isinstance(output, Tensor):
        raise ValueError(f"{name} must return a tensor, got {type(output).__name__}")
    return output


def make_up_observations(spec: Spec, generators: Sequence[np.random.Generator], batch: int) -> Tensor:
    """Observations `[lanes, batch, ...]` that a network must be able to take."""
    if isinstance(spec.observation, dm_env.specs.DiscreteArray):
        high = int(spec.observation.num_values)
        return torch.stack([torch.from_numpy(g.integers(high, size=batch)) for g in generators])
    return normal(generators, batch, *spec.observation.shape)
