"""One part of an indexed value function: its networks, and the values it adds."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from explore._values.stack import Stack, list_memories
from explore.interfaces import Conditional, Prior, ScaleModule, UncertaintyModule
from explore.nn import pad_rows
from explore.streams import stream

SPREAD = 16  # indices at which a variance is estimated that is not known in closed form


class Network(Protocol):
    """A part with the parameters of one of its copies."""

    def __call__(self, obs: Tensor) -> Tensor: ...

    def values(self, features: Tensor, index: Tensor) -> Tensor: ...


class Term:
    """A part's trained, target and, with a `prior`, frozen networks; its values are features · index.

    `role` is what the part is to the prior. Networks are evaluated on a multiple of `row_multiple` rows, which
    treats all lanes alike.
    """

    def __init__(
        self,
        part: UncertaintyModule,
        twin: UncertaintyModule | None,
        prior: Prior,
        role: str,
        lanes: int,
        row_multiple: int,
        device: torch.device,
    ):
        self.prior, self.role, self.row_multiple, self.device = prior, role, row_multiple, device
        self.runs_as_one = twin is not None and _have_same_parameters(part, twin) and not list_memories(part)
        self.stack = Stack(part, twin if self.runs_as_one else None, lanes, device)
        self.part: Any = self.stack.trained
        self.target: Any = self.stack.target
        self.prior_part: Any = self.stack.prior
        if twin is not None and not self.runs_as_one:
            self.prior_part = twin.to(device).requires_grad_(False)

    def acting_features(self, obs: Tensor, twice: Tensor) -> Tensor | Conditional:
        """Of the trained network joined with its prior, at every action; `twice` are the observations two times."""
        if self.stack.with_prior is not None:
            trained, prior = self.evaluate(self.stack.with_prior, twice).chunk(2)
            return self.join(trained, prior, self.part)
        frozen = None if self.prior_part is None else self.evaluate(self.prior_part, obs)
        return self.join(self.evaluate(self.part, obs), frozen, self.part)

    def evaluate(self, network: Network, obs: Tensor) -> Tensor:
        return network(pad_rows(obs, self.row_multiple))[:, : obs.shape[1]]

    def join(
        self, trained: Tensor, frozen: Tensor | None, network: Network, action: Tensor | None = None
    ) -> Tensor | Conditional:
        """Features of a network joined with its prior, at the actions taken or at every action.

        `trained` are at every action, `frozen` at those that are wanted.
        """
        if action is not None:
            trained = trained.gather(2, action[:, :, None, None].expand(-1, -1, 1, trained.shape[-1]))
        return self.activate(trained if frozen is None else self.prior.join(trained, frozen, self.role))

    def prior_only(self, frozen: Tensor) -> Tensor | Conditional:
        """Features of the prior joined with a network that gives 0."""
        return self.activate(self.prior.join(torch.zeros_like(frozen), frozen, self.role))

    @cached_property
    def activate(self) -> Callable[[Tensor], Tensor]:
        return getattr(self.part, "activate", lambda features: features)

    def values(self, features: Tensor | Conditional, index: Tensor) -> Tensor:
        """`[lanes, batch, draws, actions]`"""
        assert isinstance(features, Tensor)
        return self.part.index.combine(features, index)

    def variance(self, features: Tensor | Conditional) -> Tensor:
        """`[lanes, batch, actions]`"""
        if self.estimates_variance:
            return self._estimate_variance(features)
        return self.part.index.variance(features)

    @property
    def estimates_variance(self) -> bool:
        return not hasattr(self.part.index, "variance")

    def _estimate_variance(self, features: Tensor | Conditional) -> Tensor:
        return self.values(features, self.spread).var(2, correction=0)

    @cached_property
    def spread(self) -> Tensor:
        """Always the same indices, `[1, 1, draws, size]`."""
        return self.part.index.draw([stream(0, "spread")], 1, SPREAD).to(self.device)

    def count_negative_scales(self, features: Tensor | Conditional) -> Tensor:
        """`[lanes, batch]`"""
        tensor = features if isinstance(features, Tensor) else features.features
        if isinstance(self.part, ScaleModule):
            return (tensor < 0).float().flatten(2).sum(2)
        return torch.zeros(tensor.shape[:2], device=tensor.device)


class ConditionalTerm(Term):
    """A part that computes its values at an index itself, from features and with parameters.

    It is joined with its prior when values are asked for.
    """

    def join(
        self, trained: Tensor, frozen: Tensor | None, network: Network, action: Tensor | None = None
    ) -> Conditional:
        return Conditional(trained, network.values, frozen, action)

    def prior_only(self, frozen: Tensor) -> Conditional:
        def give_zeros(features: Tensor, index: Tensor) -> Tensor:
            return index.new_zeros(*index.shape[:3], frozen.shape[2])

        return Conditional(frozen, give_zeros, frozen, None)

    def values(self, features: Tensor | Conditional, index: Tensor) -> Tensor:
        assert isinstance(features, Conditional)
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
        frozen = self.prior_part.index.combine(features.prior, index)
        return self.prior.join(values, frozen.expand_as(values), self.role)

    @property
    def estimates_variance(self) -> bool:
        return True


def build_term(part: UncertaintyModule, *arguments: object) -> Term:
    """The term of a part; the only place that tells modules with values of their own from others."""
    return (ConditionalTerm if has_own_values(part) else Term)(part, *arguments)  # type: ignore[arg-type]


def has_own_values(part: UncertaintyModule) -> bool:
    return hasattr(part, "values")


def _have_same_parameters(part: nn.Module, twin: nn.Module) -> bool:
    """Whether two networks can run as one."""
    if type(part).forward is not type(twin).forward:
        return False
    one, other = ({name: p.shape for name, p in module.named_parameters()} for module in (part, twin))
    return one == other
