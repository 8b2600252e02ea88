"""One part of an indexed value function: its networks, and the values it adds."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor, nn

from explore._values.stack import Stack
from explore.errors import RunFailed
from explore.interfaces import Conditional, Prior, ScaleModule, UncertaintyModule
from explore.streams import stream

SPREAD = 16  # indices at which the variance of what is not linear in them is estimated


class Network(Protocol):
    """A part with the parameters of one of its copies."""

    def __call__(self, obs: Tensor) -> Tensor: ...

    def values(self, features: Tensor, index: Tensor) -> Tensor: ...


class Term:
    """A part's trained, target and, with a `prior`, frozen networks. `role` is what it is to the prior.

    Networks are evaluated on a multiple of `row_multiple` rows, which treats all lanes alike.
    """

    def __init__(
        self,
        part: UncertaintyModule,
        twin: UncertaintyModule | None,
        prior: Prior,
        role: str,
        lanes: int,
        rows: int,
        row_multiple: int,
        device: torch.device,
    ):
        self.prior, self.role, self.row_multiple, self.device = prior, role, row_multiple, device
        self.runs_as_one = twin is not None and _have_same_parameters(part, twin)
        self.stack = Stack(part, twin if self.runs_as_one else None, lanes, rows, device)
        self.part, self.target, self.prior_part = self.stack.trained, self.stack.target, self.stack.prior
        if twin is not None and not self.runs_as_one:
            self.prior_part = twin.to(device).requires_grad_(False)

    def acting_features(self, obs: Tensor, twice: Tensor) -> Tensor | Conditional:
        """Of the trained network joined with its prior, at every action; `twice` are the observations two times."""
        if self.runs_as_one:
            trained, prior = self.evaluate(self.stack.with_prior, twice).chunk(2)
            return self.join(trained, prior, self.part)
        frozen = None if self.prior_part is None else self.evaluate(self.prior_part, obs)
        return self.join(self.evaluate(self.part, obs), frozen, self.part)

    def evaluate(self, network: Network, obs: Tensor) -> Tensor:
        return network(pad_rows(obs, self.row_multiple))[:, : obs.shape[1]]

    def join(
        self, trained: Tensor, frozen: Tensor | None, network: Network, action: Tensor | None = None
    ) -> Tensor | Conditional:
        """Features of a network joined with its prior; what is not linear is joined when its values are asked for."""
        if not self.part.linear:
            return Conditional(trained, network.values, frozen, action)
        return self.part.finish(trained if frozen is None else self.prior.join(trained, frozen, self.role))

    def values(self, features: Tensor | Conditional, index: Tensor | None) -> Tensor:
        """`[lanes, batch, draws, actions]`"""
        if isinstance(features, Tensor):
            return self.part.values(features, index)  # type: ignore[arg-type]  # None is given to `Members` only
        assert index is not None
        if features.latest is None or features.latest[0] is not index:  # a selection may have asked the same
            features.latest = (index, self._values_at(features, index))
        return features.latest[1]

    def _values_at(self, features: Conditional, index: Tensor) -> Tensor:
        rows = features.features.shape[1]
        at = pad_rows(index.expand(len(features.features), rows, -1, -1), self.row_multiple)
        values = features.values(pad_rows(features.features, self.row_multiple), at)[:, :rows]
        if features.action is not None:
            values = values.gather(-1, features.action[:, :, None, None].expand(*values.shape[:-1], 1))
        if features.prior is None:
            return values
        assert self.prior_part is not None
        frozen = self.prior_part.values(features.prior, index)
        return self.prior.join(values, frozen.expand_as(values), self.role)

    def variance(self, features: Tensor | Conditional) -> Tensor:
        """`[lanes, batch, actions]`"""
        if isinstance(features, Tensor):
            return self.part.variance(features)
        return self.values(features, self._spread).var(2, correction=0)

    @cached_property
    def _spread(self) -> Tensor:
        """Indices of a part that is not linear in them, always the same, `[1, 1, draws, size]`."""
        return self.part.draw([stream(0, "spread")], 1, SPREAD).to(self.device)

    def check_scales(self, features: Tensor | Conditional) -> None:
        """A negative standard deviation would silently turn into exploration of the opposite sign."""
        is_scale = isinstance(self.part, ScaleModule) and not self.part.signed
        if is_scale and isinstance(features, Tensor) and bool((features < 0).any()):
            raise RunFailed(f"{type(self.part).__name__} gave a negative uncertainty; it must never be below 0")


def pad_rows(tensor: Tensor, multiple: int) -> Tensor:
    """A tensor `[lanes, batch, ...]` with rows added to make their number a multiple."""
    short = -tensor.shape[1] % multiple
    return torch.cat([tensor, tensor[:, :1].expand(-1, short, *tensor.shape[2:])], 1) if short else tensor


def evaluate_in_chunks(evaluate: Callable[[Tensor], Tensor], obs: Tensor, rows: int) -> Tensor:
    """What a function gives for observations `[lanes, batch, ...]`, so many of them at a time."""
    return torch.cat([evaluate(chunk) for chunk in obs.split(rows, 1)], 1)


def _have_same_parameters(part: nn.Module, twin: nn.Module) -> bool:
    """Whether two networks can run as one."""
    if type(part).forward is not type(twin).forward:
        return False
    one, other = ({name: p.shape for name, p in module.named_parameters()} for module in (part, twin))
    return one == other
