"""`explore report`: the numbers behind its pictures, what it says of them, and what it leaves out."""

import json
import math
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from browser import look, needs_chromium
from recording import HEIGHT, PINS, SEA, material_in, record

import explore
from explore._analysis.report import (
    aggregates,
    best_episode,
    costs,
    data,
    maps,
    panels,
    report,
    sections,
    sections_of_run,
    seeds,
    solving,
    tables,
)
from explore._analysis.report.tables import shown_seeds
from explore._analysis.statistics import iqm, mean_interval, survival
from explore._storage import files
from explore._storage.run_folder import Run
from explore.errors import UserError

FIVE = (0, 1, 2, 3, 4)
TILDE = PINS | {"agent.Indexed.target": "@selection.SampledArgmax"}


def treasure_map(unvisited=0, uncertainty=1.0, mean=0.0):
    """A snapshot of five seeds on a grid of 4 x 4: the last so many rows not visited, and beliefs about two actions."""
    outside = ~np.tri(4, dtype=bool)
    visits = np.broadcast_to(np.where(np.arange(4)[:, None] < 4 - unvisited, 8, 0), (5, 4, 4)).copy()
    visits[:, outside] = -1
    beliefs = {}
    for name, value in {"mean": mean, "uncertainty": uncertainty}.items():
        beliefs[name] = np.broadcast_to(np.asarray(value, np.float32), (5, 4, 4))[..., None] * np.ones(2, np.float32)
        beliefs[name][:, outside] = np.nan
    return {"visits": visits.astype(np.int64), **beliefs}


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """Two methods at two sizes, with maps, and one of another task with best episodes."""
    folder = tmp_path_factory.mktemp("grid")
    for number, (size, method) in enumerate((size, method) for size in (10, 4) for method in (PINS, TILDE)):
        returns = [[0.0, 0.5, 1.0, 1.0][: 4 - (seed == 4)] for seed in FIVE]
        entries = [
            {"solved_at": 2 + seed if seed < 3 else None, "size": size, "score": float(seed < 3)}
            | {"normalised_return": 0.2 * number + 0.1 * seed}
            for seed in FIVE
        ]
        losses = [[math.nan, 4.0, 2.0, 1.0]] * 5
        bindings = SEA | {"environment.DeepSea.size": size} | method
        run = record(folder / f"cell{number}", bindings, returns, entries=entries, loss=losses)
        for episode, unvisited in {1: 3, 2: 2, 3: 0}.items():
            run.snapshots.write(episode, treasure_map(unvisited, uncertainty=0.5 + unvisited))
    swing = {"experiment.environment": "@environment.CartpoleSwingup"} | PINS
    run = record(folder / "swing", swing, [[1, 5, 3]] * 2, task="CartpoleSwingup", curve=("return", "max"))
    run.snapshots.write(2, swung())
    run.snapshots.write(3, swung())
    return folder


@pytest.fixture(scope="module")
def shown(grid):
    """The sections of its report, by title."""
    return {section.title: section for section in sections(material_in(grid))}


def swung():
    """A snapshot of the best episodes of two seeds, of 3 and of 2 steps."""
    beyond = np.array([[False, False, False], [False, False, True]])
    observations = np.zeros((2, 3, 1, 8), np.float32)
    observations[:, :, 0, 3] = [[-1, 0, 1], [-1, -0.5, -0.5]]
    beliefs = np.arange(18, dtype=np.float32).reshape(2, 3, 3)
    return {
        "best_episode": np.array([2, 2]),
        "best_return": np.array([5.0, 4.0]),
        "lengths": np.array([3, 2]),
        "observations": observations,
        "actions": np.where(beyond, -1, [[0, 2, 1], [1, 1, 1]]),
        "rewards": np.where(beyond, np.nan, [[0.0, 1.0, 4.0], [0.0, 4.0, 0.0]]),
        "mean": beliefs,
        "uncertainty": 100 + beliefs,
    }


def pictures(found):
    return [picture for section in found for picture in section.pictures]


# The numbers behind the pictures


def test_a_configuration_is_a_setting_and_a_method():
    setting, method = data.split({"experiment.episodes": "9", "agent.X.y": "1"} | SEA | PINS)
    assert setting.keys() == {"experiment.episodes", "experiment.environment", "environment.DeepSea.size"}
    assert method.keys() == {"agent.X.y", "experiment.agent", "agent.Indexed.target"}


