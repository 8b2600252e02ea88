"""Methods over several settings, and what they cost."""

import pytest
from recording import FIVE, PINS, SEA, TILDE, record, record_grid, report_data

from explore._analysis.report import methods
from explore._analysis.statistics import iqm


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    return record_grid(tmp_path_factory.mktemp("grid"))


def test_settings_are_put_together_where_the_same_methods_were_run(tmp_path):
    for number, (size, method) in enumerate((size, method) for size in (10, 4) for method in (PINS, TILDE)):
        entries = [{"score": float(seed < 3), "normalised_return": 0.2 * number + 0.1 * seed} for seed in FIVE]
        bindings = SEA | {"environment.DeepSea.size": size} | method
        record(tmp_path / f"cell{number}", bindings, [[0.0, 1.0]] * 5, entries=entries)
    section = methods.draw_aggregates(report_data(tmp_path))
    mean = [0.1 * seed + 0.2 * number for number in (0, 2) for seed in FIVE]
    assert [row[:3] for row in section.table[1:]] == [
        [f"target = {how}", "2", "10"] for how in ("MeanArgmax", "SampledArgmax")
    ]
    assert section.table[1][3].startswith(f"{iqm(mean):.3f} (")
    assert section.table[1][4].startswith("0.600 (")
    [picture] = section.pictures
    assert "2 settings (DeepSea, size = 4; DeepSea, size = 10), 5 seeds each" in picture.caption


def test_means_over_different_numbers_of_episodes_are_not_put_together(tmp_path):
    entries = [{"normalised_return": 0.5}] * 2
    for size, lengths in {4: (2, 2), 6: (2, 2), 8: (2, 3)}.items():
        for method, length in zip((PINS, TILDE), lengths):
            bindings = SEA | {"environment.DeepSea.size": size} | method
            name = f"{size}{length}{method['agent.Indexed.target'][11:]}"
            record(tmp_path / name, bindings, [[1.0] * length] * 2, entries=entries)
    section = methods.draw_aggregates(report_data(tmp_path))
    assert section.table[1][1] == "2"
    assert section.text[1] == "Left out, as seeds differ in their number of episodes: DeepSea, size = 8."


def test_costs_are_those_of_one_seed(grid):
    result = report_data(grid).results[0]
    assert [methods.cost(result, name) for name in ("parameters", "updates", "seconds")] == [100, 12, 6]


def test_cost_is_set_against_the_score_unless_that_tells_nothing_apart(tmp_path):
    for number, scores in enumerate(([0, 1], [1, 0], [1, 1])):
        entries = [{"score": score} for score in scores]
        record(tmp_path / str(number), SEA | {"agent.X.y": number}, [[1.0], [2.0]], entries=entries)
    results = report_data(tmp_path).results
    assert methods.score_shown(results) == "score"
    assert methods.score_shown(results[:2]) == "mean_return"
