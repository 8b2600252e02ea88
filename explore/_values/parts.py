"""The parts of an indexed value function, built for all lanes: uncertainty modules, and the twins of their priors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from torch import nn

from explore.interfaces import Members, Prior, Spec, UncertaintyModule, ValueNetwork, ValueWrapper
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
        def build(spec: Spec) -> UncertaintyModule:
            return part.twin(spec) or factory(spec)

        twin = self.attach(self.build(build, "prior", position, init), "prior", init)
        if not twin.linear:
            raise ValueError(
                f"{type(part).__name__}.twin must give a module whose values are linear in the index, so that its "
                f"features can be kept with the transitions, not {type(twin).__name__}"
            )
        return twin

    def attach(self, module: UncertaintyModule, purpose: str, init: str | None = None) -> UncertaintyModule:
        """The module, with a value network of its own if it is built on one."""
        if isinstance(module, ValueWrapper):
            rows = [(seed, copy) for seed in self.seeds for copy in range(module.copies)]
            with lanes([stream(seed, purpose, "value", copy) for seed, copy in rows], init):
                network = self.value(self.spec)
            with lanes([stream(seed, purpose, "attached", copy) for seed, copy in rows], init):
                try:
                    module.attach(network, self.spec)
                finally:  # whatever it failed at, this is why
                    if getattr(module, "network", None) is not network:
                        raise ValueError(
                            f"{type(module).__name__}.attach must begin with super().attach(network, spec)"
                        )
            _check_parameters(network, len(rows))
        _check_size(module)
        _check_parameters(module, count_networks(module, self.seeds))
        return module


def count_networks(part: UncertaintyModule, seeds: Sequence[int]) -> int:
    """How many networks the part has in all lanes."""
    return len(seeds) * (part.copies if isinstance(part, ValueWrapper) else 1)


def _check_size(module: UncertaintyModule) -> None:
    if not isinstance(getattr(module, "size", None), int) or module.size < 1:
        raise ValueError(
            f"{type(module).__name__} has no size: set self.size, the length of its index, when it is built or attached"
        )


def _check_parameters(network: nn.Module, rows: int) -> None:
    """Layers that torch does not know of, and parameters without lanes, could not be trained."""
    name = type(network).__name__
    for module in network.modules():
        for attribute, kept in vars(module).items():
            if isinstance(kept, list | tuple) and any(isinstance(entry, nn.Module) for entry in kept):
                raise ValueError(f"{name} keeps layers in a plain list, {attribute}; use torch.nn.ModuleList")
    for parameter, tensor in network.named_parameters():
        if tensor.dim() < 1 or len(tensor) != rows:
            raise ValueError(
                f"{name} has no axis of lanes in {parameter}: build its layers with explore.nn, or lift it "
                "with explore.nn.per_lane"
            )
