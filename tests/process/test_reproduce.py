"""`explore reproduce`: experiments of the paper and of others run, stop, go on, grow by seeds, and are drawn."""

import csv
import re
import signal
import textwrap
from pathlib import Path

import pytest
from explore_plugins import local_launcher
from forking import ForkedCommand, run_in_fork
from sweeping import write_plugin

from explore._cli.main import main
from explore._storage.run_folder import Run
from explore.experiments import Experiment

MINE = """
    from pathlib import Path

    from explore import hookimpl
    from explore.experiments import Experiment, Grid


    def draw_returns(data):
        from explore import reports

        figure, axes = reports.panels(data.settings, 2.0)
        for panel, setting in zip(axes, data.settings):
            for result, curve in data.curves(setting):
                reports.draw_line(panel, curve.values, data.place(result))
        rows = [[result.setting, result.method, str(len(result.seeds))] for result in data.results]
        picture = reports.Picture(figure, f"Returns, {reports.describe_seeds(data.results)}.")
        return reports.Section("Two seas", [], [["setting", "method", "seeds"], *rows], [picture])


    @hookimpl
    def explore_experiments():
        own = str(Path(__file__).with_name("own_recipe.gin"))
        grid = Grid([own], ["environment.DeepSea.size = [4, 5]"])
        return [Experiment("two-seas", "Seas are deep.", {"sizes": grid}, draw_returns, 0.01, {"own_recipe": "ours"})]
"""
RECIPE = """
    # A recipe of a third party's paper.
    include 'pins_deep_sea.gin'

    experiment.episodes = 6
    agent.Indexed.min_replay = 4
    agent.Indexed.batches_per_episode = 2
    value.MLP.hidden = (16,)
"""
STOP = """

    @hookimpl
    def explore_episode_finished(run, rows):
        import os
        import signal

        if run.folder.name == "size=4" and rows[0]["episode"] == 3 and not run.resumed_after:
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            os.kill(os.getppid(), signal.SIGTERM)
            signal.sigwait([signal.SIGTERM])
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            os.kill(os.getpid(), signal.SIGTERM)
"""
PAPER = ["-p", "their/paper.py", "--quiet", "--jobs", "1"]
OWN = Path("reproduce/two-seas")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working folder with the paper of a third party; cells run in forks of this process, which is quicker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local_launcher, "Popen", ForkedCommand)
    Path("their").mkdir()
    write_plugin("their/paper.py", MINE)
    write_plugin("their/own_recipe.gin", RECIPE)
    return tmp_path


def table(path):
    return list(csv.reader((path / "table.csv").read_text().splitlines()))


def episodes(path):
    """The rows of each run, without the times."""
    return {
        file.parent.relative_to(path): [line.rpartition(",")[0] for line in file.read_text().splitlines()]
        for file in sorted(path.rglob("episodes.csv"))
    }


