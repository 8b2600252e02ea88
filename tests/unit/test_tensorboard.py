"""What TensorBoard itself reads of a watched run is what `episodes.csv` says, whatever befell the run."""

import importlib.util
import math
import os
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from explore_plugins.tensorboard import TensorBoard
from killing import fork, whole_rows

from explore._cli.main import main
from explore._storage.run_folder import Run
from explore.errors import RunFailed

needs_tensorboard = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="TensorBoard is not installed"
)
WATCHED = "experiment.observers = [@observer.TensorBoard]"
TINY = (
    "experiment.seeds = (0, 3)",
    "experiment.checkpoint_every = 4",
    "experiment.evaluate_every = 3",
    "environment.DeepSea.size = 4",
    "agent.Indexed.min_replay = 10",
    "agent.Indexed.batches_per_episode = 2",
)
TEXTS = ("seed", "episode", "index")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(*bindings, episodes=10, out="out"):
    words = [f"-b{binding}" for binding in (*TINY, f"experiment.episodes = {episodes}", *bindings)]
    return main(["run", "pins_deep_sea", *words, "--out", out, "--quiet"])


def resume(*bindings):
    return main(["run", "--resume", "out", *(f"-b{binding}" for binding in bindings), "--quiet"])


def struck_after(episode, work, sent=signal.SIGKILL):
    """Does the work in a child that gets a signal once the observer has written an episode; returns its exit code."""

    def struck():
        write = TensorBoard.episode_finished

        def write_and_fall(self, run, rows):
            write(self, run, rows)
            if rows[0]["episode"] == episode:
                os.kill(os.getpid(), sent)

        TensorBoard.episode_finished = write_and_fall
        return work()

    _, status = os.waitpid(fork(struck, Path("log")), 0)
    return os.waitstatus_to_exitcode(status)


def read(place, kind):
    """All that TensorBoard has of a kind, as its dashboards get it: `{tag: [(step, value), ...]}`."""
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    found = EventAccumulator(str(place), size_guidance={"tensors": 0}).Reload()
    return {
        tag: [(event.step, make_ndarray(event.tensor_proto).item()) for event in found.Tensors(tag)]
        for tag in found.Tags()["tensors"]
        if found.SummaryMetadata(tag).plugin_data.plugin_name == kind
    }


def curves(place):
    return read(place, "scalars")


def recorded(seed, every=1):
    """The curves that `episodes.csv` holds of a seed."""
    columns = Run.open(Path("out")).episodes
    chosen = (columns["seed"] == seed) & (columns["episode"] % every == 0)
    expected = {}
    for name in columns.keys() - {*TEXTS}:
        tag = f"loss/{name}" if "loss" in name else f"episode/{name}"
        points = zip(columns["episode"][chosen], columns[name][chosen])
        expected[tag] = [(int(step), float(np.float32(value))) for step, value in points if not math.isnan(value)]
    return expected


def shown(seed):
    """The curves of a seed over episodes."""
    return {tag: points for tag, points in curves(f"out/tensorboard/seed_{seed}").items() if "summary/" not in tag}


def configurations(seed=0):
    """Those that are shown, with the step of each."""
    return read(f"out/tensorboard/seed_{seed}", "text").get("config.gin", [])


# What is shown


@needs_tensorboard
def test_every_number_of_episodes_csv_is_a_point_of_its_seeds_curve():
    assert start(WATCHED) == 0
    assert sorted(os.listdir("out/tensorboard")) == ["seed_0", "seed_3"]
    for seed in (0, 3):
        assert shown(seed) == recorded(seed)
    assert {"episode/return", "episode/evaluation", "loss/mean_loss", "loss/uncertainty_loss"} < shown(0).keys()
    assert shown(0)["loss/mean_loss"] != shown(3)["loss/mean_loss"]


