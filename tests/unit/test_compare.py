"""`explore compare`: rows named by what differs, intervals, and an honest foot."""

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pytest

import explore
from explore._analysis.compare import better, compare
from explore._analysis.groups import Configuration, names_by_difference, run_folders
from explore._analysis.statistics import mean_interval, survival
from explore._cli.main import main
from explore.errors import UserError

TINY = ("agent.Indexed.min_replay = 10", "agent.Indexed.batches_per_episode = 2", "environment.DeepSea.size = 3")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three configurations of one task, the first in two runs, and one of another."""
    folder = tmp_path_factory.mktemp("runs")
    settings = {
        "one": ("pins_deep_sea", (0, 1, 2), []),
        "more": ("pins_deep_sea", (3, 4, 5), []),
        "wide": ("pins_deep_sea", range(6), ["environment.DeepSea.size = 4"]),
        "tilde": ("pins_deep_sea", range(6), ["agent.Indexed.target = @selection.SampledArgmax"]),
        "swing": ("pins_cartpole", (0,), ["environment.CartpoleSwingup.max_time = 0.1"]),
    }
    for name, (recipe, seeds, more) in settings.items():
        bindings = ["experiment.episodes = 30", *TINY, *more]
        explore.run(recipe, bindings=bindings, seeds=seeds, out=folder / name, quiet=True)
    return folder


def test_a_row_is_a_configuration_named_by_what_differs(runs):
    rows = compare([runs / name for name in ("one", "more", "wide", "tilde")]).rows()
    assert [row["configuration"] for row in rows] == [
        "size = 3, target = MeanArgmax",
        "size = 4, target = MeanArgmax",
        "size = 3, target = SampledArgmax",
    ]
    assert [row["seeds"] for row in rows] == [6, 6, 6]


def test_numbers_are_those_of_the_summaries(runs):
    row, _ = compare([runs / "tilde", runs / "wide"]).rows()
    summary = explore.Run.open(runs / "tilde").summary
    seeds = summary["seeds"].values()
    assert row["mean_return"] == list(mean_interval([seed["mean_return"] for seed in seeds]))
    solved = [seed["solved_at"] for seed in seeds if seed["solved_at"]]
    assert row["solved"] == len(solved) / 6
    assert row["episodes_to_solve"] == list(survival(solved, [30] * (6 - len(solved))).median)
    updates = 6 * 2 * 26  # two minibatches before each episode from the fifth on, after 12 steps
    assert (row["steps"], row["updates"], row["samples"]) == (540, updates, updates * 64)
    # 300 hidden units on 9 cells and 512 on 9 cells: weights and biases of 2 actions and of 2 x 10 heads
    assert row["parameters"] == (9 + 1) * 300 + (300 + 1) * 2 + (9 + 1) * 512 + (512 + 1) * 20


def test_a_sweep_is_a_folder_of_runs(runs, tmp_path):
    for name in ("one", "tilde"):
        shutil.copytree(runs / name, tmp_path / "sweep" / name)
    assert len(compare([tmp_path / "sweep"]).configurations) == 2


def test_cells_of_a_sweep_are_in_the_order_of_their_numbers(tmp_path):
    names = ["width=8", "width=16", "width=16.5", "width=128"]
    for name in reversed(names):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").touch()
    assert [folder.name for folder in run_folders([tmp_path])] == names


def test_runs_that_are_not_over_or_damaged_are_left_out_and_named(runs, tmp_path, capsys):
    for name in ("one", "wide", "tilde"):
        shutil.copytree(runs / name, tmp_path / name)
    info = json.loads((tmp_path / "one/run.json").read_text())
    (tmp_path / "one/run.json").write_text(json.dumps(info | {"status": "failed"}))
    (tmp_path / "wide/summary.json").write_text("{}")
    assert main(["compare", str(tmp_path)]) == 0
    foot = [line for line in capsys.readouterr().out.splitlines() if line.startswith("left out: ")]
    assert foot == [
        f"left out: {tmp_path / 'one'} is failed",
        f"left out: {tmp_path / 'wide/summary.json'} is damaged: it lacks what is compared",
    ]


@pytest.mark.parametrize("columns", [85, 100, 120])
def test_a_table_too_wide_for_a_terminal_is_shown_as_two_and_no_word_is_cut(runs, capsys, monkeypatch, columns):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["compare", str(runs / "one"), str(runs / "tilde")]) == 0
    results, costs = re.split(r"configuration\b", capsys.readouterr().out)[1:]
    assert "seconds" not in results and "seconds" in costs
    assert "SampledArgmax" in results and "SampledArgmax" in costs
    for words in zip(*compare([runs / "one", runs / "tilde"]).table()):
        assert all(word in results + costs for text in words[1:] for word in text.split())


def test_json_and_csv_hold_the_same(runs, capsys):
    folders = [str(runs / name) for name in ("one", "tilde")]
    assert main(["compare", *folders, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["configurations"]
    assert told[1]["differs"] == {"agent.Indexed.target": "@selection.SampledArgmax"}
    assert main(["compare", *folders, "--csv"]) == 0
    rows = [*csv.DictReader(io.StringIO(capsys.readouterr().out))]
    assert [row["configuration"] for row in rows] == ["target = MeanArgmax", "target = SampledArgmax"]
    assert float(rows[1]["mean_return_estimate"]) == told[1]["mean_return"][1]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["one", "swing"], "these are runs of different tasks, which have no common score: DeepSea ("),
        (["nowhere"], "there is no folder "),
        (["one/checkpoint"], "is the folder of neither a run nor a sweep"),
    ],
)
def test_what_cannot_be_compared_is_refused(runs, names, expected):
    with pytest.raises(UserError) as raised:
        compare([runs / name for name in names])
    assert expected in str(raised.value)


def test_a_sweep_of_which_nothing_has_begun_is_no_mistake_of_the_folder(tmp_path):
    (tmp_path / "sweep.toml").write_text("")
    with pytest.raises(UserError, match=r"no cell of the sweep in .* has begun; run it: explore sweep .*sweep\.toml"):
        compare([tmp_path])


def test_one_seed_of_one_configuration_twice_is_refused(runs, tmp_path):
    with pytest.raises(UserError, match="both hold seed 0 of one configuration"):
        compare([runs / "one", shutil.copytree(runs / "one", tmp_path / "copy")])


def test_the_same_run_twice_is_one(runs, monkeypatch):
    monkeypatch.chdir(runs)
    assert len(compare([Path("one"), runs / "one"]).configurations) == 1


def test_references_that_would_look_alike_are_shown_whole():
    for one, other in (("@weak/prior.Additive", "@strong/prior.Additive"), ("@mine.value.Net", "@yours.value.Net")):
        assert names_by_difference([{"a.b.x": one}, {"a.b.x": other}]) == [f"x = {one}", f"x = {other}"]


def test_who_solves_the_task_sooner_did_better_however_long_the_runs_were(runs):
    """With stop_when_solved one straggler lets all seeds of its run go on, and their mean returns grow."""
    one, other = (Configuration({}, "DeepSea") for _ in range(2))
    one.seeds = {"0": {"score": 1.0, "solved_at": 50, "mean_return": 0.4, "episodes": 60}}
    other.seeds = {"0": {"score": 1.0, "solved_at": 55, "mean_return": 0.9, "episodes": 600}}
    assert better(one, other).estimate == 1
    other.seeds["0"]["solved_at"] = 50
    assert better(one, other).estimate == 0  # then the mean return decides
    one.seeds["0"]["score"] = 0.9
    other.seeds["0"] = {"mean_return": 0.3, "episodes": 60, "solved_at": 50}  # of a version without scores
    assert better(one, other).estimate == 1


def test_who_watches_and_in_which_scope_is_no_difference(runs, tmp_path):
    copy = shutil.copytree(runs / "more", tmp_path / "copy")
    watched = "\nexperiment.observers = [@tb/observer.TensorBoard]\ntb/observer.TensorBoard.every = 2\n"
    text = (copy / "config.gin").read_text().replace("experiment.observers = ()\n", "")
    (copy / "config.gin").write_text(text + watched)
    assert len(compare([runs / "one", copy]).configurations) == 1


def test_names_are_as_short_as_they_can_be():
    assert names_by_difference([{"a.b.x": "1"}]) == [""]
    assert names_by_difference([{"a.b.x": "1", "a.c.x": "1"}, {"a.b.x": "2", "a.c.x": "1"}]) == ["x = 1", "x = 2"]
    three = [{"a.b.x": "1", "a.c.x": "1"}, {"a.b.x": "2", "a.c.x": "1"}, {"a.b.x": "2", "a.c.x": "2"}]
    assert names_by_difference(three) == ["a.b.x = 1, a.c.x = 1", "a.b.x = 2, a.c.x = 1", "a.b.x = 2, a.c.x = 2"]


def test_what_cannot_be_told_apart_is_said_with_the_seeds_that_would_tell(runs):
    comparison = compare([runs / name for name in ("one", "more", "tilde")])
    [pair] = comparison.not_told_apart()
    assert (pair["other"], pair["configuration"]) == ("target = MeanArgmax", "target = SampledArgmax")
    assert pair["seeds"] == [6, 6]
    assert any("cannot be told apart by" in line and "with 6 seeds each; " in line for line in comparison.foot())
    assert json.loads(comparison.json())["not_told_apart"] == [pair]


def test_shares_and_scores_have_intervals_that_hold_whenever_one_looks(runs):
    for row in compare([runs / "tilde", runs / "wide"]).rows():
        low, share, high = row["solved_any_time"]
        assert low <= share == row["solved"] <= high
        assert row["score_any_time"][1] == pytest.approx(row["score"][1])
