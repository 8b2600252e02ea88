"""The indexed value function Q_i(s, a), composed of parts.

The first part holds the value network, as one or several members; every further part adds its
values at its own piece of the index. Each network has a trained, a target and, with a prior, a
frozen copy (`explore.stack`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dm_env
import numpy as np
import torch
from torch import Tensor, nn

from explore import nn as lane_nn
from explore.errors import RunFailed
from explore.interfaces import (
    Features,
    Index,
    Members,
    Prior,
    ScaleModule,
    Spec,
    UncertaintyModule,
    ValueNetwork,
)
from explore.stack import Stack
from explore.state import captured, restore
from explore.streams import Generators, normal, stream

Network = Callable[[Tensor], Tensor]
TARGET_ROWS = 256  # evaluated at a time, so that activations stay in the cache
PRIOR_ROWS = 64


class IndexedValue:
    """Values of observations at an index, for all lanes."""

    def __init__(
        self,
        spec: Spec,
        seeds: Sequence[int],
        value: type[ValueNetwork],
        uncertainty: Sequence[type[UncertaintyModule]],
        prior: Prior,
        device: torch.device | None = None,
    ):
        self.spec, self.seeds, self.prior = spec, tuple(seeds), prior
        self.device = device or torch.device("cpu")
        trained = _build_parts(spec, seeds, value, uncertainty, "init")
        _check_outputs(trained, spec, seeds)
        twins: Sequence[UncertaintyModule | None] = [None] * len(trained)
        if prior.has_twin:
            twins = _build_parts(spec, seeds, value, uncertainty, "prior", prior.init)
        self.parts = trained
        self.stacks = [
            Stack(part, twin, len(seeds), _rows_of(part, seeds), self.device) for part, twin in zip(trained, twins)
        ]
        self._row_multiple = max(lane_nn.safe_rows(part) for part in trained)
        self.tabulates_targets = False  # whether the target networks are evaluated once at every observation
        self._table: list[Tensor] = []

    @property
    def members(self) -> Members:
        """The part that holds the value network."""
        part = self.parts[0]
        assert isinstance(part, Members)
        return part

    # Features of observations: everything that does not depend on the index.

    @torch.no_grad()
    def acting_features(self, obs: Tensor) -> Features:
        """Of the trained networks joined with their priors, at every action."""
        if not self.prior.has_twin:
            return tuple(self._rows(stack.trained, obs) for stack in self.stacks)
        twice = obs.expand(2, *obs.shape).flatten(0, 1)
        outputs = [self._rows(stack.with_prior, twice).chunk(2) for stack in self.stacks]
        return self._joined([trained for trained, _ in outputs], [prior for _, prior in outputs])

    def trained_features(
        self, obs: Tensor, action: Tensor, prior: Tensor, networks: Sequence[Network] | None = None
    ) -> Features:
        """Of the trained networks joined with what their priors gave, at the actions taken."""
        networks = networks or [stack.trained for stack in self.stacks]
        trained = [_at(self._rows(network, obs), action) for network in networks]
        return self._joined(trained, self._split(prior))

    @torch.no_grad()
    def target_features(self, obs: Tensor, prior: Tensor) -> Features:
        """Of the target networks joined with what their priors gave, at every action."""
        targets = self._looked_up(obs) if self.tabulates_targets else self._target_outputs(obs)
        return self._joined(targets, self._split(prior))

    def _target_outputs(self, obs: Tensor) -> list[Tensor]:
        chunks = [[self._rows(stack.target, o) for o in obs.split(TARGET_ROWS, 1)] for stack in self.stacks]
        return [torch.cat(part, 1) for part in chunks]

    def _looked_up(self, obs: Tensor) -> list[Tensor]:
        """The same from a table of all one-hot observations so far, made anew when the target has changed."""
        if not self._table or int(obs.max()) >= self._table[0].shape[1]:
            size = (int(obs.max()) // TARGET_ROWS + 1) * TARGET_ROWS
            every = torch.arange(size, device=self.device).clamp_max(int(self.spec.observation.num_values) - 1)
            self._table = self._target_outputs(every.expand(len(self.seeds), -1))
        lane = torch.arange(len(obs), device=self.device).unsqueeze(1)
        return [outputs[lane, obs] for outputs in self._table]

    def copy_to_target(self, lanes: Sequence[int]) -> None:
        """The target networks of these lanes become the trained ones."""
        self._table = []
        for stack in self.stacks:
            stack.copy_to_target(lanes)

    @torch.no_grad()
    def prior_features(self, obs: Tensor) -> Tensor:
        """Of the frozen priors at every action, all parts together: `[lanes, batch, *prior_shape]`.

        Evaluated a fixed number of rows at a time, because the last bit of a matrix product may
        depend on how many there are, and lanes bring different numbers of them.
        """
        chunks = _padded(obs, PRIOR_ROWS).split(PRIOR_ROWS, 1)
        outputs = [torch.cat([stack.prior(chunk) for stack in self.stacks], -1) for chunk in chunks]
        return torch.cat(outputs, 1)[:, : obs.shape[1]]

    def prior_alone(self, obs: Tensor) -> Features:
        """Of the frozen priors as they are joined with networks that give 0, at every action."""
        frozen = self._split(self.prior_features(obs))
        return self._joined([torch.zeros_like(prior) for prior in frozen], frozen)

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """What `prior_features` gives for an observation; empty without a prior."""
        return (self.spec.num_actions, sum(p.size for p in self.parts)) if self.prior.has_twin else (0,)

    def _joined(self, trained: Sequence[Tensor], prior: Sequence[Tensor]) -> Features:
        if not self.prior.has_twin:
            return tuple(trained)
        roles = ["value"] + ["uncertainty"] * (len(trained) - 1)
        return tuple(self.prior.join(t, p, role) for t, p, role in zip(trained, prior, roles))

    def _split(self, prior: Tensor) -> Sequence[Tensor]:
        return prior.split([part.size for part in self.parts], -1) if self.prior.has_twin else ()

    def _rows(self, network: Network, obs: Tensor) -> Tensor:
        """The network's outputs, computed on a number of rows that treats all lanes alike."""
        return network(_padded(obs, self._row_multiple))[:, : obs.shape[1]]

    @property
    def trained_parameters(self) -> int:
        """How many numbers are trained for a seed, without those that only fill layers up."""
        networks = [part.network if isinstance(part, Members) else part for part in self.parts]
        return sum(lane_nn.parameter_count(network) for network in networks) // len(self.seeds)

    def state_dict(self) -> dict[str, Any]:
        """All networks, trained, prior and target, and what their modules keep besides parameters."""
        modules = [captured(one, "uncertainty", parameters=False) for one in self._modules()]
        return {"stacks": [stack.buffer for stack in self.stacks], "modules": modules}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over the networks of another function of the same parts."""
        self._table = []
        for stack, buffer in zip(self.stacks, state["stacks"], strict=True):
            if buffer.shape != stack.buffer.shape:
                raise ValueError(f"networks have shape {[*buffer.shape]}, expected {[*stack.buffer.shape]}")
            stack.buffer.copy_(buffer)
        for module, one in zip(self._modules(), state["modules"], strict=True):
            restore(module, one, "uncertainty")

    def _modules(self) -> list[nn.Module]:
        bound = [m for stack in self.stacks for m in (stack.trained, stack.with_prior, stack.prior, stack.target)]
        return [*self.parts, *bound]

    # Values at an index.

    def values(self, features: Features, index: Index) -> Tensor:
        """`[lanes, batch, draws, actions]`"""
        # None is given to `Members` only.
        first, *rest = (part.values(f, i) for part, f, i in zip(self.parts, features, index))  # type: ignore[arg-type]
        return sum(rest, first)

    def std(self, features: Features) -> Tensor:
        """Standard deviation over indices, `[lanes, batch, actions]`."""
        first, *rest = (part.variance(f) for part, f in zip(self.parts, features))
        return sum(rest, first).sqrt()

    def draw(self, generators: Generators, *shape: int) -> Index:
        """Indices `[lanes, *shape, size]` for each part."""
        return tuple(part.draw(generators, *shape).to(self.device) for part in self.parts)

    def draw_for_learning(self, generators: Generators, mask: Sequence[Tensor], draws: int) -> Index:
        """Indices to learn at, `[lanes, batch, draws, size]` for each part."""
        drawn = [part.draw_for_learning(generators, m, draws) for part, m in zip(self.parts, mask)]
        return tuple(index if index is None else index.to(self.device) for index in drawn)

    def mean_index(self) -> Index:
        """The expected index, `[1, 1, 1, size]` for each part."""
        return tuple(part.mean_index().to(self.device)[None, None, None] for part in self.parts)

    def describe_index(self, index: Index) -> list[str]:
        """The index `[lanes, 1, 1, size]` of each lane in words."""
        numbers = [part[:, 0, 0].numpy(force=True) for part in index if part is not None]
        words = [[part.describe_index(lane) for lane in lanes] for part, lanes in zip(self.parts, numbers)]
        return [" ".join(filter(None, lane)) for lane in zip(*words)]

    def check_scales(self, features: Features) -> None:
        """A negative standard deviation would silently turn into exploration of the opposite sign."""
        for part, tensor in zip(self.parts, features):
            if isinstance(part, ScaleModule) and bool((tensor < 0).any()):
                raise RunFailed(f"{type(part).__name__} gave a negative uncertainty; it must never be below 0")


def _padded(obs: Tensor, multiple: int) -> Tensor:
    """Observations with rows added to make their number a multiple."""
    short = -obs.shape[1] % multiple
    return torch.cat([obs, obs[:, :1].expand(-1, short, *obs.shape[2:])], 1) if short else obs


def _at(features: Tensor, action: Tensor) -> Tensor:
    """Features at one action each: `[lanes, batch, actions, size]` -> `[lanes, batch, 1, size]`."""
    return features.gather(2, action[:, :, None, None].expand(-1, -1, 1, features.shape[-1]))


def _rows_of(part: UncertaintyModule, seeds: Sequence[int]) -> int:
    """How many networks the part has in all lanes."""
    return len(seeds) * (part.size if isinstance(part, Members) else 1)


def _build_parts(
    spec: Spec,
    seeds: Sequence[int],
    value: type[ValueNetwork],
    uncertainty: Sequence[type[UncertaintyModule]],
    purpose: str,
    init: str | None = None,
) -> list[UncertaintyModule]:
    """The parts, networks built lane by lane from the streams of their purpose."""
    modules = []
    for position, factory in enumerate(uncertainty):
        with lane_nn.lanes([stream(seed, purpose, "uncertainty", position) for seed in seeds], init):
            modules.append(factory(spec))
    members = [module for module in modules if isinstance(module, Members)]
    if len(members) > 1:
        names = " and ".join(type(module).__name__ for module in members)
        raise ValueError(f"uncertainty has {names}: each replicates the value network, so only one of them can")
    holder = members[0] if members else Members(1)
    with lane_nn.lanes([stream(s, purpose, "value", k) for s in seeds for k in range(holder.size)], init):
        holder.network = value(spec)
    return [holder, *(module for module in modules if module is not holder)]


def _check_outputs(parts: Sequence[UncertaintyModule], spec: Spec, seeds: Sequence[int]) -> None:
    """A network whose output has the wrong shape, or that mixes lanes, is refused before it is trained."""
    batch = 32
    obs = made_up_observations(spec, [stream(seed, "check") for seed in seeds], batch)
    for part in parts:
        rows, name = _rows_of(part, seeds), type(part).__name__
        network: nn.Module = part
        shape = [rows, batch, spec.num_actions, part.size]
        if isinstance(part, Members):
            network, name, shape = part.network, type(part.network).__name__, shape[:3]
        for parameter, tensor in network.named_parameters():
            if tensor.dim() < 1 or len(tensor) != rows:
                raise ValueError(
                    f"{name} has no axis of lanes in {parameter}: build its layers with explore.nn, or lift it "
                    "with explore.nn.per_lane"
                )
        each = obs.repeat_interleave(rows // len(seeds), 0)
        found = _output(network, name, each)
        if list(found.shape) != shape:
            axes = ["lanes", "batch", "actions", "heads" if isinstance(part, ScaleModule) else "size"][: len(shape)]
            expected = f"[{', '.join(axes)}] = {shape}"
            raise ValueError(f"{name} gives values of shape {list(found.shape)}, expected {expected}")
        if not bool(found.isfinite().all()):
            raise ValueError(f"{name} gives values that are not finite numbers")
        if isinstance(part, ScaleModule) and bool((found < 0).any()):
            raise ValueError(f"{name} gives negative uncertainties; they must be at least 0 (softplus its output)")
        if not torch.equal(found, _output(network, name, each)):
            raise ValueError(f"{name} gives other values for the same observations each time; it must not be random")
        if not _lanes_are_apart(network, name, each, found):
            raise ValueError(f"{name} mixes lanes: a change in the first seed's network changes another seed's values")


@torch.no_grad()
def _lanes_are_apart(network: nn.Module, name: str, obs: Tensor, output: Tensor) -> bool:
    before = [parameter.clone() for parameter in network.parameters()]
    for parameter in network.parameters():
        parameter[0] += 1
    changed = _output(network, name, obs)
    for parameter, old in zip(network.parameters(), before):
        parameter.copy_(old)
    return torch.allclose(changed[1:], output[1:])


@torch.no_grad()
def _output(network: nn.Module, name: str, obs: Tensor) -> Tensor:
    try:
        output = network(obs)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"{name} fails on observations of shape {list(obs.shape)}: {reason}") from error
    if not isinstance(output, Tensor):
        raise ValueError(f"{name} must return a tensor, got {type(output).__name__}")
    return output


def made_up_observations(spec: Spec, generators: Sequence[np.random.Generator], batch: int) -> Tensor:
    """Observations `[lanes, batch, ...]` that a network must be able to take."""
    if isinstance(spec.observation, dm_env.specs.DiscreteArray):
        high = int(spec.observation.num_values)
        return torch.stack([torch.from_numpy(g.integers(high, size=batch)) for g in generators])
    return normal(generators, batch, *spec.observation.shape)
