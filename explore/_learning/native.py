"""Parts of a learning phase, executed by the kernels for all its minibatches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from explore._learning.adam import Adam
from explore._learning.plan import Plan
from explore._learning.trees import flatten, rebuild
from explore._native.adam import NativeAdam, Table, Trained
from explore._native.function import NativeFunction
from explore._native.program import choose_lanes
from explore._values.native import Recording
from explore.streams import Generators


class NativePart:
    """A function of tensors in trees, `[lanes, batch or 1, ...]`, that works on one minibatch.

    `function(alone, tree, progress, generators, setting)` is recorded for one lane; what it draws and the schedules
    that it follows are noted first, and handed over whenever it runs.
    """

    def __init__(self, recording: Recording, name: str, function: Callable[..., Any]):
        self.recording, self.name, self.function = recording, name, function
        self._plans: dict[Any, Plan | None] = {}
        self._forms: dict[Any, Any] = {}  # of what it gives

    def __call__(
        self,
        tree: Any,
        size: int,
        lanes: Sequence[int],
        progress: float,
        generators: Mapping[str, Generators],
        setting: Any = None,
        adam: NativeAdam | None = None,
    ) -> Any:
        """What the function gives for some lanes on each minibatch of `size`, or None if the kernels cannot do it.

        What it gives for each transition is `[lanes, batch, ...]`, and for each lane `[lanes, minibatches]`.
        """
        leaves, _ = flatten(tree)
        used = [leaf for leaf in leaves if leaf.numel()]
        key = (size, setting, *((leaf.shape[2:], leaf.shape[1] == 1, leaf.dtype) for leaf in leaves))
        native = self._record(key, tree, size, generators, setting)
        plan = self._plans[key]
        if native is None or plan is None:
            return None
        batches = max(leaf.shape[1] for leaf in used) // size
        given = [*used, *plan.fulfil(generators, progress, batches)]
        address = None if adam is None else adam.address
        found = native(given, choose_lanes(tuple(lanes)), self.recording.lanes, batches, address)
        return rebuild(self._forms[key], [_gather(one, shape) for one, shape in zip(found, native.shapes)])

    def _record(
        self, key: Any, tree: Any, size: int, generators: Mapping[str, Generators], setting: Any
    ) -> NativeFunction | None:
        leaves, form = flatten(tree)
        examples = [leaf[:1, :size] for leaf in leaves if leaf.numel()]

        def call(plan: Plan, given: Sequence[Tensor]) -> Any:
            rest = iter(given)
            some = rebuild(form, [next(rest) if leaf.numel() else leaf[:1, :size] for leaf in leaves])
            own = {name: plan.make_draws(name) for name in generators}
            return self.function(self.recording.alone, some, plan.progress, own, setting)

        if key not in self._plans:
            self._plans[key] = self._make_plan(call, examples, size)
        plan = self._plans[key]
        if plan is None:
            return None

        def record(*given: Tensor) -> list[Tensor]:
            plan.hand_over(given[len(examples) :])
            found, self._forms[key] = flatten(call(plan, given[: len(examples)]))
            return found

        return self.recording.record(self.name, (self, key), record, [*examples, *plan.examples])

    def _make_plan(
        self, call: Callable[[Plan, Sequence[Tensor]], Any], examples: Sequence[Tensor], size: int
    ) -> Plan | None:
        """What the function asks for; None if that cannot be given to it."""
        plan = Plan(size)
        try:
            with torch.enable_grad():
                call(plan, examples)
        except Exception as reason:
            self.recording.refused[self.name] = f"{type(reason).__name__}: {reason}".splitlines()[0]
            return None
        finally:
            for stack in self.recording.alone.stacks:
                stack.gradient.zero_()
        return plan


def build_native_adam(adam: Adam) -> NativeAdam:
    """Steps of Adam for the kernels, on the parameters and moments of this one."""
    everything = zip(adam.stacks, adam.mean, adam.square, adam.steps, adam.rates)
    trained = [
        Trained(stack.buffer[0], stack.gradient, mean, square, steps, rate, [Table(*one) for one in stack.tables])
        for stack, mean, square, steps, rate in everything
        if stack.gradient.numel()
    ]
    return NativeAdam(trained, adam.seen, adam.epsilon, adam.clip)


def mark_seen(adam: Adam, lanes: Sequence[int], obs: np.ndarray) -> None:
    """Notes that one-hot observations `[lanes, batch]` are learned from."""
    for lane in lanes:
        adam.seen[lane, obs[lane]] = True


def _gather(found: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Results `[lanes, minibatches, ...]`, where those of one lane and minibatch have a shape `[1, ...]`."""
    if len(shape) == 1:
        return found
    # What is the same for all transitions of a minibatch is the same for all of a phase.
    return found[:, 0] if shape[1] == 1 else found.flatten(1, 2)