def test_settings_and_methods_are_named_by_what_differs_and_ordered_by_number(grid):
    found = material_in(grid)
    assert found.settings == ["DeepSea, size = 4", "DeepSea, size = 10", "CartpoleSwingup"]
    assert found.methods == ["target = MeanArgmax", "target = SampledArgmax"]
    assert [found.place(result) for result in found.of("DeepSea, size = 10")] == [0, 1]


def test_a_method_that_is_alone_goes_by_its_runs_name(tmp_path):
    for size in (2, 3):
        record(tmp_path / str(size), SEA | {"environment.DeepSea.size": size} | PINS, [[1.0]])
    assert material_in(tmp_path).methods == ["by_hand"]


def test_seeds_of_several_runs_are_seeds_of_one_result(tmp_path):
    record(tmp_path / "a", SEA | PINS, [[1.0, 2.0], [3.0]])
    record(tmp_path / "b", SEA | PINS, [[4.0]])
    for name in ("run.json", "summary.json", "episodes.csv"):
        path = tmp_path / "b" / name
        text = path.read_text().replace('"seeds": [\n    0\n', '"seeds": [\n    7\n').replace('"0": ', '"7": ')
        path.write_text(text.replace("\n0,1,4.0", "\n7,1,4.0"))
    [result] = material_in(tmp_path).results
    assert result.seeds == [0, 1, 7]
    assert [seed.tolist() for seed in result.columns["return"]] == [[1, 2], [3], [4]]


def test_curves_are_sums_or_look_back_at_the_last_100_episodes():
    columns = {"return": [np.array([1.0, 3.0, 2.0]), np.arange(101.0)]}
    total, mean, highest = (data.curve(columns, "return", how) for how in ("sum", "mean", "max"))
    assert total.values[0].tolist() == [1, 4, 6]
    assert total.smoothing == ""
    assert mean.values[0].tolist() == [1, 2, 2]
    assert mean.values[1][-1] == np.mean(np.arange(1, 101))
    assert mean.smoothing == "mean of the last 100 episodes"
    assert highest.values[0].tolist() == [1, 3, 3]
    assert highest.smoothing == "maximum of the last 100 episodes"


def test_what_agents_report_is_averaged_over_the_episodes_that_have_it():
    [values], label, smoothing = data.reported({"mean_loss": [np.array([np.nan, 2, np.nan, 4])]}, "mean_loss")
    assert np.array_equal(values, [np.nan, 2, 2, 3], equal_nan=True)
    assert (label, smoothing) == ("mean loss", "mean of the last 100 episodes")


def test_a_mean_goes_from_where_to_where_all_seeds_have_a_number():
    line = data.mean_line([np.array([np.nan, 1, 2, 3]), np.array([0, 3.0, 4.0])])
    assert line.episodes.tolist() == [2, 3]
    assert line.band.estimate.tolist() == [2, 3]


def test_long_curves_are_drawn_at_evenly_spaced_episodes_with_the_first_and_the_last():
    at = data.drawn(5000)
    assert (len(at), at[0], at[-1]) == (data.POINTS, 0, 4999)
    assert set(np.diff(at)) == {8, 9}
    assert data.drawn(3).tolist() == [0, 1, 2]


def test_the_share_of_solved_seeds_is_one_minus_kaplan_meier():
    episodes, share, low, high = solving.solved_share(survival([10, 20], [15, 30]))
    assert episodes.tolist() == [0, 10, 15, 20, 30]
    assert share == pytest.approx([0, 1 / 4, 1 / 4, 1 - 3 / 4 * 1 / 2, 1 - 3 / 4 * 1 / 2])
    assert (low[1:] < share[1:]).all()
    assert (high[1:] > share[1:]).all()


