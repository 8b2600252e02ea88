"""Adam, for chosen lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from explore._values.stack import Stack

BETA1, BETA2 = 0.9, 0.999


class Adam:
    """Fused Adam on the rows of chosen lanes; the others keep their parameters and moments.

    A row is a tensor with its own step count, because lanes may start to learn at different times,
    and none may depend on another. With `clip`, the gradient of a lane, all its networks taken together,
    is scaled down to that norm if it is longer.
    """

    def __init__(
        self, stacks: Sequence[Stack], learning_rate: float, epsilon: float = 1e-8, clip: float | None = None,
        one_hot: int = 0,
    ):  # fmt: skip
        self.stacks, self.epsilon, self.clip = stacks, epsilon, clip
        self.rates = [learning_rate if stack.learning_rate is None else stack.learning_rate for stack in stacks]
        self.mean = [torch.zeros_like(stack.gradient) for stack in stacks]
        self.square = [torch.zeros_like(stack.gradient) for stack in stacks]
        self.steps = [torch.zeros(len(stack.gradient), device=stack.gradient.device) for stack in stacks]
        self.active = [torch.ones_like(steps) for steps in self.steps]  # 1 for the rows that steps change
        self.seen = np.zeros((stacks[0].lanes, one_hot), bool)  # one-hot observations learned from, for the kernels
        self._lanes: tuple[int, ...] = ()  # those chosen
        self._seen = 0

    def choose(self, lanes: Sequence[int], seen: int) -> None:
        """The lanes that the following steps change, and a bound of one-hot observations (see `Stack`)."""
        if (tuple(lanes), max(seen, self._seen)) == (self._lanes, self._seen):
            return
        self._lanes, self._seen = tuple(lanes), max(seen, self._seen)
        self._gradients = []
        chosen: dict[float, list[tuple[Tensor, ...]]] = {}
        for k, stack in enumerate(self.stacks):
            self.active[k].view(stack.lanes, -1)[:] = torch.tensor([[lane in lanes] for lane in range(stack.lanes)])
            width = stack.trained_width(self._seen)
            self._gradients.append(stack.gradient[:, :width])
            rows = (stack.buffer[0], stack.gradient, self.mean[k], self.square[k])
            for row in self.active[k].nonzero().flatten().tolist() if width else ():
                tensors = (*(tensor[row, :width] for tensor in rows), self.steps[k][row])
                chosen.setdefault(self.rates[k], []).append(tensors)
        self._chosen = [(rate, [list(tensors) for tensors in zip(*rows)]) for rate, rows in chosen.items()]

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "square": self.square, "steps": self.steps, "seen": self._seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._lanes, self._seen = (), state["seen"]
        for name in ("mean", "square", "steps"):
            for mine, other in zip(getattr(self, name), state[name], strict=True):
                mine.copy_(other)
        self.seen[:] = False
        for stack, *moments in zip(self.stacks, self.mean, self.square):
            for start, rows, width in stack.tables:
                if rows == self.seen.shape[1]:
                    for moment in moments:
                        table = moment[:, start : start + rows * width].view(stack.lanes, -1, rows, width)
                        self.seen |= (table != 0).any(3).any(1).numpy(force=True)

    @torch.no_grad()
    def step(self) -> None:
        """A step along the gradients of the chosen lanes; all gradients are then zero again."""
        for steps, active in zip(self.steps, self.active):
            steps += active
        if self.clip is not None:
            # Whole rows: where a row is cut depends on what other lanes have seen, and so would the rounding.
            squares = [(stack.gradient * stack.gradient).sum(1) for stack in self.stacks]
            for stack, factor in zip(self.stacks, clip_factors(squares, self.stacks, self.clip)):
                stack.gradient.mul_(factor)
        for rate, (parameters, gradients, means, squares, counts) in self._chosen:
            torch._fused_adam_(  # what torch.optim.Adam(fused=True) calls, after bookkeeping that would take as long
                parameters, gradients, means, squares, [], counts, amsgrad=False, beta1=BETA1, beta2=BETA2,
                lr=rate, weight_decay=0.0, eps=self.epsilon, maximize=False,
            )  # fmt: skip
        for gradient in self._gradients:
            gradient.zero_()


def clip_factors(squares: Sequence[Tensor], stacks: Sequence[Stack], norm: float) -> list[Tensor]:
    """By what to multiply the gradients of each stack's rows, `[rows, 1]`, so that no lane's is longer than `norm`.

    `squares` are the squared lengths of the rows of each stack.
    """
    of_lanes = [rows.view(stack.lanes, -1).sum(1) for rows, stack in zip(squares, stacks)]
    factor = (norm / (torch.stack(of_lanes).sum(0).sqrt() + 1e-6)).clamp_max(1.0)  # as torch's clip_grad_norm_
    return [factor.repeat_interleave(len(rows) // stack.lanes).unsqueeze(1) for rows, stack in zip(squares, stacks)]
