import json
import math
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from explore._storage.episodes_csv import WALL_CLOCK, episode_columns
from explore._storage.run_folder import Run, summarise
from explore.errors import RunFailed, UserError
from explore.interfaces import Judge
from explore.tasks import TaskDescription

COLUMNS = episode_columns(("index", "mean_loss"), ("treasure",), ("evaluation",))


@pytest.fixture(autouse=True)
def working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def create(folder=None, **changes):
    details = {
        "name": "pins",
        "config": "experiment.episodes = 3\n",
        "task": TaskDescription(name="DeepSea", curve=("return", "sum")),
        "columns": COLUMNS,
        "seeds": [0, 7],
        "episodes": 3,
        "provenance": {
            "command": ["explore", "run", "pins.gin"],
            "versions": {"torch": "2.13.0"},
            "plugins": [{"name": "mine", "version": "1.0", "source": "mine.py"}],
        },
    }
    return Run.create(folder and Path(folder), **details | changes)


def row(seed=0, episode=1, **values):
    return {"seed": seed, "episode": episode, "return": 0.5, "length": 10, "steps": 10 * episode} | values


def judged(*returns, solved_at=None, **entries):
    class Entries(Judge):
        decides = True

        def summary(self):
            return super().summary() | entries

    judge = Entries(None)
    for value in returns:
        judge.episode(value)
    judge.solved_at = solved_at
    return judge


def test_where_nobody_says_when_a_task_is_solved_no_share_is_given():
    assert summarise({0: Judge(None)}, task="t", steps=1)["overall"]["share_solved"] is None


