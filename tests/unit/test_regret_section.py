"""The section on regret: its numbers by hand, and what it shows of real runs."""

import numpy as np
import pytest
from explore_plugins import regret_section
from explore_plugins.regret_section import bound, draw_regret, exponent, growth_across, growth_along
from recording import record, report_data
from scipy import stats

import explore
from explore._analysis.report import sections

EPISODES = 40


def mdp(folder, method, states=3, horizon=3, mass=3.0, scale=1.0, power=0.5, seeds=4, episodes=EPISODES):
    """A run by hand whose cumulative regret is a power of episodes."""
    totals = [scale * (1 + 0.1 * seed) * np.arange(episodes + 1) ** power for seed in range(seeds)]
    sizes = {"states": states, "actions": 2, "horizon": horizon, "mass": mass}
    bindings = {
        "experiment.environment": "@environment.RandomMDP",
        "environment.RandomMDP.states": states,
        "environment.RandomMDP.horizon": horizon,
        "experiment.agent": f"@agent.{method}",
    }
    record(
        folder, bindings, [[0.0] * episodes] * seeds, entries=[sizes] * seeds, task="RandomMDP",
        curve=("regret", "sum"), regret=[np.diff(total) for total in totals],
    )  # fmt: skip


@pytest.fixture
def grid(tmp_path):
    for states in (3, 6):
        mdp(tmp_path / f"wtd{states}", "TabularWTD", states, scale=states**0.7, power=0.9)
        mdp(tmp_path / f"psrl{states}", "TabularPSRL", states, scale=0.1, power=0.4)
    return tmp_path


def test_exponents_are_those_of_the_curves(grid):
    section = draw_regret(report_data(grid))
    header, *rows = section.table
    assert header[3:] == ["growth with", "regret in all", "exponent", "of the bound", "but for logarithms"]
    along = {(row[0][-1], row[1]): float(row[5].split()[0]) for row in rows if row[3] == "episodes"}
    assert along == {
        ("3", "agent = TabularWTD"): 0.9, ("6", "agent = TabularWTD"): 0.9,
        ("3", "agent = TabularPSRL"): 0.4, ("6", "agent = TabularPSRL"): 0.4,
    }  # fmt: skip
    across = {row[1]: (float(row[5].split()[0]), row[2], row[0], row[6]) for row in rows if row[3] == "states"}
    fixed = "actions = 2, horizon = 3, mass = 3"
    at_both = [bound(states, 2, 3, 3.0, np.array(EPISODES)) for states in (3, 6)]
    assert across["agent = TabularWTD"] == (0.7, "8", fixed, f"{np.log2(at_both[1] / at_both[0]):.2f}")
    assert abs(across["agent = TabularPSRL"][0]) < 1e-10
    total = 3**0.7 * EPISODES**0.9 * 1.15  # the mean of four seeds
    assert next(row for row in rows if row[:2] == [rows[0][0], "agent = TabularWTD"])[4].startswith(f"{total:.3g} (")


