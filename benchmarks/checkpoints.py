"""What checkpoints cost: the share of a run's time that goes into writing them, and what they weigh.

    python benchmarks/checkpoints.py [--recipe pins_cartpole] [--episodes 3000] [--seeds 5] [-b BINDING]...

Runs a recipe at its defaults, checkpoints by time included, and times each of them within the run.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import explore
from explore._config.gin_files import format_binding
from explore._running.trainer import Trainer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="pins_cartpole")
    parser.add_argument("--episodes", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("-b", dest="bindings", action="append", default=[])
    options = parser.parse_args()
    bindings = [format_binding("experiment.episodes", options.episodes), *options.bindings]
    save = Trainer._save
    took: list[float] = []

    def timed(trainer: Trainer) -> None:
        before = written()
        start = time.perf_counter()
        save(trainer)
        took.append(time.perf_counter() - start)
        episode = trainer.experiment.progress.episode
        size = sum(file.stat().st_size for file in trainer.run.checkpoints.folder.rglob("*") if file.is_file())
        new = written() - before
        print(f"episode {episode:6,}: {took[-1]:6.2f} s, {new / 1e6:7.1f} MB written, {size / 1e6:7.1f} MB in all")

    Trainer._save = timed  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        start = time.perf_counter()
        explore.run(options.recipe, bindings=bindings, seeds=range(options.seeds), out=Path(folder, "run"), quiet=True)
        total = time.perf_counter() - start
    print(f"{options.recipe}, {options.seeds} seeds, {options.episodes} episodes: {total:.0f} s")
    print(f"{len(took)} checkpoints: {sum(took):.2f} s, {sum(took) / total:.2%} of the time")


def written() -> int:
    """Bytes that this process has written, to a pipe or file; 0 where the system does not tell."""
    counts = Path("/proc/self/io")
    if not counts.is_file():
        return 0
    return int(next(line.split()[1] for line in counts.read_text().splitlines() if line.startswith("wchar")))


if __name__ == "__main__":
    main()