@needs_tensorboard
def test_only_numbers_are_shown():
    observer = observing()
    values = {"return": np.float64(0.5), "length": 3, "bad": True, "goal": np.True_, "count": np.int64(7)}
    nothing = {"index": "z=1.5", "loss": None, "uncertainty": math.nan, "evaluation": np.float32("nan")}
    observer.episode_finished(None, [{"seed": 0, "episode": 1, **values, **nothing, "value": -math.inf}])
    assert curves(observer.files[0].parent) == {
        "episode/return": [(1, 0.5)],
        "episode/length": [(1, 3.0)],
        "episode/bad": [(1, 1.0)],
        "episode/goal": [(1, 1.0)],
        "episode/count": [(1, 7.0)],
        "episode/value": [(1, -math.inf)],
    }


@needs_tensorboard
def test_points_may_be_fewer():
    assert start(WATCHED, "observer.TensorBoard.every = 3") == 0
    assert [step for step, _ in shown(0)["episode/return"]] == [3, 6, 9]
    assert shown(0) == recorded(0, every=3)


@needs_tensorboard
def test_the_configuration_is_shown_once_and_as_code():
    assert start(WATCHED) == 0
    [(step, text)] = configurations()
    text = text.decode()
    assert step == 1
    assert [line.removeprefix("    ") for line in text.splitlines()] == Path("out/config.gin").read_text().splitlines()
    assert all(line.startswith("    ") for line in text.splitlines() if line)
    assert configurations(seed=3) == []


@needs_tensorboard
def test_the_end_of_a_run_shows_what_the_judge_says_of_each_seed():
    assert start(WATCHED) == 0
    for seed, said in Run.open(Path("out")).summary["seeds"].items():
        found = curves(f"out/tensorboard/seed_{seed}")
        for name in ("score", "solved_at"):
            expected = [(10, np.float32(said[name]))] if said.get(name) is not None else None
            assert found.get(f"summary/{name}") == expected


@needs_tensorboard
@pytest.mark.parametrize(("status", "points"), [("done", [(1, 5.0)]), ("interrupted", None), ("failed", None)])
def test_a_run_that_is_not_done_is_not_judged(status, points):
    observer, run = observing(), new_run("other")
    observer.episode_finished(run, [{"seed": 0, "episode": 1, "return": 0.0}])
    run.info["status"] = status
    observer.run_finished(run, {"seeds": {"0": {"score": None, "solved_at": 5, "episodes": 1}}})
    found = curves(observer.files[0].parent)
    assert (found.get("summary/solved_at"), found.keys() - {"summary/solved_at"}) == (points, {"episode/return"})


# It changes nothing


@needs_tensorboard
def test_a_run_is_the_same_whoever_watches(capfd):
    assert start(out="alone") == 0
    alone = capfd.readouterr()
    threads, descriptors = threading.enumerate(), os.listdir("/dev/fd")
    assert start(WATCHED) == 0
    assert capfd.readouterr() == alone == ("", "")
    assert threading.enumerate() == threads
    assert len(os.listdir("/dev/fd")) == len(descriptors)
    assert whole_rows(Path("out")) == whole_rows(Path("alone"))


@needs_tensorboard
def test_tensorflow_is_not_asked_for(monkeypatch):
    """It would take seconds, and write to the terminal."""
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    asked = []

    class Finder:
        def find_spec(self, name, path=None, target=None):
            asked.append(name)

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    assert start(WATCHED) == 0
    assert "tensorboard" in asked
    assert [name for name in asked if name.split(".")[0] == "tensorflow"] == []


# A run that goes on


@needs_tensorboard
def test_after_a_kill_every_episode_is_shown_once():
    assert struck_after(7, lambda: start(WATCHED)) == -signal.SIGKILL
    assert [step for step, _ in shown(0)["episode/return"]] == [1, 2, 3, 4, 5, 6, 7]  # all that was
    assert struck_after(6, resume) == -signal.SIGKILL
    assert shown(3)["episode/return"] == recorded(3)["episode/return"]
    assert resume() == 0
    for seed in (0, 3):
        assert shown(seed) == recorded(seed)
    assert [step for step, _ in configurations()] == [1, 5]


@needs_tensorboard
def test_after_an_interruption_every_episode_is_shown_once():
    assert struck_after(7, lambda: start(WATCHED), sent=signal.SIGINT) == 128 + signal.SIGINT
    assert resume() == 0
    for seed in (0, 3):
        assert shown(seed) == recorded(seed)


