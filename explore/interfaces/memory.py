"""Memories: what is kept with each transition, what sees all of them, and how new a state and action are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from explore.nn import evaluate_in_chunks, pad_rows

ROWS = 64  # transitions of a lane that are observed, or whose 1/n̂ is evaluated, at a time


@dataclass
class Transitions:
    """Transitions of every lane, `[lanes, batch, ...]`."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor  # of the environment; 0 after a terminal step
    next_obs: Tensor
    there: Tensor  # 0 where a lane has no more transitions, as lanes bring different numbers of them; else 1
    stored: Mapping[str, Tensor]  # by name what the network at hand `stores`, `[lanes, batch, count]`

    def slice(self, rows: slice) -> Self:
        """Some of the transitions of each lane."""
        cut = {one.name: value[:, rows] for one in fields(self) if isinstance(value := getattr(self, one.name), Tensor)}
        return replace(self, **cut, stored={name: tensor[:, rows] for name, tensor in self.stored.items()})


class Stored(ABC):
    """`count` random numbers that are drawn for each transition when it is stored, and kept with it."""

    count: int

    @property
    @abstractmethod
    def slots(self) -> tuple[int, type]:
        """How many numbers of which type are kept."""

    @abstractmethod
    def draw(self, generator: np.random.Generator, transitions: int) -> np.ndarray:
        """Numbers as they are kept, a row for each of so many transitions."""

    @abstractmethod
    def read(self, kept: np.ndarray) -> np.ndarray:
        """What was drawn, `[..., count]` float32."""


class Bits(Stored):
    """Bits, each 1 with a probability; eight of them take a byte."""

    def __init__(self, count: int, probability: float = 0.5):
        self.count, self.probability = count, probability

    @property
    def slots(self) -> tuple[int, type]:
        return -(-self.count // 8), np.uint8

    def draw(self, generator: np.random.Generator, transitions: int) -> np.ndarray:
        return np.packbits(generator.random((transitions, self.count), dtype=np.float32) < self.probability, axis=-1)

    def read(self, kept: np.ndarray) -> np.ndarray:
        return np.unpackbits(kept, axis=-1, count=self.count).astype(np.float32)


class Signs(Bits):
    """Fair coin flips: each 1 or -1."""

    def read(self, kept: np.ndarray) -> np.ndarray:
        return 2 * super().read(kept) - 1


class Normals(Stored):
    """Standard normal numbers."""

    def __init__(self, count: int):
        self.count = count

    @property
    def slots(self) -> tuple[int, type]:
        return self.count, np.float32

    def draw(self, generator: np.random.Generator, transitions: int) -> np.ndarray:
        return generator.standard_normal((transitions, self.count), dtype=np.float32)

    def read(self, kept: np.ndarray) -> np.ndarray:
        return kept


class Network(nn.Module):
    """What all networks may have besides `forward`: value networks, uncertainty modules and memories."""

    learning_rate: float | None = None  # its own; None: the agent's
    stores: Mapping[str, Stored] = {}  # kept with each transition, to be found in `Transitions.stored`
    losses: ClassVar[tuple[str, ...]] = ()  # what `loss` returns, columns of `episodes.csv`

    def observe(self, transitions: Transitions) -> None:
        """Sees each transition once, after it was stored and before the next minibatch is learned from.

        They come `ROWS` at a time, padded: `transitions.there` tells which are there. Of an episode that is longer than
        the replay, the replay has only the last ones.
        """

    def loss(self, transitions: Transitions) -> dict[str, Tensor]:
        """Losses of its own on a minibatch, each `[lanes]`, added to those of the objective."""
        return {}


class Memory(Network):
    """A network, or anything else that follows what is seen, beside those of the value function.

    There is one, however many copies (trained, target) the network has that holds it. It is trained by its
    own `loss`, and may keep tensors `[lanes, ...]` that change: buffers made with `explore.nn.zeros`.

    Example: how often each action was taken at each of some one-hot observations.

        class Visits(Memory):
            def __init__(self, spec):
                super().__init__()
                self.register_buffer("counts", explore.nn.zeros(spec.observation.num_values * spec.num_actions))
                self.actions = spec.num_actions

            def observe(self, transitions):
                cell = transitions.obs * self.actions + transitions.action
                self.counts.scatter_add_(1, cell, transitions.there)
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class Bonus(Memory):
    """Slot `bonus`: how new a state and action are, 1/n̂(s, a).

    An agent adds √(1/n̂) to its rewards (`agent.Indexed.bonus_scale`) or replays transitions in proportion to 1/n̂
    (`replay_weight`), and uncertainty modules may hold one.

    Example:

        class Counts(Bonus):
            def __init__(self, spec):
                super().__init__()
                self.shape = (spec.observation.num_values, spec.num_actions)
                self.register_buffer("counts", explore.nn.zeros(math.prod(self.shape)))

            def observe(self, transitions):
                self.counts.scatter_add_(1, transitions.obs * self.shape[1] + transitions.action, transitions.there)

            def forward(self, obs):
                counts = self.counts.unflatten(1, self.shape)
                return 1 / (1 + counts[torch.arange(len(obs)).unsqueeze(1), obs])
    """

    def forward(self, obs: Tensor) -> Tensor:
        """1/n̂(s, a), at least 0: `[lanes, batch, ...] -> [lanes, batch, actions]`."""
        raise NotImplementedError

    @torch.no_grad()
    def at(self, obs: Tensor, action: Tensor) -> Tensor:
        """1/n̂ of actions `[lanes, batch]` at observations, whose number may depend on other lanes."""
        new = evaluate_in_chunks(self, pad_rows(obs, ROWS), ROWS)[:, : obs.shape[1]]
        return new.gather(-1, action.unsqueeze(-1)).squeeze(-1)
