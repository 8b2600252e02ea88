"""The indexed value function Q_i(s, a): the sum of its parts at an index."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from explore._native.function import why_not
from explore._native.library import load_library
from explore._state import capture, restore
from explore._values.indexer import Indexer
from explore._values.native import Recording
from explore._values.parts import build_bonus, build_parts
from explore._values.stack import Stack, list_memories, list_networks
from explore._values.target_table import TargetTable
from explore._values.term import Network, build_term
from explore.interfaces import Bonus, Features, Index, Prior, Spec, UncertaintyModule, ValueNetwork
from explore.nn import count_parameters, evaluate_in_chunks, find_safe_rows, pad_rows

TARGET_ROWS = 256  # evaluated at a time, so that activations stay in the cache
PRIOR_ROWS = 64


class IndexedValue:
    """Values of observations at an index, for all lanes.

    The first part is built on the value network, as one or several members; every further part adds
    its values at its own piece of the index. Each part has three networks, which all values are computed with:

      parts: the uncertainty modules, with the parameters that are trained.
      target_parts: the same modules with the parameters of the target networks.
      prior_parts: the frozen modules of priors; empty without a prior.

    `memories` are those that parts hold, and the `bonus` if there is one. `indexer` draws indices. With
    `tabulate_targets`, the target networks are evaluated once at every one-hot observation, which pays if there are
    fewer of those than are learned from before the networks change. If `native`, networks are executed by the kernels
    where these can: `recording` knows what they cannot do, and is None if they are not available.
    """

    def __init__(
        self,
        spec: Spec,
        seeds: Sequence[int],
        value: Callable[[Spec], ValueNetwork],
        uncertainty: Sequence[Callable[[Spec], UncertaintyModule]],
        prior: Prior,
        device: torch.device | None = None,
        tabulate_targets: bool = False,
        bonus: Callable[[Spec], Bonus] | None = None,
        native: bool = True,
    ):
        self.spec, self.seeds, self.prior = spec, tuple(seeds), prior
        self.device = torch.device(device or "cpu")
        self._arguments = {"value": value, "uncertainty": uncertainty, "prior": prior, "bonus": bonus}
        parts, twins = build_parts(spec, seeds, value, uncertainty, prior)
        row_multiple = max(find_safe_rows(module) for module in (*parts, *twins))
        self.bonus = None if bonus is None else build_bonus(spec, seeds, bonus)
        held = [memory for part in parts for memory in list_memories(part)]
        memories = held if self.bonus is None else [*held, self.bonus]
        self.memories = [memory.to(self.device) for memory in memories]
        pairs = zip(parts, twins) if twins else ((part, None) for part in parts)
        self.terms = [
            build_term(part, twin, prior, "uncertainty" if k else "value", len(seeds), row_multiple, self.device)
            for k, (part, twin) in enumerate(pairs)
        ]
        self.parts = [term.part for term in self.terms]
        self.target_parts = [term.target for term in self.terms]
        self.prior_parts = [term.prior_part for term in self.terms if term.prior_part is not None]
        beside = [Stack(memory, None, len(seeds), self.device) for memory in self.memories]
        self.stacks = [*(term.stack for term in self.terms), *beside]
        self.networks = [network for stack in self.stacks for network in list_networks(stack.trained)]
        self.indexer = Indexer([part.index for part in self.parts], self.device)
        self._table: TargetTable | None = None
        if tabulate_targets and not held:  # which change meanwhile
            observations = int(spec.observation.num_values)
            self._table = TargetTable(self._evaluate_targets, len(seeds), observations, self.device)
        self._why_not_native = why_not(self.device) if native else "it was asked for"
        self.recording = None if self._why_not_native else Recording(self)

    def build_alone(self) -> IndexedValue:
        """The same function of the first seed alone, newly built, whose networks do not run as one."""
        alone = IndexedValue(self.spec, self.seeds[:1], **self._arguments, native=False)  # type: ignore[arg-type]
        for stack in alone.stacks:
            stack.with_prior = None
        return alone

    def execution(self) -> dict[str, str]:
        """What executes networks, selections and losses, as `Agent.execution` says it."""
        if self.recording is None:
            return {"PyTorch": self._why_not_native}
        refused = {f"PyTorch for {name}": reason for name, reason in self.recording.refused.items()}
        return {"native kernels": load_library().variant, **refused}

    # Features of observations: everything that does not depend on the index.

    @torch.no_grad()
    def acting_features(self, obs: Tensor) -> Features:
        """Of the trained networks joined with their priors, at every action."""
        twice = obs.expand(2, *obs.shape).flatten(0, 1) if self.prior_parts else obs
        return tuple(term.acting_features(obs, twice) for term in self.terms)

    def trained_features(
        self, obs: Tensor, prior: Tensor, action: Tensor | None = None, networks: Sequence[Network] | None = None
    ) -> Features:
        """Of the trained networks joined with what their priors gave, at the actions taken or at every action."""
        networks = networks or self.parts
        trained = [term.evaluate(network, obs) for term, network in zip(self.terms, networks)]
        return self.join(trained, prior, networks, action)

    @torch.no_grad()
    def evaluate_trained(self, obs: Tensor) -> list[Tensor]:
        """What the trained networks of all parts give, before it is joined with priors."""
        outputs = self._evaluate_natively("trained", obs)
        return outputs or [term.evaluate(network, obs) for term, network in zip(self.terms, self.parts)]

    @torch.no_grad()
    def evaluate_targets(self, obs: Tensor) -> list[Tensor]:
        """What the target networks of all parts give, before it is joined with priors."""
        return self._evaluate_targets(obs) if self._table is None else self._table.look_up(obs)

    def target_features(self, obs: Tensor, prior: Tensor) -> Features:
        """Of the target networks joined with what their priors gave, at every action."""
        return self.join(self.evaluate_targets(obs), prior, self.target_parts)

    def _evaluate_targets(self, obs: Tensor) -> list[Tensor]:
        outputs = self._evaluate_natively("target", obs)
        if outputs is not None:
            return outputs
        return [evaluate_in_chunks(partial(term.evaluate, term.target), obs, TARGET_ROWS) for term in self.terms]

    def _evaluate_natively(self, which: str, obs: Tensor) -> list[Tensor] | None:
        return None if self.recording is None else self.recording.evaluate(which, obs)

    def copy_to_target(self, lanes: Sequence[int]) -> None:
        """The target networks of these lanes become the trained ones."""
        self._forget_table()
        for term in self.terms:
            term.stack.copy_to_target(lanes)

    def _forget_table(self) -> None:
        if self._table is not None:
            self._table.clear()

    @torch.no_grad()
    def prior_features(self, obs: Tensor) -> Tensor:
        """Of the frozen priors at every action, all parts together: `[lanes, batch, *prior_shape]`.

        Evaluated a fixed number of rows at a time, because the last bit of a matrix product may
        depend on how many there are, and lanes bring different numbers of them.
        """
        outputs = self._evaluate_natively("prior", obs)
        if outputs is not None:
            return torch.cat(outputs, -1)

        def evaluate(chunk: Tensor) -> Tensor:
            return torch.cat([part(chunk) for part in self.prior_parts], -1)

        return evaluate_in_chunks(evaluate, pad_rows(obs, PRIOR_ROWS), PRIOR_ROWS)[:, : obs.shape[1]]

    def prior_only_features(self, obs: Tensor) -> Features:
        """Of the frozen priors as they are joined with networks that give 0, at every action."""
        frozen = self._split(self.prior_features(obs))
        return tuple(term.prior_only(one) for term, one in zip(self.terms, frozen))

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """What `prior_features` gives for an observation; empty without a prior."""
        return (self.spec.num_actions, sum(part.index.size for part in self.prior_parts)) if self.prior_parts else (0,)

    def join(
        self, outputs: Sequence[Tensor], prior: Tensor, networks: Sequence[Network], action: Tensor | None = None
    ) -> Features:
        """Features of networks that gave these outputs, joined with what their priors gave, at the actions taken or at
        every action."""
        frozen: Sequence[Tensor | None] = self._split(prior) or [None] * len(self.terms)
        everything = zip(self.terms, outputs, frozen, networks)
        return tuple(term.join(output, one, network, action) for term, output, one, network in everything)

    def _split(self, prior: Tensor) -> Sequence[Tensor]:
        """What `prior_features` gives, part by part; nothing without priors."""
        return prior.split([part.index.size for part in self.prior_parts], -1) if self.prior_parts else ()

    # Values at an index.

    def values(self, features: Features, index: Index) -> Tensor:
        """`[lanes, batch, draws, actions]`"""
        first, *rest = (term.values(f, i) for term, f, i in zip(self.terms, features, index))
        return sum(rest, first)

    def std(self, features: Features) -> Tensor:
        """Standard deviation over indices, `[lanes, batch, actions]`."""
        first, *rest = (term.variance(f) for term, f in zip(self.terms, features))
        return sum(rest, first).sqrt()

    def count_negative_scales(self, features: Features) -> Tensor:
        """How many standard deviations are below 0, `[lanes, batch]`."""
        first, *rest = (term.count_negative_scales(f) for term, f in zip(self.terms, features))
        return sum(rest, first)

    @property
    def trained_parameters(self) -> int:
        """How many numbers are trained for a seed, without those that only fill layers up."""
        trained = [*self.parts, *([self.bonus] if self.bonus is not None else [])]
        return sum(count_parameters(network) for network in trained) // len(self.seeds)

    def state_dict(self) -> dict[str, Any]:
        """All networks, trained, prior and target, and what their modules keep besides parameters."""
        modules = capture(self._modules(), "uncertainty", parameters=False)
        priors = [list(part.parameters()) for part in self.separate_priors()]
        return {"stacks": [stack.buffer for stack in self.stacks], "modules": modules, "priors": priors}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over the networks of another function of the same parts."""
        self._forget_table()
        for stack, buffer in zip(self.stacks, state["stacks"], strict=True):
            _copy(stack.buffer, buffer)
        for part, parameters in zip(self.separate_priors(), state["priors"], strict=True):
            for parameter, other in zip(part.parameters(), parameters, strict=True):
                _copy(parameter, other)
        restore(self._modules(), state["modules"], "uncertainty")

    def _modules(self) -> list[nn.Module]:
        return [*(module for stack in self.stacks for module in stack.bound), *self.separate_priors()]

    def separate_priors(self) -> list[nn.Module]:
        """The priors that are not copies in a stack."""
        return [part for term, part in zip(self.terms, self.prior_parts) if not term.runs_as_one]


def _copy(mine: Tensor, other: Tensor) -> None:
    if other.shape != mine.shape:
        raise ValueError(f"networks have shape {[*other.shape]}, expected {[*mine.shape]}")
    mine.copy_(other)
