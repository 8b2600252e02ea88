"""What a report reads of runs: settings, methods, curves, and damage."""

import numpy as np
import pytest
from recording import PINS, SEA, TILDE, record, record_grid, report_data

from explore._analysis.report import data, sections


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    return record_grid(tmp_path_factory.mktemp("grid"))


def test_a_configuration_is_a_setting_and_a_method():
    setting, method = data.split({"experiment.episodes": "9", "agent.X.y": "1"} | SEA | PINS)
    assert setting.keys() == {"experiment.episodes", "experiment.environment", "environment.DeepSea.size"}
    assert method.keys() == {"agent.X.y", "experiment.agent", "agent.Indexed.target"}


def test_settings_and_methods_are_named_by_what_differs_and_ordered_by_number(grid):
    found = report_data(grid)
    assert found.settings == ["DeepSea, size = 4", "DeepSea, size = 10", "CartpoleSwingup"]
    assert found.methods == ["target = MeanArgmax", "target = SampledArgmax"]
    assert [found.place(result) for result in found.of("DeepSea, size = 10")] == [0, 1]


def test_a_method_that_is_alone_goes_by_its_runs_name(tmp_path):
    for size in (2, 3):
        record(tmp_path / str(size), SEA | {"environment.DeepSea.size": size} | PINS, [[1.0]])
    assert report_data(tmp_path).methods == ["by_hand"]


def test_seeds_of_several_runs_are_seeds_of_one_result(tmp_path):
    record(tmp_path / "a", SEA | PINS, [[1.0, 2.0], [3.0]])
    record(tmp_path / "b", SEA | PINS, [[4.0]])
    for name in ("run.json", "summary.json", "episodes.csv"):
        path = tmp_path / "b" / name
        text = path.read_text().replace('"seeds": [\n    0\n', '"seeds": [\n    7\n').replace('"0": ', '"7": ')
        path.write_text(text.replace("\n0,1,4.0", "\n7,1,4.0"))
    [result] = report_data(tmp_path).results
    assert result.seeds == [0, 1, 7]
    assert [seed.tolist() for seed in result.columns["return"]] == [[1, 2], [3], [4]]


def test_curves_are_sums_or_look_back_at_the_last_100_episodes():
    columns = {"return": [np.array([1.0, 3.0, 2.0]), np.arange(101.0)]}
    total, mean, highest = (data.curve(columns["return"], "return", how) for how in ("sum", "mean", "max"))
    assert total.values[0].tolist() == [1, 4, 6]
    assert total.smoothing == ""
    assert mean.values[0].tolist() == [1, 2, 2]
    assert mean.values[1][-1] == np.mean(np.arange(1, 101))
    assert mean.smoothing == "mean of the last 100 episodes"
    assert highest.values[0].tolist() == [1, 3, 3]
    assert highest.smoothing == "maximum of the last 100 episodes"


def test_what_agents_report_is_averaged_over_the_episodes_that_have_it():
    [values], label, smoothing = data.reported_curve([np.array([np.nan, 2, np.nan, 4])], "mean_loss")
    assert np.array_equal(values, [np.nan, 2, 2, 3], equal_nan=True)
    assert (label, smoothing) == ("mean loss", "mean of the last 100 episodes")


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
    found = report_data(two)
    assert len(found.results) == (2 if reason is None else 1)
    told = ["This is one configuration: nothing differs.", f"Left out: {path} is damaged: {reason}."]
    assert [*sections(found)[0].text] == (told if reason else [])


@pytest.mark.parametrize("solved_at", [-1, 9, 1e20])
def test_a_run_that_is_said_to_be_solved_when_it_was_not_run_is_left_out(tmp_path, solved_at):
    run = record(tmp_path / "run", SEA | PINS, [[1.0] * 8], entries=[{"solved_at": solved_at}])
    assert report_data(tmp_path).left_out == [
        f"{run.folder / 'summary.json'} is damaged: a seed solved its task when it was not run"
    ]
