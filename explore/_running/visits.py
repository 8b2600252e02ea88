"""Records where each seed has been, which pictures need and rows do not tell. Arrays are those of a snapshot.

An environment whose one-hot observations can be laid out as a picture says so with a method
`belief_map() -> [rows, columns]`: the number of the observation at each place, -1 where there is none.
Then visits are counted. Of other environments the best episode of each seed is kept.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import dm_env
import numpy as np

from explore._storage.snapshots import NO_BELIEFS
from explore.interfaces import Agent, Timesteps

MOST_NUMBERS = 1000
"""In an observation: whole episodes of larger ones, such as images, are not kept."""


BLOCK = 64
"""Steps of an episode of which beliefs are asked at a time."""


class Visits(ABC):
    """Where each seed has been: follows every episode, and gives the arrays of a snapshot now and then."""

    def __init__(self) -> None:
        self._path: list[tuple[np.ndarray, Sequence[int], np.ndarray]] = []  # observations, actions, rewards

    def step(self, observations: np.ndarray, actions: Sequence[int], timesteps: Timesteps) -> None:
        """Actions at these observations `[lanes, ...]` led to these timesteps."""
        self._path.append((observations, tuple(actions), timesteps.rewards))

    @abstractmethod
    def end(self, episode: int, returns: Sequence[float], lengths: np.ndarray) -> None:
        """An episode of all lanes is over: that of a lane is the first steps of the path."""

    @abstractmethod
    def picture(self, agent: Agent) -> dict[str, np.ndarray]:
        """The arrays of a snapshot, beliefs of the agent among them; all begin with the axis of lanes."""


class MapVisits(Visits):
    """How often each seed was at each place of a map."""

    def __init__(self, places: np.ndarray, lanes: int, observations: int):
        super().__init__()
        self.places = places
        self.counts = np.zeros((lanes, observations), np.int64)

    def end(self, episode: int, returns: Sequence[float], lengths: np.ndarray) -> None:
        visited = np.array([observations for observations, _, _ in self._path])  # [steps, lanes]
        there = np.arange(len(visited))[:, None] < lengths
        np.add.at(self.counts, (np.arange(len(lengths)), visited), there)
        self._path = []

    def picture(self, agent: Agent) -> dict[str, np.ndarray]:
        """Visits `[lanes, rows, columns]` and beliefs `[lanes, rows, columns, actions]`."""
        there = self.places >= 0
        shape = (len(self.counts), *self.places.shape)
        observations = np.tile(self.places[there], (len(self.counts), 1))
        arrays = {"visits": np.full(shape, -1, np.int64)}
        arrays["visits"][:, there] = self.counts[:, self.places[there]]
        for name, values in beliefs(agent, observations).items():
            arrays[name] = np.full((*shape, values.shape[-1]), np.nan, np.float32)
            arrays[name][:, there] = values
        return arrays

    def state_dict(self) -> dict[str, Any]:
        return {"counts": self.counts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["counts"].shape != self.counts.shape:
            raise ValueError(f"visits have shape {state['counts'].shape}, expected {self.counts.shape}")
        self.counts[:] = state["counts"]


class BestEpisodes(Visits):
    """The episode of each seed with the highest return, the first of equals, step by step."""

    def __init__(self, lanes: int):
        super().__init__()
        self.episode = [0] * lanes
        self.best = [math.nan] * lanes
        self.observations: list[np.ndarray] = [np.zeros(0)] * lanes  # [steps, ...]
        self.actions = [np.zeros(0, np.int64)] * lanes
        self.rewards = [np.zeros(0)] * lanes

    def end(self, episode: int, returns: Sequence[float], lengths: np.ndarray) -> None:
        for lane, episode_return in enumerate(returns):
            if not episode_return <= self.best[lane] and not (self.episode[lane] and math.isnan(episode_return)):
                path = self._path[: lengths[lane]]
                self.episode[lane], self.best[lane] = episode, float(episode_return)
                self.observations[lane] = np.array([observations[lane] for observations, _, _ in path])
                self.actions[lane] = np.array([actions[lane] for _, actions, _ in path], np.int64)
                self.rewards[lane] = np.array([rewards[lane] for _, _, rewards in path], float)
        self._path = []

    def picture(self, agent: Agent) -> dict[str, np.ndarray]:
        """The episodes, padded to the longest, and beliefs along them, `[lanes, longest, actions]`."""
        lengths = np.array([len(actions) for actions in self.actions])
        longest = max(range(len(lengths)), key=lambda lane: lengths[lane])
        observations = np.stack([_pad_path(path, self.observations[longest]) for path in self.observations])
        arrays = {
            "best_episode": np.array(self.episode),
            "best_return": np.array(self.best),
            "lengths": lengths,
            "observations": observations.astype(np.float32),
            "actions": np.stack([_pad_path(path, np.full(lengths.max(), -1)) for path in self.actions]),
            "rewards": np.stack([_pad_path(path, np.full(lengths.max(), np.nan)) for path in self.rewards]),
        }
        beyond = np.arange(lengths.max()) >= lengths[:, None]
        for name, values in _beliefs_by_blocks(agent, observations).items():
            arrays[name] = np.where(beyond[..., None], np.float32(np.nan), values)
        return arrays

    def state_dict(self) -> dict[str, Any]:
        return {name: values for name, values in vars(self).items() if name != "_path"}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in self.state_dict():
            if len(state[name]) != len(self.episode):
                raise ValueError(f"best episodes have {name} of {len(state[name])} seeds, expected {len(self.episode)}")
            setattr(self, name, [*state[name]])


def belief_map(environment: dm_env.Environment) -> np.ndarray | None:
    """The numbers of the observations, where they are in a picture, `[rows, columns]`; raises `ValueError`."""
    spec = environment.observation_spec()
    if not isinstance(spec, dm_env.specs.DiscreteArray) or not hasattr(environment, "belief_map"):
        return None
    places = np.asarray(environment.belief_map())
    fits = places.ndim == 2 and places.dtype.kind == "i" and places.min() >= -1 and places.max() < spec.num_values
    if not fits:
        raise ValueError(f"belief_map() must give numbers of observations [rows, columns], or -1, got {places!r}")
    return places


def track_visits(environment: dm_env.Environment, lanes: int) -> Visits | None:
    """What is to be kept of the episodes in an environment; None if an observation is too large."""
    spec, places = environment.observation_spec(), belief_map(environment)
    if places is not None:
        return MapVisits(places, lanes, int(spec.num_values))
    return BestEpisodes(lanes) if np.prod(spec.shape, dtype=int) <= MOST_NUMBERS else None


def beliefs(agent: Agent, observations: np.ndarray) -> dict[str, np.ndarray]:
    """What an agent believes of observations `[lanes, batch, ...]`, as float32; raises `ValueError`."""
    found = {}
    for name, values in agent.beliefs(observations).items():
        array = np.asarray(values)
        if array.ndim != 3 or array.shape[:2] != observations.shape[:2] or array.dtype.kind not in "biuf":
            wanted = "numbers [lanes, batch, actions]"
            raise ValueError(
                f"{type(agent).__name__}.beliefs() must give {wanted}, got {name} of {_describe_array(array)}"
            )
        if not str(name).isidentifier() or name in NO_BELIEFS:
            raise ValueError(f"{type(agent).__name__}.beliefs() must not give anything called {name!r}")
        found[name] = array.astype(np.float32)
    return found


def _beliefs_by_blocks(agent: Agent, observations: np.ndarray) -> dict[str, np.ndarray]:
    """`beliefs`, of as many observations at a time however many there are: how many decides how sums are rounded."""
    count = observations.shape[1]
    padded = np.concatenate([observations, np.repeat(observations[:, -1:], -count % BLOCK, axis=1)], axis=1)
    blocks = [beliefs(agent, padded[:, start : start + BLOCK]) for start in range(0, count, BLOCK)]
    return {name: np.concatenate([block[name] for block in blocks], axis=1)[:, :count] for name in blocks[0]}


def _describe_array(array: np.ndarray) -> str:
    return f"shape {[*array.shape]}" if array.dtype.kind in "biuf" else f"type {array.dtype}"


def _pad_path(path: np.ndarray, longest: np.ndarray) -> np.ndarray:
    """A path followed by the rest of a longer one."""
    return np.concatenate([path, longest[len(path) :]])
