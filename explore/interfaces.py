"""What a component of each slot must be.

One idea carries the library: an **indexed value function** Q_i(s, a), a value for every state and
action given an index i drawn from a fixed distribution. Drawing i samples one plausible value
function. The core composes it from parts (`UncertaintyModule`s, the first of which holds the
value network), and every selection and objective works on the composition.

A component is a class. The core builds it; gin fills the parameters after the first. Values are
checked against the annotations of parameters (`heads: int`) before anything is built; what else is
wrong a component reports with a plain `ValueError("heads must be at least 1, got 0")`, and the core
adds where.

What a component keeps in its attributes is saved in checkpoints and put back when a run is resumed
(`explore.state` says what can be saved). One that keeps something else, or wants less to be saved,
has the methods `state_dict() -> dict` and `load_state_dict(state)`, as in torch.

Every tensor has a leading axis of lanes, one per seed. Shapes are written in terms of
`lanes`, `batch` (observations per lane), `draws` (indices per observation), `actions` and `size`
(the length of an index).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import dm_env
import numpy as np
import torch
from torch import Tensor, nn

from explore.streams import Generators, Streams, normal, uniform

if TYPE_CHECKING:
    from explore.indexed import IndexedValue

Features = tuple[Tensor, ...]  # of one batch of observations: one tensor per part
Index = tuple[Tensor | None, ...]  # one per part; None: every member of an ensemble in turn


@dataclass(frozen=True)
class Spec:
    """What a network needs to know of the environment.

    An observation spec that is a `dm_env.specs.DiscreteArray` means one-hot observations, which
    are passed as integers `[lanes, batch]`; any other is passed as floats `[lanes, batch, ...]`.
    """

    observation: dm_env.specs.Array
    num_actions: int


class ValueNetwork(nn.Module):
    """Slot `value`: a network from observations to a value per action.

    Example:

        class Linear(ValueNetwork):
            def __init__(self, spec):
                super().__init__()
                self.net = explore.nn.MLP(spec.observation, (), spec.num_actions)

            def forward(self, obs):
                return self.net(obs)
    """

    exact: ClassVar[bool] = False  # see `explore.nn.safe_rows`

    def forward(self, obs: Tensor) -> Tensor:
        """`[lanes, batch, ...] -> [lanes, batch, actions]`"""
        raise NotImplementedError


class UncertaintyModule(nn.Module):
    """Slot `uncertainty`: how an index is drawn, and how values vary with it.

    `forward` gives the features of observations, all that does not depend on the index, and
    `values` the values at an index. Here they are linear in it, Q_i(s, a) = features(s, a) · i,
    which covers ensembles (i picks a member), PINs (i = z at head u, else 0) and linear
    hypermodels. A module with another product overrides `values`, which must stay linear in the index
    (the mean is the value at the mean index) and use no parameters: they belong to `forward`.

    Subclass `ScaleModule` for a network of standard deviations, as in PINs.
    """

    size: int  # the length of an index
    mask_size: int = 0  # bootstrap bits kept with each transition
    random: bool = True  # False: there is only one index
    exact: bool = False  # see `explore.nn.safe_rows`
    continuous: bool = True  # drawn anew for each transition in learning, not enumerated

    def forward(self, obs: Tensor) -> Tensor:
        """`[lanes, batch, ...] -> features [lanes, batch, actions, size]`"""
        raise NotImplementedError

    def draw(self, generators: Generators, *shape: int) -> Tensor:
        """Indices from the fixed distribution, `[lanes, *shape, size]`."""
        raise NotImplementedError

    def draw_for_learning(self, generators: Generators, mask: Tensor, draws: int) -> Tensor | None:
        """Indices to learn at, `[lanes, batch, draws, size]`, given masks `[lanes, batch, mask_size]`."""
        return self.draw(generators, mask.shape[1], draws)

    def perturbation(self, noise: Tensor, index: Tensor) -> Tensor:
        """What a transition's normal numbers `[lanes, batch, size]` add to its reward at an index
        `[lanes, batch, draws, size]`, in units of the objective's noise: `[lanes, batch, draws]`."""
        return (noise.unsqueeze(2) * index).sum(-1)

    def mean_index(self) -> Tensor:
        """The expected index, `[size]`."""
        return torch.zeros(self.size)

    def values(self, features: Tensor, index: Tensor) -> Tensor:
        """`features [lanes, batch, actions, size]`, `index [lanes, batch or 1, draws, size]` ->
        `[lanes, batch, draws, actions]`"""
        return (features.unsqueeze(2) * index.unsqueeze(3)).sum(-1)

    def variance(self, features: Tensor) -> Tensor:
        """Variance of the values over indices, `[lanes, batch, actions]`."""
        raise NotImplementedError

    def describe_index(self, index: np.ndarray) -> str:
        """The index `[size]` in words, for the column `index` of `episodes.csv`."""
        return " ".join(f"{x:.4f}" for x in index)