@needs_tensorboard
def test_what_a_kill_hides_is_not_lost_from_the_files():
    """A TensorBoard that is open all the while reads on: nothing it has read may be changed."""
    assert struck_after(7, lambda: start(WATCHED)) == -signal.SIGKILL
    [first] = Path("out/tensorboard/seed_0").iterdir()
    before = first.read_bytes()
    assert resume() == 0
    assert first.read_bytes() == before
    assert [file.name for file in sorted(first.parent.iterdir())].index(first.name) == 0


@needs_tensorboard
def test_an_event_that_a_power_cut_has_torn_hides_no_other():
    assert struck_after(7, lambda: start(WATCHED)) == -signal.SIGKILL
    [file] = Path("out/tensorboard/seed_0").iterdir()
    os.truncate(file, file.stat().st_size - 5)
    assert resume() == 0
    assert shown(0) == recorded(0)


@needs_tensorboard
def test_a_run_killed_before_its_first_checkpoint_begins_again():
    assert struck_after(1, lambda: start(WATCHED)) == -signal.SIGKILL
    assert resume() == 0
    assert shown(0) == recorded(0)
    assert [step for step, _ in configurations()] == [1]


@needs_tensorboard
def test_a_run_that_was_not_watched_before_gets_its_earlier_episodes():
    assert start(episodes=4) == 0
    assert resume(WATCHED, "experiment.episodes = 10") == 0
    for seed in (0, 3):
        assert shown(seed) == recorded(seed)


@needs_tensorboard
def test_a_longer_run_is_judged_again():
    assert start(WATCHED, episodes=4) == 0
    assert resume("experiment.episodes = 10") == 0
    assert shown(0) == recorded(0)
    assert [step for step, _ in curves("out/tensorboard/seed_0")["summary/score"]] == [4, 10]


# Another folder


@needs_tensorboard
def test_runs_share_a_folder_under_their_names(capsys):
    shared = (WATCHED, "observer.TensorBoard.folder = 'logs'")
    for name in ("one", "other"):
        assert start(*shared, episodes=2, out=name) == 0
        assert not Path(name, "tensorboard").exists()
    assert sorted(map(str, Path("logs").glob("*/*"))) == [
        "logs/one/seed_0", "logs/one/seed_3", "logs/other/seed_0", "logs/other/seed_3",
    ]  # fmt: skip
    before = curves("logs/one/seed_0")
    assert start(*shared, episodes=2, out="elsewhere/one") == 1
    assert "logs/one holds the events of another run" in capsys.readouterr().err
    assert main(["run", "--resume", "elsewhere/one", "--quiet"]) == 1  # nor when it is tried again
    assert curves("logs/one/seed_0") == before


# What goes wrong


def test_a_missing_package_is_told_in_one_line_before_anything_is_written(monkeypatch, capsys):
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert start(WATCHED) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("explore: error: ")
    assert line.endswith("observer.TensorBoard: TensorBoard is not installed: pip install 'explore-rl[tensorboard]'")
    assert os.listdir() == []


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ("every = 0", "every must be at least 1, got 0"),
        ("folder = 'a_file'", "folder must not be a file, got 'a_file'"),
    ],
)
def test_bad_parameters_are_told_in_one_line_before_anything_is_written(capsys, binding, message):
    Path("a_file").touch()
    assert start(WATCHED, f"observer.TensorBoard.{binding}") == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line == f'explore: error: -b "observer.TensorBoard.{binding}": observer.TensorBoard: {message}'
    assert os.listdir() == ["a_file"]


@needs_tensorboard
def test_a_full_disk_ends_the_run_with_the_name_of_the_file():
    observer = observing()
    observer.files[0] = Path("/dev/full")
    with pytest.raises(RunFailed, match="cannot write /dev/full: No space left on device"):
        observer.episode_finished(None, [{"seed": 0, "episode": 1, "return": 0.0}])


def new_run(name):
    """A run of one seed that has just begun, as far as the observer looks at it."""
    Path(name).mkdir()
    Path(name, "config.gin").touch()
    return Run(Path(name), {"seeds": [0], "columns": [], "resumed": [], "status": "running"})


def observing():
    """An observer of a new run."""
    observer = TensorBoard()
    observer.run_started(new_run("run"))
    return observer
