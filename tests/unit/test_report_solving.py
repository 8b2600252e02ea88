"""When seeds solve their task, and how that grows with its size."""

import pytest
from recording import PINS, SEA, record, record_grid, report_data

from explore._analysis.report import sections, style
from explore._analysis.report.solving import _draw_share, draw_solving
from explore._analysis.statistics import survival


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    return record_grid(tmp_path_factory.mktemp("grid"))


@pytest.fixture(scope="module")
def shown(grid):
    """The sections of its report, by title."""
    return {section.title: section for section in sections(report_data(grid))}


def test_the_share_of_solved_seeds_is_one_minus_kaplan_meier():
    curve = survival([10, 20], [15, 30])
    _, axes = style.new_figure()
    _draw_share(axes, curve, 0, 1)
    assert axes.lines[0].get_xdata().tolist() == [0, 10, 15, 20, 30]
    share = axes.lines[0].get_ydata()
    assert share == pytest.approx([0, 1 / 4, 1 / 4, 1 - 3 / 4 * 1 / 2, 1 - 3 / 4 * 1 / 2])
    band = set(axes.collections[0].get_paths()[0].vertices[:, 1].round(9))
    assert band == {*(1 - curve.low[1:]).round(9), *(1 - curve.high[1:]).round(9)}
    assert min(band) < share[1] < share[-1] < max(band)


def test_sizes_are_joined_only_where_nothing_else_of_the_setting_differs(tmp_path):
    for size in (4, 6):
        for fair in (True, False):
            setting = {"environment.DeepSea.size": size, "environment.DeepSea.deterministic": fair}
            entries = [{"size": size, "solved_at": size if fair else 2 * size}]
            record(tmp_path / f"{size}{fair}", SEA | setting | PINS, [[1.0] * 20], entries=entries)
    _, first, second = draw_solving(report_data(tmp_path)).pictures
    medians = [
        [line.get_ydata().tolist() for line in one.figure.axes[0].lines if len(line.get_xdata()) == 2][-2]
        for one in (first, second)
    ]
    assert sorted(medians) == [[4, 6], [8, 12]]


def test_unsolved_seeds_are_open_triangles_where_they_were_stopped(shown):
    picture = shown["Solving"].pictures[1]
    stopped = [line for line in picture.figure.axes[0].lines if line.get_fillstyle() == "none"]
    assert [line.get_marker() for line in stopped] == ["^"] * 8  # two seeds each
    assert sorted({float(line.get_ydata()[0]) for line in stopped}) == [3, 4]
    [dithering] = [text.get_text() for text in picture.figure.axes[0].texts]
    assert "2^N" in dithering
