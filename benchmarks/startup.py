"""How long it takes from the command to the first episode.

    python benchmarks/startup.py [--repeats 5]

The time from `explore run pins_cartpole` to the first row of `episodes.csv`, beside that of `import torch`, which is a
part of it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

GOAL = 2.5  # seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="default: %(default)s")
    options = parser.parse_args()
    rounds = [(time_run(), time_import()) for _ in range(options.repeats)]
    run, torch = (median(seconds) for seconds in zip(*rounds))
    print(f"pins_cartpole: {run:.1f} s to the first episode (goal {GOAL}), of which import torch takes {torch:.1f} s")


def time_run() -> float:
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "run" / "episodes.csv"
        words = [sys.executable, "-m", "explore", "run", "pins_cartpole", "--quiet", "--out", str(rows.parent)]
        began = time.perf_counter()
        with subprocess.Popen([*words, "-b", "environment.CartpoleSwingup.max_time = 0.1"]) as process:
            while not (rows.exists() and rows.read_text().count("\n") > 1):
                time.sleep(0.005)
            took = time.perf_counter() - began
            process.kill()
    return took


def time_import() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
