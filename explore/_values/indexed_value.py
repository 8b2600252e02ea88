"""The indexed value function Q_i(s, a), composed of parts.

The first part holds the value network, as one or several members; every further part adds its
values at its own piece of the index. Each network has a trained, a target and, with a prior, a
frozen copy (`explore._values.stack`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from explore import nn as lane_nn
from explore._state import capture, restore
from explore._values.parts import build_parts, check_parts, count_networks
from explore._values.stack import Stack
from explore.errors import RunFailed
from explore.interfaces import (
    Conditional,
    Features,
    Index,
    Prior,
    ScaleModule,
    Spec,
    UncertaintyModule,
    ValueNetwork,
    ValueWrapper,
)
from explore.streams import Generators, stream

TARGET_ROWS = 256  # evaluated at a time, so that activations stay in the cache
PRIOR_ROWS = 64
SPREAD = 16  # indices at which the variance of what is not linear in them is estimated


class Network(Protocol):
    """A part with the parameters of one of its copies."""

    def __call__(self, obs: Tensor) -> Tensor: ...

    def values(self, features: Tensor, index: Tensor) -> Tensor: ...


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
        self.parts, self.twins = build_parts(spec, seeds, value, uncertainty, prior)
        check_parts(self.parts, spec, seeds)
        _check_twins(self.parts, self.twins, spec, seeds)
        twins: Sequence[UncertaintyModule | None] = self.twins or [None] * len(self.parts)
        self.stacks = [
            Stack(
                part,
                twin if _have_same_parameters(part, twin) else None,
                len(seeds),
                count_networks(part, seeds),
                self.device,
            )
            for part, twin in zip(self.parts, twins)
        ]
        # What gives the features of priors: a copy in the stack, if the prior has the shape of what is trained.
        self.frozen = [
            stack.prior if stack.prior is not None else twin.to(self.device).requires_grad_(False)
            for stack, twin in zip(self.stacks, self.twins)
        ]
        self._row_multiple = max(lane_nn.find_safe_rows(module) for module in (*self.parts, *self.twins))
        self._spread = [_spread(part, self.device) for part in self.parts]
        self.tabulates_targets = False  # whether the target networks are evaluated once at every observation
        self._table: list[Tensor] = []

    @property
    def holder(self) -> ValueWrapper:
        """The part that holds the value network."""
        part = self.parts[0]
        assert isinstance(part, ValueWrapper)
        return part

    # Features of observations: everything that does not depend on the index.

    @torch.no_grad()
    def acting_features(self, obs: Tensor) -> Features:
        """Of the trained networks joined with their priors, at every action."""
        trained, frozen = [], []
        twice = obs.expand(2, *obs.shape).flatten(0, 1) if self.twins else obs
        for k, stack in enumerate(self.stacks):
            if stack.prior is not None:  # the two run as one
                one, other = self._rows(stack.with_prior, twice).chunk(2)
                trained.append(one)
                frozen.append(other)
                continue
            trained.append(self._rows(stack.trained, obs))
            if self.twins:
                frozen.append(self._rows(self.frozen[k], obs))
        return self._join(trained, frozen, [stack.trained for stack in self.stacks])

    def trained_features(
        self, obs: Tensor, prior: Tensor, action: Tensor | None = None, networks: Sequence[Network] | None = None
    ) -> Features:
        """Of the trained networks joined with what their priors gave, at the actions taken or at every action."""
        by = networks or [stack.trained for stack in self.stacks]
        trained = [self._rows(network, obs) for network in by]
        if action is not None:
            trained = [_take_at(f, action) if part.linear else f for part, f in zip(self.parts, trained)]
        return self._join(trained, self._split(prior), by, action)

    @torch.no_grad()
    def target_features(self, obs: Tensor, prior: Tensor) -> Features:
        """Of the target networks joined with what their priors gave, at every action."""
        targets = self._look_up(obs) if self.tabulates_targets else self._target_outputs(obs)
        return self._join(targets, self._split(prior), [stack.target for stack in self.stacks])

    def _target_outputs(self, obs: Tensor) -> list[Tensor]:
        chunks = [[self._rows(stack.target, o) for o in obs.split(TARGET_ROWS, 1)] for stack in self.stacks]
        return [torch.cat(part, 1) for part in chunks]

    def _look_up(self, obs: Tensor) -> list[Tensor]:
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
        chunks = _pad(obs, PRIOR_ROWS).split(PRIOR_ROWS, 1)
        outputs = [torch.cat([network(chunk) for network in self.frozen], -1) for chunk in chunks]
        return torch.cat(outputs, 1)[:, : obs.shape[1]]

    def prior_only_features(self, obs: Tensor) -> Features:
        """Of the frozen priors as they are joined with networks that give 0, at every action."""
        frozen = self._split(self.prior_features(obs))
        return self._join([torch.zeros_like(prior) for prior in frozen], frozen, [_Zero(self.spec)] * len(frozen))

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """What `prior_features` gives for an observation; empty without a prior."""
        return (self.spec.num_actions, sum(twin.size for twin in self.twins)) if self.twins else (0,)

    def _join(
        self,
        trained: Sequence[Tensor],
        prior: Sequence[Tensor],
        networks: Sequence[Network],
        action: Tensor | None = None,
    ) -> Features:
        """Linear parts are joined with their priors here, the others when their values are asked for."""
        features: list[Tensor | Conditional] = []
        for k, part in enumerate(self.parts):
            frozen = prior[k] if self.twins else None
            if not part.linear:
                features.append(Conditional(trained[k], networks[k].values, frozen, action))
                continue
            joined = trained[k] if frozen is None else self.prior.join(trained[k], frozen, _role(k))
            features.append(part.finish(joined))
        return tuple(features)

    def _split(self, prior: Tensor) -> Sequence[Tensor]:
        return prior.split([twin.size for twin in self.twins], -1) if self.twins else ()

    def _rows(self, network: Network, obs: Tensor) -> Tensor:
        """The network's outputs, computed on a number of rows that treats all lanes alike."""
        return network(_pad(obs, self._row_multiple))[:, : obs.shape[1]]

    @property
    def trained_parameters(self) -> int:
        """How many numbers are trained for a seed, without those that only fill layers up."""
        return sum(lane_nn.count_parameters(part) for part in self.parts) // len(self.seeds)

    def state_dict(self) -> dict[str, Any]:
        """All networks, trained, prior and target, and what their modules keep besides parameters."""
        modules = [capture(one, "uncertainty", parameters=False) for one in self._modules()]
        priors = [list(network.parameters()) for network in self._priors_apart()]
        return {"stacks": [stack.buffer for stack in self.stacks], "modules": modules, "priors": priors}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over the networks of another function of the same parts."""
        self._table = []
        for stack, buffer in zip(self.stacks, state["stacks"], strict=True):
            _copy(stack.buffer, buffer)
        for network, parameters in zip(self._priors_apart(), state["priors"], strict=True):
            for parameter, other in zip(network.parameters(), parameters, strict=True):
                _copy(parameter, other)
        for module, one in zip(self._modules(), state["modules"], strict=True):
            restore(module, one, "uncertainty")

    def _modules(self) -> list[nn.Module]:
        bound = [module for stack in self.stacks for module in stack.bound]
        return [*self.parts, *bound, *self._priors_apart()]

    def _priors_apart(self) -> list[nn.Module]:
        """The priors that are not copies in a stack."""
        return [network for stack, network in zip(self.stacks, self.frozen) if stack.prior is None]

    # Values at an index.

    def values(self, features: Features, index: Index) -> Tensor:
        """`[lanes, batch, draws, actions]`"""
        first, *rest = (self._values_of(k, f, i) for k, (f, i) in enumerate(zip(features, index)))
        return sum(rest, first)

    def std(self, features: Features) -> Tensor:
        """Standard deviation over indices, `[lanes, batch, actions]`."""
        first, *rest = (self._variance_of(k, f) for k, f in enumerate(features))
        return sum(rest, first).sqrt()

    def _values_of(self, k: int, features: Tensor | Conditional, index: Tensor | None) -> Tensor:
        if isinstance(features, Tensor):
            return self.parts[k].values(features, index)  # type: ignore[arg-type]  # None is given to `Members` only
        assert index is not None
        if features.latest is not None and features.latest[0] is index:  # a selection may have asked the same
            return features.latest[1]
        rows = features.features.shape[1]
        at = _pad(index.expand(len(features.features), rows, -1, -1), self._row_multiple)
        values = features.values(_pad(features.features, self._row_multiple), at)[:, :rows]
        if features.action is not None:
            values = values.gather(-1, features.action[:, :, None, None].expand(*values.shape[:-1], 1))
        if features.prior is not None:
            frozen = self.twins[k].values(features.prior, index)
            values = self.prior.join(values, frozen.expand_as(values), _role(k))
        features.latest = (index, values)
        return values

    def _variance_of(self, k: int, features: Tensor | Conditional) -> Tensor:
        if isinstance(features, Tensor):
            return self.parts[k].variance(features)
        return self._values_of(k, features, self._spread[k]).var(2, correction=0)

    def draw(self, generators: Generators, *shape: int) -> tuple[Tensor, ...]:
        """Indices `[lanes, *shape, size]` for each part."""
        return tuple(part.draw(generators, *shape).to(self.device) for part in self.parts)

    def draw_for_targets(self, generators: Generators, batch: int) -> Index:
        """An index for each transition, whatever it is learned at, `[lanes, batch or 1, 1, size]` for each part."""
        drawn = [part.draw(generators, 1 if part.shared else batch, 1) for part in self.parts]
        return tuple(index.to(self.device) for index in drawn)

    def draw_for_learning(self, generators: Generators, mask: Sequence[Tensor], draws: int) -> Index:
        """Indices to learn at, `[lanes, batch or 1, draws, size]` for each part."""
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
            is_scale = isinstance(part, ScaleModule) and not part.signed
            if is_scale and isinstance(tensor, Tensor) and bool((tensor < 0).any()):
                raise RunFailed(f"{type(part).__name__} gave a negative uncertainty; it must never be below 0")


def _copy(mine: Tensor, other: Tensor) -> None:
    if other.shape != mine.shape:
        raise ValueError(f"networks have shape {[*other.shape]}, expected {[*mine.shape]}")
    mine.copy_(other)


def _pad(obs: Tensor, multiple: int) -> Tensor:
    """Observations with rows added to make their number a multiple."""
    short = -obs.shape[1] % multiple
    return torch.cat([obs, obs[:, :1].expand(-1, short, *obs.shape[2:])], 1) if short else obs


def _take_at(features: Tensor, action: Tensor) -> Tensor:
    """Features at one action each: `[lanes, batch, actions, size]` -> `[lanes, batch, 1, size]`."""
    return features.gather(2, action[:, :, None, None].expand(-1, -1, 1, features.shape[-1]))


def _role(k: int) -> str:
    """Of a part, to its prior."""
    return "uncertainty" if k else "value"


def _have_same_parameters(part: nn.Module, twin: nn.Module | None) -> bool:
    """Whether two networks have the same parameters, so that they can run as one."""
    if twin is None or type(part).forward is not type(twin).forward:
        return False
    one, other = ({name: p.shape for name, p in m.named_parameters()} for m in (part, twin))
    return one == other


def _check_twins(
    parts: Sequence[UncertaintyModule], twins: Sequence[UncertaintyModule], spec: Spec, seeds: Sequence[int]
) -> None:
    for part, twin in zip(parts, twins):
        if not twin.linear:
            raise ValueError(
                f"{type(part).__name__}.twin must give a module whose values are linear in the index, so that its "
                f"features can be kept with the transitions, not {type(twin).__name__}"
            )
    check_parts([twin for part, twin in zip(parts, twins) if not _have_same_parameters(part, twin)], spec, seeds)


def _spread(part: UncertaintyModule, device: torch.device) -> Tensor | None:
    """Indices of a part that is not linear in them, always the same, `[1, 1, draws, size]`."""
    return None if part.linear else part.draw([stream(0, "spread")], 1, SPREAD).to(device)


class _Zero:
    """A network whose values are 0."""

    def __init__(self, spec: Spec):
        self.spec = spec

    def __call__(self, obs: Tensor) -> Tensor:
        return obs

    def values(self, features: Tensor, index: Tensor) -> Tensor:
        return index.new_zeros(*index.shape[:3], self.spec.num_actions)
