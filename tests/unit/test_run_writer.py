"""Writing the folder of a run."""

import json
import math
import os
import resource
from pathlib import Path

import numpy as np
import pytest
from recording import COLUMNS, create, row

from explore._storage.episodes_csv import WALL_CLOCK, episode_columns
from explore._storage.run_folder import Run
from explore.errors import RunFailed, UserError


@pytest.fixture(autouse=True)
def working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def everything_in(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*"))


# Creating


def test_a_new_run_has_its_configuration_status_and_an_empty_table_on_disk():
    writer = create("out")
    assert everything_in("out") == [".lock", "config.gin", "episodes.csv", "run.json"]
    assert Path("out/config.gin").read_text() == "experiment.episodes = 3\n"
    assert Path("out/episodes.csv").read_text() == ",".join(COLUMNS) + "\n"
    info = json.loads(Path("out/run.json").read_text())
    assert info == writer.run.info
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
    assert [create().run.folder for _ in range(3)] == [
        Path("runs/pins"),
        Path("runs/pins-2"),
        Path("runs/pins-3"),
    ]


def test_an_empty_folder_may_be_given_and_missing_parents_are_made():
    Path("empty").mkdir()
    assert create("empty").run.folder == Path("empty")
    assert create("a/b/c").run.folder == Path("a/b/c")


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
    writer = create("out")
    writer.add_rows([row(0), row(7)])
    assert Path("out/episodes.csv").read_text().splitlines()[1:] == [
        "0,1,0.5,10,10,,,,,",
        "7,1,0.5,10,10,,,,,",
    ]
    writer.add_rows([row(0, episode=2)])
    assert len(Path("out/episodes.csv").read_text().splitlines()) == 4


def test_cells_are_the_shortest_that_read_back_the_same():
    writer = create("out")
    third, tenth = np.float64(1) / 3, np.float32(0.1)
    values = {"return": third, "mean_loss": tenth, "treasure": np.bool_(True), "length": np.int64(3)}
    writer.add_rows([row(**values, index="z=1, head=2", evaluation=math.nan, seconds=1e-9)])
    assert (
        Path("out/episodes.csv").read_text().splitlines()[1] == '0,1,0.3333333333333333,3,10,"z=1, head=2",0.1,1,,1e-09'
    )
    episodes = writer.run.episodes
    assert episodes["return"][0] == third
    assert np.float32(episodes["mean_loss"][0]) == tenth
    assert episodes["index"].tolist() == ["z=1, head=2"]
    assert np.isnan(episodes["evaluation"]).all()


def test_a_value_for_an_unknown_column_is_an_error():
    with pytest.raises(ValueError, match="losss"):
        create("out").add_rows([row(losss=1.0)])


def test_a_full_disk_fails_the_run_in_one_line_and_keeps_all_complete_rows():
    writer = create("out")
    writer.add_rows([row()])
    before = Path("out/episodes.csv").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5, limits[1]))
    try:
        with pytest.raises(RunFailed, match=r"^cannot write out/episodes.csv: File too large$"):
            writer.add_rows([row(episode=2)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert Path("out/episodes.csv").read_bytes() == before


def test_a_folder_removed_during_the_run_fails_the_run():
    writer = create("out")
    Path("out/episodes.csv").unlink()
    with pytest.raises(RunFailed, match="No such file"):
        writer.add_rows([row()])
    for path in Path("out").iterdir():
        path.unlink()
    Path("out").rmdir()
    with pytest.raises(RunFailed, match=r"^cannot write the summary to out"):
        writer.finish("done", {})


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
