"""Deep-sea, bsuite's test of deep exploration (Osband et al., https://arxiv.org/abs/1703.07608)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from explore import hookimpl
from explore.interfaces import Judge, Model, Timesteps
from explore.streams import integer_seed
from explore.tasks import Column, Marker, Size, TaskDescription
from explore_plugins.bsuite_scores import BAD_SHARE, DEEP_SEA_EPISODES, FIRST_JUDGED, FORGIVENESS

MAP_NOTE = (
    "Deep-sea: the start is at the top left. The last row of maps is the one to watch, since the cells of a row of the "
    "grid have as many steps left. While the agent explores deeply, this frontier moves down the diagonal, ahead of "
    "the visits, to the treasure."
)


class DeepSeaJudge(Judge):
    """Judges Deep-sea as bsuite and the paper do.

    A bad episode is one that left the diagonal by a move to the left. Solved, as in bsuite's
    analysis: bad episodes are fewer than 0.9 of all so far; where transitions are random and luck
    may look like skill, fewer than 0.8, from episode 100 on. (bsuite looks only at the episodes it
    logs, this at every one.) The score is bsuite's, too: 1 if solved sooner than by dithering and
    within the first 10,000 episodes, else 0.

    Learned, the paper's "cumulative reward grows linearly at the end of training": the last 100
    episodes reach the treasure at least half as often as the best policy would.
    """

    columns = ("treasure", "bad")
    curve = ("return", "sum")
    decides = True
    environment: DeepSea

    def __init__(self, environment: DeepSea):
        super().__init__(environment)
        task = "deep_sea" if environment.deterministic else "deep_sea_stochastic"
        self.bad_share, self.first_judged = BAD_SHARE[task], FIRST_JUDGED[task]
        self.treasures: list[bool] = []
        self.bad_episodes = 0

    def episode(self, episode_return: float) -> dict[str, float]:
        super().episode(episode_return)
        treasure, bad = self.environment.treasure, self.environment.bad
        self.treasures.append(treasure)
        self.bad_episodes += bad
        episode = len(self.treasures)
        solved = episode >= self.first_judged and self.bad_episodes / episode < self.bad_share
        if solved and self.solved_at is None:
            self.solved_at = episode
        return {"treasure": int(treasure), "bad": int(bad)}

    def summary(self) -> dict[str, Any]:
        recent = self.treasures[-100:]
        wanted = 0.5 * self.environment.treasure_chance * len(recent)
        return super().summary() | {
            "first_treasure": self.treasures.index(True) + 1 if any(self.treasures) else None,
            "treasures": sum(self.treasures),
            "learned": bool(recent) and sum(recent) >= wanted,
            "score": self.score(),
            "normalised_return": self.normalised_return(),
            "size": self.environment.size,
        }

    def score(self) -> float | None:
        """bsuite's score of one size, from every episode; None before the first."""
        if not self.returns:
            return None
        in_time = min(2**self.environment.size + FORGIVENESS, DEEP_SEA_EPISODES + 1)
        return float(self.solved_at is not None and self.solved_at < in_time)

    def normalised_return(self) -> float | None:
        """None before the first episode, and where the treasure is not worth the moves."""
        if not self.returns or not self.environment.best_return:
            return None
        return float(np.clip(np.mean(self.returns) / self.environment.best_return, 0, 1))


