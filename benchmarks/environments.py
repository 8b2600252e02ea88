"""A step of all lanes in one call, against one environment after another: the batch form of the built-in environments.

    python benchmarks/environments.py [--lanes 5] [--steps 2000] [--repeats 15]

Both take the same random actions, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial

import numpy as np
from explore_plugins.cartpole_swingup import CartpoleSwingup
from explore_plugins.deep_sea import DeepSea
from rich.console import Console
from rich.table import Table

from explore._running.lanes import Lanes, step_one_by_one

TASKS = {
    "Cartpole swing-up": CartpoleSwingup,
    "Deep-sea N = 30": partial(DeepSea, size=30),
    "Deep-sea N = 30, stochastic": partial(DeepSea, size=30, deterministic=False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lanes", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    table = Table(title=f"µs per step of {options.lanes} lanes")
    for column in ("", "one by one", "in one call", "ratio"):
        table.add_column(column, justify="right" if column else "left")
    for name, task in TASKS.items():
        single, batch = measure(task, options.lanes, options.steps, options.repeats)
        table.add_row(name, f"{single:.1f}", f"{batch:.1f}", f"{single / batch:.1f}")
    Console().print(table)


def measure(task, lanes: int, steps: int, repeats: int) -> list[float]:
    """µs per step, one by one and in one call: medians."""
    both = [Lanes([task(seed) for seed in range(lanes)], form) for form in (step_one_by_one, None)]
    number = both[0].environments[0].action_spec().num_values
    actions = np.random.default_rng(0).integers(number, size=(steps, lanes)).tolist()
    times = [[play(one, actions) for one in both] for _ in range(repeats)]
    return [statistics.median(column) * 1e6 / steps for column in zip(*times)]


def play(lanes: Lanes, actions: list[list[int]]) -> float:
    """Seconds of so many steps, without resets."""
    seconds, active = 0.0, []
    for step in actions:
        if not any(active):
            lanes.reset()
            active = lanes.active
        began = time.perf_counter()
        lanes.step(step)
        seconds += time.perf_counter() - began
        active = lanes.active
    return seconds


if __name__ == "__main__":
    main()
