"""The content of `summary.json`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from explore._storage.run_folder import to_json
from explore.interfaces import Judge


def summarise(
    judges: Mapping[int, Judge], *, task: str, steps: int, cost: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """What each seed's judge says, and the same over seeds.

    A seed that has not solved its task is a censored observation: it counts as slower than any
    other in `median_solved_at`, which is None if the median seed is among them. Mean, min and max
    are given of the entries that are numbers for every seed. Where the task defines no criterion
    for solved, `share_solved` is None.
    """
    seeds = {str(seed): to_json(judge.summary()) for seed, judge in judges.items()}
    decided = any(judge.decides for judge in judges.values())
    return _summarise_seeds(seeds, decided, task, steps, dict(cost or {}))


def merge_summaries(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The summary of a run, given those of its parts."""
    overall = [part["overall"] for part in parts]
    cost = {
        name: amount if name == "parameters" else sum(one["cost"][name] for one in overall)
        for name, amount in overall[0]["cost"].items()
    }
    seeds = {seed: entry for part in parts for seed, entry in part["seeds"].items()}
    decided = overall[0]["share_solved"] is not None
    return _summarise_seeds(seeds, decided, parts[0]["task"], sum(one["steps"] for one in overall), cost)


def _summarise_seeds(
    seeds: Mapping[str, Mapping[str, Any]], decided: bool, task: str, steps: int, cost: Mapping[str, int]
) -> dict[str, Any]:
    keys = dict.fromkeys(key for seed in seeds.values() for key in seed)
    entries: dict[str, list[Any]] = {key: [seed.get(key) for seed in seeds.values()] for key in keys}
    solved_at = [seed.get("solved_at") or math.inf for seed in seeds.values()]
    numbers = {
        key: [+value for value in values]  # + turns True into 1
        for key, values in entries.items()
        if all(isinstance(value, int | float) for value in values)
    }
    overall = {
        "seeds": len(seeds),
        "share_solved": statistics.fmean(map(math.isfinite, solved_at)) if decided else None,
        "median_solved_at": statistics.median(solved_at),
        "steps": steps,
        "cost": cost,
        "mean": {key: statistics.fmean(values) for key, values in numbers.items()},
        "min": {key: min(values) for key, values in numbers.items()},
        "max": {key: max(values) for key, values in numbers.items()},
    }
    return {"task": task, "seeds": seeds, "overall": to_json(overall)}
