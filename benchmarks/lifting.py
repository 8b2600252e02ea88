"""What a network that knows of lanes gains over the same network lifted by `per_lane`.

    python benchmarks/lifting.py [--seeds 10] [--repeats 15]

The two are those of the tutorial, docs/tutorial.md, from which they are read. Learning phases and steps are timed
apart, as in `speed.py`: the whole agent, of which the uncertainty network is a part. "by PyTorch" is the lifted one
without native kernels. Contenders take turns episode by episode, and figures are medians.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from dataclasses import replace

import torch
from rich.console import Console
from rich.table import Table
from speed import CARTPOLE, DEEP_SEA, discover_with, load_ours
from timing import median_cost, take_turns

from explore._config.gin_files import format_binding
from explore._native.library import without_kernels

VERSIONS = {"lifted, by PyTorch": "CosineHeads", "lifted": "CosineHeads", "lane-aware": "FastCosineHeads"}
SMALL = replace(DEEP_SEA, title="Deep-sea, N = 8", bindings=[format_binding("environment.DeepSea.size", 8)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="run together (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=15, help="episodes timed (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    registry = discover_with("docs/tutorial.md", "cosine_heads.py", "fast_heads.py")
    table = Table(title=f"{options.seeds} seeds, per seed", title_justify="left")
    for column in ("", "", "update [ms]", "ratio", "step [µs]", "ratio"):
        table.add_column(column.replace("[", r"\["), justify="right" if column else "left")
    for task in (SMALL, DEEP_SEA, CARTPOLE):
        contenders = {}
        for version, heads in VERSIONS.items():
            with without_kernels() if version.endswith("by PyTorch") else nullcontext():
                contenders[version] = load_ours(task, options.seeds, registry, heads)
        rounds = take_turns(contenders, task.warm_up, options.repeats)
        costs = {version: median_cost(measured) for version, measured in rounds.items()}
        slow = costs["lifted, by PyTorch"]
        for version, cost in costs.items():
            table.add_row(
                task.title if cost is slow else "", version,
                f"{cost.update * 1e3:.3f}", f"{slow.update / cost.update:.1f}",
                f"{cost.step * 1e6:.0f}", f"{slow.step / cost.step:.1f}",
            )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()