def test_the_list_says_what_there_is_how_long_it_takes_and_what_is_done(capsys):
    assert main(["reproduce", *PAPER, "two-seas", "--seeds", "0-1"]) == 0
    capsys.readouterr()
    assert main(["reproduce", "-p", "their/paper.py"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert re.split(r"\s{2,}", header.strip()) == ["experiment", "core-hours", "state", "what it is to show"]
    found = {line.split()[0]: re.split(r"\s{2,}", line.strip())[1:] for line in lines}
    assert found["two-seas"] == ["0.01", "seeds 0-1: done", "Seas are deep."]
    assert found["deep-sea"][1] == "not begun"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["deep-se"], "there is no experiment 'deep-se'; did you mean 'deep-sea'?"),
        (["nothing"], "there is no experiment 'nothing'; there are: action-selection, cartpole, cost, deep-sea, "),
        (["deep-sea", "--scale", "0"], "--scale must be a number above 0 and at most 1, got '0'"),
        (["deep-sea", "--scale", "much"], "--scale must be a number above 0 and at most 1, got 'much'"),
        (["deep-sea", "--seeds", "4-0"], "--seeds '4-0': the range '4-0' is empty"),
        (["deep-sea", "--launcher", "roy"], "--launcher roy: there is no such launcher; did you mean 'ray'?"),
        (["-p", "paper.py"], "plugin paper.py: there is no such file"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(folder, capsys, words, complaint):
    assert main(["reproduce", *words, "--quiet"]) == 2
    told = capsys.readouterr()
    assert told.err.startswith(f"explore: error: {complaint}")
    assert told.err.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["their"]


def test_an_experiment_of_a_third_party_becomes_a_page_with_figure_and_table(capsys):
    assert main(["reproduce", *PAPER, "two-seas", "--seeds", "0-1"]) == 0
    assert capsys.readouterr().out == "reproduce/two-seas/README.md\n"
    assert {path.name for path in OWN.iterdir()} == {"README.md", "figure-1.svg", "figures.png", "runs", "table.csv"}
    assert table(OWN)[1:] == [["DeepSea, size = 4", "ours", "2"], ["DeepSea, size = 5", "ours", "2"]]
    page = (OWN / "README.md").read_text()
    assert page.startswith("# Two seas\n\nClaim: Seas are deep.\n")
    assert "| DeepSea, size = 4 | ours | 2 |" in page
    assert "explore reproduce two-seas --seeds 0-1 --jobs 1 -p their/paper.py" in page
    assert (OWN / "figure-1.svg").read_text().startswith('<svg xmlns="http://www.w3.org/2000/svg" ')


def test_more_seeds_are_added_and_those_that_are_done_are_not_run_again():
    assert main(["reproduce", *PAPER, "two-seas", "--seeds", "0-1"]) == 0
    before = {path: path.stat().st_mtime_ns for path in OWN.rglob("episodes.csv")}
    page = (OWN / "README.md").read_text()
    assert main(["reproduce", *PAPER, "two-seas", "--seeds", "0-1"]) == 0
    assert (OWN / "README.md").read_text() == page
    assert main(["reproduce", *PAPER, "two-seas", "--seeds", "0-3"]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in before}
    assert sorted(path.name for path in (OWN / "runs").iterdir()) == ["seeds=0-1", "seeds=2-3"]
    assert [row[-1] for row in table(OWN)[1:]] == ["4", "4"]


def test_a_stopped_experiment_says_how_to_go_on_and_comes_to_the_same_end(folder):
    assert main(["reproduce", *PAPER, "two-seas", "--seeds", "0-1", "--out", "whole"]) == 0
    write_plugin("their/paper.py", MINE + STOP)
    stopped = run_in_fork("reproduce", *PAPER, "two-seas", "--seeds", "0-1")
    assert stopped.returncode == 128 + signal.SIGTERM
    again = "explore reproduce two-seas --seeds 0-1 --jobs 1 -p their/paper.py"
    assert f"interrupted: sizes: 0 of 2 cells are done; to resume: {again}\n" in stopped.stderr
    assert not (OWN / "README.md").exists()
    assert Run.open(OWN / "runs/seeds=0-1/sizes/size=4").status == "interrupted"
    assert main(["reproduce", *PAPER, "two-seas", "--seeds", "0-1"]) == 0
    assert episodes(OWN) == episodes(folder / "whole/two-seas")


def test_a_cell_that_fails_is_named_and_the_others_are_drawn(capsys):
    broken = """

    @hookimpl
    def explore_episode_finished(run, rows):
        if run.folder.name == "size=4":
            raise ValueError("not today")
    """
    write_plugin("their/paper.py", MINE + broken)
    assert main(["reproduce", *PAPER, "two-seas", "--seeds", "0-1"]) == 3
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("explore: error: sizes: 1 of 2 cells failed, 1 are done; reproduce/two-seas/README.md shows")
    assert table(OWN)[1:] == [["DeepSea", "ours", "2"]]


def test_a_figure_that_cannot_be_drawn_is_blamed_on_its_plugin(capsys):
    write_plugin("their/paper.py", MINE.replace("return reports.Section(", "return reports.Sections("))
    assert main(["reproduce", *PAPER, "two-seas", "--seeds", "0"]) == 1
    assert "AttributeError: module 'explore.reports' has no attribute 'Sections'" in capsys.readouterr().err


def test_a_sketch_is_shorter_and_says_that_it_is_one():
    assert main(["reproduce", *PAPER, "two-seas", "--seeds", "0", "--scale", "0.5"]) == 0
    sketch = Path("reproduce/two-seas-sketch-0.5")
    assert (
        "**A sketch, which shows nothing of the claim**: experiment.episodes × 0.5."
        in (sketch / "README.md").read_text()
    )
    assert {len(rows) for rows in episodes(sketch).values()} == {1 + 3}
    assert not OWN.exists()


def test_the_example_in_the_docstring_is_a_plugin(capsys):
    Path("small.py").write_text(textwrap.dedent(Experiment.__doc__.split("Example:\n")[1]))
    words = ["small-seas", "-p", "small.py", "--scale", "0.001", "--seeds", "0-1", "--quiet"]
    assert main(["reproduce", *words]) == 0
    methods = [row[0] for row in table(Path("reproduce/small-seas-sketch-0.001"))]
    assert methods == ["method", "PINs", "DQN"]


def test_the_deep_sea_of_the_paper_is_drawn_from_a_sketch():
    words = ["deep-sea", "--scale", "0.001", "--seeds", "0-1", "--quiet"]
    assert main(["reproduce", *words]) == 0
    folder = Path("reproduce/deep-sea-sketch-0.001")
    rows = table(folder)
    assert [row[1] for row in rows[1:6]] == ["PINs", "BSP_5", "BSP_7", "BSP_10", "BS_10"]
    assert [row[0] for row in rows[1::5]] == [f"DeepSea, size = {size}" for size in (15, 20, 25, 30)]
    assert {row[2] for row in rows[1:]} == {"2"}
    assert {path.name for path in folder.glob("*.svg")} == {"figure-1.svg", "figure-2.svg", "figure-3.svg"}


@pytest.mark.parametrize(
    ("name", "scale", "rows", "first"),
    [
        ("cartpole", "0.001", 10, ["CartpoleSwingup, x_dot_threshold = 1.0", "PINs", "2"]),
        ("action-selection", "0.001", 10, ["DeepSea, size = 20", "ā: by the mean", "2"]),
        ("regret", "0.01", 28 + 3 * 4, ["RandomMDP, states = 5, actions = 3, horizon = 10", "WTD", "2"]),
        ("cost", "0.02", 8, ["DeepSea", "PINs"]),
        ("open-choices", "0.001", 12, ["as written", "2"]),
    ],
)
def test_the_other_experiments_of_the_paper_are_drawn_from_sketches(name, scale, rows, first):
    assert main(["reproduce", name, "--scale", scale, "--seeds", "0-1", "--quiet"]) == 0
    _, *found = table(Path(f"reproduce/{name}-sketch-{scale}"))
    assert len(found) == rows
    assert found[0][: len(first)] == first
