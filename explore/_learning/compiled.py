"""The update step as one compiled function: loss, gradient and Adam, for all lanes.

It does what `explore._learning.learner` does eagerly, with rounding that differs in the last bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dm_env
import torch
from torch import Tensor, nn
from torch._dynamo.exc import TorchDynamoException
from torch.func import functional_call, grad

from explore._learning.adam import BETA1, BETA2, Adam, clip_factors
from explore._learning.learner import Minibatch, sum_losses
from explore._values.indexed_value import IndexedValue
from explore.errors import RunFailed
from explore.interfaces import Objective


class CompiledUpdate:
    """Steps on minibatches for the lanes chosen with `adam.choose`; returns the losses, added up."""

    def __init__(self, function: IndexedValue, objective: Objective, adam: Adam, backend: str = "inductor"):
        own = [type(network).__name__ for network in function.networks if network.losses]
        if own:
            raise ValueError(f"compile = True does not train {', '.join(own)}, which has a loss of its own")
        self.function, self.objective, self.adam = function, objective, adam
        # Of one call: several save ways into the compiled function. Gradients of look-ups are too large for that.
        one_hot = isinstance(function.spec.observation, dm_env.specs.DiscreteArray)
        self.minibatches = 1 if one_hot else 5
        # Made here, as torch.compile takes no module that is made in what it compiles.
        self._networks = [_Methods(stack.trained) for stack in function.stacks]
        torch._dynamo.reset()  # it gives up after so many variants, and counts those of earlier agents
        self._compiled = torch.compile(self._steps, fullgraph=True, dynamic=False, backend=backend)

    @torch.no_grad()
    def __call__(self, minibatches: Sequence[Minibatch]) -> dict[str, Tensor]:
        rows, adam = [stack.buffer[0] for stack in self.function.stacks], self.adam
        try:
            losses = self._compiled(rows, adam.mean, adam.square, adam.steps, adam.active, minibatches)
        except TorchDynamoException as error:
            reason = str(error).strip().splitlines()[0]
            raise RunFailed(f"torch.compile failed: {reason}; set agent.Indexed.compile = False") from error
        for steps, active in zip(adam.steps, adam.active):
            steps += len(minibatches) * active
        return losses

    def _steps(
        self, rows: Sequence[Tensor], means: Sequence[Tensor], squares: Sequence[Tensor], steps: Sequence[Tensor],
        active: Sequence[Tensor], minibatches: Sequence[Minibatch],
    ) -> dict[str, Tensor]:  # fmt: skip
        return sum_losses(
            self._step(rows, means, squares, [step + number for step in steps], active, *minibatch)
            for number, minibatch in enumerate(minibatches, start=1)
        )

    def _step(
        self, rows: Sequence[Tensor], means: Sequence[Tensor], squares: Sequence[Tensor], steps: Sequence[Tensor],
        active: Sequence[Tensor], obs: Tensor, action: Tensor, prior: Tensor, prepared: Mapping[str, Any], own: Any,
    ) -> dict[str, Tensor]:  # fmt: skip
        stacks = self.function.stacks

        def total(trainable: list[dict[str, Tensor]]) -> tuple[Tensor, dict[str, Tensor]]:
            networks = [
                _WithParameters(network, all_of | one) for network, all_of, one in zip(self._networks, views, trainable)
            ]
            features = self.function.trained_features(obs, prior, action, networks)
            losses = self.objective.loss(self.function, features, prepared)
            return torch.stack(list(losses.values())).sum(), losses

        views = [stack.view_parameters(row) for stack, row in zip(stacks, rows)]
        trained = [{name: all_of[name] for name in stack.trainable} for stack, all_of in zip(stacks, views)]
        gradients, losses = grad(total, has_aux=True)(trained)
        rows_of_gradients = []
        for stack, all_of, some in zip(stacks, views, gradients):
            zeros = {name: torch.zeros_like(view) for name, view in all_of.items() if name not in stack.trainable}
            rows_of_gradients.append(stack.pack_row(zeros | some))
        if self.adam.clip is not None:
            none = [torch.zeros(len(row)) for row in rows]
            lengths = [
                torch.stack([zero, *(g.square().flatten(1).sum(1) for g in some.values())]).sum(0)
                for zero, some in zip(none, gradients)
            ]
            factors = clip_factors(lengths, stacks, self.adam.clip)
            rows_of_gradients = [gradient * factor for gradient, factor in zip(rows_of_gradients, factors)]
        for k, (row, gradient, step, on) in enumerate(zip(rows, rows_of_gradients, steps, active)):
            moments = (means[k], squares[k])
            _adam(row, gradient, *moments, step[:, None], on[:, None] > 0, self.adam.rates[k], self.adam.epsilon)
        return losses


class _WithParameters:
    """A network with other parameters than its own."""

    def __init__(self, module: _Methods, parameters: dict[str, Tensor]):
        self.parameters = {f"module.{name}": parameter for name, parameter in parameters.items()}
        self.module = module

    def __call__(self, obs: Tensor) -> Tensor:
        return functional_call(self.module, self.parameters, ("forward", obs))

    def values(self, features: Tensor, index: Tensor) -> Tensor:
        return functional_call(self.module, self.parameters, ("values", features, index))


class _Methods(nn.Module):
    """Calls a method of a module by its name, since `functional_call` calls `forward` only."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, method: str, *arguments: Tensor) -> Tensor:
        return getattr(self.module, method)(*arguments)


def _adam(
    row: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, step: Tensor, on: Tensor, rate: float, epsilon: float
) -> None:
    new_mean = mean + (1 - BETA1) * (gradient - mean)
    new_square = BETA2 * square + (1 - BETA2) * gradient * gradient
    size = rate / (1 - BETA1**step)
    spread = (new_square / (1 - BETA2**step)).sqrt() + epsilon
    row.copy_(torch.where(on, row - size * new_mean / spread, row))
    mean.copy_(torch.where(on, new_mean, mean))
    square.copy_(torch.where(on, new_square, square))
