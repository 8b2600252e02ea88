"""Every recipe: what executes it, and how much faster native kernels are than PyTorch.

    python benchmarks/recipes.py [--seeds 5] [--repeats 5] [RECIPE ...]

An episode of all seeds is timed, with learning from the first episode on and otherwise as in the gin file. Native
kernels and PyTorch take turns, and figures are medians. Tabular agents are NumPy's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from rich.console import Console
from rich.table import Table
from timing import take_turns

from explore._config.discovery import discover
from explore._config.gin_files import list_recipes
from explore._native.library import without_kernels
from explore._running.experiment import Experiment, load
from explore._running.loop import play_episode

WARM_UP = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", help="default: all")
    parser.add_argument("--seeds", type=int, default=5, help="run together (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="episodes timed (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = Table(title=f"ms per episode of {options.seeds} seeds", title_justify="left")
    for column in ("recipe", "executed by", "ms", "by PyTorch", "ratio"):
        table.add_column(column, justify="left" if column in ("recipe", "executed by") else "right")
    whole = [name for name, path in list_recipes().items() if not path.read_text().startswith("# Base ")]
    for recipe in options.recipes or whole:
        experiment = build(recipe, options.seeds)
        contenders, execution = {"": time_episodes(experiment)}, experiment.agent.execution()
        if "native kernels" in execution:
            with without_kernels():
                contenders["PyTorch"] = time_episodes(build(recipe, options.seeds))
        costs = {name: 1e3 * median(one) for name, one in take_turns(contenders, WARM_UP, options.repeats).items()}
        slow = costs.get("PyTorch")
        compared = [f"{slow:.1f}", f"{slow / costs['']:.1f}"] if slow else []
        table.add_row(recipe, ", ".join(execution), f"{costs['']:.1f}", *compared)
    Console().print(table)


def build(recipe: str, seeds: int) -> Experiment:
    bindings = [f"experiment.seeds = {seeds}"]
    experiment = load(recipe, bindings, discover()).build()
    if hasattr(experiment.agent, "min_replay"):
        experiment.agent.min_replay = 1
    return experiment


def time_episodes(experiment: Experiment) -> Callable[[], float]:
    def episode() -> float:
        began = time.perf_counter()
        play_episode(experiment.agent, experiment.environments, progress=0.5)
        return time.perf_counter() - began

    return episode


if __name__ == "__main__":
    main()