def everything_in(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*"))


# Creating


def test_a_new_run_has_its_configuration_status_and_an_empty_table_on_disk():
    run = create("out")
    assert everything_in("out") == [".lock", "config.gin", "episodes.csv", "run.json"]
    assert Path("out/config.gin").read_text() == "experiment.episodes = 3\n"
    assert Path("out/episodes.csv").read_text() == ",".join(COLUMNS) + "\n"
    info = json.loads(Path("out/run.json").read_text())
    assert info == run.info
    assert (info["status"], info["seeds"], info["episodes"]) == ("running", [0, 7], 3)
    assert info["command"] == ["explore", "run", "pins.gin"]
    assert info["plugins"] == [{"name": "mine", "version": "1.0", "source": "mine.py"}]


def test_columns_are_those_of_every_run_then_the_agents_then_the_judges_and_the_wall_clock_last():
    assert COLUMNS == (
        "seed", "episode", "return", "length", "steps", "index", "mean_loss", "treasure", "evaluation", "seconds",
    )  # fmt: skip
    assert "evaluation" not in episode_columns((), ())
    assert COLUMNS[-1:] == WALL_CLOCK


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(UserError, match="called 'treasure'"):
        episode_columns(("treasure",), ("treasure",))


def test_without_a_folder_the_first_free_name_is_taken():
    assert [create().folder for _ in range(3)] == [
        Path("runs/pins"),
        Path("runs/pins-2"),
        Path("runs/pins-3"),
    ]


def test_an_empty_folder_may_be_given_and_missing_parents_are_made():
    Path("empty").mkdir()
    assert create("empty").folder == Path("empty")
    assert create("a/b/c").folder == Path("a/b/c")


@pytest.mark.parametrize("file", ["out", "out/something"])
def test_a_folder_that_exists_is_refused_and_left_alone(file):
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text("precious")
    before = everything_in(".")
    with pytest.raises(UserError, match=r"^the run folder out exists already; choose another with --out$"):
        create("out")
    assert everything_in(".") == before


@pytest.mark.parametrize(
    ("folder", "problem"),
    [("file/out", "Not a directory"), ("new/" + "x" * 300, "File name too long")],
)
def test_a_folder_that_cannot_be_made_is_one_line_and_leaves_nothing_behind(folder, problem):
    Path("file").write_text("")
    with pytest.raises(UserError, match=f"^cannot write the run folder .*: {problem}.*--out$") as caught:
        create(folder)
    assert "\n" not in str(caught.value)
    assert everything_in(".") == ["file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_one_line():
    Path("locked").mkdir(mode=0o555)
    with pytest.raises(UserError, match=r"^cannot write the run folder locked/out: Permission denied.*--out$"):
        create("locked/out")


@pytest.mark.parametrize("folder", ["given", "a/b", None])
def test_a_creation_that_fails_halfway_leaves_nothing_behind(folder, monkeypatch):
    Path("given").mkdir()
    replace = os.replace

    def full(path, target):
        if target.name == "run.json":
            raise OSError(28, "No space left on device")
        return replace(path, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(UserError, match="No space left on device"):
        create(folder)
    assert everything_in(".") == ["given"]


# Recording


def test_rows_are_on_disk_as_soon_as_they_are_added():
    run = create("out")
    run.add([row(0), row(7)])
    assert Path("out/episodes.csv").read_text().splitlines()[1:] == [
        "0,1,0.5,10,10,,,,,",
        "7,1,0.5,10,10,,,,,",
    ]
    run.add([row(0, episode=2)])
    assert len(Path("out/episodes.csv").read_text().splitlines()) == 4


def test_cells_are_the_shortest_that_read_back_the_same():
    run = create("out")
    third, tenth = np.float64(1) / 3, np.float32(0.1)
    values = {"return": third, "mean_loss": tenth, "treasure": np.bool_(True), "length": np.int64(3)}
    run.add([row(**values, index="z=1, head=2", evaluation=math.nan, seconds=1e-9)])
    assert (
        Path("out/episodes.csv").read_text().splitlines()[1] == '0,1,0.3333333333333333,3,10,"z=1, head=2",0.1,1,,1e-09'
    )
    episodes = run.episodes
    assert episodes["return"][0] == third
    assert np.float32(episodes["mean_loss"][0]) == tenth
    assert episodes["index"].tolist() == ["z=1, head=2"]
    assert np.isnan(episodes["evaluation"]).all()


def test_a_value_for_an_unknown_column_is_an_error():
    with pytest.raises(ValueError, match="losss"):
        create("out").add([row(losss=1.0)])


def test_a_full_disk_fails_the_run_in_one_line_and_keeps_all_complete_rows():
    run = create("out")
    run.add([row()])
    before = Path("out/episodes.csv").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5, limits[1]))
    try:
        with pytest.raises(RunFailed, match=r"^cannot write out/episodes.csv: File too large$"):
            run.add([row(episode=2)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert Path("out/episodes.csv").read_bytes() == before


def test_a_folder_removed_during_the_run_fails_the_run():
    run = create("out")
    Path("out/episodes.csv").unlink()
    with pytest.raises(RunFailed, match="No such file"):
        run.add([row()])
    for path in Path("out").iterdir():
        path.unlink()
    Path("out").rmdir()
    with pytest.raises(RunFailed, match=r"^cannot write the summary to out"):
        run.finish("done", {})


@pytest.mark.parametrize(("status", "reason"), [("done", None), ("interrupted", None), ("failed", "the loss is NaN")])
def test_a_finished_run_says_how_it_ended(status, reason):
    create("out").finish(status, {}, reason)
    run = Run.open(Path("out"))
    assert (run.status, run.info["reason"]) == (status, reason)
    assert run.info["started"] <= run.info["finished"]
    assert run.info["finished"].endswith("+00:00")
    assert everything_in("out") == [".lock", "config.gin", "episodes.csv", "run.json", "summary.json"]


def test_summary_json_keeps_its_order_and_holds_null_for_what_is_not_a_number():
    create("out").finish("done", {"b": [math.nan, math.inf], "a": {7: np.float32(0.5), 0: np.int64(3)}})
    text = Path("out/summary.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {"a": {"0": 3, "7": 0.5}, "b": [None, None]}
    assert text.index('"b"') < text.index('"a"')


# Reading


def test_a_run_reads_back_as_it_was_recorded():
    run = create("out")
    run.add([row(0, treasure=1.0), row(7, evaluation=0.25)])
    run.finish("done", {"task": "t"})
    again = Run.open(Path("out"))
    assert again.info == run.info
    assert again.config == "experiment.episodes = 3\n"
    assert again.summary == {"task": "t"}
    assert tuple(again.episodes) == COLUMNS
    assert again.episodes["seed"].tolist() == [0, 7]
    assert again.episodes["evaluation"].tolist() == pytest.approx([math.nan, 0.25], nan_ok=True)


def test_a_run_that_is_not_over_can_be_read():
    create("out")
    run = Run.open(Path("out"))
    assert run.status == "running"
    assert all(column.shape == (0,) for column in run.episodes.values())
    with pytest.raises(UserError, match=r"^out/summary.json is missing: the run is not over"):
        _ = run.summary


def test_a_folder_that_is_no_run_is_refused_with_the_nearest_that_is():
    create("runs/pins_cartpole")
    Path("runs/other").mkdir()
    with pytest.raises(
        UserError, match=r"^there is no run folder runs/pins_cartpol; did you mean runs/pins_cartpole\?$"
    ):
        Run.open(Path("runs/pins_cartpol"))
    with pytest.raises(UserError, match=r"^there is no run folder nowhere/x$"):
        Run.open(Path("nowhere/x"))
    with pytest.raises(UserError, match=r"^runs/other is not the folder of a run: it has no run.json$"):
        Run.open(Path("runs/other"))


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("run.json", b'{"format": 1', "out/run.json is damaged: Expecting"),
        ("run.json", b"[]", "out/run.json is damaged: it holds no JSON object"),
        ("run.json", b'{"format": 99}', "out/run.json has format 99, this version reads 3"),
        ("summary.json", b"", "out/summary.json is damaged: Expecting"),
        ("summary.json", b"\xff", "out/summary.json is damaged: 'utf-8' codec"),
        ("episodes.csv", b"", "out/episodes.csv is damaged: its columns are not"),
        ("episodes.csv", b"seed,episode\n", "out/episodes.csv is damaged: its columns are not"),
        ("episodes.csv", b"%b0,1,0.5", "out/episodes.csv is damaged: line 2 has 3 cells, not 10"),
        (
            "episodes.csv",
            b"%b0,1,x,,,,,,,\n",
            "out/episodes.csv is damaged: column return: could not convert",
        ),
        ("episodes.csv", b'%b0,1,"0', "out/episodes.csv is damaged: unexpected end of data"),
    ],
)
def test_a_damaged_file_is_named_in_one_line(file, content, problem):
    create("out").finish("done", {})
    Path("out", file).write_bytes(content.replace(b"%b", ",".join(COLUMNS).encode() + b"\n"))
    with pytest.raises(UserError) as caught:
        run = Run.open(Path("out"))
        _ = run.summary, run.episodes
    assert str(caught.value).startswith(problem)
    assert "\n" not in str(caught.value)


def test_reading_a_run_needs_neither_torch_nor_gin():
    program = "import sys, explore._storage.run_folder; sys.exit(bool({'torch', 'gin'} & sys.modules.keys()))"
    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], check=True, timeout=60)


