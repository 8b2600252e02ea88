"""Networks: what they know of the environment, and how they are joined with a prior."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import dm_env
import numpy as np
from torch import Tensor, nn

from explore.interfaces.memory import Network


@dataclass(frozen=True)
class Spec:
    """What a network, or an agent, needs to know of the environment.

    An observation spec that is a `dm_env.specs.DiscreteArray` means one-hot observations, which
    are passed as integers `[lanes, batch]`; any other is passed as floats `[lanes, batch, ...]`.
    """

    observation: dm_env.specs.Array
    num_actions: int
    reward: dm_env.specs.Array | None = None
    stages: np.ndarray | None = field(default=None, compare=False)  # [stages, states] observations, see `Model`


class ValueNetwork(Network):
    """Slot `value`: a network from observations to a value per action.

    Example:

        class Linear(ValueNetwork):
            def __init__(self, spec):
                super().__init__()
                self.net = explore.nn.MLP(spec.observation, (), spec.num_actions)

            def forward(self, obs):
                return self.net(obs)
    """

    def forward(self, obs: Tensor) -> Tensor:
        """`[lanes, batch, ...] -> [lanes, batch, actions]`"""
        raise NotImplementedError

    def as_layers(self) -> Sequence[nn.Module]:
        """The network as layers with ReLU between them, the last of them an `explore.nn.Linear`; nothing if it is
        not such a network.

        Some uncertainty modules look inside: hypermodels, epinets and shared heads at the last hidden layer, noise and
        dropout at every layer.
        """
        return ()


class Prior(ABC):
    """Slot `prior`: how a network is joined with a frozen random twin of its own architecture.

    Example:

        class Doubled(Prior):
            def join(self, trained, frozen, network):
                return trained + 2 * frozen
    """

    has_twin: ClassVar[bool] = True  # False: no twin is built, and `join` is not called
    init: str | None = None  # the twin's initialiser; None: that of the trained network

    @abstractmethod
    def join(self, trained: Tensor, frozen: Tensor, network: str) -> Tensor:
        """The outputs of a network and its twin, joined; `network` is "value" or "uncertainty"."""