class Members(UncertaintyModule):
    """Index = a member, uniform over `count` independent copies of the value network.

    The core builds the copies as that many more lanes and puts them in `network`.
    """

    continuous = False
    network: ValueNetwork

    @property
    def exact(self) -> bool:  # type: ignore[override]
        return self.network.exact

    def __init__(self, count: int):
        super().__init__()
        if count < 1:
            raise ValueError(f"size must be at least 1, got {count!r}")
        self.size = count
        self.random = count > 1
        self.mask_size = count if self.random else 0

    def forward(self, obs: Tensor) -> Tensor:
        if not self.random:
            return self.network(obs).unsqueeze(-1)
        values = self.network(obs.repeat_interleave(self.size, 0))
        return values.unflatten(0, (-1, self.size)).movedim(1, -1)

    def draw(self, generators: Generators, *shape: int) -> Tensor:
        if not self.random:
            return torch.ones(len(generators), *shape, 1)
        member = (uniform(generators, *shape) * self.size).long()
        return nn.functional.one_hot(member, self.size).float()

    def draw_for_learning(self, generators: Generators, mask: Tensor, draws: int) -> Tensor | None:
        """Every member in turn, `draws` a multiple of their number; None: each of them once."""
        if draws == self.size:
            return None
        every = torch.eye(self.size, device=mask.device).repeat_interleave(draws // self.size, 0)
        return every.expand(*mask.shape[:2], -1, -1)

    def mean_index(self) -> Tensor:
        return torch.full((self.size,), 1 / self.size)

    def values(self, features: Tensor, index: Tensor | None) -> Tensor:
        if index is None or not self.random:
            return features.movedim(-1, 2)
        return super().values(features, index)

    def perturbation(self, noise: Tensor, index: Tensor | None) -> Tensor:
        if not self.random:
            return torch.zeros_like(noise)
        return noise if index is None else super().perturbation(noise, index)

    def variance(self, features: Tensor) -> Tensor:
        return (features - features.mean(-1, keepdim=True)).square().mean(-1)

    def describe_index(self, index: np.ndarray) -> str:
        return f"member={index.argmax()}" if self.random else ""


class ScaleModule(UncertaintyModule):
    """Standard deviations m^u(s, a) with `heads` bootstrapped heads, as in PINs.

    Index = (z ~ N(0, 1), head u uniform), which adds m^u(s, a) z to the value. With
    `train_heads = "one"` each sample trains one head drawn among its set mask bits (the paper);
    with `"masked"` it trains all of them.

    Example:

        class WideHeads(ScaleModule):
            def __init__(self, spec, heads: int = 4, width: int = 64):
                super().__init__(heads)
                self.net = explore.nn.MLP(spec.observation, (width,), spec.num_actions * heads)

            def forward(self, obs):
                return softplus(self.net(obs)).unflatten(-1, (-1, self.heads))
    """

    def __init__(self, heads: int, train_heads: str = "one"):
        super().__init__()
        if heads < 1:
            raise ValueError(f"heads must be at least 1, got {heads!r}")
        if train_heads not in ("one", "masked"):
            raise ValueError(f"train_heads must be 'one' or 'masked', got {train_heads!r}")
        self.size = self.mask_size = self.heads = heads
        self.train_heads = train_heads

    def forward(self, obs: Tensor) -> Tensor:
        """`[lanes, batch, ...] -> [lanes, batch, actions, heads]`, never negative."""
        raise NotImplementedError

    def draw(self, generators: Generators, *shape: int) -> Tensor:
        z = normal(generators, *shape)
        head = (uniform(generators, *shape) * self.heads).long()
        return z.unsqueeze(-1) * nn.functional.one_hot(head, self.heads)

    def draw_for_learning(self, generators: Generators, mask: Tensor, draws: int) -> Tensor:
        z = normal(generators, mask.shape[1], draws, 1).to(mask.device)
        return z * self.draw_heads(generators, mask, draws)

    def draw_heads(self, generators: Generators, mask: Tensor, draws: int) -> Tensor:
        """A head per draw, uniform among the set bits (among all if none is set), one-hot
        `[lanes, batch, draws, heads]`."""
        keys = uniform(generators, mask.shape[1], draws, self.heads).to(mask.device) + mask.unsqueeze(2)
        return nn.functional.one_hot(keys.argmax(-1), self.heads).float()

    def variance(self, features: Tensor) -> Tensor:
        return features.square().mean(-1)

    def describe_index(self, index: np.ndarray) -> str:
        head = np.abs(index).argmax()
        return f"z={index[head]:.4f} head={head}"


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


@dataclass
class Beliefs:
    """What an agent believes of a batch of observations: values as a function of the index.

    `index` is the index acted on (held for the episode) or learned at, `[lanes, batch or 1,
    draws, size]` for each part. `generators` is where a selection gets its random numbers: with
    `explore.streams.uniform(beliefs.generators, ...)`.
    """

    function: IndexedValue
    features: Features
    index: Index
    generators: Generators
    progress: float  # the share of the run's episodes that are over

    def sampled(self) -> Tensor:
        """Values at the index, `[lanes, batch, draws, actions]`."""
        return self.function.values(self.features, self.index)

    def mean(self) -> Tensor:
        """Expected values, `[lanes, batch, 1, actions]`."""
        return self.function.values(self.features, self.function.mean_index())

    def std(self) -> Tensor:
        """Standard deviation over indices, `[lanes, batch, 1, actions]`."""
        return self.function.std(self.features).unsqueeze(2)

    def draw(self, count: int) -> Tensor:
        """Values at `count` fresh indices, `[lanes, batch, count, actions]`."""
        batch = self.features[0].shape[1]
        return self.function.values(self.features, self.function.draw(self.generators, batch, count))


class Selection(ABC):
    """Slot `selection`: which action an indexed value function picks.

    Example:

        class SecondGuess(Selection):
            def scores(self, beliefs):
                return beliefs.mean() + 0.5 * beliefs.std()
    """

    @abstractmethod
    def scores(self, beliefs: Beliefs) -> Tensor:
        """The action with the highest score is picked, `[lanes, batch, draws or 1, actions]`."""

    def select(self, beliefs: Beliefs) -> Tensor:
        """Actions `[lanes, batch, draws or 1]`; ties are broken at random."""
        return argmax(self.scores(beliefs), beliefs.generators)


def argmax(scores: Tensor, generators: Generators) -> Tensor:
    """Argmax over the last axis, ties broken at random by each lane's own stream."""
    highest, first = scores.max(-1, keepdim=True)
    best = scores == highest
    if int(best.sum()) > first.numel():
        tied = (best.sum(-1) > 1).flatten(1).any(1).tolist()
        keys = uniform([g if tie else None for g, tie in zip(generators, tied)], *best.shape[1:])
        return (best + keys.to(best.device)).argmax(-1)
    return first.squeeze(-1)


@dataclass
class Phase:
    """All transitions of a learning phase, with the values of the frozen networks at them.

    `discount` holds the agent's discount times the environment's, so it is 0 after a terminal step.
    """

    function: IndexedValue
    reward: Tensor  # [lanes, batch]
    discount: Tensor  # [lanes, batch]
    mask: tuple[Tensor, ...]  # per part [lanes, batch, mask_size]
    noise: tuple[Tensor, ...]  # per part [lanes, batch, size], empty where not asked for
    next_features: Features  # target networks joined with priors, at the next observations
    select: Callable[[Index], Tensor] = field(repr=False)  # index -> next actions [lanes, batch, draws]
    generators: Generators = field(repr=False)
    progress: float = 0.0


class Objective(ABC):
    """Slot `objective`: how targets are formed and matched.

    `prepare` runs once per learning phase on all its minibatches, without gradients; `loss` runs
    once per minibatch on the trained features at the actions taken.
    """

    losses: ClassVar[tuple[str, ...]]  # what `loss` returns, columns of `episodes.csv`

    def check(self, function: IndexedValue) -> None:
        """Raises `ValueError` with a sentence if the value function cannot be trained so."""

    @property
    def uses_noise(self) -> bool:
        """Whether `Phase.noise` is wanted (drawn once per transition and stored with it)."""
        return False

    @abstractmethod
    def prepare(self, phase: Phase) -> Mapping[str, Tensor | tuple[Tensor, ...]]:
        """Targets and weights, each `[lanes, batch, ...]`."""

    @abstractmethod
    def loss(self, function: IndexedValue, features: Features, prepared: Mapping[str, Any]) -> dict[str, Tensor]:
        """Named losses of a minibatch, each `[lanes]`; `features` are `[lanes, batch, 1, size]`."""


class Schedule(ABC):
    """Slot `schedule`: a number that changes over the run.

    Example:

        class Halving(Schedule):
            def __init__(self, start: float = 1.0, times: int = 4):
                self.start, self.times = start, times

            def __call__(self, progress):
                return self.start / 2 ** int(progress * self.times)
    """

    @abstractmethod
    def __call__(self, progress: float) -> float:
        """The value when this share of the run's episodes is over, from 0 to 1."""


def scheduled(
    value: float | type[Schedule], name: str, minimum: float = -math.inf, maximum: float = math.inf
) -> Callable[[float], float]:
    """A parameter that may be a number or a schedule, as a function of progress."""
    schedule: Callable[[float], float] = value() if isinstance(value, type) else lambda progress: float(value)
    for number in (schedule(0.0), schedule(1.0)):
        if not minimum <= number <= maximum:
            bounds = f"at least {minimum:g}" if maximum == math.inf else f"between {minimum:g} and {maximum:g}"
            raise ValueError(f"{name} must be {bounds}, got {number!r}")
    return schedule


class Judge:
    """Decides from the episodes of one seed whether its task is solved.

    An environment class names its judge in a class attribute `judge`; without one it gets this,
    which knows nothing of the task.
    """

    columns: tuple[str, ...] = ()  # its own columns of `episodes.csv`
    decides: ClassVar[bool] = False  # whether it ever sets `solved_at`

    def __init__(self, environment: dm_env.Environment):
        self.environment = environment
        self.returns: list[float] = []
        self.solved_at: int | None = None  # the episode, counted from 1

    def episode(self, episode_return: float) -> dict[str, float]:
        """Sees an episode that has just ended; returns the values of `columns`."""
        self.returns.append(episode_return)
        return {}

    def summary(self) -> dict[str, Any]:
        """This seed's entry in `summary.json`."""
        recent = self.returns[-100:]
        return {
            "episodes": len(self.returns),
            "mean_return": float(np.mean(self.returns)) if self.returns else None,
            "best_return": max(self.returns, default=None),
            "mean_of_last_100": float(np.mean(recent)) if recent else None,
            "best_of_last_100": max(recent, default=None),
            "solved_at": self.solved_at,
        }


class Agent(ABC):
    """Slot `agent`: acts and learns, all lanes at once.

    The loop calls `begin_episode`, then for each step `act` and `observe`. A lane whose episode
    has ended waits: it is not `active`, its action is ignored, and none of its random numbers may
    be drawn.

    Checkpoints keep its attributes, and those of what it is made of (see `explore.state`).
    """

    columns: tuple[str, ...] = ()  # what `metrics` returns, the agent's columns of `episodes.csv`

    @abstractmethod
    def begin_episode(self, observations: np.ndarray, progress: float) -> None:
        """A new episode of every lane starts at these observations `[lanes, ...]`."""

    @abstractmethod
    def act(self, observations: np.ndarray, active: Sequence[bool]) -> Sequence[int]:
        """An action for each lane."""

    @abstractmethod
    def observe(self, actions: Sequence[int], timesteps: Sequence[dm_env.TimeStep], active: Sequence[bool]) -> None:
        """What the actions led to; entries of waiting lanes are to be ignored."""

    @abstractmethod
    def evaluate(self, observations: np.ndarray, active: Sequence[bool]) -> Sequence[int]:
        """An action for each lane in an evaluation episode, from which nothing is learned."""

    def begin_evaluation(self) -> None:
        """An evaluation episode of every lane starts."""

    def metrics(self) -> dict[str, Sequence[Any]]:
        """The values of `columns` for the episode at hand, each with one entry per lane."""
        return {}

    def cost(self) -> dict[str, int]:
        """What it has taken so far, for comparisons: `parameters` (trained, of one seed), `updates` and
        `samples` (learned from, of all seeds)."""
        return {}


@dataclass(frozen=True)
class Task:
    """A cell of a sweep that is to be run, by `explore` with these words; its run goes to `folder`."""

    name: str
    words: tuple[str, ...]
    folder: Path


@dataclass(frozen=True)
class News:
    """A task has begun, or begun again (`code` is None), or ended.

    An exit code below 0 is the signal that killed it. `text` is what it wrote to stderr, or why it
    had to begin again.
    """

    task: Task
    code: int | None = None
    text: str = ""


class Launcher(ABC):
    """Slot `launcher`: where and how the cells of a sweep are run.

    A task is a command that goes on with its run if the folder holds one already, so whoever kills
    a task may start it again. Built from `--jobs`, `--address` and bindings of its parameters.

    Example:

        class OneByOne(Launcher):
            def launch(self, tasks, asked_to_stop):
                for task in tasks:
                    if not asked_to_stop():
                        yield News(task)
                        command = [sys.executable, "-m", "explore", *task.words]
                        ended = subprocess.run(command, stderr=subprocess.PIPE, text=True)
                        yield News(task, ended.returncode, ended.stderr)
    """

    @abstractmethod
    def launch(self, tasks: Sequence[Task], asked_to_stop: Callable[[], bool]) -> Iterator[News]:
        """Runs tasks and tells what becomes of each.

        Once `asked_to_stop()`, no more tasks begin, and those at work get SIGTERM or SIGINT once: they
        write a checkpoint and end. It is to be asked about once a second. If the iterator is closed or
        an exception passes through it, nothing may be left running.
        """


SLOTS: dict[str, tuple[str, type]] = {
    "value": ("explore_value_networks", ValueNetwork),
    "uncertainty": ("explore_uncertainty_modules", UncertaintyModule),
    "prior": ("explore_priors", Prior),
    "selection": ("explore_selections", Selection),
    "objective": ("explore_objectives", Objective),
    "environment": ("explore_environments", dm_env.Environment),
    "agent": ("explore_agents", Agent),
    "schedule": ("explore_schedules", Schedule),
    "launcher": ("explore_launchers", Launcher),
}
"""Slot -> its hook and the base class of its components."""

__all__ = [
    "SLOTS", "Agent", "Beliefs", "Features", "Index", "Judge", "Launcher", "Members", "News",
    "Objective", "Phase", "Prior", "ScaleModule", "Schedule", "Selection", "Spec", "Streams", "Task",
    "UncertaintyModule", "ValueNetwork", "argmax", "scheduled",
]  # fmt: skip
