"""Replay: what each lane has seen, growing up to a capacity and then forgetting the oldest.

An observation is stored once: the next observation of a slot is the one in the slot after it. The
last observation of an episode takes a slot of its own only if values are bootstrapped from it,
that is, if the episode was cut rather than terminal. One-hot observations are stored as integers.

Steps are written in stretches, all lanes at once, as soon as something is asked of the replay.

What never changes about an observation or a transition is worked out once and kept with it: random numbers such
as its bootstrap bits, and the outputs of the frozen prior networks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dm_env
import numpy as np
import torch
from torch import Tensor

from explore.interfaces import Stored, Timesteps, Transitions

STRETCH = 64  # steps that are written at a time, at most
WEIGHED = 4096  # transitions of a lane that are weighed at a time
ARRAYS = ("obs", "action", "reward", "discount", "final", "prior")


@dataclass
class Batch:
    """Transitions of every lane, `[lanes, batch, ...]`."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    next_obs: Tensor
    stored: list[Tensor]  # of each kind of numbers that the replay keeps
    prior: Tensor  # of the observations, `[lanes, batch, *prior]`
    next_prior: Tensor

    def to(self, device: torch.device) -> Batch:
        """The same on a device."""
        moved = {name: tensor.to(device) for name, tensor in vars(self).items() if name != "stored"}
        return Batch(stored=[tensor.to(device) for tensor in self.stored], **moved)

    def transitions(self, stored: Mapping[str, Tensor]) -> Transitions:
        """What a network that stores these numbers gets to see."""
        there = torch.ones_like(self.reward)
        return Transitions(self.obs, self.action, self.reward, self.discount, self.next_obs, there, stored)