def test_intervals_are_over_seeds(grid):
    found = report_data(grid)
    result = next(one for one in found.results if "WTD" in one.method)
    curves = regret_section.cumulative(result)
    np.testing.assert_allclose(curves[:, -1], [3**0.7 * EPISODES**0.9 * (1 + 0.1 * seed) for seed in range(4)])
    at = np.unique(np.geomspace(EPISODES // 10, EPISODES, regret_section.POINTS).round().astype(int))
    assert regret_section.growth(result) == growth_along(at, curves[:, at - 1])
    [group] = [one for one in regret_section._groups(found.results) if "WTD" in one.method]
    assert group.growth == growth_across([3, 6], group.totals)


def test_the_bound_is_drawn_beside_the_curves(grid):
    curves, growth = draw_regret(report_data(grid)).pictures
    line = curves.figure.axes[0].lines[-1]
    episodes = line.get_xdata()
    np.testing.assert_allclose(line.get_ydata(), bound(3, 2, 3, 3.0, episodes))
    assert episodes[-1] == EPISODES
    assert "4 seeds each" in curves.caption and "Dashed: the bound of Theorem 1" in curves.caption
    assert "4 seeds each" in growth.caption and "after 40 episodes" in growth.caption
    assert [text.get_text().strip() for text in growth.figure.axes[0].texts] == ["0.00", "0.70"]


def test_exponents_of_the_bound_are_taken_at_the_same_points(grid):
    rows = draw_regret(report_data(grid)).table[1:]
    at = np.unique(np.geomspace(EPISODES // 10, EPISODES, regret_section.POINTS).round().astype(int))
    slope = np.polyfit(np.log(at), np.log(bound(3, 2, 3, 3.0, at)), 1)[0]
    assert rows[0][-2] == f"{slope:.2f}" != "0.50"


def test_growth_with_size_is_at_an_episode_that_all_runs_have(tmp_path):
    mdp(tmp_path / "long", "TabularWTD", states=3)
    mdp(tmp_path / "short", "TabularWTD", states=6, episodes=EPISODES // 2)
    found = report_data(tmp_path)
    for order in (1, -1):
        [group] = regret_section._groups(found.results[::order])
        assert group.episodes == EPISODES // 2


@pytest.mark.parametrize("sizes", [{"mass": 2.0}, {"mass": -3.0}, {"states": 0}, {"states": None}])
def test_no_bound_where_the_theorem_says_nothing(tmp_path, sizes):
    mdp(tmp_path / "run", "TabularWTD", **sizes)
    section = draw_regret(report_data(tmp_path))
    assert "Theorem" not in section.pictures[0].caption
    assert section.table[1][-2] == "-"


def test_runs_without_sizes_have_curves_and_no_bound(tmp_path):
    bindings = {"experiment.environment": "@environment.DeepSea", "experiment.agent": "@agent.TabularWTD"}
    record(tmp_path / "run", bindings, [[0.0, 1.0]] * 2, regret=[[1.0, 0.5]] * 2)
    section = draw_regret(report_data(tmp_path / "run"))
    assert len(section.pictures) == 1 and "Theorem" not in section.pictures[0].caption


def test_where_regret_is_not_known_or_nothing_there_is_no_section(tmp_path):
    record(tmp_path / "none", {"experiment.agent": "@agent.Indexed"}, [[0.0, 1.0]])
    assert draw_regret(report_data(tmp_path / "none")) is None
    record(tmp_path / "zero", {"experiment.agent": "@agent.TabularWTD"}, [[0.0, 1.0]], regret=[[0.0, 0.0]])
    assert draw_regret(report_data(tmp_path / "zero")) is None


def test_a_real_run_shows_its_regret(tmp_path):
    bindings = ["environment.RandomMDP.states = 3", "environment.RandomMDP.horizon = 3", "experiment.episodes = 20"]
    run = explore.run("wtd_random_mdp", bindings=bindings, seeds=range(6), out=tmp_path / "run", quiet=True)
    assert run.description.curve == ("return", "mean")
    section = next(one for one in sections(report_data(tmp_path / "run")) if one.title == "Regret")
    total = run.episodes["regret"].reshape(20, 6).sum(0).mean()
    assert section.table[1][4].startswith(f"{total:.3g} (")


def test_an_exponent_is_that_of_least_squares_on_logarithmic_axes():
    x = np.array([10, 20, 40, 80])
    assert exponent(x, 3 * x**0.5) == pytest.approx(0.5)
    assert exponent([1, 10], [2, 200]) == pytest.approx(2)
    x = np.arange(1.0, 30)
    y = x**1.5 * np.exp(0.2 * np.random.default_rng(0).standard_normal(29))
    assert exponent(x, y) == pytest.approx(stats.linregress(np.log(x), np.log(y)).slope)


def test_growth_along_curves_is_the_exponent_of_their_mean():
    x = np.array([1, 10, 100])
    curves = np.array([[1.0, 20.0, 150.0], [3.0, 20.0, 250.0]])
    slope = np.polyfit(np.log(x), np.log(curves.mean(0)), 1)[0]
    low, estimate, high = growth_along(x, curves)
    assert estimate == pytest.approx(slope)
    alone = [np.polyfit(np.log(x), np.log(curve), 1)[0] for curve in curves]
    assert [low, high] == pytest.approx(sorted(alone))  # a quarter of all draws of two seeds is one of them twice


def test_growth_along_curves_draws_seeds_with_replacement():
    x = np.array([1.0, 10.0])
    curves = np.array([[1.0, 10.0**power] for power in (0.2, 0.4, 0.6, 0.8, 1.0)])
    low, estimate, high = growth_along(x, curves)
    assert 0.2 < low < 0.55 < estimate < 0.75 < high < 1.0  # means of five are never as far apart as the five


def test_growth_across_samples_draws_each_by_itself():
    x, samples = [1, 2], [[1.0, 3.0], [8.0, 8.0]]
    low, estimate, high = growth_across(x, samples)
    assert estimate == pytest.approx(2)  # 2 to 8
    assert (low, high) == pytest.approx((np.log2(8 / 3), 3))


def test_growth_of_one_seed_has_no_interval_and_that_of_nothing_is_refused():
    assert growth_along([1, 2], [[1.0, 4.0]]) == (None, pytest.approx(2), None)
    assert growth_across([1, 2], [[1.0], [4.0, 4.0]]) == (None, pytest.approx(2), None)
    with pytest.raises(ValueError, match="above 0"):
        growth_along([1, 2], [[0.0, 4.0]])