def test_settings_are_put_together_where_the_same_methods_were_run(tmp_path):
    for number, (size, method) in enumerate((size, method) for size in (10, 4) for method in (PINS, TILDE)):
        entries = [{"score": float(seed < 3), "normalised_return": 0.2 * number + 0.1 * seed} for seed in FIVE]
        bindings = SEA | {"environment.DeepSea.size": size} | method
        record(tmp_path / f"cell{number}", bindings, [[0.0, 1.0]] * 5, entries=entries)
    section = aggregates.aggregates(material_in(tmp_path))
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
    section = aggregates.aggregates(material_in(tmp_path))
    assert section.table[1][1] == "2"
    assert section.text[1] == "Left out, as seeds differ in their number of episodes: DeepSea, size = 8."


def test_sizes_are_joined_only_where_nothing_else_of_the_setting_differs(tmp_path):
    for size in (4, 6):
        for fair in (True, False):
            setting = {"environment.DeepSea.size": size, "environment.DeepSea.deterministic": fair}
            entries = [{"size": size, "solved_at": size if fair else 2 * size}]
            record(tmp_path / f"{size}{fair}", SEA | setting | PINS, [[1.0] * 20], entries=entries)
    _, first, second = solving.solving(material_in(tmp_path)).pictures
    medians = [
        [line.get_ydata().tolist() for line in one.figure.axes[0].lines if len(line.get_xdata()) == 2][-2]
        for one in (first, second)
    ]
    assert sorted(medians) == [[4, 6], [8, 12]]


def test_settings_of_one_method_are_not_compared(tmp_path):
    for size in (4, 6):
        record(tmp_path / str(size), SEA | {"environment.DeepSea.size": size} | PINS, [[1.0], [0.5]])
    [section] = tables.scores(material_in(tmp_path))
    assert section.table[0][:3] == ["setting", "seeds", "mean return"]
    assert not {"better than first", "log rank p"} & {*section.table[0]}


def test_costs_are_those_of_one_seed(grid):
    result = material_in(grid).results[0]
    assert [costs.cost(result, name) for name in ("parameters", "updates", "seconds")] == [100, 12, 6]


def test_cost_is_set_against_the_score_unless_that_tells_nothing_apart(tmp_path):
    for number, scores in enumerate(([0, 1], [1, 0], [1, 1])):
        entries = [{"score": score} for score in scores]
        record(tmp_path / str(number), SEA | {"agent.X.y": number}, [[1.0], [2.0]], entries=entries)
    results = material_in(tmp_path).results
    assert costs.score_shown(results) == "score"
    assert costs.score_shown(results[:2]) == "mean_return"


def test_maps_are_shown_from_the_last_moment_before_beliefs_change():
    snapshots = {episode: treasure_map(uncertainty=max(10, episode)) for episode in range(1, 31)}
    assert maps.choose_moments(snapshots) == [10, 14, 18, 22, 26, 30]
    assert maps.choose_moments({7: treasure_map()}) == [7]


def test_uncertainty_is_set_against_the_median_of_its_row():
    ratio = maps.against_row(np.array([[2.0, np.nan, np.nan], [1.0, 3.0, np.nan], [1.0, 2.0, 8.0]]))
    assert np.array_equal(ratio, [[1, np.nan, np.nan], [0.5, 1.5, np.nan], [0.5, 1, 4]], equal_nan=True)
    assert np.isnan(maps.against_row(np.zeros((2, 2)))).all()


def test_a_map_shows_the_action_that_has_most_and_leaves_unvisited_cells_blank():
    snapshot = treasure_map(unvisited=1, uncertainty=2.0)
    snapshot["mean"][3, 1, 1] = (0.25, 0.75)
    snapshot["uncertainty"][3, 1, 1] = (4.0, 3.0)
    visits, mean, uncertainty, ratio = maps.rows({1: snapshot}, 3)
    assert visits.moments[0][2, 2] == 8
    assert np.isnan(visits.moments[0][3]).all()
    assert (mean.moments[0][1, 1], mean.ends, mean.prior) == (0.75, (0, 0.75), None)
    assert uncertainty.moments[0][1, 1] == 4
    assert ratio.moments[0][1, :2] == pytest.approx([2 / 3, 4 / 3])


def test_a_method_without_uncertainty_has_no_maps_of_it():
    assert [row.title for row in maps.rows({1: treasure_map(uncertainty=0.0)}, 0)] == ["visits", "mean value"]


def test_a_prior_is_shown_beside_what_became_of_it():
    snapshot = treasure_map()
    snapshot["prior_mean"] = snapshot["mean"] + 5
    assert maps.rows({1: snapshot}, 0)[1].prior[0, 0] == 5


