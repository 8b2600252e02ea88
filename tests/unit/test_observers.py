"""The slot `observer`: told of the runs that ask for it, and no part of what they compute."""

import numpy as np
import pytest

import explore
from explore._cli.main import main

TINY = (
    "environment.DeepSea.size = 3", "agent.Indexed.min_replay = 6", "agent.Indexed.batches_per_episode = 1",
    "experiment.episodes = 4", "experiment.checkpoint_every = 2",
)  # fmt: skip
WATCHED = "experiment.observers = [@observer.Diary]"

PLUGIN = """
from explore import hookimpl
from explore.interfaces import Observer

class Diary(Observer):
    def __init__(self, page: str = "diary", fails: str = ""):
        if not page:
            raise ValueError("page must not be empty, got ''")
        self.page, self.fails = page, fails

    def run_started(self, run):
        self.write(run, f"started after {run.resumed_after}")

    def episode_finished(self, run, rows):
        self.write(run, f"episode {[(row['seed'], row['episode']) for row in rows]}")

    def run_finished(self, run, summary):
        self.write(run, f"finished {run.status} {sorted(summary['seeds'])}")

    def write(self, run, line):
        with (run.folder / self.page).open("a") as file:
            print(line, file=file)
        if self.fails and line.startswith(self.fails):
            raise RuntimeError("no ink")

@hookimpl
def explore_observers():
    return [Diary]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "watching.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*bindings, **options):
    given = {"seeds": (0, 5), "plugins": ["watching.py"], "out": "run", "quiet": True} | options
    return explore.run("pins_deep_sea", bindings=[*TINY, *bindings], **given)


def rows(run):
    return {name: column.tolist() for name, column in run.episodes.items() if name != "seconds"}


def test_an_observer_is_told_of_the_run_that_names_it(folder):
    run(WATCHED)
    assert (folder / "run/diary").read_text().splitlines() == [
        "started after 0",
        *(f"episode [(0, {episode}), (5, {episode})]" for episode in (1, 2, 3, 4)),
        "finished done ['0', '5']",
    ]


def test_nobody_watches_a_run_that_names_nobody(folder):
    run()
    assert not (folder / "run/diary").exists()


def test_who_watches_changes_nothing_but_the_configuration():
    watched, alone = run(WATCHED), run(out="alone")
    np.testing.assert_equal(rows(watched), rows(alone))
    assert watched.summary == alone.summary


def test_when_a_run_goes_on_its_observers_may_be_others(folder):
    run()
    more = ["experiment.episodes = 6", WATCHED, "observer.Diary.page = 'more'"]
    explore.run(bindings=more, out="run", resume=True, plugins=["watching.py"], quiet=True)
    told = (folder / "run/more").read_text().splitlines()
    assert told[0] == "started after 4" and told[-1].startswith("finished done") and len(told) == 4


def test_what_is_wrong_with_an_observer_is_said_before_the_folder_is_made(folder, capsys):
    command = ["run", "pins_deep_sea", "-p", "watching.py", "-b", WATCHED, "--out", "run"]
    assert main([*command, "-b", "observer.Diary.page = ''"]) == 2
    assert "page must not be empty" in capsys.readouterr().err
    assert not (folder / "run").exists()


@pytest.mark.parametrize("moment", ["started", "episode", "finished"])
def test_an_observer_that_fails_ends_the_run_and_is_named(capsys, moment):
    command = ["run", "pins_deep_sea", "-p", "watching.py", "--out", "run", "--quiet"]
    bindings = [*TINY, WATCHED, f"observer.Diary.fails = '{moment}'"]
    assert main([*command, *(word for binding in bindings for word in ("-b", binding))]) == 1
    error = capsys.readouterr().err
    assert error.startswith(
        "explore: error: observer.Diary of plugin watching raises RuntimeError: no ink (watching.py"
    )
    assert error.count("\n") == 1


def test_an_agent_is_loaded_without_observers(folder):
    run(WATCHED)
    source = PLUGIN.replace("if not page:", "if True:")
    (folder / "watching.py").write_text(source)
    assert explore.load_agent("run", plugins=["watching.py"]).steps == [12, 12]
