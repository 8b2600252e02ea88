"""Maps, and beliefs along best episodes."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from recording import HEIGHT, PINS, SEA, record, record_grid, report_data, swung, treasure_map

from explore._analysis.report import beliefs, sections, sections_of_run
from explore._storage.run_folder import Run


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    return record_grid(tmp_path_factory.mktemp("grid"))


@pytest.fixture(scope="module")
def shown(grid):
    """The sections of its report, by title."""
    return {section.title: section for section in sections(report_data(grid))}


def test_maps_are_shown_from_the_last_moment_before_beliefs_change():
    snapshots = {episode: treasure_map(uncertainty=max(10, episode)) for episode in range(1, 31)}
    assert beliefs.choose_moments(snapshots) == [10, 14, 18, 22, 26, 30]
    assert beliefs.choose_moments({7: treasure_map()}) == [7]


def test_uncertainty_is_set_against_the_median_of_its_row():
    ratio = beliefs.against_row(np.array([[2.0, np.nan, np.nan], [1.0, 3.0, np.nan], [1.0, 2.0, 8.0]]))
    assert np.array_equal(ratio, [[1, np.nan, np.nan], [0.5, 1.5, np.nan], [0.5, 1, 4]], equal_nan=True)
    assert np.isnan(beliefs.against_row(np.zeros((2, 2)))).all()


def test_a_map_shows_the_action_that_has_most_and_leaves_unvisited_cells_blank():
    snapshot = treasure_map(unvisited=1, uncertainty=2.0)
    snapshot["mean"][3, 1, 1] = (0.25, 0.75)
    snapshot["uncertainty"][3, 1, 1] = (4.0, 3.0)
    visits, mean, uncertainty, ratio = beliefs.rows({1: snapshot}, 3)
    assert visits.moments[0][2, 2] == 8
    assert np.isnan(visits.moments[0][3]).all()
    assert (mean.moments[0][1, 1], mean.ends, mean.prior) == (0.75, (0, 0.75), None)
    assert uncertainty.moments[0][1, 1] == 4
    assert ratio.moments[0][1, :2] == pytest.approx([2 / 3, 4 / 3])


def test_a_method_without_uncertainty_has_no_maps_of_it():
    assert [row.title for row in beliefs.rows({1: treasure_map(uncertainty=0.0)}, 0)] == ["visits", "mean value"]


def test_a_prior_is_shown_beside_what_became_of_it():
    snapshot = treasure_map()
    snapshot["prior_mean"] = snapshot["mean"] + 5
    assert beliefs.rows({1: snapshot}, 0)[1].prior[0, 0] == 5


def test_the_seed_shown_first_is_the_median_in_episodes_to_solve(grid):
    result = report_data(grid).results[0]
    run = result.configuration.runs[0]
    assert beliefs.find_median_seed(result, run) == 2  # solved at 2, 3, 4, and two never
    result.configuration.seeds["0"]["solved_at"] = None
    assert beliefs.find_median_seed(result, run) == 0  # the first of those that never did


def test_beliefs_along_an_episode_are_those_of_the_actions_taken():
    lines = beliefs.list_lines(swung(), 0, [HEIGHT])
    assert {name: values.tolist() for name, values in lines.items()} == {
        "height of the pole, cos θ": [-1, 0, 1],
        "reward": [0, 1, 4],
        "mean value": [0, 5, 7],
        "uncertainty": [100, 105, 107],
    }
    assert beliefs.list_lines(swung(), 1, []).keys() == {"reward", "mean value", "uncertainty"}
    assert beliefs.list_lines(swung(), 1, [])["mean value"].tolist() == [10, 13]


def test_earlier_beliefs_are_drawn_of_the_same_episode_only():
    before = swung() | {"best_episode": np.array([1, 2])}
    snapshots = {5: before, 7: swung()}
    assert list(beliefs.of_one_episode(snapshots, 0)) == [7]
    assert list(beliefs.of_one_episode(snapshots, 1)) == [5, 7]


def test_beliefs_along_the_best_episode_are_of_several_moments(shown):
    picture = shown["Best episode"].pictures[0]
    assert [len(axes.lines) for axes in picture.figure.axes] == [1, 1, 2, 2]  # height, reward, value, uncertainty
    assert "beliefs of it after episode 3. Fainter: beliefs after episodes 2, of the same steps." in picture.caption


def test_it_is_said_which_seed_is_shown(shown):
    told = "seed 2, one of 5 seeds, the median of them in episodes to solve, solved at episode 4"
    assert told in shown["Maps"].pictures[0].caption
    told = "seed 1, one of 2 seeds, the median of them in best returns"
    assert told in shown["Best episode"].pictures[0].caption


def test_where_nobody_says_what_is_solved_maps_are_of_the_first_seed(tmp_path):
    run = record(tmp_path / "run", SEA | PINS, [[0.0]] * 5, task="Maze")
    run.snapshots.write(1, treasure_map())
    *_, section = sections(report_data(tmp_path))
    assert section.pictures[0].caption == "Maze, by_hand: seed 0, one of 5 seeds."


@pytest.mark.parametrize(("cell", "title"), [("cell0", "Maps"), ("swing", "Best episode")])
@pytest.mark.parametrize("which", ["last", "all"])
def test_damaged_snapshots_are_left_out_and_named_once(grid, tmp_path, cell, title, which):
    shutil.copytree(grid / cell, tmp_path / "run")
    *_, last = every = sorted((tmp_path / "run/snapshots").iterdir())
    for path in every if which == "all" else [last]:
        path.write_bytes(b"nothing")
    *_, section = found = sections(report_data(tmp_path))
    assert (section.title, len(section.text), len(section.pictures)) == (title, 1, 0)
    assert " left out: " in section.text[0]
    assert "npz is damaged: " in section.text[0]
    assert {"Maps", "Best episode"} - {section.title for section in found}


def test_maps_of_different_grids_are_no_maps_of_one_run(grid, tmp_path):
    run = Run.open(shutil.copytree(grid / "cell0", tmp_path / "run"))
    run.snapshots.write(9, {name: array[:, :3, :3] for name, array in treasure_map().items()})
    text = sections(report_data(tmp_path))[-1].text[0]
    assert text.endswith("is damaged: the map after episode 9 is not of this task.")


def test_maps_of_a_run_that_is_going_are_those_of_its_first_seed(grid):
    *_, section = sections_of_run(Run.open(grid / "cell0"))
    assert section.title == "Maps"
    assert section.pictures[0].caption == "DeepSea, by_hand: seed 0, one of 5 seeds."


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