def test_the_seed_shown_first_is_the_median_in_episodes_to_solve(grid):
    result = material_in(grid).results[0]
    run = result.configuration.runs[0]
    assert seeds.median_seed(result, run) == 2  # solved at 2, 3, 4, and two never
    result.configuration.seeds["0"]["solved_at"] = None
    assert seeds.median_seed(result, run) == 0  # the first of those that never did


def test_beliefs_along_an_episode_are_those_of_the_actions_taken():
    lines = best_episode.along(swung(), 0, [HEIGHT])
    assert {name: values.tolist() for name, values in lines.items()} == {
        "height of the pole, cos θ": [-1, 0, 1],
        "reward": [0, 1, 4],
        "mean value": [0, 5, 7],
        "uncertainty": [100, 105, 107],
    }
    assert best_episode.along(swung(), 1, []).keys() == {"reward", "mean value", "uncertainty"}
    assert best_episode.along(swung(), 1, [])["mean value"].tolist() == [10, 13]


def test_earlier_beliefs_are_drawn_of_the_same_episode_only():
    before = swung() | {"best_episode": np.array([1, 2])}
    snapshots = {5: before, 7: swung()}
    assert list(best_episode.of_one_episode(snapshots, 0)) == [7]
    assert list(best_episode.of_one_episode(snapshots, 1)) == [5, 7]


# What is shown and said


def test_sections_come_in_their_order(shown):
    assert list(shown) == [
        "What was run",
        "How settings differ",
        "How methods differ",
        "Scores: DeepSea, size = 4",
        "Scores: DeepSea, size = 10",
        "Scores: CartpoleSwingup",
        "Learning",
        "Solving",
        "Cost against score",
        "Maps",
        "Best episode",
    ]


def test_sections_with_nothing_to_show_are_left_out(tmp_path):
    record(tmp_path / "run", {"experiment.environment": "@environment.Bsuite"}, [[1.0]], task="catch/0")
    found = sections(material_in(tmp_path))
    assert [section.title for section in found] == ["What was run", "Scores: catch/0", "Learning"]
    assert len(pictures(found)) == 1


def test_every_picture_says_how_many_seeds_it_is_of(shown):
    found = pictures(shown.values())
    assert [picture.caption for picture in found if " seeds" not in picture.caption] == []


def test_nothing_is_smoothed_without_saying_so(shown):
    sea, reported, *_, swing = shown["Learning"].pictures
    assert "cumulative return against episodes, 5 seeds each" in sea.caption
    assert "last 100" not in sea.caption
    assert "mean of the last 100 episodes" in reported.caption
    assert "return (maximum of the last 100 episodes)" in swing.caption
    assert swing.figure.axes[0].get_ylabel() == "return\n(maximum of the last 100 episodes)"


def test_beliefs_along_the_best_episode_are_of_several_moments(shown):
    picture = shown["Best episode"].pictures[0]
    assert [len(axes.lines) for axes in picture.figure.axes] == [1, 1, 2, 2]  # height, reward, value, uncertainty
    assert "beliefs of it after episode 3. Fainter: beliefs after episodes 2, of the same steps." in picture.caption


def test_what_agents_report_is_folded_away_and_so_are_other_seeds(shown):
    assert [picture.folded for picture in shown["Learning"].pictures] == [False, True, False, True, False]
    assert [picture.folded for picture in shown["Maps"].pictures] == [False, True, True, True, True] * 4
    assert [picture.folded for picture in shown["Best episode"].pictures] == [False, True]


def test_it_is_said_which_seed_is_shown(shown):
    told = "seed 2, one of 5 seeds, the median of them in episodes to solve, solved at episode 4"
    assert told in shown["Maps"].pictures[0].caption
    told = "seed 1, one of 2 seeds, the median of them in best returns"
    assert told in shown["Best episode"].pictures[0].caption


def test_seeds_of_different_length_are_drawn_as_far_as_they_go(shown):
    picture = shown["Learning"].pictures[0]
    lengths = [len(line.get_xdata()) for line in picture.figure.axes[0].lines]
    assert lengths == [4, 4, 4, 4, 3, 3] * 2  # five seeds and their mean, of two methods
    assert "the mean goes as far as all do" in picture.caption


