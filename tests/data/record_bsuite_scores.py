"""Records what bsuite's own analysis says of made-up logs, for `tests/unit/test_scores.py`.

bsuite's analysis does not work with today's pandas and plotnine. This was run with Python 3.11 in an
environment of its own, from the root of the repository:

    python3.11 -m venv /tmp/bsuite_venv
    /tmp/bsuite_venv/bin/pip install bsuite==0.3.6 pandas==1.5.3 numpy==1.26.4 plotnine==0.10.1 \
        mizani==0.8.1 matplotlib==3.7.5
    /tmp/bsuite_venv/bin/python tests/data/record_bsuite_scores.py

It writes `tests/data/bsuite_scores.json`: for each case the recipe of its episodes, a digest of
them, and bsuite's numbers. The episodes are drawn by `episodes_of`, which the test calls too.
bsuite's logging wrapper decides which of them are logged.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

FILE = Path(__file__).with_name("bsuite_scores.json")
VERSIONS = ("bsuite", "pandas", "numpy", "plotnine", "mizani", "matplotlib")


def bad_flags(pattern: str, episodes: int, seed: int) -> np.ndarray:
    """Whether each episode of Deep-sea was bad."""
    u = np.random.default_rng(seed).random(episodes)
    at = np.arange(1, episodes + 1)
    bad_share = {
        "at once": np.where(at > 20, 0.05, 1.0),
        "early": np.where(at > 300, 0.05, 1.0),
        "late": np.where(at > 4000, 0.1, 1.0),
        "too late": np.where(at > 9500, 0.0, 1.0),
        "slowly": np.where(at > 500, 0.75, 0.97),
        "never": np.full(episodes, 1.0),
        "dithering": np.full(episodes, 0.99),
        "lucky": np.where(at == 1, 0.0, 1.0),  # the first episode is good, by chance
        "lucky until 100": np.where(at <= 100, 0.75, 1.0),
        "forgotten": np.where((at > 2600) & (at <= 2892), 0.0, 1.0),  # solved between two logged episodes only
        "near": np.full(episodes, 0.9),
    }[pattern]
    return u < bad_share


def returns(pattern: str, episodes: int, seed: int) -> np.ndarray:
    """The return of each episode of swing-up."""
    u = np.random.default_rng(seed).random(episodes)
    at = np.arange(1, episodes + 1)
    return {
        "still": np.zeros(episodes),
        "restless": -80 * u,  # only the cost of moving
        "learns early": np.where(at > 100, 750 + 100 * u, -10 * u),
        "learns late": np.where(at > 800, 400 * u, -5 * u),
        "once": np.where(at == 333, 100.5, -u),
        "exactly 100": np.where(at == 333, 100.0, -u),
        "too late": np.where(at > 1000, 800.0, -u),
        "after the last logged": np.where(at > 950, 800.0, -u),
        "perfect": 700 + 200 * u,
    }[pattern]


def episodes_of(case: dict) -> dict[float, np.ndarray]:
    """The episodes of each setting of a case: one run per size or height."""
    draw = returns if case["task"] == "cartpole_swingup" else bad_flags
    return {run["setting"]: draw(run["pattern"], run["episodes"], run["seed"]) for run in case["runs"]}


def digest(episodes: dict[float, np.ndarray]) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in episodes.values())).hexdigest()[:16]


def cases() -> list[dict]:
    """All kinds of runs in sweeps that are small, out of order, too short and too long."""
    sea = {
        "all patterns": [
            (10, "at once", 10_000), (12, "early", 10_000), (14, "late", 10_000), (16, "too late", 10_000),
            (18, "slowly", 10_000), (20, "never", 10_000), (22, "dithering", 10_000), (24, "lucky", 10_000),
            (26, "lucky until 100", 10_000), (28, "forgotten", 10_000), (30, "near", 10_000),
        ],
        "slower than dithering": [(10, "late", 10_000), (12, "late", 10_000), (14, "late", 10_000)],
        "all solved": [(30, "early", 10_000), (20, "at once", 10_000), (50, "early", 10_000)],
        "none solved": [(10, "never", 10_000), (20, "never", 10_000)],
        "more than 10,000 episodes": [(20, "too late", 12_000), (16, "late", 15_000)],
        "unfinished": [(10, "at once", 55), (12, "early", 777), (20, "late", 4500), (50, "near", 350)],
        "one size": [(20, "slowly", 10_000)],
    }  # fmt: skip
    swingup = {
        "all patterns": [
            (0.0, "still", 1000), (0.05, "restless", 1000), (0.1, "learns early", 1000), (0.15, "learns late", 1000),
            (0.2, "once", 1000), (0.25, "exactly 100", 1000), (0.3, "after the last logged", 1000),
            (0.35, "perfect", 1000),
        ],
        "3,000 episodes": [(0.0, "too late", 3000), (0.5, "learns early", 3000), (0.95, "learns late", 3000)],
        "unfinished": [(0.0, "after the last logged", 980), (0.5, "learns early", 333), (0.95, "perfect", 7)],
        "one height": [(0.95, "learns late", 1000)],
    }  # fmt: skip
    named = [("deep_sea", sea), ("deep_sea_stochastic", sea), ("cartpole_swingup", swingup)]
    return [
        {
            "task": task,
            "name": name,
            "runs": [
                {"setting": setting, "pattern": pattern, "episodes": episodes, "seed": seed}
                for seed, (setting, pattern, episodes) in enumerate(runs)
            ],
        }
        for task, sweep in named
        for name, runs in sweep.items()
    ]


def log_of(case: dict) -> pd.DataFrame:
    """The rows that bsuite's logging wrapper would have written, as `bsuite.logging.csv_load` gives them."""
    import pandas as pd
    from bsuite.utils import wrappers

    rows = []
    for number, (setting, values) in enumerate(episodes_of(case).items()):
        totals = np.cumsum(values)
        for episode in range(1, len(values) + 1):
            if not wrappers._logarithmic_logging(episode):
                continue
            row = {"bsuite_id": f"{case['task']}/{number}", "bsuite_env": case["task"], "episode": episode}
            if case["task"] == "cartpole_swingup":
                best = max(0.0, values[:episode].max())  # bsuite counts from 0
                row |= {"height_threshold": setting, "total_return": totals[episode - 1], "best_episode": best}
            else:
                row |= {"size": setting, "total_bad_episodes": totals[episode - 1]}
            rows.append(row)
    return pd.DataFrame(rows)


def record() -> None:
    from importlib.metadata import version

    from bsuite.experiments import summary_analysis
    from bsuite.experiments.deep_sea import analysis as deep_sea
    from bsuite.experiments.deep_sea_stochastic import analysis as deep_sea_stochastic

    recorded = []
    for case in cases():
        log = log_of(case)
        scores = summary_analysis.bsuite_score(log)
        numbers = {"digest": digest(episodes_of(case)), "score": float(scores.score[0])}
        if case["task"] != "cartpole_swingup":
            module = deep_sea if case["task"] == "deep_sea" else deep_sea_stochastic
            found = module.find_solution(log)
            rows = zip(found["size"], found.episode, found.solved)
            solved_at = {size: int(episode) if solved else None for size, episode, solved in rows}
            numbers["solved_at"] = [solved_at.get(run["setting"], "left out") for run in case["runs"]]
        recorded.append(case | numbers)
    lines = ",\n".join(f"  {json.dumps(case)}" for case in recorded)
    versions = json.dumps({name: version(name) for name in VERSIONS})
    FILE.write_text(f'{{"versions": {versions}, "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    record()
