"""Seeds as a user types and reads them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from explore.errors import UserError


def parse_seeds(text: str) -> tuple[int, ...]:
    """The seeds of `0-4`, `0,3,7` or a mixture, in the order given."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})\s*(?:-\s*(\d{1,18})\s*)?", part, re.ASCII)
        if not match:
            raise UserError(f"--seeds {text!r}: {part.strip()!r} is not a seed; write e.g. 0-4 or 0,3,7")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UserError(f"--seeds {text!r}: the range {part.strip()!r} is empty; write {last}-{first}")
        seeds.extend(range(first, last + 1))
    repeated = [seed for seed, count in Counter(seeds).items() if count > 1]
    if repeated:
        raise UserError(f"--seeds {text!r}: {min(repeated)} is repeated; every seed is run once")
    return tuple(seeds)


def format_seeds(seeds: Iterable[int]) -> str:
    """0, 1, 2, 3, 7 are 0-3, 7."""
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
