"""Adam, for chosen lanes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam

from explore.stack import Stack

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class Adam:
    """Fused Adam on the rows of chosen lanes; the others keep their parameters and moments.

    A lane is one tensor with its own step count, because lanes may start to learn at different
    times, and none may depend on another.
    """

    def __init__(self, stacks: Sequence[Stack], learning_rate: float):
        self.stacks, self.learning_rate = stacks, learning_rate
        self.mean = [torch.zeros_like(stack.gradient) for stack in stacks]
        self.square = [torch.zeros_like(stack.gradient) for stack in stacks]
        self.steps = torch.zeros(len(stacks), stacks[0].lanes, device=stacks[0].gradient.device)
        self.choose(range(stacks[0].lanes))

    def choose(self, lanes: Sequence[int]) -> None:
        """The lanes that the following steps change."""
        self.active = torch.zeros_like(self.steps[0])
        self.active[list(lanes)] = 1
        per_lane: list[tuple[Tensor, ...]] = []
        for stack, mean, square, steps in zip(self.stacks, self.mean, self.square, self.steps):
            tensors = map(stack.lane_rows, (stack.buffer[0], stack.gradient, mean, square))
            rows = list(zip(*tensors, steps))
            per_lane += [rows[lane] for lane in lanes]
        self._chosen = [list(tensors) for tensors in zip(*per_lane)]

    @torch.no_grad()
    def step(self) -> None:
        """A step along the gradients of the chosen lanes; all gradients are then zero again."""
        parameters, gradients, means, squares, steps = self._chosen
        adam(
            parameters, gradients, means, squares, [], steps, fused=True, amsgrad=False,
            beta1=BETA1, beta2=BETA2, lr=self.learning_rate, weight_decay=0.0, eps=EPSILON, maximize=False,
        )  # fmt: skip
        for stack in self.stacks:
            stack.gradient.zero_()
