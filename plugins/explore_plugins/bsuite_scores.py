"""bsuite's scores of Deep-sea, stochastic Deep-sea and Cartpole swing-up, from what happened in each episode.

bsuite's own analysis wants a pandas of 2023, so its definitions are written down here once more, and
tested against numbers recorded from it. A score is that of one run per setting: per size of Deep-sea
(bsuite's sweep has 10, 12, ..., 50), per height threshold of swing-up (0, 0.05, ..., 0.95). With
several seeds, score each seed's runs by themselves; bsuite would take the luckiest seed of a size.

bsuite judges by the episodes it has logged, ever fewer as the run goes on: 1, 2, ..., 10, 12, 14, 17,
20, 25, 30, 40, ..., 100, 120, and so on. A run that is solved between two of them counts from the
next, and one that was solved only in between never. The judges of `explore` look at every episode,
which here is `every_episode=True`: solved no later, sometimes earlier, and never limited to bsuite's
number of episodes as the scores here are.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

DEEP_SEA_EPISODES = 10_000
SWINGUP_EPISODES = 1000
FORGIVENESS = 100  # episodes above the 2^N that dithering needs for size N
PERFECT_RETURN = 700  # of swing-up, in bsuite's eyes
GOOD_RETURN = 100
BAD_SHARE = {"deep_sea": 0.9, "deep_sea_stochastic": 0.8}
"""Solved when fewer than this share of all episodes so far were bad."""
FIRST_JUDGED = {"deep_sea": 1, "deep_sea_stochastic": 100}
"""Where transitions are random, a few good episodes may be luck."""
TASKS = (*BAD_SHARE, "cartpole_swingup")


def score(task: str, runs: Mapping[float, ArrayLike], *, every_episode: bool = False) -> float | None:
    """bsuite's score of a task, from 0 to 1.

    `runs` holds the episodes of one run per setting, from the first on: for "deep_sea" and
    "deep_sea_stochastic" whether each was bad, by size; for "cartpole_swingup" the returns, by
    height threshold. None if no run is long enough to be judged.
    """
    if task not in TASKS:
        raise ValueError(f"there is no score of {task!r}; there is one of {', '.join(TASKS)}")
    if not runs:
        raise ValueError("a score needs at least one run")
    if task == "cartpole_swingup":
        return float(np.mean([swingup_score(returns, every_episode=every_episode) for returns in runs.values()]))
    solved_at = {size: deep_sea_solved_at(task, bad, every_episode=every_episode) for size, bad in runs.items()}
    judged = [size for size, bad in runs.items() if np.size(bad) >= FIRST_JUDGED[task]]  # bsuite forgets the others
    beats_dithering = [(solved_at[size] or np.inf) < 2**size + FORGIVENESS for size in judged]
    return float(np.mean(beats_dithering)) if judged else None


def deep_sea_solved_at(task: str, bad: ArrayLike, *, every_episode: bool = False) -> int | None:
    """The first episode, counted from 1, up to which few enough were bad; None if there is none within 10,000."""
    flags = _flags(bad)
    judged = _choose_judged(min(len(flags), DEEP_SEA_EPISODES), every_episode)
    judged = judged[judged >= FIRST_JUDGED[task]]
    solved = judged[np.cumsum(flags)[judged - 1] / judged < BAD_SHARE[task]]
    return int(solved[0]) if solved.size else None


def swingup_score(returns: ArrayLike, *, every_episode: bool = False) -> float:
    """bsuite's score of one height.

    Half of it is the mean return as a share of 700, the other half is earned by one episode of more
    than 100, both up to the last logged of the first 1,000 episodes.
    """
    numbers = _numbers(returns)[:SWINGUP_EPISODES]
    numbers = numbers[: _choose_judged(len(numbers), every_episode)[-1]]
    share = np.clip(numbers.mean() / PERFECT_RETURN, 0, 1)
    return float(0.5 * share + 0.5 * (numbers.max() > GOOD_RETURN))


def list_logged(episodes: int) -> np.ndarray:
    """Which of the episodes 1, 2, ..., `episodes` bsuite logs."""
    every = np.arange(1, episodes + 1)
    ratios = np.array([10, 12, 14, 17, 20, 25, 30, 40, 50, 60, 70, 80, 90])  # tenths of a power of ten
    powers = 10 ** np.arange(len(str(episodes)))
    return every[np.isin(10 * every, np.outer(powers, ratios))]


def _choose_judged(episodes: int, every_episode: bool) -> np.ndarray:
    return np.arange(1, episodes + 1) if every_episode else list_logged(episodes)


def _flags(bad: ArrayLike) -> np.ndarray:
    flags = _numbers(bad)
    if not np.isin(flags, (0, 1)).all():
        raise ValueError("whether an episode was bad must be 0 or 1")
    return flags


def _numbers(values: ArrayLike) -> np.ndarray:
    """What a run says of its episodes."""
    array = np.asarray(values, float)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"a run must be one number per episode, got the shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("not all numbers of the run are finite")
    return array