def test_of_many_seeds_only_some_have_a_line_of_their_own(tmp_path):
    record(tmp_path / "run", SEA | PINS, [[0.0, float(seed)] for seed in range(25)])
    picture = sections(material_in(tmp_path / "run"))[2].pictures[0]
    assert len(picture.figure.axes[0].lines) == 20 + 1
    assert picture.figure.axes[0].lines[-1].get_ydata().tolist() == [0, 12]  # the mean of all
    assert "25 seeds. Thin: the first 20 seeds; thick: the mean of all" in picture.caption


def test_a_column_that_a_seed_never_fills_has_traces_and_no_mean(tmp_path):
    record(tmp_path / "run", SEA | PINS, [[0.0] * 3] * 2, loss=[[math.nan] * 3, [1.0, 2.0, 3.0]])
    _, picture = pictures(sections(material_in(tmp_path)))
    assert [len(line.get_xdata()) for line in picture.figure.axes[0].lines] == [0, 3, 0]


def test_where_nobody_says_what_is_solved_maps_are_of_the_first_seed(tmp_path):
    run = record(tmp_path / "run", SEA | PINS, [[0.0]] * 5, task="Maze")
    run.snapshots.write(1, treasure_map())
    *_, section = sections(material_in(tmp_path))
    assert section.pictures[0].caption == "Maze, by_hand: seed 0, one of 5 seeds."


def test_evaluations_are_a_picture_of_their_own(tmp_path):
    evaluation = [[math.nan, 1.0, math.nan, 3.0]] * 2
    record(tmp_path / "run", SEA | PINS, [[0.0] * 4] * 2, evaluation=evaluation)
    _, picture = pictures(sections(material_in(tmp_path)))
    assert picture.caption.startswith(
        "DeepSea: returns of evaluation episodes, one at each point, 2 seeds; not smoothed."
    )
    assert picture.figure.axes[0].lines[-1].get_xydata().tolist() == [[2, 1], [4, 3]]


def test_unsolved_seeds_are_open_triangles_where_they_were_stopped(shown):
    picture = shown["Solving"].pictures[1]
    stopped = [line for line in picture.figure.axes[0].lines if line.get_fillstyle() == "none"]
    assert [line.get_marker() for line in stopped] == ["^"] * 8  # two seeds each
    assert sorted({float(line.get_ydata()[0]) for line in stopped}) == [3, 4]
    [dithering] = [text.get_text() for text in picture.figure.axes[0].texts]
    assert "2^N" in dithering


def test_seeds_are_named_in_few_words(grid):
    assert shown_seeds([3, 0, 1, 2, 7]) == "0-3, 7"
    found = material_in(grid)
    assert panels.seeds_said(found.of("DeepSea, size = 4")) == "5 seeds each"
    swing = found.of("CartpoleSwingup")
    assert panels.seeds_said(swing) == "2 seeds"
    said = panels.seeds_said(found.results)
    assert said == f"5 seeds each, but 2 seeds of {swing[0].configuration.name}"
    assert panels.seeds_said([*found.results, *swing * 3]) == "2 to 5 seeds each (see what was run)"


def test_scores_are_those_of_compare(shown):
    table = shown["Scores: DeepSea, size = 4"].table
    assert table[0][:4] == ["method", "seeds", "score", "mean return"]
    assert [row[0] for row in table[1:]] == ["target = MeanArgmax", "target = SampledArgmax"]
    low, mean, high = mean_interval([1, 1, 1, 0, 0])
    assert table[1][2] == f"{mean:.3g} ({low:.3g} to {high:.3g})"


# Damage and mistakes


