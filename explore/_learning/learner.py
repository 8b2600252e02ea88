"""Learning: the paper's learn_from_buffer for all lanes at once.

All that is frozen during a learning phase, targets and priors, is evaluated once for all its
minibatches; only the trained networks run in the inner loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from explore._learning.adam import Adam
from explore._learning.replay import Batch
from explore._values.indexed_value import IndexedValue
from explore.interfaces import Beliefs, Index, Objective, Phase, Selection
from explore.streams import Generators

Minibatch = tuple[Tensor, Tensor, Tensor, Mapping[str, Any]]  # observations, actions, priors there, prepared


class Learner:
    """Trains an indexed value function with Adam, each lane on its own.

    `target` selects the next action in the targets, by the values of the target networks, or with
    `double_q` by those that the trained networks have before the phase. `epsilon` and `clip` are Adam's.
    With `compiled`, the step on a minibatch is one compiled function.
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
    ):
        self.function, self.objective, self.target, self.discount = function, objective, target, discount
        self.double_q = double_q
        self.adam = Adam(function.stacks, learning_rate, epsilon, clip)
        self.compiled = None
        if compiled:
            from explore._learning.compiled import CompiledUpdate  # takes a second to import

            self.compiled = CompiledUpdate(function, objective, self.adam)

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
        everything = (batch.obs, batch.action, prior, prepared)
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
        features = self.function.trained_features(batch.obs, _prior_at_action(batch), batch.action)
        return self.objective.loss(self.function, features, prepared)

    def _phase(self, batch: Batch, progress: float, selecting: Generators, drawing: Generators) -> Phase:
        function = self.function
        next_features = function.target_features(batch.next_obs, batch.next_prior)
        function.check_scales(next_features)
        judging = next_features
        if self.double_q:
            with torch.no_grad():
                judging = function.trained_features(batch.next_obs, batch.next_prior)

        def select(index: Index) -> Tensor:
            draws = next((part.shape[2] for part in index if part is not None), function.value_wrapper.copies)
            return select_actions(self.target, Beliefs(function, judging, index, selecting, progress), draws)

        return Phase(
            function=function,
            reward=batch.reward,
            discount=self.discount * batch.discount,
            mask=batch.mask.split([part.mask_size for part in function.parts], -1),
            noise=batch.noise.split([part.size for part in function.parts], -1) if batch.noise.numel() else (),
            next_features=next_features,
            select=select,
            generators=drawing,
            progress=progress,
        )

    def _update(self, obs: Tensor, action: Tensor, prior: Tensor, prepared: Mapping[str, Any]) -> dict[str, Tensor]:
        """A step on a minibatch; returns the losses."""
        features = self.function.trained_features(obs, prior, action)
        losses = self.objective.loss(self.function, features, prepared)
        torch.stack(list(losses.values())).sum().backward()
        self.adam.step()
        return {name: loss.detach() for name, loss in losses.items()}


def sum_losses(several: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Losses of the same names, added up."""
    totals: dict[str, Tensor] = {}
    for losses in several:
        totals = {name: totals[name] + loss if totals else loss for name, loss in losses.items()}
    return totals


def select_actions(selection: Selection, beliefs: Beliefs, draws: int) -> Tensor:
    """What a selection selects, `[lanes, batch, draws or 1]`; a selection that gives another shape is refused."""
    actions = selection.select(beliefs)
    lanes, batch = beliefs.features[0].shape[:2]
    if actions.shape not in ((lanes, batch, draws), (lanes, batch, 1)):
        expected = f"[lanes, batch, draws or 1] = {[lanes, batch, draws]}"
        raise ValueError(
            f"{type(selection).__name__} selects actions of shape {list(actions.shape)}, expected {expected}"
        )
    return actions


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
    return tensors if tensors is None or tensors.shape[1] == 1 else tensors[:, part]