# Summarising


def test_the_summary_holds_each_seed_and_all_of_them():
    summary = summarise(
        {0: judged(1.0, 3.0, learned=True), 7: judged(0.0, learned=False)},
        task="DeepSea",
        steps=40,
    )
    assert summary["task"] == "DeepSea"
    assert summary["seeds"]["0"]["mean_return"] == 2.0
    overall = summary["overall"]
    assert (overall["seeds"], overall["steps"]) == (2, 40)
    assert [overall[kind]["mean_return"] for kind in ("mean", "min", "max")] == [1.0, 0.0, 2.0]
    assert [overall[kind]["learned"] for kind in ("mean", "min", "max")] == [0.5, 0, 1]
    json.dumps(summary, allow_nan=False)


@pytest.mark.parametrize(
    ("solved_at", "share", "median"),
    [
        ([10, 30, 20], 1.0, 20),
        ([10, None, 20], 2 / 3, 20),
        ([10, None, None], 1 / 3, None),
        ([10, 20, 30, None], 0.75, 25),
        ([10, 20, None, None], 0.5, None),
        ([None], 0.0, None),
    ],
)
def test_seeds_that_never_solve_are_censored_not_solved_at_the_end(solved_at, share, median):
    judges = {seed: judged(1.0, solved_at=at) for seed, at in enumerate(solved_at)}
    overall = summarise(judges, task="t", steps=1)["overall"]
    assert (overall["share_solved"], overall["median_solved_at"]) == (pytest.approx(share), median)


def test_an_entry_that_some_seed_lacks_has_no_mean():
    judges = {0: judged(1.0, first_treasure=5), 1: judged(1.0, first_treasure=None)}
    overall = summarise(judges, task="t", steps=1)["overall"]
    assert "first_treasure" not in overall["mean"]
    assert "best_return" in overall["mean"]


def test_a_run_stopped_before_its_first_episode_has_a_summary():
    summary = summarise({0: judged()}, task="t", steps=0)
    assert summary["seeds"]["0"]["mean_return"] is None
    assert summary["overall"]["median_solved_at"] is None