@pytest.fixture
def two(tmp_path):
    for name, method in {"good": PINS, "bad": TILDE}.items():
        record(tmp_path / "sweep" / name, SEA | method, [[1.0, 2.0]])
    return tmp_path / "sweep"


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("0,2,2.0", "0,3,2.0", "the episodes of a seed are not 1, 2, 3, ..."),
        ("0,2,2.0,4,8,0.1\n", "", "its episodes are not those that summary.json tells of"),
        ("0,2,2.0", "0,2,", "not all of column return are numbers"),
        ("0,2,2.0", "0,2,1e999", "not all of column return are numbers"),
        ("1.0", "1e308", None),
        ("1,1.0,4,4,0.1\n0,2,2.0", "1,1e308,4,4,0.1\n0,2,1e308", "not all of column return are numbers"),
        ("0,2,2.0,4", "0,2,2.0,4,5", "line 3 has 7 cells, not 6"),
    ],
)
def test_a_run_with_damaged_episodes_is_left_out_and_named(two, before, after, reason):
    path = two / "bad/episodes.csv"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    found = material_in(two)
    assert len(found.results) == (2 if reason is None else 1)
    told = ["This is one configuration: nothing differs.", f"Left out: {path} is damaged: {reason}."]
    assert [*sections(found)[0].text] == (told if reason else [])


@pytest.mark.parametrize("solved_at", [-1, 9, 1e20])
def test_a_run_that_is_said_to_be_solved_when_it_was_not_run_is_left_out(tmp_path, solved_at):
    run = record(tmp_path / "run", SEA | PINS, [[1.0] * 8], entries=[{"solved_at": solved_at}])
    assert material_in(tmp_path).left_out == [
        f"{run.folder / 'summary.json'} is damaged: a seed solved its task when it was not run"
    ]


@pytest.mark.parametrize(("cell", "title"), [("cell0", "Maps"), ("swing", "Best episode")])
@pytest.mark.parametrize("which", ["last", "all"])
def test_damaged_snapshots_are_left_out_and_named_once(grid, tmp_path, cell, title, which):
    shutil.copytree(grid / cell, tmp_path / "run")
    *_, last = every = sorted((tmp_path / "run/snapshots").iterdir())
    for path in every if which == "all" else [last]:
        path.write_bytes(b"nothing")
    *_, section = found = sections(material_in(tmp_path))
    assert (section.title, len(section.text), len(section.pictures)) == (title, 1, 0)
    assert " left out: " in section.text[0]
    assert "npz is damaged: " in section.text[0]
    assert {"Maps", "Best episode"} - {section.title for section in found}


def test_maps_of_different_grids_are_no_maps_of_one_run(grid, tmp_path):
    run = Run.open(shutil.copytree(grid / "cell0", tmp_path / "run"))
    run.snapshots.write(9, {name: array[:, :3, :3] for name, array in treasure_map().items()})
    text = sections(material_in(tmp_path))[-1].text[0]
    assert text.endswith("is damaged: the map after episode 9 is not of this task.")