class DeepSea(dm_env.Environment):
    """Deep-sea as bsuite or the paper has it, with the cell's number as the observation.

    A diver sinks one row per step through a square grid, from the top left corner, moving left or
    right; which action means which differs from cell to cell. Moving right costs a little, and
    only moving right all the way down leads to the treasure of 1. bsuite charges every move to the
    right; the paper those on the diagonal, but for the last one, to the treasure.

    The observation is the number of the cell in `cells`, where those that can be reached, up to
    the diagonal, come first; bsuite's is the same cell as a one-hot grid. It stays in the last row
    when the episode ends.

    Args:
        size: rows and columns of the grid, N; also the length of an episode.
        deterministic: False lets a move to the right fail with probability 1/N and adds N(0, 1)
            noise to the rewards of the two bottom corners.
        mapping_seed: which action means right in which cell; None derives it from the run's seed.
        unscaled_move_cost: N times the cost of a move to the right.
        move_costs: which moves to the right cost: 'every' one, as in bsuite, or those on the 'diagonal'
            but for the last, as in the paper.
    """

    judge = DeepSeaJudge

    def __init__(
        self,
        seed: int,
        size: int = 10,
        deterministic: bool = True,
        mapping_seed: int | None = None,
        unscaled_move_cost: float = 0.01,
        move_costs: str = "every",
    ):
        if size < 2:
            raise ValueError(f"size must be at least 2, got {size!r}")
        if mapping_seed is None:
            mapping_seed = integer_seed(seed, "mapping")
        elif not 0 <= mapping_seed < 2**32:
            raise ValueError(f"mapping_seed must be None or from 0 to 2**32 - 1, got {mapping_seed!r}")
        if not np.isfinite(unscaled_move_cost):
            raise ValueError(f"unscaled_move_cost must be finite, got {unscaled_move_cost!r}")
        if move_costs not in ("diagonal", "every"):
            raise ValueError(f"move_costs must be 'diagonal' or 'every', got {move_costs!r}")
        self.size = size
        self.deterministic = deterministic
        self.treasure_chance = _success(size, deterministic) ** (size - 1)  # of the best policy
        self.best_return = _best_return(size, deterministic, unscaled_move_cost, move_costs)
        self.treasure = False  # whether this episode reached it
        self.bad = False  # whether this episode went left from the diagonal
        self._move_cost = unscaled_move_cost / size
        self._every_move_costs = move_costs == "every"
        self._right = np.random.RandomState(mapping_seed).binomial(1, 0.5, [size, size]).tolist()
        self._rng = np.random.RandomState(integer_seed(seed, "transitions"))
        self._row, self._column = size, 0  # as after an episode: the first step is a reset

    def reset(self) -> dm_env.TimeStep:
        self._row = self._column = 0
        self.treasure = self.bad = False
        return dm_env.restart(np.int32(self._cell()))

    def step(self, action: int) -> dm_env.TimeStep:
        if self._row == self.size:
            return self.reset()
        reward = self._sink(action)
        end = dm_env.termination if self._row == self.size else dm_env.transition
        return end(reward, np.int32(self._cell()))

    @staticmethod
    def step_lanes(
        environments: Sequence[DeepSea], actions: Sequence[int], lanes: Sequence[int], timesteps: Timesteps
    ) -> None:
        observations, rewards = timesteps.observations, timesteps.rewards
        for lane in lanes:
            environment = environments[lane]
            rewards[lane] = environment._sink(actions[lane])
            observations[lane] = environment._cell()
            if environment._row == environment.size:
                timesteps.end(lane)

    def _sink(self, action: int) -> float:
        """A step of the diver; returns the reward."""
        row, column, last = self._row, self._column, self.size - 1
        right = action == self._right[row][column]
        reward = 0.0
        if right and column == last:
            self.treasure = True
            reward = 1.0
        if not self.deterministic and row == last and column in (0, last):
            reward += self._rng.standard_normal()
        if right:
            if self.deterministic or self._rng.random_sample() > 1 / self.size:
                self._column = column + 1 if column < last else last
            if self._every_move_costs or row == column != last:
                reward -= self._move_cost
        else:
            self.bad |= row == column
            self._column = column - 1 if column else 0
        self._row = row + 1
        return reward

    def true_model(self) -> Model:
        rows = columns = np.arange(self.size)
        right = np.array(self._right)
        succeeds = 1.0 if self.deterministic else 1 - 1 / self.size
        transitions = np.zeros((self.size, self.size, 2, self.size))
        for move, action in {1: right, -1: 1 - right}.items():
            ends = np.clip(columns + move, 0, self.size - 1)
            chance = succeeds if move == 1 else 1.0
            transitions[rows[:, None], columns, action, ends] += chance
            transitions[rows[:, None], columns, action, columns] += 1 - chance
        rewards = np.zeros((self.size, self.size, 2))
        costs = np.ones((self.size, self.size)) if self._every_move_costs else np.diag([1.0] * (self.size - 1) + [0.0])
        rewards[rows[:, None], columns, right] -= self._move_cost * costs
        rewards[rows, -1, right[:, -1]] += 1
        return Model(self.belief_map(), transitions, rewards, np.eye(self.size)[0])

    def cells(self) -> np.ndarray:
        """The number of each cell, `[rows, columns]`."""
        numbers = np.empty((self.size, self.size), np.int32)
        reachable, other = np.tril_indices(self.size), np.triu_indices(self.size, 1)
        numbers[reachable] = np.arange(len(reachable[0]))
        numbers[other] = np.arange(len(reachable[0]), self.size**2)
        return numbers

    def belief_map(self) -> np.ndarray:
        """The cells that can be reached, where they are in the grid; -1 elsewhere."""
        return np.where(np.tri(self.size, dtype=bool), self.cells(), -1)

    def describe_task(self) -> TaskDescription:
        share = BAD_SHARE["deep_sea" if self.deterministic else "deep_sea_stochastic"]
        small = self.size < 500  # beyond, 2^N is hardly a number
        return TaskDescription(
            score="1 for a seed that solves the task sooner than dithering would (bsuite's score of one size), else 0",
            solved=f"fewer than {share:.0%} of all episodes so far left the diagonal by a move to the left"
            + ("" if self.deterministic else ", from episode 100 on"),
            map_note=MAP_NOTE,
            markers=(Marker(self.size - 1, self.size - 1, "treasure"),),
            columns=(Column("treasure", "treasures", "sum"), Column("treasure", "first treasure", "first")),
            size=Size(self.size, dithering=2.0**self.size if small else None, formula="2^N"),
        )

    def _cell(self) -> int:
        """The number of the cell where the diver is."""
        row = self._row if self._row < self.size else self.size - 1
        return row * (row + 1) // 2 + self._column

    def observation_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(self.size**2, name="cell")

    def reward_spec(self) -> specs.Array:
        if not self.deterministic:
            return super().reward_spec()  # noise has no bounds
        return specs.BoundedArray(
            (), float, min(-self._move_cost, 0.0), 1.0 + max(-self._move_cost, 0.0), name="reward"
        )

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(2, name="action")


def _success(size: int, deterministic: bool) -> float:
    """The chance that a move to the right is one."""
    return 1.0 if deterministic else 1 - 1 / size


def _best_return(size: int, deterministic: bool, unscaled_move_cost: float, move_costs: str) -> float:
    """The mean return of the best policy, which is 0 where the treasure is not worth the moves.

    It goes right as long as it is on the diagonal; off it the treasure is lost, so it goes left for
    nothing, unless moves to the right are paid for.
    """
    success = _success(size, deterministic)
    every = move_costs == "every"
    moves = sum(success**row for row in range(size if every else size - 1))  # that cost, on average
    if every and unscaled_move_cost <= 0:
        moves = size
    return max(0.0, success ** (size - 1) - unscaled_move_cost / size * moves)


@hookimpl
def explore_environments() -> list[type]:
    return [DeepSea]
