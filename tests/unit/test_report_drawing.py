"""Lines, bands and captions: what is drawn of seeds, and what is said of it."""

import math

import numpy as np
import pytest
from recording import PINS, SEA, pictures, record, record_grid, report_data

from explore._analysis.report import drawing, sections, style
from explore._config.seeds import format_seeds


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    return record_grid(tmp_path_factory.mktemp("grid"))


@pytest.fixture(scope="module")
def shown(grid):
    """The sections of its report, by title."""
    return {section.title: section for section in sections(report_data(grid))}


def test_a_mean_goes_from_where_to_where_all_seeds_have_a_number():
    episodes, band = drawing.mean_line([np.array([np.nan, 1, 2, 3]), np.array([0, 3.0, 4.0])])
    assert episodes.tolist() == [2, 3]
    assert band.estimate.tolist() == [2, 3]


def test_long_curves_are_drawn_at_evenly_spaced_episodes_with_the_first_and_the_last():
    at = drawing.thin_out(5000)
    assert (len(at), at[0], at[-1]) == (drawing.POINTS, 0, 4999)
    assert set(np.diff(at)) == {8, 9}
    assert drawing.thin_out(3).tolist() == [0, 1, 2]


def test_seeds_of_different_length_are_drawn_as_far_as_they_go(shown):
    picture = shown["Learning"].pictures[0]
    lengths = [len(line.get_xdata()) for line in picture.figure.axes[0].lines]
    assert lengths == [4, 4, 4, 4, 3, 3] * 2  # five seeds and their mean, of two methods
    assert "the mean goes as far as all do" in picture.caption


def test_of_many_seeds_only_some_have_a_line_of_their_own(tmp_path):
    record(tmp_path / "run", SEA | PINS, [[0.0, float(seed)] for seed in range(25)])
    picture = sections(report_data(tmp_path / "run"))[2].pictures[0]
    assert len(picture.figure.axes[0].lines) == 20 + 1
    assert picture.figure.axes[0].lines[-1].get_ydata().tolist() == [0, 12]  # the mean of all
    assert "25 seeds. Thin: the first 20 seeds; thick: the mean of all" in picture.caption


def test_a_column_that_a_seed_never_fills_has_traces_and_no_mean(tmp_path):
    record(tmp_path / "run", SEA | PINS, [[0.0] * 3] * 2, loss=[[math.nan] * 3, [1.0, 2.0, 3.0]])
    _, picture = pictures(sections(report_data(tmp_path)))
    assert [len(line.get_xdata()) for line in picture.figure.axes[0].lines] == [0, 3, 0]


def test_evaluations_are_a_picture_of_their_own(tmp_path):
    evaluation = [[math.nan, 1.0, math.nan, 3.0]] * 2
    record(tmp_path / "run", SEA | PINS, [[0.0] * 4] * 2, evaluation=evaluation)
    _, picture = pictures(sections(report_data(tmp_path)))
    assert picture.caption.startswith(
        "DeepSea: returns of evaluation episodes, one at each point, 2 seeds; not smoothed."
    )
    assert picture.figure.axes[0].lines[-1].get_xydata().tolist() == [[2, 1], [4, 3]]


def test_nothing_is_smoothed_without_saying_so(shown):
    sea, reported, *_, swing = shown["Learning"].pictures
    assert "cumulative return against episodes, 5 seeds each" in sea.caption
    assert "last 100" not in sea.caption
    assert "mean of the last 100 episodes" in reported.caption
    assert "return (maximum of the last 100 episodes)" in swing.caption
    assert swing.figure.axes[0].get_ylabel() == "return\n(maximum of the last 100 episodes)"


def test_seeds_are_named_in_few_words(grid):
    assert format_seeds([3, 0, 1, 2, 7]) == "0-3, 7"
    found = report_data(grid)
    assert drawing.describe_seeds(found.of("DeepSea, size = 4")) == "5 seeds each"
    swing = found.of("CartpoleSwingup")
    assert drawing.describe_seeds(swing) == "2 seeds"
    said = drawing.describe_seeds(found.results)
    assert said == f"5 seeds each, but 2 seeds of {swing[0].configuration.name}"
    assert drawing.describe_seeds([*found.results, *swing * 3]) == "2 to 5 seeds each (see what was run)"


def test_only_outer_panels_are_labelled():
    with style.styled():
        _, axes = drawing.panels([f"size = {size}" for size in range(5)], 2.0)
        drawing.label_outer(axes, "episode", "return")
    assert [panel.get_xlabel() for panel in axes] == ["", "", "episode", "episode", "episode"]
    assert [panel.get_ylabel() for panel in axes] == ["return", "", "", "return", ""]
    titles = [panel.get_title("left").replace("\N{NO-BREAK SPACE}", " ") for panel in axes]
    assert titles == [f"size = {size}" for size in range(5)]