def test_text_of_a_run_is_shown_as_it_is(tmp_path):
    for number, value in enumerate(("'<script>alert(1)</script>'", "'$x_{'")):
        record(tmp_path / f"{number}", SEA | {"agent._X._y": value}, [[1.0], [2.0]])
    page = report([tmp_path], tmp_path / "report.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "$x_{" in page


@pytest.mark.parametrize(
    ("folder", "out", "expected"),
    [
        ("nowhere", "r.html", "there is no folder "),
        ("", "r.html", "is the folder of neither a run nor a sweep"),
        ("sweep", "sweep", "is a folder; say which file to write, such as "),
        ("sweep", "nowhere/r.html", "there is no folder "),
    ],
)
def test_mistakes_are_told_and_nothing_is_written(two, tmp_path, folder, out, expected):
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError) as raised:
        report([tmp_path / folder], tmp_path / out)
    assert expected in str(raised.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_runs_that_are_not_over_have_no_report(tmp_path):
    record(tmp_path / "run", SEA | PINS, [[1.0]], status="running")
    with pytest.raises(UserError, match=r"there is no finished run to report on: .*run is killed$"):
        report([tmp_path], tmp_path / "r.html")
    with files.Lock(tmp_path / "run"), pytest.raises(UserError, match=r"is running; .* with explore watch$"):
        report([tmp_path], tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_a_page_is_written_whole_and_is_the_same_each_time(grid, tmp_path):
    folders = [grid / "cell0", grid / "swing"]
    first = report(folders, tmp_path / "one.html").read_bytes()
    assert report([*map(str, folders)], str(tmp_path / "two")).read_bytes() == first
    assert sorted(os.listdir(tmp_path)) == ["one.html", "two"]
    text = first.decode()
    assert "Report on DeepSea and CartpoleSwingup" in text
    assert "2 configurations, 7 seeds in all" in text


@needs_chromium
def test_a_reader_sees_tables_pictures_and_captions_and_nothing_is_loaded(grid, tmp_path):
    page = report([grid / "cell0", grid / "cell1"], tmp_path / "report.html")
    seen = look(page.as_uri())
    assert seen.requests == []
    assert seen.console == []
    for words in ("What was run", "target = SampledArgmax", "share of seeds solved", "against its row", "5 seeds each"):
        assert words in seen.text
    assert seen.dom.count("<svg") == 2 + 1 + 1 + 2 * 5  # learning, solving, cost, maps


# A run that is going


def test_a_page_says_what_all_have_in_common(grid, tmp_path):
    text = report([grid / "cell0", grid / "cell1"], tmp_path / "report.html").read_text()
    common = text[text.index('<section id="configuration">') :]
    assert re.search(r"<td[^>]*>environment\.DeepSea\.size</td><td[^>]*>10</td>", common)
    assert "agent.Indexed.target" not in common  # in which they differ


def test_only_a_page_is_written_over(grid, tmp_path):
    run = shutil.copytree(grid / "cell0", tmp_path / "run")
    before = (run / "config.gin").read_text()
    with pytest.raises(UserError, match="exists, and is no page"):
        report([run], run / "config.gin")
    assert (run / "config.gin").read_text() == before


def test_a_run_that_is_going_is_shown_as_far_as_it_is(tmp_path):
    returns = [[0.0, 1.0, 1.0], [0.0, 0.5]]
    run = record(tmp_path / "run", SEA | PINS, returns, status="running", loss=[[math.nan, 2.0, 1.0]] * 2)
    with (tmp_path / "run/episodes.csv").open("a") as file:
        file.write("1,3,0.")  # a row on its way
    head, learning = sections_of_run(Run.open(run.folder))
    assert head.title == "by_hand on DeepSea"
    assert head.table[1][:3] == ["killed", "2 of 3", "2 (0-1)"]
    assert [picture.folded for picture in learning.pictures] == [False, True]
    assert "2 seeds" in learning.pictures[0].caption


def test_maps_of_a_run_that_is_going_are_those_of_its_first_seed(grid):
    *_, section = sections_of_run(Run.open(grid / "cell0"))
    assert section.title == "Maps"
    assert section.pictures[0].caption == "DeepSea, by_hand: seed 0, one of 5 seeds."


def test_a_run_without_episodes_has_only_a_head(tmp_path):
    run = record(tmp_path / "run", SEA | PINS, [[], []], status="running")
    [head] = sections_of_run(Run.open(run.folder))
    assert head.table[1][1] == "0 of 0"


def test_a_real_run_has_maps_and_a_curve_of_its_sum(tmp_path):
    bindings = [
        "environment.DeepSea.size = 3", "experiment.episodes = 12", "agent.Indexed.min_replay = 10",
        "agent.Indexed.batches_per_episode = 2",
    ]  # fmt: skip
    run = explore.run("pins_deep_sea", bindings=bindings, seeds=(0, 1), out=tmp_path / "run", quiet=True)
    found = sections(material_in(run.folder))
    assert {"Learning", "Solving", "Maps"} <= {section.title for section in found}
    assert "cumulative return" in pictures(found)[0].caption
    assert json.loads((run.folder / "run.json").read_text())["task"]["curve"] == ["return", "sum"]
    titles = [axes.get_ylabel() for axes in found[-1].pictures[0].figure.axes]
    assert titles[:4] == ["visits", "mean value", "uncertainty", "against its row"]


def test_the_code_in_the_documentation_reads_snapshots(tmp_path, monkeypatch, capsys):
    page = Path(__file__).parents[2] / "docs" / "howto" / "report.md"
    [code] = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    run = record(tmp_path / "runs" / "pins", SEA | PINS, [[0.0]] * 5)
    frontier = np.zeros((4, 4))
    frontier[2, 1] = 3
    run.snapshots.write(10, treasure_map(uncertainty=frontier))
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert capsys.readouterr().out.splitlines()[4] == "seed 4 is least certain in row 2, column 1 after episode 10"
