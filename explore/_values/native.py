"""The networks of an indexed value function, evaluated by the kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from explore._native.function import NativeFunction, Shared, in_lanes
from explore._native.program import Memory, choose_lanes
from explore._native.recorder import NotRecordable
from explore.nn.context import without_padding

if TYPE_CHECKING:
    from explore._values.indexed_value import IndexedValue

ROWS, FEW_ROWS = 64, 8  # observations at which networks are evaluated at a time
SCALARS = (bool, int, float, str, type(None))
LIBRARIES = ("explore.nn.", "torch.")


class Recording:
    """Functions of the networks of an indexed value function, recorded on `alone`, the same function of one seed."""

    def __init__(self, function: IndexedValue):
        self.function, self.lanes = function, len(function.seeds)
        self.everywhere = choose_lanes(tuple(range(self.lanes)))
        self.alone = function.build_alone()
        self.refused: dict[str, str] = {}  # what is not executed by the kernels, and why
        self._recorded: dict[Any, NativeFunction | None] = {}
        self._settings = _Settings(function, self.alone)

    def watch(self, component: object) -> None:
        """A component that is used in functions to be recorded."""
        self._settings.watch(component, component)

    def record(
        self, name: str, key: Any, function: Callable[..., Sequence[Tensor]], examples: Sequence[Tensor]
    ) -> NativeFunction | None:
        """The function as the kernels execute it, recorded at first use; None if they cannot."""
        if self._settings.have_changed():
            self._recorded = {}
        if (name, key) not in self._recorded:
            self._settings.copy()
            try:
                with without_padding():
                    self._recorded[name, key] = NativeFunction(function, examples, self._share())
            except NotRecordable as reason:
                self._recorded[name, key] = None
                self.refused[name] = str(reason)
        return self._recorded[name, key]

    def evaluate(self, which: str, obs: Tensor) -> list[Tensor] | None:
        """What the `trained`, `target` or `prior` networks of each part give for observations `[lanes, batch, ...]`."""
        batch = obs.shape[1]
        rows = ROWS if batch > FEW_ROWS else FEW_ROWS

        def call(one: Tensor) -> list[Tensor]:
            networks = getattr(self.alone, {"trained": "parts"}.get(which, f"{which}_parts"))
            return [network(one) for network in networks]

        if short := -batch % rows:
            obs = torch.cat([obs, obs[:, -1:].expand(-1, short, *obs.shape[2:])], 1)
        native = self.record(f"{which} networks", (obs.dtype, rows), call, [obs[:1, :rows]])
        if native is None:
            return None
        outputs = native([obs], self.everywhere, self.lanes, obs.shape[1] // rows)
        return [output.flatten(1, 2)[:, :batch] for output in outputs]

    def _share(self) -> list[Shared]:
        """The memory of networks: parameters, gradients, and what memories keep."""
        pairs: list[tuple[Tensor, Tensor]] = []
        for stack, stack_of_all in zip(self.alone.stacks, self.function.stacks):
            pairs += [*zip(stack.buffer, stack_of_all.buffer), (stack.gradient, stack_of_all.gradient)]
        for prior, prior_of_all in zip(self.alone.separate_priors(), self.function.separate_priors()):
            pairs += zip(prior.parameters(), prior_of_all.parameters())
        shared = [Shared(one, partial(in_lanes, of_all, self.lanes)) for one, of_all in pairs]
        for memory, memory_of_all in zip(self.alone.memories, self.function.memories):
            shared += [
                Shared(one, partial(self._find, memory_of_all, name), stays=False)
                for name, one in memory.named_buffers()
            ]
        same = [term.spread for term in self.alone.terms if term.estimates_variance]
        same += [one for part in self.alone.parts for one in vars(part.index).values() if isinstance(one, Tensor)]
        return shared + [Shared(one, partial(Memory, one, 0, 0)) for one in same]  # for all lanes

    def _find(self, memory: nn.Module, name: str) -> Memory:
        """A buffer, which may have been replaced since; a copy if the numbers of a lane do not lie side by side."""
        return in_lanes(memory.get_buffer(name).contiguous(), self.lanes)


class _Settings:
    """Numbers and names in the attributes of components, which what was recorded depends on."""

    def __init__(self, function: IndexedValue, alone: IndexedValue):
        self._attributes: list[tuple[dict[str, Any], dict[str, Any], str]] = []
        self._values: list[Any] = []
        for of_all, of_one in zip(_list_modules(function), _list_modules(alone)):
            self.watch(of_all, of_one)
        for all_of_them, one in zip(function.parts, alone.parts):
            self.watch(all_of_them.index, one.index)

    def watch(self, of_all: object, of_one: object) -> None:
        """A component for all lanes, and for one."""
        for name, value in vars(of_all).items():
            if name not in OF_MODULES and isinstance(value, SCALARS) and vars(of_one).get(name, ()) == value:
                self._attributes.append((vars(of_all), vars(of_one), name))
                self._values.append(value)

    def have_changed(self) -> bool:
        return [of_all.get(name) for of_all, _, name in self._attributes] != self._values

    def copy(self) -> None:
        """Gives those of all lanes to the function of one."""
        self._values = [of_all.get(name) for of_all, _, name in self._attributes]
        for (_, of_one, name), value in zip(self._attributes, self._values):
            of_one[name] = value


OF_MODULES = {*vars(nn.Module())}


def _list_modules(function: IndexedValue) -> Iterable[nn.Module]:
    """Networks and what they consist of, apart from the layers of libraries."""
    for network in (*function.parts, *function.target_parts, *function.prior_parts, *function.memories):
        yield from (part for part in network.modules() if not type(part).__module__.startswith(LIBRARIES))