class Replay:
    """A ring of slots per lane.

    With each transition it keeps the numbers of `stored`, and with each observation an array of the shape `prior`.
    """

    def __init__(
        self,
        observation: dm_env.specs.Array,
        lanes: int,
        capacity: int,
        stored: Sequence[Stored] = (),
        prior: tuple[int, ...] = (0,),
    ):
        discrete = isinstance(observation, dm_env.specs.DiscreteArray)
        self.values = observation.num_values if discrete else None  # of one-hot observations
        self.capacity = capacity + 1  # slots; one holds the latest observation, not yet acted on
        self.cursor = [0] * lanes
        self.full = [False] * lanes  # the ring has closed: all slots are in use
        self.incomplete = [0] * lanes  # how many slots before the cursor wait to be completed
        self.stored = tuple(stored)
        slots = min(self.capacity, 1024)
        shape = (lanes, slots)
        self.obs = np.zeros((*shape, *observation.shape), np.int32 if discrete else np.float32)
        self.action = np.zeros(shape, np.int32)
        self.reward = np.zeros(shape, np.float32)
        self.discount = np.zeros(shape, np.float32)
        self.final = np.zeros(shape, bool)  # a cut episode's last observation: no transition starts here
        self.prior = np.zeros((*shape, *prior), np.float32)
        self.kept: list[np.ndarray] = [np.zeros((*shape, one.slots[0]), one.slots[1]) for one in self.stored]
        self._cumulative: list[np.ndarray] = [np.zeros(0)] * lanes  # weights of slots, summed up
        self._unwritten: list[tuple[tuple[int, ...], Timesteps, tuple[bool, ...]]] = []

    def start(self, lane: int, obs: np.ndarray) -> None:
        """The first observation of an episode."""
        self.write()
        self.obs[lane, self.cursor[lane]] = obs

    def append(self, actions: Sequence[int], timesteps: Sequence[dm_env.TimeStep], active: Sequence[bool]) -> None:
        """A step of the active lanes: the actions taken at their latest observations, and what they led to."""
        self._unwritten.append((tuple(actions), Timesteps.gather(timesteps, active), tuple(active)))
        if len(self._unwritten) >= min(STRETCH, self.capacity):  # a longer one would not fit into the ring
            self.write()

    def write(self) -> None:
        """Puts the steps that were appended into the ring; those of a lane are the first of the stretch."""
        if not self._unwritten:
            return
        actions, timesteps, active = zip(*self._unwritten)
        self._unwritten = []
        alone = len(actions) == 1  # with learn_every = 1: numbers are then faster than arrays of one
        columns = [actions, *zip(*((one.rewards, one.discounts, one.observations) for one in timesteps))]
        action, reward, discount, obs = (one[0] if alone else np.array(one) for one in columns)  # [steps, lanes, ...]
        for lane, count in enumerate(map(sum, zip(*active))):
            if count:
                steps, at = (0, lane) if alone else (np.arange(count), (slice(count), lane))
                self._write(lane, count, self.cursor[lane] + steps, action[at], reward[at], discount[at], obs[at])
                end = timesteps[count - 1]
                if end.last[lane] and end.discounts[lane] > 0:
                    self.final[lane, self.cursor[lane]] = True
                    self._advance(lane, 1)

    def _write(self, lane: int, count: int, slots: Any, action: Any, reward: Any, discount: Any, obs: Any) -> None:
        """So many transitions of a lane; slots are counted on past the end of the ring."""
        self._advance(lane, count)
        size = self.obs.shape[1]
        self.obs[lane, (slots + 1) % size] = obs
        slots = slots % size
        self.action[lane, slots] = action
        self.reward[lane, slots] = reward
        self.discount[lane, slots] = discount
        self.final[lane, slots] = False

    def size(self, lane: int) -> int:
        """Slots in use, apart from that of the latest observation."""
        self.write()
        return self.obs.shape[1] - 1 if self.full[lane] else self.cursor[lane]

    def _used(self, lane: int) -> int:
        """Slots in use, with that of the latest observation if the ring is full."""
        return self.obs.shape[1] if self.full[lane] else self.cursor[lane]

    def complete(
        self,
        lanes: Sequence[int],
        generators: Sequence[np.random.Generator],
        prior: Callable[[Tensor], Tensor] | None,
    ) -> dict[int, np.ndarray]:
        """Draws what is stored with new transitions, and evaluates the prior at new observations.

        Returns the slots of the new transitions of each lane.
        """
        self.write()
        new = {lane: self._new_slots(lane) for lane in lanes}
        for lane, slots in new.items():
            count, self.incomplete[lane] = len(slots) - 1, 0  # the last slot has no transition yet
            for one, kept in zip(self.stored, self.kept):
                if one.count:
                    kept[lane, slots[:-1]] = one.draw(generators[lane], count)
        if prior is not None:
            obs = np.zeros((len(self.cursor), max(map(len, new.values())), *self.obs.shape[2:]), self.obs.dtype)
            for lane, slots in new.items():
                obs[lane, : len(slots)] = self.obs[lane, slots]
            outputs = prior(_tensor(obs)).numpy(force=True)
            for lane, slots in new.items():
                self.prior[lane, slots] = outputs[lane, : len(slots)]
        return {lane: slots[:-1][~self.final[lane, slots[:-1]]] for lane, slots in new.items()}

    def read(self, slots: Mapping[int, np.ndarray], multiple: int) -> tuple[Batch, Tensor]:
        """The transitions in these slots of each lane, padded to a multiple, and which of them are there."""
        most = max(map(len, slots.values()))
        everywhere = np.zeros((len(self.cursor), most + -most % multiple), np.int64)
        there = np.zeros(everywhere.shape, np.float32)
        for lane, own in slots.items():
            everywhere[lane, : len(own)], there[lane, : len(own)] = own, 1
        return self._read(everywhere), torch.from_numpy(there)

    def weigh(self, lanes: Sequence[int], weights: Callable[[Tensor, Tensor], Tensor]) -> None:
        """Weighs all transitions of these lanes by a function of observations and actions, for `sample`; where all
        weights are 0, transitions are drawn uniformly."""
        self.write()
        most = max(self._used(lane) for lane in lanes)
        found = [
            weights(_tensor(self.obs[:, start:end]), _tensor(self.action[:, start:end])).numpy(force=True)
            for start in range(0, most, WEIGHED)
            if (end := min(start + WEIGHED, most))
        ]
        everything = np.concatenate(found, 1, dtype=np.float64)
        for lane in lanes:
            own = everything[lane, : self._used(lane)] * ~self.final[lane, : self._used(lane)]
            own[self.cursor[lane] : self.cursor[lane] + 1] = 0  # the latest observation, not yet acted on
            if not (np.isfinite(own).all() and own.min() >= 0):
                raise ValueError("weights of transitions must be finite and at least 0")
            self._cumulative[lane] = own.cumsum() if own.any() else np.zeros(0)

    def sample(
        self,
        lanes: Sequence[int],
        count: int,
        generators: Sequence[np.random.Generator],
        weighted: np.ndarray | None = None,
    ) -> Batch:
        """`count` transitions of each of these lanes, with replacement; of the others, anything.

        They are drawn uniformly; those `weighted` `[count]` by the weights that `weigh` found.
        """
        self.write()
        slots = np.zeros((len(self.cursor), count), np.int64)
        for lane in lanes:
            slots[lane] = self._choose(lane, count, generators[lane])
            if weighted is not None:
                slots[lane, weighted] = self._choose_weighted(lane, int(weighted.sum()), generators[lane])
        return self._read(slots)

    def _read(self, slots: np.ndarray) -> Batch:
        """The transitions in slots `[lanes, count]`."""
        rows = np.arange(len(self.cursor))[:, None]
        following = (slots + 1) % self.obs.shape[1]
        return Batch(
            obs=_tensor(self.obs[rows, slots]),
            action=_tensor(self.action[rows, slots]),
            reward=_tensor(self.reward[rows, slots]),
            discount=_tensor(self.discount[rows, slots]),
            next_obs=_tensor(self.obs[rows, following]),
            stored=[_tensor(one.read(kept[rows, slots])) for one, kept in zip(self.stored, self.kept)],
            prior=_tensor(self.prior[rows, slots]),
            next_prior=_tensor(self.prior[rows, following]),
        )

    def state_dict(self) -> dict[str, Any]:
        """All slots in use, without copying them."""
        self.write()
        used = [self.obs.shape[1] if full else cursor + 1 for cursor, full in zip(self.cursor, self.full)]
        return {
            "slots": self.obs.shape[1],
            "cursor": self.cursor,
            "full": self.full,
            "incomplete": self.incomplete,
            "lanes": [
                {name: array[lane, :end] for name, array in self._arrays().items()} for lane, end in enumerate(used)
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over another replay, emptying `state` on the way: the two need not fit into memory at once."""
        slots, cursor, full, incomplete = (state[name] for name in ("slots", "cursor", "full", "incomplete"))
        lanes = range(len(self.cursor))
        if not (
            0 < slots <= self.capacity
            and len(cursor) == len(full) == len(incomplete) == len(state["lanes"]) == len(lanes)
            and all(0 <= cursor[lane] < slots and 0 <= incomplete[lane] <= slots for lane in lanes)
            and (slots == self.capacity or not any(full))
        ):
            raise ValueError(
                f"replay of {slots} slots with cursors {cursor} does not fit a capacity of {self.capacity}"
            )
        self._unwritten = []
        self._resize(slots, keep=False)
        for lane, arrays in enumerate(state["lanes"]):
            end = slots if full[lane] else cursor[lane] + 1
            for name, array in self._arrays().items():
                mine, other = array[lane, :end], arrays.pop(name)
                if (other.shape, other.dtype) != (mine.shape, mine.dtype):
                    raise ValueError(
                        f"{name} of the replay is {other.dtype}{other.shape}, not {mine.dtype}{mine.shape}"
                    )
                mine[:] = other
        if self.values and not (self.obs.min() >= 0 and self.obs.max() < self.values):
            raise ValueError(f"obs of the replay must be from 0 to {self.values - 1}")
        self.cursor, self.full, self.incomplete = [*cursor], [*full], [*incomplete]

    def _choose(self, lane: int, count: int, generator: np.random.Generator) -> np.ndarray:
        size, oldest = self.size(lane), self.cursor[lane] + 1 if self.full[lane] else 0
        slots = (oldest + generator.integers(size, size=count)) % self.obs.shape[1]
        while (refused := self.final[lane, slots]).any():
            slots[refused] = (oldest + generator.integers(size, size=int(refused.sum()))) % self.obs.shape[1]
        return slots

    def _choose_weighted(self, lane: int, count: int, generator: np.random.Generator) -> np.ndarray:
        cumulative = self._cumulative[lane]
        if not len(cumulative):
            return self._choose(lane, count, generator)
        below = np.nextafter(cumulative[-1], 0)  # lest a product is rounded up to the sum
        at = np.minimum(generator.random(count) * cumulative[-1], below)
        slots = np.searchsorted(cumulative, at, side="right")
        reused = self.final[lane, slots] | (slots == self.cursor[lane])  # since they were weighed
        slots[reused] = self._choose(lane, int(reused.sum()), generator)
        return slots

    def _new_slots(self, lane: int) -> np.ndarray:
        """The slots to be completed, and that of the latest observation."""
        count = min(self.incomplete[lane], self.size(lane))
        return (self.cursor[lane] - count + np.arange(count + 1)) % self.obs.shape[1]

    def _advance(self, lane: int, count: int) -> None:
        self.incomplete[lane] += count
        slot, size = self.cursor[lane] + count, self.obs.shape[1]
        if slot >= size:
            while slot >= size and size < self.capacity:
                size = min(self.capacity, 2 * size)
            if size > self.obs.shape[1]:
                self._resize(size)
            self.full[lane] |= slot >= size
        self.cursor[lane] = slot % size

    def _arrays(self) -> dict[str, np.ndarray]:
        """All that is kept in slots, by name."""
        return {name: getattr(self, name) for name in ARRAYS} | {f"kept{k}": one for k, one in enumerate(self.kept)}

    def _resize(self, slots: int, keep: bool = True) -> None:
        for name in ARRAYS:
            setattr(self, name, _resize(getattr(self, name), slots, keep))
        self.kept = [_resize(one, slots, keep) for one in self.kept]


def _resize(old: np.ndarray, slots: int, keep: bool) -> np.ndarray:
    """An array of a ring with another number of slots."""
    new = np.zeros((len(old), slots, *old.shape[2:]), old.dtype)
    if keep:
        new[:, : old.shape[1]] = old
    return new


def _tensor(array: np.ndarray) -> Tensor:
    """As torch wants it: integers are indices, int64."""
    return torch.from_numpy(array.astype(np.int64) if array.dtype == np.int32 else array)
