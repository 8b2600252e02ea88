"""How fast HyperAgent lives on Deep-sea: all seeds as one batch against plain PyTorch, one seed after another.

    python benchmarks/hyperagent.py [--size 50] [--seeds 5] [--episodes 20]

A step is acting, environment, storing and one update of batch 128, for every seed. Contenders take
turns episode by episode, so that a noisy machine disturbs both alike, and figures are medians. Plain
PyTorch is `examples/hyperagent.py`, on its own Deep-sea.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch

from examples.hyperagent import DeepSea, HyperAgent, live
from explore._config.discovery import discover
from explore._running.experiment import load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    bindings = [f"environment.DeepSea.size = {arguments.size}", f"experiment.seeds = {arguments.seeds}"]
    experiment = load("hyperagent_deep_sea", bindings, discover()).build()
    agent, sea = HyperAgent(arguments.size**2, actions=2), DeepSea(arguments.size)
    rows = experiment.train()
    contenders: dict[str, Callable[[], object]] = {"explore": lambda: next(rows), "plain": lambda: live(agent, sea, 1)}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    warm_up = 256 // arguments.size + 1
    for episode in range(warm_up + arguments.episodes):
        for name, play in contenders.items():
            began = time.perf_counter()
            play()
            if episode >= warm_up:
                seconds[name].append(time.perf_counter() - began)
    ours, theirs = median(seconds["explore"]), median(seconds["plain"])
    size, seeds = arguments.size, arguments.seeds
    print(f"Deep-sea N = {size}, {seeds} seeds together: {60 / ours:.0f} episodes per minute of each, "
          f"{ours / size / seeds * 1e3:.2f} ms per step and seed")  # fmt: skip
    print(f"plain PyTorch, one seed: {60 / theirs:.0f} episodes per minute, {theirs / size * 1e3:.2f} ms per step")
    print(f"so {seeds} seeds one after another take {seeds * theirs / ours:.1f} times as long")


if __name__ == "__main__":
    main()
