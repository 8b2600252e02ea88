"""Agents built from the built-in components as gin would build them, and their lives in a toy environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dm_env
import numpy as np
import torch
from explore_plugins.indexed_agent import Indexed

from explore._learning.replay import Replay
from explore._running.loop import Progress, train
from explore.interfaces import Judge, Spec
from explore.streams import Streams
from explore.testing.toy import CELLS, FLOATS, Walk, bsp, pins

__all__ = [
    "BSP",
    "CELLS",
    "FLOATS",
    "PINS",
    "Walk",
    "append",
    "as_numbers",
    "build",
    "fill",
    "live",
    "some_observations",
    "spec_of",
    "weights",
]

PINS, BSP = pins(), bsp()


def spec_of(environment: dm_env.Environment) -> Spec:
    return Spec(environment.observation_spec(), environment.action_spec().num_values)


def build(seeds: Sequence[int] = (0, 1), spec: Spec = FLOATS, **parts: Any) -> Indexed:
    """An agent, that of PINs if no parts are given."""
    return Indexed(spec, Streams(seeds), torch.device("cpu"), **(PINS | parts))


def live(
    agent: Indexed,
    episodes: int,
    environment: Callable[..., dm_env.Environment] = Walk,
    measure: Callable[[int], Any] = lambda episode: {},
) -> dict[int, list[dict[str, Any]]]:
    """Trains the agent; returns the rows of each seed."""
    seeds = agent.streams.seeds
    environments = [environment(seed=seed) for seed in seeds]
    rows: list[dict[str, Any]] = []
    judges, progress = [Judge(e) for e in environments], Progress(np.zeros(len(seeds), int))
    for new in train(agent, environments, judges, seeds, episodes, measure, progress):
        rows.extend(new)
    return {seed: [row for row in rows if row["seed"] == seed] for seed in seeds}


def fill(replay: Replay, steps: int, lane: int = 0, first: int = 0) -> None:
    """Adds steps of one long episode, whose observations `[1]` count up."""
    replay.start(lane, np.array([first], np.float32))
    for number in range(first, first + steps):
        append(replay, lane, 0, dm_env.transition(0.0, np.array([number + 1], np.float32)))


def append(replay: Replay, lane: int, action: int, timestep: dm_env.TimeStep) -> None:
    """A step of one lane, while the others wait."""
    lanes = len(replay.cursor)
    replay.append([action] * lanes, [timestep] * lanes, [other == lane for other in range(lanes)])


def weights(agent: Indexed) -> dict[int, list[torch.Tensor]]:
    """All networks of each seed: a tensor `[copies, numbers]` per part."""
    seeds = agent.streams.seeds
    stacks = [stack.buffer.unflatten(1, (len(seeds), -1)).flatten(2).clone() for stack in agent.function.stacks]
    return {seed: [stack[:, lane] for stack in stacks] for lane, seed in enumerate(seeds)}


def some_observations(spec: Spec, batch: int = 5) -> torch.Tensor:
    """Some for each of two lanes."""
    random = torch.Generator().manual_seed(0)
    if spec is CELLS:
        return torch.randint(9, (2, batch), generator=random)
    return torch.randn(2, batch, 2, 2, generator=random)


def as_numbers(spec: Spec, obs: torch.Tensor) -> torch.Tensor:
    """What a network sees of an observation."""
    return torch.nn.functional.one_hot(obs, 9).double() if spec is CELLS else obs.flatten().double()
