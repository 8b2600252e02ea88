"""What a network that knows of lanes gains over the same network lifted by `per_lane`.

    python benchmarks/lifting.py [--seeds 10] [--repeats 15]

The two are those of the tutorial, docs/tutorial.md, from which they are read. Learning phases and steps
are timed apart, as in `speed.py`: the whole agent, of which the uncertainty network is a part. Contenders
take turns episode by episode, and figures are medians.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from speed import CARTPOLE, DEEP_SEA, measure, ours

from explore._config.discovery import Registry, discover
from explore._config.gin_files import format_binding

PAGE = Path(__file__).parent.parent / "docs" / "tutorial.md"
FILES = ("cosine_heads.py", "fast_heads.py")
VERSIONS = {"lifted": "CosineHeads", "lane-aware": "FastCosineHeads"}
TASKS = (
    replace(DEEP_SEA, title="Deep-sea, N = 8", bindings=[format_binding("environment.DeepSea.size", 8)]),
    DEEP_SEA,
    CARTPOLE,
)


def tutorial() -> Registry:
    """What there is when the tutorial's files are loaded."""
    blocks = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        for name, code in blocks:
            (Path(folder) / name).write_text(code)
        return discover([str(Path(folder) / name) for name in FILES])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="run together (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=15, help="episodes timed (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    registry = tutorial()
    table = Table(title=f"{options.seeds} seeds, per seed", title_justify="left")
    for column in ("", "", "update [ms]", "ratio", "step [µs]", "ratio"):
        table.add_column(column.replace("[", r"\["), justify="right" if column else "left")
    for task in TASKS:
        contenders = {}
        for version, name in VERSIONS.items():
            heads = f"agent.Indexed.uncertainty = @uncertainty.{name}"
            contenders[version] = ours(replace(task, bindings=[*task.bindings, heads]), options.seeds, False, registry)
        costs = measure(contenders, task.warm_up, options.repeats)
        slow = costs["lifted"]
        for version, cost in costs.items():
            table.add_row(
                task.title if cost is slow else "", version,
                f"{cost.update * 1e3:.3f}", f"{slow.update / cost.update:.1f}",
                f"{cost.step * 1e6:.0f}", f"{slow.step / cost.step:.1f}",
            )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()
