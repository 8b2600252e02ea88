"""Agents that explore find and keep what is hidden; an agent that dithers does not."""

import pytest

import explore

pytestmark = pytest.mark.learning


def outcomes(recipe, size, tmp_path, *bindings):
    """What the judge says of five seeds after 1,500 episodes of Deep-sea, or as many as are bound."""
    run = explore.run(
        recipe,
        bindings=[f"environment.DeepSea.size = {size}", "experiment.episodes = 1500", *bindings],
        seeds=range(5),
        out=tmp_path / "run",
        quiet=True,
    )
    return list(run.summary["seeds"].values())


@pytest.mark.parametrize("recipe", ["pins_deep_sea", "bsp10_deep_sea"])
def test_deep_exploration_finds_and_keeps_the_treasure(recipe, tmp_path):
    assert sum(seed["learned"] for seed in outcomes(recipe, 10, tmp_path)) >= 3


def test_dithering_does_not_find_the_treasure(tmp_path):
    assert [seed["first_treasure"] for seed in outcomes("dqn_deep_sea", 16, tmp_path)] == [None] * 5


def test_hyperagent_solves_a_deeper_sea_in_all_seeds(tmp_path):
    seeds = outcomes("hyperagent_deep_sea", 14, tmp_path, "experiment.episodes = 400")
    assert sum(seed["solved_at"] is not None for seed in seeds) >= 4
