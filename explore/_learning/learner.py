"""Learning: the paper's learn_from_buffer for all lanes at once.

All that is frozen during a learning phase, targets and priors, is evaluated once for all its
minibatches; only the trained networks run in the inner loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from explore._learning.adam import Adam
from explore._learning.replay import Batch, Replay
from explore._values.indexed_value import IndexedValue
from explore.interfaces import (
    Beliefs,
    Bits,
    Features,
    Index,
    Network,
    Normals,
    Objective,
    Phase,
    Selection,
    Stored,
    Transitions,
)
from explore.interfaces.memory import ROWS
from explore.streams import Generators

# Observations, actions, priors there, prepared, and what networks with a loss of their own see.
Minibatch = tuple[Tensor, Tensor, Tensor, Mapping[str, Any], tuple[Transitions, ...]]


class Learner:
    """Trains an indexed value function with Adam, each lane on its own.

    `target` selects the next action in the targets, by the values of the target networks, or with
    `double_q` by those that the trained networks have before the phase. `epsilon` and `clip` are Adam's.
    With `compiled`, the step on a minibatch is one compiled function.

    `stored` is what must be kept with each transition, and `losses` names what `learn` returns.
    """

    def __init__(
        self,
        function: IndexedValue,
        objective: Objective,
        target: Selection,
        discount: float,
        learning_rate: float,
        epsilon: float = 1e-8,
        clip: float | None = None,
        double_q: bool = False,
        compiled: bool = False,
        mask_probability: float = 0.5,
    ):
        self.function, self.objective, self.target, self.discount = function, objective, target, discount
        self.double_q = double_q
        objective.check(function)
        indices = function.indexer.distributions
        self._bits = [Bits(index.bits, mask_probability) for index in indices]
        self._noise = [Normals(index.size) for index in indices] if objective.uses_noise else []
        own = [kind for network in function.networks for kind in network.stores.values()]
        self.stored: list[Stored] = [*self._bits, *self._noise, *own]
        self._observers = [network for network in function.networks if type(network).observe is not Network.observe]
        self._trained_apart = [network for network in function.networks if network.losses]
        self.losses = (*objective.losses, *(loss for network in self._trained_apart for loss in network.losses))
        self.adam = Adam(function.stacks, learning_rate, epsilon, clip)
        self.compiled = None
        if compiled:
            from explore._learning.compiled import CompiledUpdate  # takes a second to import

            self.compiled = CompiledUpdate(function, objective, self.adam)

    @torch.no_grad()
    def complete(self, replay: Replay, lanes: Sequence[int], generators: Sequence[np.random.Generator]) -> None:
        """Stores what is kept with the new transitions of some lanes, and shows them to who observes."""
        prior = self._evaluate_prior if self.function.prior_parts else None
        new = replay.complete(lanes, generators, prior)
        if self._observers and any(map(len, new.values())):
            batch, there = replay.read(new, ROWS)
            batch = batch.to(self.function.device)
            for network, transitions in zip(self._observers, self.show(batch, self._observers)):
                transitions.there = there.to(self.function.device)
                for start in range(0, there.shape[1], ROWS):
                    network.observe(transitions.slice(slice(start, start + ROWS)))

    def learn(
        self, batch: Batch, batch_size: int, lanes: Sequence[int], progress: float,
        selecting: Generators, drawing: Generators, measures: bool = True,
    ) -> dict[str, Tensor]:  # fmt: skip
        """A learning phase on a batch that holds all its minibatches, for some of the lanes.

        `selecting` are the streams of the target's selection, `drawing` those of indices to learn
        at. Returns each loss and, if it `measures`, the `uncertainty` (standard deviation of the values
        at the next observations), averaged over the phase, `[lanes]`.
        """
        batch = batch.to(self.function.device)
        prior = _prior_at_action(batch)
        phase = self._phase(batch, progress, selecting, drawing)
        with torch.no_grad():
            prepared = self.objective.prepare(phase)
            uncertainty = {}
            if measures:
                std = self.function.std(phase.next_features).mean(2)
                uncertainty = {"uncertainty": _mean_where(phase.discount > 0, std)}
        self.adam.choose(lanes, 0 if batch.obs.is_floating_point() else int(batch.obs.max()) + 1)
        starts = range(0, batch.obs.shape[1], batch_size)
        everything = (batch.obs, batch.action, prior, prepared, tuple(self.show(batch, self._trained_apart)))
        losses = self._updates([_cut_out(everything, slice(start, start + batch_size)) for start in starts])
        return {name: loss / len(starts) for name, loss in losses.items()} | uncertainty

    def _updates(self, minibatches: Sequence[Minibatch]) -> dict[str, Tensor]:
        """A step on each minibatch; returns the losses, added up."""
        if self.compiled is None:
            return sum_losses(self._update(*minibatch) for minibatch in minibatches)
        many = self.compiled.minibatches
        return sum_losses(self.compiled(minibatches[k : k + many]) for k in range(0, len(minibatches), many))

    def evaluate_losses(self, batch: Batch, generators: Generators) -> dict[str, Tensor]:
        """The losses of a minibatch, of which nothing is learned."""
        batch = batch.to(self.function.device)
        prepared = self.objective.prepare(self._phase(batch, 0.0, generators, generators))
        own = tuple(self.show(batch, self._trained_apart))
        return self._losses(batch.obs, batch.action, _prior_at_action(batch), prepared, own)

    def _losses(
        self, obs: Tensor, action: Tensor, prior: Tensor, prepared: Mapping[str, Any], own: Sequence[Transitions]
    ) -> dict[str, Tensor]:
        losses = self.objective.loss(self.function, self.function.trained_features(obs, prior, action), prepared)
        for network, transitions in zip(self._trained_apart, own):
            losses = losses | network.loss(transitions)
        return losses

    def _phase(self, batch: Batch, progress: float, selecting: Generators, drawing: Generators) -> Phase:
        function = self.function
        next_features = function.target_features(batch.next_obs, batch.next_prior)
        function.check_scales(next_features)
        judging: Features = next_features
        if self.double_q:
            with torch.no_grad():
                judging = function.trained_features(batch.next_obs, batch.next_prior)

        def look(index: Index) -> Beliefs:
            return Beliefs(function, judging, index, selecting, progress)

        parts = len(function.parts)
        return Phase(
            function=function,
            transitions=batch.transitions({}),
            reward=batch.reward,
            discount=self.discount * batch.discount,
            bits=tuple(batch.stored[:parts]),
            noise=tuple(batch.stored[parts : parts + len(self._noise)]),
            next_features=next_features,
            look=look,
            target=self.target,
            generators=drawing,
            progress=progress,
        )

    def show(self, batch: Batch, networks: Sequence[Network]) -> Iterator[Transitions]:
        """A batch as each of some networks sees it, with the numbers that it stores."""
        if not networks:
            return iter(())
        rest = iter(batch.stored[len(self._bits) + len(self._noise) :])
        stored = {id(network): dict(zip(network.stores, rest)) for network in self.function.networks}
        return (batch.transitions(stored[id(network)]) for network in networks)

    def _update(self, *minibatch: Any) -> dict[str, Tensor]:
        """A step on a minibatch; returns the losses."""
        losses = self._losses(*minibatch)
        torch.stack(list(losses.values())).sum().backward()
        self.adam.step()
        return {name: loss.detach() for name, loss in losses.items()}

    def _evaluate_prior(self, obs: Tensor) -> Tensor:
        return self.function.prior_features(obs.to(self.function.device))


def sum_losses(several: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Losses of the same names, added up."""
    totals: dict[str, Tensor] = {}
    for losses in several:
        totals = {name: totals[name] + loss if totals else loss for name, loss in losses.items()}
    return totals


def _mean_where(there: Tensor, numbers: Tensor) -> Tensor:
    """Means over the transitions that have a next observation, `[lanes]`."""
    return (numbers * there).sum(1) / there.sum(1).clamp_min(1)


def _prior_at_action(batch: Batch) -> Tensor:
    """What the priors gave at the actions taken, `[lanes, batch, 1, size]`; nothing without priors."""
    if not batch.prior.numel():
        return batch.prior
    return batch.prior.gather(2, batch.action[:, :, None, None].expand(-1, -1, 1, batch.prior.shape[-1]))


def _cut_out(tensors: Any, part: slice) -> Any:
    """A minibatch of everything prepared for a phase; what has one row is for all of them."""
    if isinstance(tensors, Mapping):
        return {name: _cut_out(tensor, part) for name, tensor in tensors.items()}
    if isinstance(tensors, tuple):
        return tuple(_cut_out(tensor, part) for tensor in tensors)
    if isinstance(tensors, Transitions):
        return tensors.slice(part)
    return tensors if tensors is None or tensors.shape[1] == 1 else tensors[:, part]
