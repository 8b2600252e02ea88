"""Learning: the paper's learn_from_buffer for all lanes at once.

All that is frozen during a learning phase, targets and priors, is evaluated once for all its
minibatches; only the trained networks run in the inner loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam

from explore.indexed import IndexedValue
from explore.interfaces import Beliefs, Index, Objective, Phase, Selection
from explore.replay import Batch
from explore.stack import Stack
from explore.streams import Generators


class Learner:
    """Trains an indexed value function with Adam, each lane on its own.

    `target` selects the next action in the targets. With `compiled`, a minibatch's loss and
    gradient are one compiled function.
    """

    def __init__(
        self,
        function: IndexedValue,
        objective: Objective,
        target: Selection,
        discount: float,
        learning_rate: float,
        compiled: bool = False,
    ):
        self.function, self.objective, self.target, self.discount = function, objective, target, discount
        self.adam = Adam(function.stacks, learning_rate)
        self.losses: Callable[..., dict[str, Tensor]] = self._losses
        if compiled:
            self.losses = torch.compile(self._losses, fullgraph=True, dynamic=False)

    def learn(
        self, batch: Batch, batch_size: int, lanes: Sequence[int], progress: float,
        selecting: Generators, drawing: Generators,
    ) -> dict[str, Tensor]:  # fmt: skip
        """A learning phase on a batch that holds all its minibatches, for some of the lanes.

        `selecting` are the streams of the target's selection, `drawing` those of indices to learn
        at. Returns each loss and the `uncertainty` (standard deviation of the values at the next
        observations), averaged over the phase, `[lanes]`.
        """
        batch = batch.to(self.function.device)
        prior = _at_action(batch) if batch.prior.numel() else batch.prior
        phase = self._phase(batch, progress, selecting, drawing)
        with torch.no_grad():
            prepared = self.objective.prepare(phase)
            uncertainty = self.function.std(phase.next_features).mean((1, 2))
        totals: dict[str, Tensor] = {}
        self.adam.choose(lanes)
        for start in range(0, batch.obs.shape[1], batch_size):
            part = slice(start, start + batch_size)
            losses = self._update(batch.obs[:, part], batch.action[:, part], prior[:, part], _cut(prepared, part))
            totals = {name: totals[name] + loss if totals else loss for name, loss in losses.items()}
        batches = batch.obs.shape[1] // batch_size
        return {**{name: total / batches for name, total in totals.items()}, "uncertainty": uncertainty}

    def _phase(self, batch: Batch, progress: float, selecting: Generators, drawing: Generators) -> Phase:
        function = self.function
        next_features = function.target_features(batch.next_obs, batch.next_prior)
        function.check_scales(next_features)

        def select(index: Index) -> Tensor:
            return self.target.select(Beliefs(function, next_features, index, selecting, progress))

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
        losses = self.losses(obs, action, prior, prepared)
        torch.stack(list(losses.values())).sum().backward()
        self.adam.step()
        return {name: loss.detach() for name, loss in losses.items()}

    def _losses(self, obs: Tensor, action: Tensor, prior: Tensor, prepared: Mapping[str, Any]) -> dict[str, Tensor]:
        return self.objective.loss(self.function, self.function.trained_features(obs, action, prior), prepared)


class Adam:
    """Fused Adam on the rows of chosen lanes; the others keep their parameters and moments.

    A lane is one tensor with its own step count, because lanes may start to learn at different
    times, and none may depend on another.
    """

    def __init__(self, stacks: Sequence[Stack], learning_rate: float):
        self.stacks, self.learning_rate = stacks, learning_rate
        self.mean = [torch.zeros_like(stack.gradient) for stack in stacks]
        self.square = [torch.zeros_like(stack.gradient) for stack in stacks]
        self.steps = [torch.zeros(stack.lanes, device=stack.gradient.device) for stack in stacks]

    def choose(self, lanes: Sequence[int]) -> None:
        """The lanes that the following steps change."""
        per_stack = zip(self.stacks, self.mean, self.square, self.steps)
        self.chosen = list(zip(*(
            (stack.lane_rows(stack.buffer[0])[lane], stack.lane_rows(stack.gradient)[lane],
             stack.lane_rows(mean)[lane], stack.lane_rows(square)[lane], steps[lane])
            for stack, mean, square, steps in per_stack for lane in lanes
        )))  # fmt: skip

    @torch.no_grad()
    def step(self) -> None:
        """A step along the gradients of the chosen lanes; all gradients are then zero again."""
        parameters, gradients, means, squares, steps = map(list, self.chosen)
        adam(
            parameters, gradients, means, squares, [], steps, fused=True, amsgrad=False, beta1=0.9, beta2=0.999,
            lr=self.learning_rate, weight_decay=0.0, eps=1e-8, maximize=False,
        )  # fmt: skip
        for stack in self.stacks:
            stack.gradient.zero_()


def _at_action(batch: Batch) -> Tensor:
    """What the priors gave at the actions taken, `[lanes, batch, 1, size]`."""
    return batch.prior.gather(2, batch.action[:, :, None, None].expand(-1, -1, 1, batch.prior.shape[-1]))


def _cut(tensors: Any, part: slice) -> Any:
    """A minibatch of everything prepared for a phase."""
    if isinstance(tensors, Mapping):
        return {name: _cut(tensor, part) for name, tensor in tensors.items()}
    if isinstance(tensors, tuple):
        return tuple(_cut(tensor, part) for tensor in tensors)
    return tensors[:, part]
