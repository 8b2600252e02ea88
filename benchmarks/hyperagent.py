"""How fast HyperAgent lives on Deep-sea: all seeds at once against plain PyTorch, one seed after another.

    python benchmarks/hyperagent.py [--sizes 20,50] [--seeds 5] [--episodes 20]

A step is acting, environment, storing and one update of batch 128, for every seed. Contenders take turns episode by
episode, and figures are medians. Plain PyTorch is `examples/hyperagent.py`, on its own Deep-sea.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from rich.console import Console
from rich.table import Table
from timing import show_goal, take_turns

from examples.hyperagent import DeepSea, HyperAgent, live
from explore._config.discovery import discover
from explore._running.experiment import load

GOALS = {20: 15, 50: 20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="20,50", help="of the Deep-sea (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=5, help="run together (default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=20, help="timed (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = Table(title=f"HyperAgent, {options.seeds} seeds: ms per step and seed", title_justify="left")
    for column in ("Deep-sea", "plain PyTorch", "explore", "ratio", "episodes per minute of each seed"):
        table.add_column(column, justify="right")
    for size in map(int, options.sizes.split(",")):
        episodes = {"explore": play_ours(size, options.seeds), "plain": play_plain(size)}
        seconds = take_turns(episodes, 256 // size + 1, options.episodes)
        ours, plain = (median(seconds[name]) for name in ("explore", "plain"))
        ratio = show_goal(GOALS.get(size), options.seeds * plain / ours)
        costs = (f"{cost / size * 1e3:.3f}" for cost in (plain, ours / options.seeds))
        table.add_row(f"N = {size}", *costs, ratio, f"{60 / ours:,.0f}")
    Console().print(table)


def play_ours(size: int, seeds: int) -> Callable[[], float]:
    bindings = [f"environment.DeepSea.size = {size}", f"experiment.seeds = {seeds}"]
    rows = load("hyperagent_deep_sea", bindings, discover()).build().train()
    return time_calls(lambda: next(rows))


def play_plain(size: int) -> Callable[[], float]:
    agent, sea = HyperAgent(size**2, actions=2), DeepSea(size)
    return time_calls(lambda: live(agent, sea, 1))


def time_calls(play: Callable[[], object]) -> Callable[[], float]:
    """Plays an episode and tells how many seconds it took."""

    def episode() -> float:
        began = time.perf_counter()
        play()
        return time.perf_counter() - began

    return episode


if __name__ == "__main__":
    main()
