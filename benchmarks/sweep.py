"""Whether a sweep keeps the cores busy: a grid of equal cells, side by side and one after another.

    python benchmarks/sweep.py [--recipe pins_deep_sea] [--cells 8] [--episodes 500] [--seeds 5] [--jobs 2]

Prints the seconds of each and their ratio; on two cores the goal is at most 0.6. Each is timed twice, in
the order ABBA, since other work on the machine may come and go. The time to start a process and import
torch is part of it, as it is of every sweep.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import explore
from explore._config.gin_files import format_binding


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="pins_deep_sea")
    parser.add_argument("--cells", type=int, default=8)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    # Checkpoints by time cannot come so often that this number matters, so all cells do the same.
    minutes = [5.0 + cell for cell in range(options.cells)]
    taken = {options.jobs: 0.0, 1: 0.0}
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        for number, jobs in enumerate((options.jobs, 1, 1, options.jobs)):
            start = time.perf_counter()
            explore.sweep(
                options.recipe,
                vary=[format_binding("experiment.checkpoint_minutes", minutes)],
                bindings=[format_binding("experiment.episodes", options.episodes)],
                seeds=range(options.seeds),
                jobs=jobs,
                out=Path(folder, str(number)),
                quiet=True,
            )
            seconds = time.perf_counter() - start
            taken[jobs] += seconds
            print(f"{options.cells} cells of {options.recipe}, {jobs} at a time: {seconds:.1f} s", flush=True)
    print(f"ratio {taken[options.jobs] / taken[1]:.2f}")


if __name__ == "__main__":
    main()
