"""An experiment: a task, an agent, and seeds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dm_env
import numpy as np
import torch

from explore._config.configuration import Config
from explore._config.discovery import Registry
from explore._running.description import describe
from explore._running.loop import Progress, evaluate_episode, train
from explore._running.regret import Regret
from explore._running.visits import track_visits
from explore._state import Tree, capture, check_fits, restore, skeleton
from explore._storage.episodes_csv import episode_columns
from explore._storage.snapshots import is_due
from explore.interfaces import Agent, Judge, Observer, Spec
from explore.streams import Streams, global_generators

MOST_SEEDS = 1_000_000


def load(
    config: str | Path | None, bindings: Sequence[str], registry: Registry, *, allow_imports: bool = False
) -> Config:
    """The checked configuration of an experiment, whose `build` makes it."""
    return Config(config, bindings, registry, root=Experiment, allow_imports=allow_imports)


class Experiment:
    """The root of a configuration: all seeds of an agent in copies of an environment.

    Args:
      environment: the task, built once per seed.
      agent: acts and learns, for all seeds at once.
      episodes: episodes of each seed.
      seeds: the seeds, each a lane of the one program, such as (0, 1, 2); or how many, from 0 on.
      evaluate_every: plays an evaluation episode after every so many episodes; None: never.
      stop_when_solved: ends the run once every seed has solved the task.
      checkpoint_minutes: writes a checkpoint, from which `--resume` goes on, whenever so many
        minutes have passed; None: not by time.
      checkpoint_every: writes a checkpoint after every so many episodes; None: not by episodes.
        With None for both there are no checkpoints.
      snapshots: how many times, whenever episodes grow tenfold, it is recorded what the agent believes
        and where it has been, for the pictures of `explore report`; 6: after episodes 1, 2, 3, 5, 7,
        10, 15, 22, ..., and the last; None: never.
      observers: who watches the run, such as [@observer.TensorBoard].
      threads: torch threads; networks this small are fastest with one.
      device: where tensors live: cpu, cuda, ...
    """

    def __init__(
        self,
        environment: type[dm_env.Environment],
        agent: type[Agent],
        episodes: int,
        seeds: int | Sequence[int] = (0,),
        evaluate_every: int | None = None,
        stop_when_solved: bool = False,
        checkpoint_minutes: float | None = 5.0,
        checkpoint_every: int | None = None,
        snapshots: int | None = 6,
        observers: Sequence[type[Observer]] = (),
        threads: int = 1,
        device: str = "cpu",
    ):
        self.episodes, self.evaluate_every, self.stop_when_solved = episodes, evaluate_every, stop_when_solved
        self.checkpoint_minutes, self.checkpoint_every, self.snapshots = checkpoint_minutes, checkpoint_every, snapshots
        self.seeds, self.threads = _check_seeds(seeds), threads
        self._check_settings()
        self.observers = [observer() for observer in observers]
        self._build_task(environment)
        self._build_agent(agent, _check_device(device))
        measured = {"regret": self.regret, "evaluation": self.evaluate_every}
        own = [name for name, measure in measured.items() if measure is not None]
        self.columns = episode_columns(self.agent.columns, self.judges[0].columns, own)
        self.description = describe(self.environments[0], self.judges[0], self.columns)
        self.progress = Progress(np.zeros(len(self.seeds), np.int64))
        self.visits = track_visits(self.environments[0], len(self.seeds))
        self._skeleton: Tree = None  # of the state when newly built

    def _check_settings(self) -> None:
        for name in ("episodes", "evaluate_every", "checkpoint_every", "snapshots", "threads"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, got {number!r}")
        if self.threads > 256:
            raise ValueError(f"threads must be at most 256, got {self.threads!r}")
        if self.checkpoint_minutes is not None and not self.checkpoint_minutes >= 0:
            raise ValueError(f"checkpoint_minutes must be None or at least 0, got {self.checkpoint_minutes!r}")

    def _build_task(self, environment: type[dm_env.Environment]) -> None:
        """Environments and judges, one of each per seed."""
        self.build_environment: Callable[[int], Any] = lambda seed: environment(seed=seed)
        self.environments = [self.build_environment(seed) for seed in self.seeds]
        self.evaluators = [self.build_environment(seed) for seed in self.seeds] if self.evaluate_every else []
        self.judges = [getattr(env, "judge", Judge)(env) for env in self.environments]
        if self.stop_when_solved and not self.judges[0].decides:
            name = getattr(self.environments[0], "task", type(self.environments[0]).__name__)
            raise ValueError(f"stop_when_solved has no effect: {name} defines no criterion for solved")

    def _build_agent(self, agent: type[Agent], device: torch.device) -> None:
        """The agent of all seeds; and its regret, where the environment tells the truth and the agent its policy."""
        models = [env.true_model() for env in self.environments if hasattr(env, "true_model")]
        self.spec = _describe(self.environments[0], models[0].observations if models else None)
        self.agent: Agent = agent(self.spec, Streams(self.seeds), device)  # type: ignore[call-arg]
        tells_policy = type(self.agent).policy is not Agent.policy
        self.regret = Regret(models) if models and tells_policy else None

    @property
    def has_checkpoints(self) -> bool:
        return self.checkpoint_minutes is not None or self.checkpoint_every is not None

    @property
    def is_over(self) -> bool:
        solved = self.stop_when_solved and all(judge.solved_at is not None for judge in self.judges)
        return solved or self.progress.episode >= self.episodes

    def train(self) -> Iterator[list[dict[str, Any]]]:
        """Trains all seeds from where they are; yields the rows of `episodes.csv` as episodes end."""
        rows = train(
            self.agent, self.environments, self.judges, self.seeds, self.episodes, self._measure, self.progress,
            self.visits,
        )  # fmt: skip
        while not self.is_over:
            yield next(rows)

    def take_snapshot(self) -> dict[str, np.ndarray]:
        """The arrays of a snapshot if one is due after the latest episode, see `explore._storage.snapshots`."""
        if self.visits is None or not (self.snapshot_is_due or (self.snapshots is not None and self.is_over)):
            return {}
        return self.visits.picture(self.agent)

    @property
    def snapshot_is_due(self) -> bool:
        """Whether one is due after the latest episode, however many are still to come."""
        return self.snapshots is not None and is_due(self.progress.episode, self.snapshots)

    def _measure(self, episode: int) -> dict[str, Sequence[float]]:
        columns: dict[str, Sequence[float]] = {}
        if self.regret is not None:
            columns["regret"] = self.regret.of(self.agent)
        if self.evaluate_every is not None and episode % self.evaluate_every == 0:
            columns["evaluation"] = evaluate_episode(self.agent, self.evaluators)
        return columns

    @contextmanager
    def isolate(self) -> Iterator[None]:
        """Sets the number of threads, and seeds the global generators (torch's, numpy's, Python's), from which
        a plugin may draw; restores both afterwards."""
        threads = torch.get_num_threads()
        with preserve_generators():
            torch.set_num_threads(self.threads)
            seed_generators(self.seeds[0])
            try:
                yield
            finally:
                torch.set_num_threads(threads)

    def state_dict(self) -> dict[str, Tree]:
        """All that changes in a run, as it is between episodes; raises `Unsavable`."""
        state = {name: capture(thing, name) for name, thing in self._list_changing().items()}
        if self._skeleton is not None:
            for name, tree in state.items():
                check_fits(tree, self._skeleton[name], name)
        return state

    def load_state_dict(self, state: Mapping[str, Tree]) -> None:
        """Takes over the state of another experiment of the same configuration; raises `Misfit`."""
        for name, thing in self._list_changing().items():
            restore(thing, state.get(name), name)

    def record_skeleton(self) -> None:
        """To be called when newly built: later states are checked to fit. Raises `Unsavable`."""
        self._skeleton = skeleton(self.state_dict())

    def _list_changing(self) -> dict[str, Any]:
        return {
            "agent": self.agent,
            "task": _Task(self.environments, self.evaluators, self.judges),
            "progress": self.progress,
            "visits": self.visits,
            "generators": global_generators(),
        }


def seed_generators(seed: int) -> None:
    """Seeds the global generators."""
    torch.manual_seed(seed % 2**64)
    np.random.seed(seed % 2**32)
    random.seed(seed)


@contextmanager
def preserve_generators() -> Iterator[None]:
    """Restores the global generators afterwards."""
    before = capture(global_generators(), "the global generators")
    try:
        yield
    finally:
        restore(global_generators(), before, "the global generators")


@dataclass
class _Task:
    """Saved together: a judge holds its environment."""

    environments: list[Any]
    evaluators: list[Any]
    judges: list[Judge]


def _describe(environment: dm_env.Environment, stages: np.ndarray | None) -> Spec:
    observation, actions = environment.observation_spec(), environment.action_spec()
    if not isinstance(observation, dm_env.specs.Array):
        raise ValueError(f"environment must have an observation_spec that is a dm_env.specs.Array, got {observation!r}")
    if not isinstance(actions, dm_env.specs.DiscreteArray):
        raise ValueError(f"environment must have discrete actions, got {actions!r}")
    return Spec(observation, int(actions.num_values), environment.reward_spec(), stages)


def _check_seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    every = range(min(seeds, MOST_SEEDS + 1)) if isinstance(seeds, int) else seeds
    if len(every) > MOST_SEEDS:
        raise ValueError(f"seeds must be at most {MOST_SEEDS:,}, got {seeds!r}")
    if not every or min(every) < 0 or len(set(every)) < len(every):
        raise ValueError(f"seeds must be different integers of at least 0 such as (0, 1, 2), got {seeds!r}")
    return tuple(every)


def _check_device(device: str) -> torch.device:
    try:
        torch.zeros(1, device=device).item()
        return torch.device(device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"device {device!r} is not available: {str(error).splitlines()[0]}") from error
