"""Agents that explore find and keep what is hidden; an agent that dithers does not.

Thresholds follow from the outcomes of 40 other seeds, 1000 to 1039, with the same settings, see `rates`.
"""

import pytest
from rates import at_least, at_most

import explore

MEASURED = 40


def outcomes(recipe, size, episodes, seeds, tmp_path, *bindings):
    """What the judge says of each seed on Deep-sea."""
    run = explore.run(
        recipe,
        bindings=[f"environment.DeepSea.size = {size}", f"experiment.episodes = {episodes}", *bindings],
        seeds=range(seeds),
        out=tmp_path / "run",
        quiet=True,
    )
    return list(run.summary["seeds"].values())


def test_pins_find_and_keep_the_treasure(tmp_path):
    learned = sum(seed["learned"] for seed in outcomes("pins_deep_sea", 10, 1000, 10, tmp_path))
    assert learned >= at_least(10, 22, MEASURED)


@pytest.mark.parametrize(
    ("recipe", "size", "episodes", "measured"),
    [("bsp10_deep_sea", 10, 1000, 39), ("hyperagent_deep_sea", 14, 400, 40)],
)
def test_ensembles_and_hypermodels_solve_deep_sea(recipe, size, episodes, measured, tmp_path):
    seeds = outcomes(recipe, size, episodes, 5, tmp_path, "experiment.stop_when_solved = True")
    assert sum(seed["solved_at"] is not None for seed in seeds) >= at_least(5, measured, MEASURED)


def test_dithering_does_not_keep_the_treasure(tmp_path):
    learned = sum(seed["learned"] for seed in outcomes("dqn_deep_sea", 16, 500, 10, tmp_path))
    assert learned <= at_most(10, 0, MEASURED)
