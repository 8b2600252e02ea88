"""Peak memory of PINs on Deep-sea N = 50 with 5 seeds and 10,000 episodes: the goal is 1.5 GB.

    python benchmarks/memory.py [--full] [--size 50] [--episodes 10000]

By default the episodes are random and each is preceded by one minibatch instead of ten, so the
replay grows as in a real run but sooner; a few whole learning phases follow. `--full` is the real run.
"""

from __future__ import annotations

import argparse
import resource

import numpy as np

from explore._config.discovery import discover
from explore._config.gin_files import format_binding
from explore._running.experiment import Experiment, load
from explore._running.loop import play_episode


def fill(experiment: Experiment) -> None:
    agent, random = experiment.agent, np.random.default_rng(0)
    whole, agent.batches_per_episode = agent.batches_per_episode, 1

    agent.act = lambda observations, active: random.integers(2, size=len(active)).tolist()
    for _ in range(experiment.episodes):
        play_episode(agent, experiment.environments, progress=0.5)
    agent.batches_per_episode = whole
    del agent.act  # the class's own again
    for _ in range(10):
        play_episode(agent, experiment.environments, progress=0.5)


def peak() -> float:
    """Resident memory of this process at its highest, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description="Peak memory of PINs on a large Deep-sea, 5 seeds.")
    parser.add_argument("--full", action="store_true", help="run the real thing, learning included")
    parser.add_argument("--size", type=int, default=50, help="of the Deep-sea (default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=10_000, help="of each seed (default: %(default)s)")
    options = parser.parse_args()

    bindings = {
        "environment.DeepSea.size": options.size,
        "experiment.episodes": options.episodes,
        "experiment.seeds": tuple(range(5)),
    }
    experiment = load("pins_deep_sea", [format_binding(*pair) for pair in bindings.items()], discover()).build()
    print(f"peak memory once built: {peak():,.0f} MB")
    if options.full:
        for _ in experiment.train():
            pass
    else:
        fill(experiment)
    steps = experiment.agent.replay.size(0)
    print(f"peak memory with {steps:,} steps of each seed in the replay: {peak():,.0f} MB (goal: below 1,536)")


if __name__ == "__main__":
    main()
