"""The parts of an indexed value function, built for all lanes: uncertainty modules, and the twins of their priors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from torch import nn

from explore._values.stack import list_memories, own_parameters
from explore._values.term import has_own_values
from explore.interfaces import (
    Bonus,
    Members,
    Memory,
    Network,
    Prior,
    Spec,
    UncertaintyModule,
    ValueNetwork,
    ValueWrapper,
)
from explore.interfaces.index import IndexDistribution
from explore.nn import lanes
from explore.streams import stream

Factory = Callable[[Spec], UncertaintyModule]


def build_parts(
    spec: Spec,
    seeds: Sequence[int],
    value: Callable[[Spec], ValueNetwork],
    uncertainty: Sequence[Factory],
    prior: Prior,
) -> tuple[list[UncertaintyModule], list[UncertaintyModule]]:
    """The parts, first that with the value network, and the frozen modules of their priors, if there is one."""
    builder = _Builder(spec, seeds, value)
    factories = dict(enumerate(uncertainty))
    modules = {position: builder.build(factory, "init", position) for position, factory in factories.items()}
    if not _has_wrapper(modules.values()):
        factories[-1], modules[-1] = _build_single, Members(1)
    positions = sorted(modules, key=lambda position: not isinstance(modules[position], ValueWrapper))
    parts = [builder.attach(modules[position], "init") for position in positions]
    if not prior.has_twin:
        return parts, []
    twins = [builder.build_twin(part, factories[k], k, prior.init) for part, k in zip(parts, positions)]
    return parts, twins


def build_bonus(spec: Spec, seeds: Sequence[int], bonus: Callable[[Spec], Bonus]) -> Bonus:
    """A bonus beside the parts."""
    with lanes([stream(seed, "init", "bonus") for seed in seeds]):
        built = bonus(spec)
    check_network(built, len(seeds), len(seeds))
    return built


def _has_wrapper(modules: Collection[UncertaintyModule]) -> bool:
    """Whether one is built on the value network, as only one can be."""
    names = [type(module).__name__ for module in modules if isinstance(module, ValueWrapper)]
    if len(names) > 1:
        raise ValueError(
            f"uncertainty has {' and '.join(names)}: each is built on the value network, so only one can be named"
        )
    return bool(names)


def _build_single(spec: Spec) -> UncertaintyModule:
    return Members(1)


@dataclass(frozen=True)
class _Builder:
    """Builds modules for all lanes, each lane's from the streams of its purpose."""

    spec: Spec
    seeds: Sequence[int]
    value: Callable[[Spec], ValueNetwork]

    def build(self, factory: Factory, purpose: str, position: int, init: str | None = None) -> UncertaintyModule:
        with lanes([stream(seed, purpose, "uncertainty", position) for seed in self.seeds], init):
            return factory(self.spec)

    def build_twin(
        self, part: UncertaintyModule, factory: Factory, position: int, init: str | None
    ) -> UncertaintyModule:
        own = getattr(part, "build_twin", factory)
        twin = self.attach(self.build(own, "prior", position, init), "prior", init)
        if has_own_values(twin) or list_memories(twin):
            raise ValueError(
                f"the prior of {type(part).__name__} must be frozen, and its values features · index, so that its "
                f"features can be kept with the transitions; give {type(part).__name__} a method build_twin(spec) "
                "that builds such a module, or use prior.NoPrior"
            )
        return twin

    def attach(self, module: UncertaintyModule, purpose: str, init: str | None = None) -> UncertaintyModule:
        """The module, with value networks of its own if it is built on them."""
        rows = len(self.seeds)

        def build_network(copies: int = 1) -> ValueNetwork:
            nonlocal rows
            owners = [(seed, copy) for seed in self.seeds for copy in range(copies)]
            rows = len(owners)
            with lanes([stream(seed, purpose, "value", copy) for seed, copy in owners], init):
                network = self.value(self.spec)
            _check_parameters(network, rows)
            if copies > 1 and list_memories(network):
                raise ValueError(
                    f"{type(network).__name__} holds a memory, of which there is one for each seed, so it cannot be "
                    "one of several members"
                )
            if copies > 1 and (network.losses or type(network).observe is not Network.observe):
                raise ValueError(
                    f"{type(network).__name__} has a loss of its own or observes, which is given transitions of each "
                    "seed, so it cannot be one of several members"
                )
            return network

        if isinstance(module, ValueWrapper):
            with lanes([stream(seed, purpose, "attached", 0) for seed in self.seeds], init):
                try:
                    module.attach(build_network, self.spec)
                    module.network  # noqa: B018
                except AttributeError as error:
                    if isinstance(getattr(module, "network", None), nn.Module):
                        raise
                    name = type(module).__name__
                    raise ValueError(f"{name}.attach must begin with super().attach(build_network, spec)") from error
        if not isinstance(getattr(module, "index", None), IndexDistribution):
            raise ValueError(
                f"{type(module).__name__} has no index: set self.index, such as explore.interfaces.Gaussian(8), "
                "when it is built or attached"
            )
        check_network(module, len(self.seeds), rows)
        return module


def check_network(network: nn.Module, lanes: int, rows: int) -> None:
    """Raises `ValueError` unless a network of so many rows, and the memories that it holds, can be trained."""
    _check_parameters(network, rows)
    held = [memory for memory in list_memories(network) if memory is not network]
    for memory in held:
        check_network(memory, lanes, lanes)
    others = {id(buffer) for memory in held for buffer in memory.buffers()}
    names = [name for name, buffer in network.named_buffers() if id(buffer) not in others]
    if names and not isinstance(network, Memory):  # of which there are several copies
        raise ValueError(
            f"networks must keep their tensors in parameters or in a Memory, not in buffers ({', '.join(names)})"
        )
    for name in names:
        if network.get_buffer(name).shape[:1] != (lanes,):
            raise ValueError(f"{type(network).__name__} has no axis of lanes in {name}: make it with explore.nn.zeros")


def _check_parameters(network: nn.Module, rows: int) -> None:
    """Layers that torch does not know of, and parameters without lanes, could not be trained."""
    name = type(network).__name__
    for module in network.modules():
        for attribute, kept in vars(module).items():
            if isinstance(kept, list | tuple) and any(isinstance(entry, nn.Module) for entry in kept):
                raise ValueError(f"{name} keeps layers in a plain list, {attribute}; use torch.nn.ModuleList")
    for parameter, tensor in own_parameters(network).items():
        if tensor.dim() < 1 or len(tensor) != rows:
            raise ValueError(
                f"{name} has no axis of lanes in {parameter}: build its layers with explore.nn, or lift it "
                "with explore.nn.per_lane"
            )
