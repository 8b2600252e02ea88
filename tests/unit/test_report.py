"""`explore report`: what its page shows and says, and what it refuses."""

import json
import math
import os
import re
import shutil

import pytest
from browser import look, needs_chromium
from recording import PINS, SEA, pictures, record, record_grid, report_data

import explore
from explore._analysis.report import report, sections, sections_of_run, tables
from explore._analysis.statistics import mean_interval
from explore._storage import files
from explore._storage.run_folder import Run
from explore.errors import UserError


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    return record_grid(tmp_path_factory.mktemp("grid"))


@pytest.fixture(scope="module")
def shown(grid):
    """The sections of its report, by title."""
    return {section.title: section for section in sections(report_data(grid))}


def test_settings_of_one_method_are_not_compared(tmp_path):
    for size in (4, 6):
        record(tmp_path / str(size), SEA | {"environment.DeepSea.size": size} | PINS, [[1.0], [0.5]])
    [section] = tables.scores(report_data(tmp_path))
    assert section.table[0][:3] == ["setting", "seeds", "mean return"]
    assert not {"better than first", "log rank p"} & {*section.table[0]}


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
    found = sections(report_data(tmp_path))
    assert [section.title for section in found] == ["What was run", "Scores: catch/0", "Learning"]
    assert len(pictures(found)) == 1


def test_every_picture_says_how_many_seeds_it_is_of(shown):
    found = pictures(shown.values())
    assert [picture.caption for picture in found if " seeds" not in picture.caption] == []


def test_what_agents_report_is_folded_away_and_so_are_other_seeds(shown):
    assert [picture.folded for picture in shown["Learning"].pictures] == [False, True, False, True, False]
    assert [picture.folded for picture in shown["Maps"].pictures] == [False, True, True, True, True] * 4
    assert [picture.folded for picture in shown["Best episode"].pictures] == [False, True]


def test_scores_are_those_of_compare(shown):
    table = shown["Scores: DeepSea, size = 4"].table
    assert table[0][:4] == ["method", "seeds", "score", "mean return"]
    assert [row[0] for row in table[1:]] == ["target = MeanArgmax", "target = SampledArgmax"]
    low, mean, high = mean_interval([1, 1, 1, 0, 0])
    assert table[1][2] == f"{mean:.3g} ({low:.3g} to {high:.3g})"


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
def test_mistakes_are_told_and_nothing_is_written(tmp_path, folder, out, expected):
    record(tmp_path / "sweep" / "good", SEA | PINS, [[1.0, 2.0]])
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
    found = sections(report_data(run.folder))
    assert {"Learning", "Solving", "Maps"} <= {section.title for section in found}
    assert "cumulative return" in pictures(found)[0].caption
    assert json.loads((run.folder / "run.json").read_text())["task"]["curve"] == ["return", "sum"]
    titles = [axes.get_ylabel() for axes in found[-1].pictures[0].figure.axes]
    assert titles[:4] == ["visits", "mean value", "uncertainty", "against its row"]
